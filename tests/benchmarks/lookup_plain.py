"""The three matrices of a short text: the plain way. Arguments: encoding, D, text."""

import sys

import tiktoken
import torch

name, dim, text = sys.argv[1:]
encoding = tiktoken.get_encoding(name)
ids = torch.tensor(encoding.encode(text))

torch.manual_seed(123)
token_layer = torch.nn.Embedding(encoding.n_vocab, int(dim))
position_layer = torch.nn.Embedding(1024, int(dim))

with torch.no_grad():
    token = token_layer(ids)
    position = position_layer(torch.arange(len(ids)))
    print(token)
    print(position)
    print(token + position)
