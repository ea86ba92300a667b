"""What the first block of a real model reads, family by family, bit for bit against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

import embcli
from tests.oracles import assert_same_bits

pytest.importorskip("transformers")

from tests.families.models import MODELS, read_by_first_blocks, saved

pytestmark = pytest.mark.filterwarnings("ignore")

PLAIN, WITH_PADDING = [5, 9, 17, 9, 40, 77, 3, 8], [5, 1, 9, 1, 2, 8, 1, 6]


@pytest.mark.parametrize("name", MODELS)
def test_hidden_is_what_the_first_block_reads(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    for ids in (PLAIN, WITH_PADDING):
        read = read_by_first_blocks(model, ids)
        assert read
        for part, rows in read.items():
            found = embcli.open(tmp_path, part=part).lookup(ids, show="hidden")
            assert_same_bits(found.hidden, rows)
