"""Problems of a token matrix: broken, equal, unused and under-trained rows, and the norms of all rows.

One pass takes norms, digests and sums in float64. If rows of unused tokens are known, a second one compares each row
with them. Rows that contain NaN or infinity count for neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from embcli import errors
from embcli.encodings import Encoding
from embcli.errors import InputError, Watch, unwatched
from embcli.files.checkpoint import Checkpoint, Head
from embcli.layer import Layer, Origin, Source, shape_of
from embcli.names import BROKEN, FAULTS, SHOWN_ROWS, Fault, Unused, check_choice, check_top
from embcli.records import FieldType, Names, Records, in_pieces, run_of
from embcli.result import Result
from embcli.selection import Excerpt
from embcli.tokens import token_text, tokens_of
from embcli.verbs.statistics import AT, Covariance, norms_of, quantiles, squares
from embcli.words import QUANTILES, counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

_BINS = 24  # of the histogram of norms
_BARS = "▁▂▃▄▅▆▇█"
_WHY = {
    "padding": "after the last token",
    "gap": "IDs without a token",
    "byte": "bytes that UTF-8 never uses",
    "reserved": "reserved names",
}
_PIECE = 4096  # rows written at a time
_MATRICES = 5  # of (D, D) float64 in memory at a time
_LEAST_UNUSED = 2  # unused rows that other rows can be compared with
_SCALE = 1.4826  # turns a median absolute deviation into a standard deviation, for normally distributed numbers
_SPREAD = 3  # standard deviations from the median of the unused rows that a candidate may be
_ROUNDING = 1e-12  # of a cosine
_LAST_BITS = 2.0**-52  # of a length, for each value of a row
# Bytes invalid in UTF-8: RFC 3629, section 3.
_NEVER = re.compile(rb"[\xc0\xc1\xf5-\xff]")
# Names of reserved tokens: Llama 3, o200k_harmony, BERT, Gemma, Qwen, Mistral, Phi-3, DeepSeek, fairseq.
_RESERVED = re.compile(
    r"[<\[]\W?(?:reserved(?:[_▁ ]special[_▁ ]token)?|unused|extra|dummy|SPECIAL|place(?:[_▁ ]?holder)?(?:[_▁ ]no)?)"
    r"[_▁ ]?[0-9]+\W?[>\]]|madeupword[0-9]+"
)


@dataclass(frozen=True)
class Indicators:
    """How far each row is from the rows of unused tokens, (V,) float64 each; lower means less trained.

    These are indicators of Land and Bartolo 2024, "Fishing for Magikarp: Automatically Detecting Under-trained Tokens
    in Large Language Models", for the token matrix, tied or not; their published code uses the output head. With u the
    mean of the unused rows, `cosine` is 1 - cos(row, u), `centred` the same after subtracting the mean of all rows from
    both, and `without_first` the same after subtracting their first principal component. NaN for a row without a
    direction.
    """

    cosine: np.ndarray
    centred: np.ndarray
    without_first: np.ndarray


@dataclass(frozen=True, eq=False)
class Audit(Result, verb="audit", content="ranking"):
    """The problems of a token matrix, by row and in total.

    Candidates are tokens whose rows resemble those of unused tokens; only prompting a model can confirm one. Their
    `indicator` is `cosine` if the output head is the token matrix, otherwise the `norm` of a row, and at most
    `threshold`: the median for the unused rows (for the cosine, of each row to the mean of the others) plus three times
    their scaled median absolute deviation. `reason` says why there is no threshold.
    """

    shape: tuple[int, int]
    dtype: str
    encoding: Encoding | None
    origin: Origin
    run: dict[str, Any]
    norms: np.ndarray  # (V,) float64; NaN if a value is NaN or infinite
    unused: dict[int, Unused]  # ID -> why no text can produce it
    equal: tuple[tuple[int, ...], ...]  # groups of equal rows, except zero rows
    measured: np.ndarray  # (n,) int64: the finite rows that stand for tokens
    indicators: Indicators | None  # None if no row is known to be unused
    indicator: Literal["cosine", "norm"]
    threshold: float | None
    reason: str
    candidates: np.ndarray  # (n,) int64, by indicator
    output: Head | None  # the output head; None without a checkpoint
    fail_on: tuple[Fault, ...]
    top: int = SHOWN_ROWS  # rows of each kind on a page

    @cached_property
    def non_finite(self) -> np.ndarray:
        return np.flatnonzero(np.isnan(self.norms))

    @cached_property
    def zero(self) -> np.ndarray:
        return np.array([row for row in np.flatnonzero(self.norms == 0).tolist() if row not in self.unused], np.int64)

    @cached_property
    def by_use(self) -> dict[Unused, np.ndarray]:
        """The unused rows by the reason why they are unused, (n,) int64 each."""
        reasons = dict.fromkeys(self.unused.values())
        return {why: np.array([row for row, each in self.unused.items() if each == why], np.int64) for why in reasons}

    @cached_property
    def quantiles(self) -> tuple[float, ...]:
        return quantiles(self.norms[self.measured])

    @cached_property
    def histogram(self) -> tuple[int, ...]:
        """How many of those norms are in each of 24 equal parts of their range; the largest is in the last part."""
        norms = self.norms[self.measured]
        if not len(norms):
            return ()
        edges = np.linspace(norms.min(), norms.max(), _BINS + 1)  # numpy.histogram refuses a range that is too narrow
        places = np.minimum(np.searchsorted(edges, norms, side="right") - 1, _BINS - 1)
        return tuple(np.bincount(places, minlength=_BINS).tolist())

    @cached_property
    def faults(self) -> dict[Fault, int]:
        """The number of rows with each fault; of equal rows, those of used tokens except the first of each group."""
        used = (sum(row not in self.unused for row in group) for group in self.equal)
        counts: dict[Fault, int] = {
            "non-finite": len(self.non_finite),
            "zero": len(self.zero),
            "missing": max(self.encoding.vocabulary_size - self.shape[0], 0) if self.encoding else 0,
            "equal": sum(max(count - 1, 0) for count in used),
            "padding": len(self.by_use.get("padding", ())),
            "candidates": len(self.candidates),
        }
        return {name: counts[name] for name in FAULTS}

    @property
    def broken(self) -> tuple[Fault, ...]:
        return tuple(name for name in self.fail_on if self.faults[name])

    @property
    def why_no(self) -> str:
        return ", ".join(f"{name} ({self.faults[name]:,})" for name in self.broken)

    @property
    def distances(self) -> dict[str, np.ndarray]:
        """The indicators of all rows, (V,) float64 each, by name: first the one that decides about candidates."""
        others = vars(self.indicators) if self.indicators else {}
        return {self.indicator: others.get(self.indicator, self.norms), **others}

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        return tokens_of(ids, self.encoding)

    def records(self) -> Records:
        indicators = vars(self.indicators) if self.indicators else {}
        by_row: dict[str, dict[int, Any]] = {  # fields that most rows do not have
            "unused": dict(self.unused),
            "fault": dict.fromkeys(self.non_finite.tolist(), "non-finite") | dict.fromkeys(self.zero.tolist(), "zero"),
            "equal_to": {row: group[0] for group in self.equal for row in group[1:]},
        }

        def values(ids: np.ndarray, names: Names) -> dict[str, Any]:
            return {
                "id": ids,
                "token": list(map(token_text, self.tokens(ids))) if "token" in names else [],
                "norm": self.norms[ids],
                **{name: each[ids] for name, each in indicators.items()},
                **{name: list(map(each.get, ids.tolist())) for name, each in by_row.items()},
                "candidate": np.isin(ids, self.candidates).tolist(),
            }

        fields: dict[str, FieldType] = {"id": int, **({"token": str} if self.encoding else {}), "norm": float}
        fields |= {**dict.fromkeys(indicators, float), "unused": str, "fault": str, "equal_to": int, "candidate": bool}
        more = {
            "tokens": self.encoding.vocabulary_size if self.encoding else None,
            "faults": self.faults,
            "broken": list(self.broken),
            "unused": {why: len(rows) for why, rows in self.by_use.items()},
            "equal": [list(group) for group in self.equal],
            "rows": len(self.measured),
            "quantiles": self.quantiles,
            "quantiles_at": list(AT),
            "histogram": self.histogram,
            "indicator": self.indicator,
            "threshold": self.threshold,
            "reason": self.reason or None,
            "candidates": self.candidates.tolist(),
        }
        pieces = in_pieces(self.shape[0], _PIECE, values)
        return Records(self.run, "rows", self.shape[0], fields, pieces, more={"audit": more})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table

        from embcli.page import title, words
        from embcli.verbs.parts import head_in_words, origin_in_words, origin_lines

        size, dim = self.shape
        facts = Table.grid(padding=(0, 2, 0, 0))
        facts.add_column(no_wrap=True)
        broken = {"rows": self.faults["missing"], "broken": len(self.non_finite) + len(self.zero)}
        for name, fact in self._facts():
            facts.add_row(f"{name:12}", words(fact, "bad" if broken.get(name) else ""))
        if self.output is not None:
            head = head_in_words(self.output.relation, self.output.rows, self.output.reason)
            facts.add_row("output head", words(head))
        candidates, table = self._candidates()
        facts.add_row("candidates", words(candidates))
        sizes = f"V = {counted(size, 'row')}, D = {counted(dim, 'column')}"
        yield title(f"Audit of a token matrix, {sizes}: {origin_in_words(self.origin, 'token')}, {self.dtype}")
        yield facts
        yield from table
        yield from origin_lines(self.origin)
        if self.broken:
            yield words(f"Broken: {self.why_no}", "bad")
            return
        sound = "Sound" if {*BROKEN} <= {*self.fail_on} else "Passed"  # other faults were not checked
        *first, last = self.fail_on
        faults = f"{', '.join(first)} or {last}" if first else last
        yield words(f"{sound}: no row is {faults}", "good")

    def _facts(self) -> Iterator[tuple[str, str]]:
        from embcli.page import NumberFormat
        from embcli.verbs.parts import first_of, named_rows

        size, top, encoding = self.shape[0], self.top, self.encoding
        if encoding is None:
            yield "rows", f"{size:,}; their tokens are unknown"
            yield "unused", "unknown without an encoding"
        else:
            missing = f": {self.faults['missing']:,} have no row" if self.faults["missing"] else ""
            yield "rows", f"{size:,}, for {encoding.vocabulary_size:,} tokens of {encoding.name}{missing}"
            unused = (f"{len(ids):,} {_WHY[why]}{_range(ids)}" for why, ids in self.by_use.items())
            yield "unused", ", ".join(unused) or "none"
        broken = (
            f"{counted(len(ids), f'{kind} row')}: {first_of(map(str, ids.tolist()), top)}"
            for kind, ids in (("non-finite", self.non_finite), ("zero", self.zero))
            if len(ids)
        )
        yield "broken", "; ".join(broken) or "none"
        groups = first_of((first_of(map(str, group), top, " = ") for group in self.equal), top, "; ")
        yield "equal", f"{counted(len(self.equal), 'group')}: {groups}" if groups else "none"
        if not len(self.measured):
            yield "norms", "no token has a finite row"
            return
        named = dict(zip(QUANTILES, self.quantiles, strict=True))
        write = NumberFormat([np.array(self.quantiles)], self.style.precision).write
        most = max(self.histogram)
        bars = "".join(_BARS[-(-len(_BARS) * count // most) - 1] if count else " " for count in self.histogram)
        yield "norms", f"{write(named['least'])} {bars} {write(named['largest'])}, median {write(named['median'])}"
        by_norm = self.measured[np.argsort(self.norms[self.measured], kind="stable")]
        for name, ids in (("shortest", by_norm[:top]), ("longest", by_norm[::-1][:top])):
            norms = map(write, self.norms[ids])
            yield name, ", ".join(map(" ".join, zip(named_rows(ids, self.tokens(ids)), norms, strict=True)))

    def _candidates(self) -> tuple[str, list[RenderableType]]:
        """Return in words how many tokens resemble unused ones, and a table of those that resemble them most."""
        from embcli.page import Label, NumberFormat, left_out, ruled, words, written
        from embcli.verbs.parts import id_labels

        if self.threshold is None:
            return f"none: {self.reason}", []
        excerpt = Excerpt.first(self.top, len(self.candidates))
        ids, precision = self.candidates[excerpt.places], self.style.precision
        (name, first), *others = ((name, each[ids]) for name, each in self.distances.items())
        write = NumberFormat([np.array([self.threshold, *first])], precision).write
        by = {"cosine": "1 - cos to their mean", "norm": "norm"}[self.indicator]
        found = f"{excerpt.total:,} like unused rows by {by}: up to {write(self.threshold)}"
        if not len(ids):
            return found, []
        labels = [*id_labels(ids, self.tokens(ids) if self.encoding else None), Label(name, [*map(write, first)])]
        table = ruled([*labels, *(Label(name, written(values, precision)) for name, values in others)])
        missing = left_out(excerpt.missing("candidate", np.arange(1, excerpt.total + 1)))
        return found, [table, words(missing)] if missing else [table]


def audit(
    source: Source, *, fail_on: Iterable[Fault] | None = None, top: int = SHOWN_ROWS, watch: Watch = unwatched
) -> Audit:
    """Return the problems of the token matrix of a source.

    `fail_on` are the faults that make it broken, by default those of a matrix that no model can use. `watch` counts the
    rows of each pass; a page shows `top` rows of each kind.
    """
    faults = BROKEN if fail_on is None else tuple(fail_on)
    for fault in faults:
        check_choice("fail_on", fault, FAULTS)
    check_top(top)
    size, dim = shape_of(source, "token")
    encoding = source.encoding
    unused_rows = unused(encoding, size) if encoding else {}
    if unused_rows and _MATRICES * 8 * dim**2 > errors.memory_of_machine():
        raise InputError(f"the covariance of {dim:,} columns does not fit into memory; is it stored as (D, V)?")
    layers = source.open({"token": None})
    layer = layers["token"]
    of_unused, of_token = np.zeros(size, bool), np.ones(size, bool)
    of_unused[[*unused_rows]] = True
    of_token[[row for row, why in unused_rows.items() if why in ("padding", "gap")]] = False
    norms, unused_sum = np.empty(size), np.zeros(dim)
    covariance = Covariance(dim) if unused_rows else None
    by_bits: dict[bytes, list[int]] = {}
    done = 0
    for block in watch(layer.blocks(), size, len):
        part = slice(done, done + len(block))
        for row, values in enumerate(block, done):
            by_bits.setdefault(sha256(values.data).digest(), []).append(row)
        exact = block.astype(np.float64)
        norms[part] = norms_of(exact)
        if covariance is not None:
            finite = np.isfinite(norms[part])
            unused_sum += exact[finite & of_unused[part]].sum(axis=0)
            covariance.add(exact[finite & of_token[part]])
        done = part.stop

    indicators, distances = None, np.full(size, np.nan)
    if covariance is not None and unused_sum.any():
        indicators, distances = _indicators(layer, norms, of_unused, unused_sum, covariance, watch)
    output = source.head if isinstance(source, Checkpoint) else None
    tied = output is not None and output.relation in ("same", "equal")
    values, of_others = norms, np.where(norms > 0, norms, np.nan)
    if tied and indicators:
        values, of_others = indicators.cosine, distances
    used = np.flatnonzero(of_token & (norms > 0) & ~of_unused)
    threshold, reason = _threshold(values[used], of_others[of_unused & ~np.isnan(of_others)])
    candidates = used[values[used] <= threshold] if threshold is not None else used[:0]
    return Audit(
        shape=(size, dim),
        dtype=layer.dtype,
        encoding=encoding,
        origin=layers.origin,
        run=run_of(encoding, **layers.origin.document()),
        norms=norms,
        unused=unused_rows,
        equal=tuple(tuple(group) for group in by_bits.values() if len(group) > 1 and norms[group[0]] > 0),
        measured=np.flatnonzero(of_token & np.isfinite(norms)),
        indicators=indicators,
        indicator="cosine" if tied and indicators else "norm",
        threshold=threshold,
        reason=reason,
        candidates=candidates[np.argsort(values[candidates], kind="stable")],
        output=output,
        fail_on=faults,
        top=top,
        notes=source.notes,
    )


def _range(rows: np.ndarray) -> str:
    """Return the first and last of consecutive rows in words; empty for other rows."""
    return f" ({rows[0]} to {rows[-1]})" if len(rows) > 1 and (np.diff(rows) == 1).all() else ""


def _indicators(
    layer: Layer,
    norms: np.ndarray,
    of_unused: np.ndarray,
    unused_sum: np.ndarray,
    covariance: Covariance,
    watch: Watch,
) -> tuple[Indicators, np.ndarray]:
    """Return the indicators, and for each unused row 1 - cos to the mean of the others, (V,) float64; NaN elsewhere."""
    mean, component = covariance.mean(), np.linalg.eigh(covariance.matrix())[1][:, -1]
    unused_mean = unused_sum / np.count_nonzero(np.isfinite(norms[of_unused]))
    without = unused_mean - (unused_mean @ component) * component
    length = np.sqrt(squares(unused_mean[None]))
    directions = [_units(row[None], length)[0] for row in (unused_mean, unused_mean - mean, without)]
    found, to_others = np.full((3, len(norms)), np.nan), np.full(len(norms), np.nan)
    done = 0
    for block in watch(layer.blocks(), len(norms), len):
        rows = done + np.flatnonzero(np.isfinite(norms[done : done + len(block)]))
        exact, lengths = block[rows - done].astype(np.float64), norms[rows]
        changed = exact, exact - mean, exact - np.outer(exact @ component, component)
        for indicator, each, direction in zip(found, changed, directions, strict=True):
            indicator[rows] = _one_minus_cosine(_units(each, lengths), direction)
        own = of_unused[rows]
        others = unused_sum - exact[own]
        units = _units(others, np.full(len(others), np.sqrt(unused_sum @ unused_sum)))
        to_others[rows[own]] = _one_minus_cosine(_units(exact[own], lengths[own]), units)
        done += len(block)
    return Indicators(*found), to_others


def _units(rows: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return rows, (n, D), scaled to length 1; NaN if only rounding is left of their earlier lengths, (n,)."""
    lengths = np.sqrt(squares(rows))
    directed = lengths > rows.shape[1] * _LAST_BITS * before
    units: np.ndarray = rows / np.where(directed, lengths, np.nan)[:, None]
    return units


