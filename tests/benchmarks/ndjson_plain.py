"""A text file to input embeddings, a JSON object a token, windows of 1,024 tokens: the plain way."""

import json
import sys

import tiktoken
import torch

(source,) = sys.argv[1:]
encoding = tiktoken.get_encoding("r50k_base")
with open(source, encoding="utf-8", newline="") as file:
    ids = torch.tensor(encoding.encode_ordinary(file.read()))

torch.manual_seed(123)
token = torch.nn.Embedding(encoding.n_vocab, 256)
position = torch.nn.Embedding(1024, 256)

with torch.no_grad():
    for start in range(0, len(ids), 1024):
        window = ids[start : start + 1024]
        places = torch.arange(len(window))
        rows = (token(window) + position(places)).tolist()
        for place, (token_id, row) in enumerate(zip(window.tolist(), rows, strict=True)):
            text = encoding.decode([token_id])
            print(json.dumps({"position": place, "id": token_id, "token": text, "input": row}))
