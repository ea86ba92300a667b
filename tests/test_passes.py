"""Passes whose parts run side by side: everything comes, errors too, and nothing goes on when nobody takes it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from embcli import passes
from embcli.passes import ahead


def counted(place: int, items: int, done: list[int]) -> Iterator[tuple[int, int]]:
    for item in range(items):
        done[place] += 1
        yield place, item


@pytest.mark.parametrize("sizes", [[5], [0], [0, 0], [3, 0, 40], [7, 7, 7, 7]])
def test_all_items_of_all_parts_come_each_part_in_its_order(sizes: list[int]) -> None:
    done = [0] * len(sizes)
    found = list(ahead([counted(place, size, done) for place, size in enumerate(sizes)]))
    for place, size in enumerate(sizes):
        assert [item for part, item in found if part == place] == list(range(size))
    assert len(found) == sum(sizes)


def test_parts_run_at_the_same_time_the_first_where_the_items_are_taken() -> None:
    meeting = threading.Barrier(3, timeout=20)

    def part() -> Iterator[int]:
        meeting.wait()  # which no part passes alone
        yield threading.get_ident()

    found = [*ahead([part(), part(), part()])]
    assert found[0] == threading.get_ident()
    assert len({*found}) == 3


def test_parts_are_ahead_by_a_few_items_only_and_end_when_nobody_takes_them() -> None:
    done = [0, 0]
    before = threading.active_count()
    items = ahead([counted(0, 1000, done), counted(1, 1000, done)])
    for _ in range(10):
        next(items)
    items.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert 10 <= sum(done) <= 10 + 2 * (passes._AHEAD + 1)


@pytest.mark.parametrize("error", [ValueError("odd"), KeyboardInterrupt()])
def test_what_ends_a_part_is_raised_where_the_items_are_taken(error: BaseException) -> None:
    def broken() -> Iterator[tuple[int, int]]:
        yield 1, 0
        raise error

    done = [0]
    before = threading.active_count()
    with pytest.raises(type(error)):
        list(ahead([counted(0, 10**9, done), broken()]))
    assert threading.active_count() == before


@pytest.mark.parametrize("failing", [(0, 1), (1,)])
def test_what_parts_have_open_is_let_go_when_they_have_ended(failing: tuple[int, ...]) -> None:
    """At once, and also what an error holds that comes second and is never told."""

    class Opened:
        pass

    def part(place: int) -> Iterator[int]:
        opened = Opened()
        held.append(weakref.ref(opened))
        meeting.wait()
        yield 1 // (place not in failing)

    held: list[weakref.ref[Opened]] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            meeting = threading.Barrier(2, timeout=20)
            with pytest.raises(ZeroDivisionError):
                list(ahead([part(0), part(1)]))
        assert [each() for each in held] == [None] * 40
    finally:
        gc.enable()


def test_an_error_on_the_way_to_the_threads_is_the_one_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, []

    def second_fails(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", second_fails)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        list(ahead([counted(place, 5, [0, 0, 0]) for place in range(3)]))
    assert not started[0].is_alive()


def test_interrupts_at_any_time_end_a_pass() -> None:
    """A hundred of them, each a little later than the one before."""
    code = """
import signal
from embcli.passes import ahead
signal.signal(signal.SIGALRM, signal.default_int_handler)
seen = 0
for turn in range(100):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002 + turn * 0.0001)
        for _ in ahead([iter(range(10**9)) for _ in range(3)]):
            pass
    except KeyboardInterrupt:
        seen += 1
print(seen)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "100\n"


def test_threads_are_for_many_values_and_as_many_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, count in ((1, 1), (3, 3), (64, passes._MOST_READERS)):
        monkeypatch.setattr(passes, "cores", lambda cores=cores: cores)
        assert passes.readers(passes._FOR_THREADS) == count
        assert passes.readers(passes._FOR_THREADS - 1) == 1
