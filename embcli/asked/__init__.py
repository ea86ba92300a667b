"""transformers is asked what it makes of files: it defines their tokenizers, classes and ties.

It is never imported here, but by `child`, a process of its own. `process` asks it, and `folder`
keeps what it says of a folder's tokenizer.
"""
