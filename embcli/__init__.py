"""Show, in a terminal or a pipeline, what an embedding layer does."""

__version__ = "0.1.0"
