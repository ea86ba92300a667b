"""A path or the name of a model -> the file to read.

`local` looks in folders of this machine, and `remote` reads models of the hub over the network.
"""
