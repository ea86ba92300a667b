"""What a user would write in place of embcli, with torch, tiktoken and numpy.

`plain.py NAME ARGUMENT...` runs one.
"""

import sys


def lookup(name, dim, text):
    """Print the three matrices of a short text."""
    import tiktoken
    import torch

    encoding = tiktoken.get_encoding(name)
    ids = torch.tensor(encoding.encode(text))
    torch.manual_seed(123)
    token_layer = torch.nn.Embedding(encoding.n_vocab, int(dim))
    position_layer = torch.nn.Embedding(1024, int(dim))
    with torch.no_grad():
        token, position = token_layer(ids), position_layer(torch.arange(len(ids)))
        print(token, position, token + position, sep="\n")


def weights(vocabulary_size, dim):
    """Print a weight matrix, and what it is like as a whole."""
    import torch

    torch.manual_seed(123)
    weight = torch.nn.Embedding(int(vocabulary_size), int(dim)).weight.detach()
    print(weight)
    print(weight.shape, weight.numel(), weight.mean(), weight.std(), weight.min(), weight.max())


def compare():
    """Print the outputs of both layers with one weight."""
    import torch

    ids = torch.tensor([2, 3, 1])
    torch.manual_seed(123)
    embedding = torch.nn.Embedding(4, 5)
    torch.manual_seed(123)
    linear = torch.nn.Linear(4, 5, bias=False)
    linear.weight = torch.nn.Parameter(embedding.weight.T.detach())
    print(embedding(ids), linear(torch.nn.functional.one_hot(ids, 4).float()), sep="\n")


def layers(source, dim, context_length):
    """Return the IDs of a text and both layers."""
    import tiktoken
    import torch

    encoding = tiktoken.get_encoding("r50k_base")
    with open(source, encoding="utf-8", newline="") as file:
        ids = encoding.encode_ordinary(file.read())
    torch.manual_seed(123)
    token = torch.nn.Embedding(encoding.n_vocab, dim)
    position = torch.nn.Embedding(context_length, dim)
    return ids, token, position, encoding


def npy(source, target):
    """Write the input embeddings of a text as .npy, in windows of 1,024 tokens."""
    import numpy as np

    ids, token, position, _ = layers(source, 256, 1024)
    token_rows = token.weight.detach().numpy()[ids]
    position_rows = position.weight.detach().numpy()[np.arange(len(ids)) % 1024]
    np.save(target, token_rows + position_rows)


def ndjson(source, _):
    """Print an object for each token of a text, with its input embedding."""
    import json

    import torch

    ids, token, position, encoding = layers(source, 256, 1024)
    with torch.no_grad():
        for start in range(0, len(ids), 1024):
            window = torch.tensor(ids[start : start + 1024])
            rows = (token(window) + position(torch.arange(len(window)))).tolist()
            for place, row in enumerate(rows):
                token_id = ids[start + place]
                text = encoding.decode([token_id])
                token_row = {"position": place, "id": token_id, "token": text, "input": row}
                print(json.dumps(token_row))


def batches(source, target):
    """Write the input embeddings of all batches of a text as .npy, by a data loader."""
    import numpy as np
    import torch
    from torch.utils.data import DataLoader

    ids, token, position, _ = layers(source, 256, 4)
    samples = []
    for start in range(0, len(ids) - 4, 4):
        inputs = torch.tensor(ids[start : start + 4])
        targets = torch.tensor(ids[start + 1 : start + 5])
        samples.append((inputs, targets))
    with torch.no_grad():
        loader = DataLoader(samples, batch_size=8, drop_last=True)
        rows = [token(inputs) + position(torch.arange(4)) for inputs, _ in loader]
    np.save(target, torch.cat(rows).numpy())


def neighbors(path, metric):
    """Print the rows nearest to row 5."""
    import torch
    from safetensors.torch import load_file

    [stored] = load_file(path).values()
    rows = stored.float()
    query = rows[5]
    if metric == "cosine":
        scores = torch.nn.functional.cosine_similarity(rows, query, dim=1)
    elif metric == "dot":
        scores = rows @ query
    else:
        scores = -torch.linalg.vector_norm(rows - query, dim=1)
    print(scores.topk(11))


def diff(base, tuned):
    """Print which rows differ, and the cosine of each with the one before."""
    import torch
    from safetensors.torch import load_file

    [before] = load_file(base).values()
    [after] = load_file(tuned).values()
    changed = (before != after).any(dim=1).nonzero().flatten()
    cosine = torch.nn.functional.cosine_similarity
    print(changed, cosine(before[changed].float(), after[changed].float()))


def help():
    """Answer for a Typer app of as many commands as embcli has, with nothing in them."""
    import typer

    app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
    for number in range(16):
        app.command(f"command-{number}")(lambda: None)
    app(sys.argv[2:], prog_name="plain")


if __name__ == "__main__":
    function = globals()[sys.argv[1]]
    function(*sys.argv[2:] if function is not help else ())
