"""The process that is asked: it answers, or a sentence says why not, and it outlives nobody.

Scripts stand in for it where it misbehaves, and modules stand in for transformers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import pytest

from embcli.asked import child, process
from embcli.asked.process import NotAskedError, RefusedError, ask, why_not
from tests import recorded
from tests.cases import cases, data
from tests.runners import TIMEOUT

# What a script begins with; `start` counts the processes that were started.
BEGINNING = """
import json, os, sys, time
from pathlib import Path
folders = json.loads(sys.stdin.readline())
started = Path(__file__).with_name("started")
start = len(started.read_text()) if started.exists() else 0
started.write_text("x" * (start + 1))

def answer(**facts):
    print(json.dumps({"facts": facts}), flush=True)

def questions():
    for line in sys.stdin:
        yield json.loads(line)
"""
ECHO = """
for question in questions():
    answer(start=start, question=question)
"""


@pytest.fixture(autouse=True)
def _asking(monkeypatch: pytest.MonkeyPatch, _environment: None) -> Iterator[None]:
    """Let transformers count as installed, and end the process that a test has started."""
    recorded.install(monkeypatch)
    monkeypatch.setattr(process._Child, "_last", None)
    yield
    last = process._Child._last
    if last is not None:
        last.end()


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what puts a script in the place of the process that is asked."""
    folder = tmp_path / "asked"
    folder.mkdir()
    monkeypatch.setattr(process, "__file__", str(folder / "process.py"))

    def write(script: str) -> None:
        (folder / "child.py").write_text(BEGINNING + script)

    return write


def started() -> int:
    """Return how many processes were started."""
    return len(Path(process.__file__).with_name("started").read_text())


def last() -> subprocess.Popen[bytes]:
    child = process._Child._last
    assert child is not None
    return child._process


def failure(about: str = "tokenizer") -> str:
    """Return why a question has no answer."""
    with pytest.raises(NotAskedError) as caught:
        ask(about, folder="m")
    return str(caught.value)


# --- questions and answers ------------------------------------------------------------------------


def test_each_thread_gets_its_own_answer(stand_in):
    stand_in(ECHO)

    def numbered(number: int) -> int:
        answer = ask("ids", text=str(number))
        return int(answer["question"]["text"])

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(numbered, range(100))] == [*range(100)]
    assert started() == 1


def test_what_an_answer_says_becomes_an_error(stand_in):
    stand_in("""
for question in questions():
    print(json.dumps({question["about"]: "the reason"}), flush=True)
""")

    assert failure("not_asked") == "the reason"
    with pytest.raises(RefusedError, match="the reason"):
        ask("refused")


# --- a process that misbehaves --------------------------------------------------------------------


@cases
def test_a_process_that_misbehaves_is_ended_and_the_next_question_starts_another(
    stand_in, monkeypatch, misbehaves, reason
):
    monkeypatch.setattr(process, "_LONGEST", 4096)
    stand_in(f"""
for question in questions():
    if start == 0:
        {misbehaves}
    answer(start=start)
""")

    assert reason in failure()
    before = last()
    assert before.poll() is not None
    assert ask("tokenizer", folder="m") == {"start": 1}
    assert last() is not before


@pytest.mark.parametrize("script", ["raise SystemExit", "this is not Python"])
def test_a_process_that_does_not_start_is_no_answer(stand_in, script):
    stand_in(script)

    assert failure() == failure() == "it ended without an answer"


def test_an_answer_that_does_not_come_is_not_waited_for(stand_in, monkeypatch):
    monkeypatch.setattr(process, "SECONDS", 1)
    stand_in("""
for question in questions():
    time.sleep(600)
""")

    assert failure() == "no answer within 1 seconds"
    assert last().poll() is not None


def test_a_process_that_has_ended_is_started_anew(stand_in):
    stand_in("""
answer(start=start, question=next(questions()))
""")
    assert ask("tokenizer")["start"] == 0
    last().wait(TIMEOUT)

    assert ask("tokenizer")["start"] == 1


