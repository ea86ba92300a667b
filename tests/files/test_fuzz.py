"""Damaged files of every format end in rows or in a sentence.

`python -m tests.fuzz` goes on for longer.
"""

from __future__ import annotations

from tests.fuzz import fuzz


def test_damaged_files_end_in_rows_or_in_a_sentence(tmp_path, capfd):
    done = fuzz(1050, 1, tmp_path)
    accepted, refused = zip(*done.values(), strict=True)
    assert min(refused) > 0
    assert sum(accepted) > 200
    # The packages below write to standard error past Python.
    assert capfd.readouterr().err == ""
