"""The page of a diff: counts, a table of the rows that changed most and least, and a verdict."""

from __future__ import annotations

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult

from embcli.page import (
    Answer,
    Hint,
    Label,
    left_out,
    omission,
    ruled,
    safe_text,
    title,
    written,
)
from embcli.page.labels import first_rows, origin_in_words, token_label
from embcli.selection import Excerpt
from embcli.verbs.diff import Diff, Side
from embcli.verbs.diff.tokens.page import counts_in_words
from embcli.wording import counted, first_of


def page(diff: Diff, console: Console, options: ConsoleOptions) -> RenderResult:
    yield title(f"{_matrices(diff).capitalize()}, row by row")
    for side in diff.sides:
        yield safe_text(f"{side.name:5}  {_matrix_in_words(diff, side)}")
    yield Answer(f"rows   {_counts(diff)}", style="")
    if diff.head is not None:
        yield Answer(f"heads  {_counts(diff.head)}", style="")
    if diff.atol:
        yield safe_text(f"Values that differ by at most {diff.atol:g} count as equal")
    if diff.matching.by == "token":
        yield safe_text("The vocabularies differ: rows match by the bytes of their tokens")
    for side in diff.sides:
        if len(side.alone):
            rows = first_rows(side.alone, side.encoding, diff.top)
            yield safe_text(f"only in {side.name}: {rows}")
    for finding in diff.untrained:
        yield safe_text(finding.text)

    changed = Excerpt.ends(2 * diff.top, len(diff.changed))
    if changed.total:
        yield from _changed_table(diff, changed)
        yield ""
    yield from left_out(omission(changed, "changed row", first=1), parameters=("top",))
    for side in diff.sides:
        for reason in dict.fromkeys(side.origin.guesses.values()):
            yield safe_text(f"A guess for {side.name}: {reason}")
    yield _verdict(diff)
    if diff.head is not None and diff.head.row_differences:
        yield Hint(("layer",))


def _counts(diff: Diff) -> str:
    text = counts_in_words(diff.counts)
    if diff.only_rounded and diff.counts["changed"]:
        text += f", only by rounding ({diff.base.dtype}, {diff.tuned.dtype})"
    return text


def _matrices(diff: Diff) -> str:
    if diff.layer == "head":
        return "output heads"
    if any(side.origin.is_custom_tensor for side in diff.sides):
        return "tensors"
    has_tokens = any(side.encoding for side in diff.sides)
    return "token matrices" if has_tokens else "matrices"


def _matrix_in_words(diff: Diff, side: Side) -> str:
    sizes = ", ".join(f"{size:,}" for size in side.shape)
    text = f"({sizes}) {side.dtype}: {origin_in_words(side.origin, diff.layer)}"
    if side.origin.path:
        text += f" of {side.origin.path}"
    return text


def _changed_table(diff: Diff, excerpt: Excerpt) -> RenderResult:
    """Yield the tokens that changed most, and after a gap those that changed least."""
    pairs = diff.changed[excerpt.places]
    base_rows, tuned_rows = diff.matching.pairs
    has_tokens = any(side.encoding for side in diff.sides)
    labels = [Label("ID" if has_tokens else "row", base_rows[pairs])]
    if diff.matching.by == "token":
        labels.append(Label("in TUNED", tuned_rows[pairs]))
    if has_tokens:
        labels.append(token_label(diff.tokens(pairs)))

    columns = {"cosine distance": diff.cosine_distances, "L2 distance": diff.distances}
    if diff.atol:
        columns["largest |difference|"] = diff.largest_differences
    for name, distances in columns.items():
        labels.append(Label(name, _distances_in_words(distances[pairs], diff.style.precision)))

    yield ""
    yield title("Changed most, and least" if excerpt.left_out else "Changed most")
    yield ruled(labels, gaps=excerpt.gaps)


def _distances_in_words(distances: np.ndarray, precision: int) -> list[str]:
    """Return distances as they are written alike, except those that would seem to be 0."""
    texts = written(distances, precision)
    for row, distance in enumerate(distances):
        if distance and float(texts[row]) == 0:
            texts[row] = f"{distance:.{precision}e}"
    return texts


def _verdict(diff: Diff) -> Answer:
    clauses = [f"The {_matrices(diff)} {_verdict_in_words(diff)}"]
    unopened = max(len(side.origin.unopened) for side in diff.sides)
    if diff.head is not None:
        clauses.append(f"the output heads {_verdict_in_words(diff.head)}")
        unopened -= 1
    if any(side.origin.has_adapter for side in diff.sides):
        clauses.append("the adapter is not applied")
    if diff.rules:
        clauses.append(f"rules or settings differ: {first_of(diff.rules, 3)}")
    if diff.other_shapes:
        clauses.append(diff.other_shapes)
    not_compared = []
    if unopened:
        not_compared.append(counted(unopened, "other tensor"))
    if diff.rules is None:
        not_compared.append("the rules of the tokenizers")
    if not_compared:
        clauses.append(f"{' and '.join(not_compared)} not compared")
    parameters = ("tensor", "encoding") if not_compared else ()
    return Answer("; ".join(clauses), *parameters, style="bad" if diff.different else "good")


def _verdict_in_words(diff: Diff) -> str:
    if diff.row_differences:
        return "differ"
    return f"are equal in {counted(diff.counts['equal'], 'row')}"
