"""A text file to the input embeddings of all its batches in a .npy file, as the chapter makes them: the plain way."""

import sys

import numpy as np
import tiktoken
import torch
from torch.utils.data import DataLoader, Dataset

LENGTH = STRIDE = 4


class Samples(Dataset):
    """Inputs and targets, a window each stride."""

    def __init__(self, ids: list[int]) -> None:
        starts = range(0, len(ids) - LENGTH, STRIDE)
        self.inputs = [torch.tensor(ids[start : start + LENGTH]) for start in starts]
        self.targets = [torch.tensor(ids[start + 1 : start + LENGTH + 1]) for start in starts]

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[place], self.targets[place]


source, target = sys.argv[1:]
encoding = tiktoken.get_encoding("r50k_base")
with open(source, encoding="utf-8", newline="") as file:
    loader = DataLoader(Samples(encoding.encode_ordinary(file.read())), batch_size=8, drop_last=True)

torch.manual_seed(123)
token = torch.nn.Embedding(encoding.n_vocab, 256)
iterator = iter(loader)
inputs = [next(iterator)[0]]
position = torch.nn.Embedding(LENGTH, 256)
inputs += [each for each, _ in iterator]
with torch.no_grad():
    batches = [token(each) + position(torch.arange(LENGTH)) for each in inputs]
np.save(target, torch.cat(batches).numpy())
