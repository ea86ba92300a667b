"""Files of checkpoints: made by the libraries of their formats, and read back bit for bit."""
