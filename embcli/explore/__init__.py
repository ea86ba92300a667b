"""The full screen: a textual app whose screens are the matrix, find, a row, a pair of rows, and the keys."""

import os

os.environ.setdefault("TEXTUAL_FPS", "120")  # at textual's 60, a key waits 17 ms for its screen
