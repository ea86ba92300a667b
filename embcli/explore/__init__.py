"""The full screen: views over the library's results, through which keys lead.

`view` says what a screen is, and one file each has the screens: `matrix`, `row`, `pair`, `whole`, `chapter`, `find`.
`desk` holds what they share; `jobs` runs passes in the background. These know no textual: `app` shows the desk on a
terminal, with `paint` and `terminal`.
"""

import os

os.environ.setdefault("TEXTUAL_FPS", "120")  # screens per second: at textual's 60, a key waits 17 ms for its own
