"""The figures of the book's notebooks at seed 123 come out, by the commands a reader would type."""

from __future__ import annotations

from tests.runners import InProcess

VERDICT = (
    "I HAD always thought Jack Gisburn rather a cheap genius--though a good fellow enough--"
    "so it was no great surprise to me to hear that, in"
)
FIRST_BATCH = """
   40   367  2885  1464
 1807  3619   402   271
10899  2138   257  7026
15632   438  2016   257
  922  5891  1576   438
  568   340   373   645
 1049  5975   284   502
  284  3285   326    11
"""
NEXT_ID = "287"


def test_the_first_batch_of_the_verdict(in_process: InProcess) -> None:
    ids = in_process.ok("tokenize", VERDICT, "-f", "ids").text.split()

    assert ids == [*FIRST_BATCH.split(), NEXT_ID]