def test_a_late_answer_is_not_taken_for_the_next_one(stand_in):
    stand_in(ECHO)
    ask("first")
    interrupted = process._Child._last

    class Interrupted(Queue[bytes]):
        def get(self, *_: object, **__: object) -> bytes:
            raise KeyboardInterrupt

    interrupted._answers = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        ask("second")

    assert interrupted._process.poll() is not None
    assert ask("third") == {"start": 1, "question": {"about": "third"}}


def test_a_python_that_is_gone_starts_no_process(monkeypatch):
    monkeypatch.setattr(process.sys, "executable", "/nowhere/python")

    assert failure() == "no process can be started (No such file or directory)"


# --- what the process has of this one -------------------------------------------------------------


def test_the_current_folder_gives_no_modules(stand_in, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "link").symlink_to(here)
    (tmp_path / "modules").mkdir()
    monkeypatch.chdir(here)
    ours = ["", ".", str(here), str(tmp_path / "link"), f"{here}/../here", Path(here)]
    others = [str(tmp_path / "modules"), str(tmp_path), "/nowhere"]
    monkeypatch.setattr(process.sys, "path", [*ours, *others])
    stand_in("""
for question in questions():
    answer(folders=folders)
""")

    assert ask("folders") == {"folders": others}


def test_nothing_of_the_environment_is_run(stand_in, tmp_path, monkeypatch):
    """The folder of the script is none of modules either."""
    stand_in("""
for question in questions():
    isolated = [sys.flags.isolated, sys.flags.interactive, sys.flags.verbose]
    ran = Path(__file__).with_name("ran").exists()
    answer(flags=isolated, ran=ran, path=sys.path, offline=os.environ.get("HF_HUB_OFFLINE"))
""")
    folder = Path(process.__file__).parent
    harm = f"open({str(folder / 'ran')!r}, 'w')"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("json", "pathlib", "sitecustomize", "usercustomize", "startup"):
        (elsewhere / f"{name}.py").write_text(harm)
        (folder / f"{name}.py").write_text(harm)
    monkeypatch.chdir(elsewhere)
    settings = {
        "PYTHONPATH": str(elsewhere),
        "PYTHONSTARTUP": str(elsewhere / "startup.py"),
        "PYTHONINSPECT": "1",
        "PYTHONVERBOSE": "1",
        "PYTHONUSERBASE": str(elsewhere),
        "PYTHONHOME": str(elsewhere),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    found = ask("flags")

    assert found["flags"] == [1, 0, 0]
    assert found["offline"] == "1"
    assert not found["ran"]
    assert not {"", str(elsewhere), str(folder)} & {*found["path"]}


# --- the end of the parent ------------------------------------------------------------------------

# A process that asks, and says which process it has started.
PARENT = """
import sys, time
from threading import Thread
from embcli.asked import process
child = process._Child()
print(child._process.pid, flush=True)
if sys.argv[1] == "busy":
    child.answer({"about": "tokenizer", "folder": "m"})
time.sleep(600)
"""
BUSY = """
from pathlib import Path
Path(__file__).with_name("busy").touch()
while True:
    pass
"""


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Return whether something holds before the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return holds()


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, also if nobody has asked how."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc is Linux's")
@pytest.mark.parametrize("state", ["idle", "busy"])
def test_the_process_ends_with_its_parent(tmp_path, state):
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").write_text(BUSY)
    paths = [str(tmp_path), *filter(None, sys.path)]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, state],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1] / "tests",
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    with parent:
        asked = int(parent.stdout.readline())
        if state == "busy":
            assert wait_until((package / "busy").exists, TIMEOUT)
        assert not is_gone(asked)

        parent.send_signal(signal.SIGKILL)
        parent.wait(TIMEOUT)

    try:
        assert wait_until(lambda: is_gone(asked), 5)
    finally:
        if not is_gone(asked):
            os.kill(asked, signal.SIGKILL)


# --- why nothing is asked -------------------------------------------------------------------------


