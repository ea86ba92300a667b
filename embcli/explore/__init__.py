"""The full screen: a textual app whose screens show a matrix, a search, or a row.

`embcli explore` opens it. Nothing else imports it, so that textual is needed only there.
"""

import os

os.environ.setdefault("TEXTUAL_FPS", "120")  # at textual's 60, a key waits 17 ms for its screen
