"""A text file to input embeddings in a .npy file, windows of 1,024 tokens: the plain way."""

import sys

import numpy as np
import tiktoken
import torch

source, target = sys.argv[1:]
encoding = tiktoken.get_encoding("r50k_base")
with open(source, encoding="utf-8", newline="") as file:
    ids = np.array(encoding.encode_ordinary(file.read()))

torch.manual_seed(123)
token = torch.nn.Embedding(encoding.n_vocab, 256).weight.detach().numpy()
position = torch.nn.Embedding(1024, 256).weight.detach().numpy()

np.save(target, token[ids] + position[np.arange(len(ids)) % 1024])
