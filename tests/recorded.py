"""What transformers said of small folders, and what says it in its place.

`recorded.json` has the answers of transformers 5.23 for the folders that `write_folder` writes, as
`embcli.asked.child` gave them. tests/families asks transformers itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from embcli.asked.process import RefusedError

Facts = dict[str, Any]

ANSWERS: dict[str, Facts] = json.loads(Path(__file__).with_name("recorded.json").read_text("utf-8"))
FOLDERS = {
    "bert": {
        "config.json": '{"model_type": "bert"}',
        "tokenizer_config.json": json.dumps(
            {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": False,
                "cls_token": "[CLS]",
                "sep_token": "[SEP]",
            }
        ),
        "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nThe\n##s\ncat\n",
    },
    "byt5": {
        "config.json": '{"model_type": "t5"}',
        "tokenizer_config.json": json.dumps(
            {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 0, "eos_token": "</s>"}
        ),
    },
}


def write_folder(name: str) -> None:
    """Write the files of a folder into the current one."""
    Path(name).mkdir()
    for file, content in FOLDERS[name].items():
        Path(name, file).write_text(content)


class Recorded:
    """Answers in place of transformers, by the name of the folder, and remembers the questions.

    `answers` has what to answer by what a question is about: facts, an error to raise, or a
    function of the question.
    """

    def __init__(self) -> None:
        self.questions: list[Facts] = []
        self.answers: dict[str, Facts | Exception | Callable[..., Facts]] = {
            "tokenizer": lambda folder: ANSWERS[Path(folder).name]
        }

    def __call__(self, about: str, **question: Any) -> Facts:
        self.questions.append({"about": about, **question})
        answer = self.answers[about]
        if isinstance(answer, Exception):
            raise answer
        return answer(**question) if callable(answer) else answer

    def answer(self, about: str, **question: Any) -> Facts:
        """Answer as `process.answer` does, which raises no refusal."""
        try:
            return {"facts": self(about, **question)}
        except RefusedError as error:
            return {"refused": str(error)}


def install(monkeypatch: pytest.MonkeyPatch, python: tuple[int, int] = (3, 11)) -> None:
    """Let transformers count as installed and as to be asked, whether it is there or not."""
    monkeypatch.delenv("EMBCLI_ASK", raising=False)
    module = ModuleType("transformers")
    module.__spec__ = ModuleSpec("transformers", None)
    monkeypatch.setitem(sys.modules, "transformers", module)
    like = SimpleNamespace(version_info=python, executable=sys.executable, path=sys.path)
    monkeypatch.setattr("embcli.asked.process.sys", like)


def put_in_place(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Let recorded answers take the place of transformers."""
    install(monkeypatch)
    recorded = Recorded()
    monkeypatch.setattr("embcli.asked.kept.answer", recorded.answer)
    monkeypatch.setattr("embcli.encodings.asked.ask", recorded)
    return recorded
