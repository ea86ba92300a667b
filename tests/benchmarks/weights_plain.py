"""A weight matrix and what it is like as a whole: the plain way. Arguments: V, D."""

import sys

import torch

vocabulary_size, dim = map(int, sys.argv[1:])
torch.manual_seed(123)
weight = torch.nn.Embedding(vocabulary_size, dim).weight.detach()
print(weight)
print(weight.shape, weight.numel(), weight.mean(), weight.std(), weight.min(), weight.max())
