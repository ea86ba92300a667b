"""Files that hold tensors by name."""
