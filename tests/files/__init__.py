"""Files of checkpoints: made here by the libraries whose formats they are, and read back bit for bit."""
