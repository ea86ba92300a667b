"""What a user would write instead of `embcli compare`: both layers with one weight, and both outputs."""

import torch

ids = torch.tensor([2, 3, 1])
vocabulary_size, dim = int(ids.max()) + 1, 5

torch.manual_seed(123)
embedding = torch.nn.Embedding(vocabulary_size, dim)
torch.manual_seed(123)
linear = torch.nn.Linear(vocabulary_size, dim, bias=False)
linear.weight = torch.nn.Parameter(embedding.weight.T.detach())

print(embedding(ids))
print(linear(torch.nn.functional.one_hot(ids, vocabulary_size).float()))
