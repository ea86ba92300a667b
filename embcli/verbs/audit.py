"""Problems of a token matrix: broken, equal, unused and under-trained rows, and the norms of all rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from embcli import errors
from embcli.encodings import Encoding
from embcli.errors import InputError, Watch, check_choice, check_top
from embcli.formats import or_list
from embcli.layer import Layer, Origin, shape_of
from embcli.names import BROKEN, FAULTS, SHOWN_ROWS, Fault, Unused
from embcli.numerics.statistics import (
    AT,
    Covariance,
    dots,
    norms_of,
    numbered_blocks,
    quantiles,
    squares,
)
from embcli.opened import Opened, remark_scaled
from embcli.records import FieldType, Records, listed, run_of
from embcli.result import Result
from embcli.selection import Excerpt
from embcli.tokens import token_text, tokens_of
from embcli.wording import QUANTILES, Sentence, counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from embcli.files.checkpoint import Head

_BINS = 24  # of the histogram of norms
_BARS = "▁▂▃▄▅▆▇█"
_WHY = {
    "padding": "after the last token",
    "gap": "IDs without a token",
    "byte": "bytes that UTF-8 never uses",
    "reserved": "reserved names",
}
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


@dataclass(frozen=True, eq=False)
class Audit(Result, verb="audit", content="ranking"):
    """The problems of a token matrix, by row and in total.

    `indicators` tell how far each row is from the rows of unused tokens; lower means less trained. They are those of
    Land and Bartolo 2024, "Fishing for Magikarp: Automatically Detecting Under-trained Tokens in Large Language
    Models", for the token matrix, tied or not; their published code uses the output head. With u the mean of the unused
    rows, `cosine_distance` is 1 - cos(row, u), `centred` the same after subtracting the mean of all rows from both, and
    `without_first` the same after subtracting their first principal component. NaN for a row without a direction.

    Candidates are tokens whose rows resemble those of unused tokens; only prompting a model can confirm one. Their
    `indicator` is `cosine_distance` if the output head is the token matrix, otherwise the `norm` of a row, and at most
    `threshold`: the median for the unused rows (for the cosine, of each row to the mean of the others) plus three times
    their scaled median absolute deviation. `reason` says why there is no threshold.
    """

    shape: tuple[int, int]
    dtype: str
    encoding: Encoding | None
    origin: Origin
    norms: np.ndarray  # (V,) float64; NaN if a value is NaN or infinite
    unused: dict[int, Unused]  # ID -> why no text can produce it
    padding: int | None  # the row that config.json names as padding; it can be zero
    equal: tuple[tuple[int, ...], ...]  # groups of equal rows, except zero rows
    measured: np.ndarray  # (n,) int64: the finite rows that stand for tokens
    indicators: dict[str, np.ndarray]  # (V,) float64 each; none if no row is known to be unused
    indicator: Literal["cosine_distance", "norm"]
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
        allowed = {*self.unused, self.padding}
        return np.array(
            [row for row in np.flatnonzero(self.norms == 0).tolist() if row not in allowed],
            np.int64,
        )

    @cached_property
    def by_use(self) -> dict[Unused, np.ndarray]:
        """The unused rows by the reason why they are unused, (n,) int64 each."""
        reasons = dict.fromkeys(self.unused.values())
        return {
            why: np.array([row for row, each in self.unused.items() if each == why], np.int64)
            for why in reasons
        }

    @cached_property
    def quantiles(self) -> tuple[float, ...]:
        return quantiles(self.norms[self.measured])

    @cached_property
    def histogram(self) -> tuple[int, ...]:
        """How many of those norms are in each of 24 equal parts of their range; the largest is in the last part."""
        norms = self.norms[self.measured]
        if not len(norms):
            return ()
        edges = np.linspace(
            norms.min(), norms.max(), _BINS + 1
        )  # numpy.histogram refuses a range that is too narrow
        return tuple(np.histogram(norms, edges)[0].tolist())

    @cached_property
    def faults(self) -> dict[Fault, int]:
        """The number of rows with each fault; of equal rows, those of used tokens except the first of each group."""
        used = (sum(row not in self.unused for row in group) for group in self.equal)
        return {
            "non-finite": len(self.non_finite),
            "zero": len(self.zero),
            "missing": max(self.encoding.vocabulary_size - self.shape[0], 0)
            if self.encoding
            else 0,
            "equal": sum(max(count - 1, 0) for count in used),
            "padding": len(self.by_use.get("padding", ())),
            "candidates": len(self.candidates),
        }

    @property
    def broken(self) -> tuple[Fault, ...]:
        return tuple(name for name in self.fail_on if self.faults[name])

    @property
    def why_no(self) -> str:
        return ", ".join(f"{name} ({self.faults[name]:,})" for name in self.broken)

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        return tokens_of(ids, self.encoding)

    def records(self) -> Records:
        ids = np.arange(self.shape[0])
        fault = dict.fromkeys(self.non_finite.tolist(), "non-finite") | dict.fromkeys(
            self.zero.tolist(), "zero"
        )
        equal_to = {row: group[0] for group in self.equal for row in group[1:]}
        columns: dict[str, tuple[FieldType, Any]] = {
            "id": (int, ids),
            **({"token": (str, [*map(token_text, self.tokens(ids))])} if self.encoding else {}),
            "norm": (float, self.norms),
            **{name: (float, each) for name, each in self.indicators.items()},
            "unused": (str, [*map(self.unused.get, ids.tolist())]),
            "fault": (str, [*map(fault.get, ids.tolist())]),
            "equal_to": (int, [*map(equal_to.get, ids.tolist())]),
            "candidate": (bool, np.isin(ids, self.candidates).tolist()),
        }
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
        return replace(
            listed(run_of(self.encoding, **self.origin.document()), "rows", **columns),
            more={"audit": more},
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table

        from embcli.page import Note, safe_text, title
        from embcli.page.labels import origin_in_words, origin_lines

        facts = Table.grid(padding=(0, 2, 0, 0))
        facts.add_column(no_wrap=True)
        candidates, table = self._candidates()
        broken = {"rows": self.faults["missing"], "broken": len(self.non_finite) + len(self.zero)}
        for name, fact in (*self._facts(), ("candidates", candidates)):
            facts.add_row(f"{name:12}", safe_text(fact, "bad" if broken.get(name) else ""))
        sizes = f"V = {counted(self.shape[0], 'row')}, D = {counted(self.shape[1], 'column')}"
        yield title(
            f"Audit of a token matrix, {sizes}: {origin_in_words(self.origin, 'token')}, {self.dtype}"
        )
        yield facts
        yield from table
        yield from origin_lines(self.origin)
        if self.broken:
            yield safe_text(f"Broken: {self.why_no}", "bad")
            return
        sound = (
            "Sound" if {*BROKEN} <= {*self.fail_on} else "Passed"
        )  # other faults were not checked
        faults = or_list(self.fail_on)
        unopened = self.origin.unopened
        others = f"; {counted(unopened, 'other tensor')} not checked" if unopened else ""
        parameters = ("tensor", "encoding") if unopened else ()
        yield Note(f"{sound}: no row is {faults}{others}", *parameters, style="good")

    def _facts(self) -> Iterator[tuple[str, str]]:
        from embcli.page import NumberFormat
        from embcli.page.labels import first_of, head_in_words, named_rows

        size, top, encoding = self.shape[0], self.top, self.encoding
        if encoding is None:
            yield "rows", f"{size:,}; their tokens are unknown"
            yield "unused", "unknown without an encoding"
        else:
            missing = f": {self.faults['missing']:,} have no row" if self.faults["missing"] else ""
            yield (
                "rows",
                f"{size:,}, for {encoding.vocabulary_size:,} tokens of {encoding.name}{missing}",
            )
            runs = {
                why
                for why, ids in self.by_use.items()
                if len(ids) > 1 and ids[-1] - ids[0] == len(ids) - 1
            }
            unused = (
                f"{len(ids):,} {_WHY[why]}{f' ({ids[0]} to {ids[-1]})' if why in runs else ''}"
                for why, ids in self.by_use.items()
            )
            yield "unused", ", ".join(unused) or "none"
        kinds = {"non-finite row": self.non_finite, "zero row": self.zero}
        broken = [
            f"{counted(len(ids), kind)}: {first_of(named_rows(ids[: top + 1], self.tokens(ids[: top + 1])), top)}"
            for kind, ids in kinds.items()
            if len(ids)
        ]
        is_padding = self.padding is not None and self.norms[self.padding] == 0
        padding = f"; row {self.padding} is zero, and padding by config.json" if is_padding else ""
        yield "broken", ("; ".join(broken) or "none") + padding
        groups = first_of(
            (first_of(map(str, group), top, " = ") for group in self.equal), top, "; "
        )
        yield "equal", f"{counted(len(self.equal), 'group')}: {groups}" if groups else "none"
        if len(self.measured):
            named = dict(zip(QUANTILES, self.quantiles, strict=True))
            write, most = (
                NumberFormat([np.array(self.quantiles)], self.style.precision).write,
                max(self.histogram),
            )
            bars = "".join(
                _BARS[-(-len(_BARS) * count // most) - 1] if count else " "
                for count in self.histogram
            )
            yield (
                "norms",
                f"{write(named['least'])} {bars} {write(named['largest'])}, median {write(named['median'])}",
            )
            by_norm = self.measured[np.argsort(self.norms[self.measured], kind="stable")]
            for name, ids in (("shortest", by_norm[:top]), ("longest", by_norm[::-1][:top])):
                norms = map(write, self.norms[ids])
                yield (
                    name,
                    ", ".join(
                        map(" ".join, zip(named_rows(ids, self.tokens(ids)), norms, strict=True))
                    ),
                )
        else:
            yield "norms", "no token has a finite row"
        if self.output is not None:
            yield (
                "output head",
                head_in_words(self.output.relation, self.output.rows, self.output.reason),
            )

    def _candidates(self) -> tuple[str, list[RenderableType]]:
        """Return in words how many tokens resemble unused ones, and a table of those that resemble them most."""
        from embcli.page import Label, NumberFormat, left_out, omission, ruled, written
        from embcli.page.labels import id_labels

        if self.threshold is None:
            return f"none: {self.reason}", []
        excerpt = Excerpt.first(self.top, len(self.candidates))
        ids, precision = self.candidates[excerpt.places], self.style.precision
        columns = {**({"norm": self.norms} if self.indicator == "norm" else {}), **self.indicators}
        write = NumberFormat(
            [np.array([self.threshold, *columns[self.indicator][ids]])], precision
        ).write
        by = {"cosine_distance": "1 - cos to their mean", "norm": "norm"}[self.indicator]
        found = f"{excerpt.total:,} like unused rows by {by}: up to {write(self.threshold)}"
        if not len(ids):
            return found, []
        labels = id_labels(ids, self.tokens(ids) if self.encoding else None)
        for name, values in columns.items():
            cells = (
                [*map(write, values[ids])]
                if name == self.indicator
                else written(values[ids], precision)
            )
            labels.append(
                Label(name.replace("_", " ") if name == "cosine_distance" else name, cells)
            )
        missing = left_out(
            omission(excerpt, "candidate", np.arange(1, excerpt.total + 1)), parameters=("top",)
        )
        return found, [ruled(labels), *([missing] if missing is not None else [])]


def audit(model: Opened, *, fail_on: Iterable[Fault] | None = None, top: int = SHOWN_ROWS) -> Audit:
    """Return what looks unusual in the token matrix: broken, unused, equal and under-trained rows, norms.

    `result.broken` are the faults among `fail_on` that there are, by default non-finite, zero and missing rows. The
    page shows `top` rows of each kind.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).audit().broken
    ()
    """
    from hashlib import sha256

    from embcli.files.checkpoint import Checkpoint

    source = model.source
    notes = model.notes.begun()
    remark_scaled(notes, model)
    named = (fail_on,) if isinstance(fail_on, str) else fail_on
    faults: tuple[Any, ...] = BROKEN if named is None else tuple(named)
    if not faults:
        raise InputError(
            Sentence("{fail_on} names no fault; choose from {faults}", faults=", ".join(FAULTS))
        )
    for fault in faults:
        check_choice("fail_on", fault, FAULTS)
    check_top(top)
    size, dim = shape_of(source, "token")
    encoding = source.encoding
    unused_rows = unused(encoding, size) if encoding else {}
    if unused_rows and _MATRICES * 8 * dim**2 > errors.memory_of_machine():
        raise InputError(
            f"the covariance of {dim:,} columns does not fit into memory; is it stored as (D, V)?"
        )
    layers = source.open({"token": None}, notes)
    layer = layers["token"]
    of_unused = np.isin(np.arange(size), [*unused_rows])
    of_token = ~np.isin(
        np.arange(size), [row for row, why in unused_rows.items() if why in ("padding", "gap")]
    )
    norms, unused_sum, by_bits = np.empty(size), np.zeros(dim), dict[bytes, list[int]]()
    covariance = Covariance(dim) if unused_rows else None
    for ids, block in numbered_blocks(layer, model.watch):
        for row, values in zip(ids.tolist(), block, strict=True):
            by_bits.setdefault(sha256(values.data).digest(), []).append(row)
        exact = block.astype(np.float64)
        norms[ids] = norms_of(exact)
        if covariance is not None:
            finite = np.isfinite(norms[ids])
            unused_sum += exact[finite & of_unused[ids]].sum(axis=0)
            covariance.add(exact[finite & of_token[ids]])

    checkpoint = source if isinstance(source, Checkpoint) else None
    output = checkpoint.head if checkpoint and not checkpoint.roles.is_custom_tensor else None
    padding = checkpoint.roles.config.get("pad_token_id") if checkpoint else None
    values, of_others = norms, np.where(norms > 0, norms, np.nan)
    indicators: dict[str, np.ndarray] = {}
    indicator: Literal["cosine_distance", "norm"] = "norm"
    if covariance is not None and unused_sum.any():
        indicators, distances = _indicators(
            layer, norms, of_unused, unused_sum, covariance, model.watch
        )
        if output is not None and output.relation in ("same", "equal"):
            indicator, values, of_others = (
                "cosine_distance",
                indicators["cosine_distance"],
                distances,
            )
    used = np.flatnonzero(of_token & (norms > 0) & ~of_unused)
    known, reason, threshold = of_others[of_unused & ~np.isnan(of_others)], "", None
    if len(known) < _LEAST_UNUSED:
        reason = (
            f"too few unused rows for comparison: {counted(len(known), 'row')} known and not zero"
        )
    else:
        middle = np.median(known)
        threshold = float(
            middle + _SPREAD * (_SCALE * np.median(np.abs(known - middle))) + _ROUNDING
        )
        if not len(used) or np.median(values[used]) <= threshold:
            reason, threshold = (
                "the unused rows resemble all others, as in an untrained matrix",
                None,
            )
    candidates = used[values[used] <= threshold] if threshold is not None else used[:0]
    return Audit(
        shape=(size, dim),
        dtype=layer.dtype,
        encoding=encoding,
        origin=layers.origin,
        norms=norms,
        unused=unused_rows,
        padding=padding if isinstance(padding, int) and 0 <= padding < size else None,
        equal=tuple(
            tuple(group) for group in by_bits.values() if len(group) > 1 and norms[group[0]] > 0
        ),
        measured=np.flatnonzero(of_token & np.isfinite(norms)),
        indicators=indicators,
        indicator=indicator,
        threshold=threshold,
        reason=reason,
        candidates=candidates[np.argsort(values[candidates], kind="stable")],
        output=output,
        fail_on=faults,
        top=min(top, size),
        notes=notes,
    )


def _indicators(
    layer: Layer,
    norms: np.ndarray,
    of_unused: np.ndarray,
    unused_sum: np.ndarray,
    all_rows: Covariance,
    watch: Watch,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the indicators, and for each unused row 1 - cos to the mean of the others, (V,) float64; NaN elsewhere."""
    mean, component = all_rows.mean(), np.linalg.eigh(all_rows.matrix())[1][:, -1]
    unused_mean = unused_sum / np.count_nonzero(np.isfinite(norms[of_unused]))
    without = unused_mean - (unused_mean @ component) * component
    length, length_of_sum = np.sqrt(squares(unused_mean[None])), np.sqrt(squares(unused_sum[None]))
    directions = unused_mean, unused_mean - mean, without
    found, to_others = np.full((3, len(norms)), np.nan), np.full(len(norms), np.nan)
    for ids, block in numbered_blocks(layer, watch):
        finite = np.isfinite(norms[ids])
        rows, exact, lengths = ids[finite], block[finite].astype(np.float64), norms[ids[finite]]
        changed = exact, exact - mean, exact - np.outer(exact @ component, component)
        for indicator, each, direction in zip(found, changed, directions, strict=True):
            indicator[rows] = _distances(each, lengths, direction[None], length)
        own = of_unused[rows]
        to_others[rows[own]] = _distances(
            exact[own], lengths[own], unused_sum - exact[own], length_of_sum
        )
    return dict(zip(("cosine_distance", "centred", "without_first"), found, strict=True)), to_others


