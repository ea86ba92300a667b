"""Draw the README's pictures anew."""

from __future__ import annotations

from tests.pictures import FOLDER, PICTURES, drawn

for name in PICTURES:
    (FOLDER / f"{name}.svg").write_bytes(drawn(name))
