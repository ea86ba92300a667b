"""The data of an audit are its findings, or the values of the rows that were asked for."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet
from safetensors.numpy import save_file

import embcli
from tests.files.made import matrix
from tests.runners import InProcess

SIZE = 12


@pytest.fixture(autouse=True)
def _a_model_with_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = matrix(SIZE, 4)
    save_file({"wte.weight": rows}, "sound.safetensors")
    rows[2] = 0
    rows[3] = np.nan
    rows[6] = rows[5]
    save_file({"wte.weight": rows}, "model.safetensors")


def data_of(in_process: InProcess, *words: str) -> Any:
    ran = in_process("audit", "model.safetensors", *words)
    assert ran.status == 1
    return ran.text


def test_a_table_has_a_row_for_each_finding(in_process):
    table = list(csv.DictReader(io.StringIO(data_of(in_process, "-f", "csv"))))

    findings = embcli.open("model.safetensors").audit().findings
    for row, finding in zip(table, findings, strict=True):
        written = {name: str(value) for name, value in finding.document().items()}
        assert row == written | {"layer": finding.layer or ""}
    assert list(table[0]) == ["level", "kind", "rows", "layer", "ids", "text"]
    levels = {row["kind"]: row["level"] for row in table}
    assert levels == {
        "non-finite": "alarm",
        "zero": "alarm",
        "equal": "remark",
        "fit": "remark",
        "not-asked": "remark",
        "not-checked": "remark",
    }


def test_parquet_has_the_ids_of_each_finding(in_process):
    data_of(in_process, "-o", "findings.parquet")

    rows = parquet.read_table("findings.parquet").to_pylist()
    findings = embcli.open("model.safetensors").audit().findings
    assert rows == [finding.document() for finding in findings]