def _distances(
    rows: np.ndarray, before: np.ndarray, other: np.ndarray, other_before: np.ndarray
) -> np.ndarray:
    """Return 1 - cos of rows, (n, D), to one row, (1, D), or to one each; NaN if one of the two has no direction.

    It has none if only rounding is left of its earlier length, `before`.
    """
    units = []
    for each, earlier in ((rows, before), (other, other_before)):
        lengths = np.sqrt(squares(each))
        directed = lengths > each.shape[1] * _LAST_BITS * earlier
        units.append(each / np.where(directed, lengths, np.nan)[:, None])
    cosines = dots(units[0], np.broadcast_to(units[1], rows.shape))
    return np.asarray(1 - cosines.clip(-1, 1))


def unused(encoding: Encoding, size: int) -> dict[int, Unused]:
    """Return the IDs below `size` that no text can produce, in order, and why.

    `padding` follows the last token, a `gap` is an ID without a token before it, a `byte` token has a byte that is
    invalid in UTF-8, and a `reserved` token has a name that says so.
    """
    known, reasons = min(encoding.vocabulary_size, size), dict[int, Unused]()
    for token_id in range(known):
        token = encoding.token_bytes(token_id)
        if token is None:
            reasons[token_id] = "gap"
        elif _NEVER.search(token):
            reasons[token_id] = "byte"
        elif _RESERVED.fullmatch(token.decode("utf-8", "replace")):
            reasons[token_id] = "reserved"
    return reasons | dict.fromkeys(range(known, size), "padding")