def _one_minus_cosine(units: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return 1 - cos of unit rows, (n, D), to one unit row, (D,), or to one each, (n, D)."""
    cosines: np.ndarray = np.einsum("ij,ij->i", units, np.broadcast_to(other, units.shape))
    return 1 - cosines.clip(-1, 1)


def _threshold(used: np.ndarray, unused: np.ndarray) -> tuple[float | None, str]:
    """Return the largest indicator of a row that resembles unused rows; None, with a reason, if there is none."""
    if len(unused) < _LEAST_UNUSED:
        return None, f"too few known unused rows for comparison: {counted(len(unused), 'row')}"
    middle = np.median(unused)
    spread = _SCALE * np.median(np.abs(unused - middle))
    threshold = float(middle + _SPREAD * spread + _ROUNDING)
    if not len(used) or np.median(used) <= threshold:
        return None, "the unused rows resemble all others, as in an untrained matrix"
    return threshold, ""


def unused(encoding: Encoding, size: int) -> dict[int, Unused]:
    """Return the IDs below `size` that no text can produce, in order, and why.

    `padding` follows the last token, a `gap` is an ID without a token before it, a `byte` token has a byte that is
    invalid in UTF-8, and a `reserved` token has a name that says so.
    """
    known = min(encoding.vocabulary_size, size)
    reasons = {token_id: why for token_id in range(known) if (why := _why(encoding.token_bytes(token_id)))}
    return reasons | dict.fromkeys(range(known, size), "padding")


def _why(token: bytes | None) -> Unused | None:
    if token is None:
        return "gap"
    if _NEVER.search(token):
        return "byte"
    return "reserved" if _RESERVED.fullmatch(token.decode("utf-8", "replace")) else None
