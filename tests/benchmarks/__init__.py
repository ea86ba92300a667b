"""How fast embcli is, held against plain scripts."""

import os

# An installed package has its bytecode. A checkout gets it from the first run, unless Python is
# told not to write any.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
