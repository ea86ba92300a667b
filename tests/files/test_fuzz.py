"""Damaged files of every format end in rows or in a sentence.

`python -m tests.fuzz` goes on for longer.
"""

from __future__ import annotations

import re

from embcli.files import _FORMATS
from tests.fuzz import fuzz, seeds


def test_each_format_has_a_file_that_is_damaged():
    starts = [seed.whole(seed.part)[: 1 << 16] for seed in seeds()]
    for form in _FORMATS:
        assert any(re.match(form.start, start, re.DOTALL) for start in starts), form.name


def test_damaged_files_end_in_rows_or_in_a_sentence(tmp_path, capfd):
    done = fuzz(1050, 1, tmp_path)
    accepted, refused = zip(*done.values(), strict=True)
    assert min(refused) > 0
    assert sum(accepted) > 200
    # The packages below write to standard error past Python.
    assert capfd.readouterr().err == ""
