"""What an audit says of a GGUF file, held against llama.cpp: it loads complete models of one layer.

llama.cpp's log names the cause, or the IDs of a text show it where it loads a file silently.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import embcli
from embcli.encodings.splitting import splittings
from embcli.verbs.audit import Audit
from tests.families.ggufs import FAULTS, HEALTHY, REFUSED, SILENT, WARNED, of_letters, write

TEXT = "the cat\n"
# What llama.cpp warns of where a vocabulary is wrong; other lines are about any small model.
WARNINGS = ("missing pre-tokenizer", "bad special token", "was not control-type")


class Loads:
    """Files, what llama.cpp makes of them, and their audits."""

    def __init__(self, folder: Path) -> None:
        self.paths = {name: folder / f"{number}.gguf" for number, name in enumerate(NAMES)}
        requests = []
        for name, path in self.paths.items():
            if name in FAULTS:
                write(path, FAULTS[name].vocabulary(), FAULTS[name].rows)
            elif name in HEALTHY:
                write(path, HEALTHY[name])
            else:
                write(path, of_letters("gpt2", name))
            requests.append({"path": str(path), "texts": [TEXT, *TEXTS]})
        lines = "\n".join(map(json.dumps, requests))
        command = [sys.executable, "-m", "tests.families.llama_cpp"]
        answers = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
        self.answers = dict(
            zip(self.paths, map(json.loads, answers.stdout.splitlines()), strict=True)
        )

    def audit(self, name: str) -> Audit:
        return embcli.open(self.paths[name]).audit()

    def ids(self, name: str, text: str) -> Any:
        return self.answers[name]["ids"][1 + TEXTS.index(text)]


NAMES = [*HEALTHY, *FAULTS, *splittings()]
TEXTS = sorted({fault.text for fault in FAULTS.values()} - {""})


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> Loads:
    return Loads(tmp_path_factory.mktemp("gguf"))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_vocabulary_is_sound(name, loads):
    answer = loads.answers[name]
    assert not answer["refuses"], answer["log"]
    assert not [warning for warning in WARNINGS if warning in answer["log"]]
    assert {finding.kind for finding in loads.audit(name).findings} <= {"not-checked"}
    assert loads.audit(name).is_sound


def refusals(audit: Audit) -> list[str]:
    """Return the alarms about what llama.cpp refuses."""
    alarms = []
    for finding in audit.findings:
        if (finding.level, finding.kind, finding.rows) == ("alarm", "load", 1):
            alarms.append(finding.text)
    return alarms


@pytest.mark.parametrize("name", REFUSED)
def test_what_llama_cpp_refuses_is_an_alarm(name, loads):
    answer = loads.answers[name]
    assert answer["refuses"]
    assert REFUSED[name].cause in answer["log"]
    assert re.search(REFUSED[name].word, "\n".join(refusals(loads.audit(name))))


@pytest.mark.parametrize("name", [*WARNED, *SILENT])
def test_what_llama_cpp_loads_is_a_finding(name, loads):
    fault = FAULTS[name]
    answer = loads.answers[name]
    assert not answer["refuses"]
    assert fault.cause in answer["log"]
    if fault.text:
        assert loads.ids(name, fault.text) != loads.ids(fault.base, fault.text)

    audit = loads.audit(name)
    assert refusals(audit) == []
    assert not audit.is_sound
    assert audit.broken == ()
    assert set(audit.kinds("finding")) <= {"load", "fit", "special-ids", "template"}
    assert re.search(fault.word, "\n".join(finding.text for finding in audit.findings), re.M)


@pytest.mark.parametrize("name", splittings())
def test_llama_cpp_knows_the_pre_tokenizers(name, loads):
    assert not loads.answers[name]["refuses"]
    assert refusals(loads.audit(name)) == []