def test_why_nothing_is_asked(monkeypatch):
    assert why_not() == ""

    monkeypatch.setitem(sys.modules, "transformers", None)
    assert why_not() == "pip install 'embcli[transformers]'"

    recorded.install(monkeypatch, (3, 10))
    assert why_not() == "needs Python 3.11"

    recorded.install(monkeypatch)
    monkeypatch.setenv("EMBCLI_ASK", "0")
    assert why_not() == "EMBCLI_ASK is 0"

    monkeypatch.setenv("EMBCLI_ASK", "1")
    assert why_not() == ""
    assert process._Child._last is None


# --- what the process itself does, with a module as transformers ----------------------------------


@pytest.fixture
def transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what writes the module that the process imports as transformers."""
    monkeypatch.setattr(process.sys, "path", [str(tmp_path), *sys.path])

    def write(source: str) -> None:
        (tmp_path / "transformers.py").write_text(source)

    return write


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ImportError('torch is\\nmissing')", "torch is missing"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("raise MemoryError", "it takes more than 4 GiB of memory"),
        pytest.param(
            "bytearray(5 << 30)",
            "it takes more than 4 GiB of memory",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux limits memory"),
        ),
        ("import os; os._exit(1)", "it ended without an answer"),
    ],
)
def test_what_is_no_fault_of_the_files_is_no_answer(transformers, source, reason):
    transformers(source)

    assert failure() == reason


@cases
def test_an_error_about_the_files_is_a_refusal(transformers, source, reason):
    transformers(source)

    with pytest.raises(RefusedError) as caught:
        ask("tokenizer", folder="m")
    assert str(caught.value) == reason
    # The process is alive.
    with pytest.raises(RefusedError):
        ask("tokenizer", folder="m")


TOKENIZER = """
import os, sys
print("printed")
os.write(1, b"written")
print("warned", file=sys.stderr)

class PreTrainedTokenizerBase:
    pass

class Made(PreTrainedTokenizerBase):
    vocab_files_names = {"vocab_file": "vocab.txt"}
    split_special_tokens = False
    SPECIAL_TOKENS_ATTRIBUTES = ["bos_token", "eos_token", "unk_token"]
    bos_token = "<s>"
    eos_token = "</s>"
    unk_token = None
    names = ["<s>", "a", "b"]

    def __len__(self):
        return len(self.names)

    def __call__(self, text, add_special_tokens=True, **settings):
        ids = [self.names.index(letter) for letter in text]
        return type("Encoded", (), {"input_ids": [0, *ids] if add_special_tokens else ids})

    def convert_ids_to_tokens(self, ids):
        return [self.names[each] for each in ids]

    def convert_tokens_to_ids(self, token):
        return self.names.index(token)

    def get_vocab(self):
        return {name: token_id for token_id, name in enumerate(self.names)}

    def decode(self, ids, **settings):
        return "".join(map(self.names.__getitem__, ids))

class AutoTokenizer:
    @staticmethod
    def from_pretrained(folder, local_files_only, trust_remote_code):
        assert local_files_only
        assert not trust_remote_code
        return Made()
"""


def test_a_class_that_is_pythons_only_says_its_names(transformers, tmp_path):
    transformers(TOKENIZER)
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "vocab.txt").write_text("<s>\na\nb\n")

    assert ask("tokenizer", folder=str(folder)) == data(__name__)["facts of Made"]
    assert ask("ids", folder=str(folder), text="ab", special=False) == {"ids": [1, 2]}
    assert ask("ids", folder=str(folder), text="ab", special=True) == {"ids": [0, 1, 2]}
    assert ask("text", folder=str(folder), ids=[2, 1]) == {"text": "ba"}


@cases
def test_a_class_without_files_of_its_folder_is_refused(transformers, tmp_path, files, reason):
    transformers(TOKENIZER)
    folder = tmp_path / "m"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)

    with pytest.raises(RefusedError, match=reason):
        ask("tokenizer", folder=str(folder))


def test_the_process_that_is_asked_imports_nothing_of_embcli():
    source = Path(child.__file__).read_text()

    assert "from embcli" not in source
    assert "import embcli" not in source
