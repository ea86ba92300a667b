"""GGUF files, except the rows of their tensors: the header, and the vocabulary in it.

`embcli.files.gguf` reads the rows.
"""
