"""A model: an encoding, a token layer, perhaps a position layer; the one place that composes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast, get_args

import numpy as np

from embcli import names
from embcli.errors import InputError, Notes, Watch, check_choice, unwatched
from embcli.layer import Source, shape_of
from embcli.text import Sequences, lines_of
from embcli.tokens import Tokens, check_ids, check_known, shown, tokenize
from embcli.words import counted

if TYPE_CHECKING:
    from pathlib import Path

    from embcli.encodings import Encoding
    from embcli.positions import JoinedKind, Kind
    from embcli.verbs.audit import Audit
    from embcli.verbs.batch import Batches
    from embcli.verbs.compare import Comparison
    from embcli.verbs.diff import Diff
    from embcli.verbs.info import ModelInfo
    from embcli.verbs.lookup import Lookup
    from embcli.verbs.merges import Merges
    from embcli.verbs.neighbors import Neighbors
    from embcli.verbs.positions import PositionTable
    from embcli.verbs.tokenize import Tokenization
    from embcli.verbs.tokenizers import Tokenizers
    from embcli.verbs.weights import WeightMatrix

    Text = str | Sequence[str] | Sequence[int] | np.ndarray | Sequences | Tokens

Method = TypeVar("Method", bound=Callable[..., Any])
_PADDED = 0.75  # the least share of rows that a named tokenizer has tokens for: models add some rows
_SPECIAL = re.compile(r"<\|\w+\|>")  # most names of special tokens


def seeded(
    vocab: int | None = None,
    dim: int = names.DEFAULT_DIM,
    *,
    encoding: str = names.DEFAULT_ENCODING,
    seed: int = names.DEFAULT_SEED,
    context_length: int = names.DEFAULT_CONTEXT_LENGTH,
    no_cache: bool = False,
    notes: Notes | None = None,
) -> Model:
    """Return a model with random layers, bit for bit those of PyTorch after `torch.manual_seed(seed)`.

    The token layer is `torch.nn.Embedding(vocab, dim)`, (V, D) float32, and the position layer, drawn right after it,
    `torch.nn.Embedding(context_length, dim)`, (C, D). V is by default that of the encoding. Nothing is drawn yet; what
    has been drawn is kept in the user's cache folder unless `no_cache`. Raises InputError for an unknown encoding,
    and LayerError for shapes and seeds out of range.

    >>> seeded(vocab=6, dim=3)[2].round(4).astype(str).tolist()
    ['1.2753', '-0.201', '-0.1606']
    """
    from embcli import encodings
    from embcli.store import Store
    from embcli.weights.seeded import Seeded
    from embcli.weights.source import SeededSource

    known, remarks = encodings.get(encoding), Notes() if notes is None else notes
    size = known.vocabulary_size if vocab is None else vocab
    store = None if no_cache else Store.from_environment(remarks)
    spec, labels = Seeded(size, dim, context_length, seed), encodings.labels_rows(known, size)
    return Model(SeededSource(spec, store, labels, remarks), known)


def open(
    path: str | Path, *, encoding: str | None = None, tensor: str | None = None, notes: Notes | None = None
) -> Model:
    """Return a real model: a file, a folder, or `org/name[@revision]` in the local Hugging Face cache.

    Only what describes the tensors is read. `tensor` names the token matrix where its name does not tell. Of an encoder
    and a decoder that both read tokens, the encoder counts. The encoding is the file's own vocabulary, a tokenizer
    beside the weights, or tiktoken's with as many tokens as there are rows, unless it is named. Raises InputError for
    what is not found, damaged, or not clear.

    >>> import numpy, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "own.npy")
    >>> numpy.save(path, numpy.eye(2, 3, dtype=numpy.float32))
    >>> open(path)[1].tolist()
    [0.0, 1.0, 0.0]
    """
    from embcli import encodings
    from embcli.files.checkpoint import Checkpoint

    remarks = Notes() if notes is None else notes
    checkpoint = Checkpoint(str(path), tensor, remarks)
    (rows, _), tensors, reason = shape_of(checkpoint, "token"), checkpoint.tensors, ""
    if encoding is not None:
        known: Encoding | None = encodings.get(encoding)
    else:
        known = encodings.encoding_of_file(tensors.path, tensors.own_words(), remarks)
        if known is None and (known := encodings.encoding_of_size(rows)):
            reason = f"{known.name}, by the number of rows"
        if known is not None and not checkpoint.has_tokens:
            known = encodings.labels_rows(known, rows)
    least, most = 0 if encoding is None else rows * _PADDED, rows
    if known is not None and checkpoint.has_tokens and not least <= known.vocabulary_size <= most:
        sizes = f"{known.vocabulary_size:,} tokens, this matrix {counted(rows, 'row')}"
        remarks.add(f"{known.name} has {sizes}: probably not its tokenizer")
    return Model(checkpoint.with_encoding(known, reason), known)


def tokenizers(
    text: Text, encodings: Sequence[str], *, special: bool = False, lines: bool = False, notes: Notes | None = None
) -> Tokenizers:
    """Return one text, or several, under several tokenizers: the tokens of each, and where they cut differently.

    `encodings` are names and files as `seeded` and `open` take them; `lines` makes each line a text of its own. Raises
    InputError for IDs, for an encoding that is not found or given twice, and for none.

    >>> result = tokenizers("Unbelievable!", ["gpt2", "o200k_base"])
    >>> result.counts, result.same, result.different
    ([5, 4], 3, 1)
    """
    from embcli.encodings import get
    from embcli.verbs.tokenizers import tokenizers as split

    known = [get(name) for name in ([encodings] if isinstance(encodings, str) else encodings)]
    return split(_sequences(text, lines), known, special, Notes() if notes is None else notes)


def _with_own_notes(method: Method) -> Method:
    """Run a method on a copy of its model, whose notes are those of opening it and of this run."""

    @wraps(method)
    def run(self: Model, *given: Any, **named: Any) -> Any:
        source = self.source.noting(type(self.notes)(*self.notes.remarks))
        return method(Model(source, self.encoding, self.watch), *given, **named)

    return cast("Method", run)


class Model:
    """Layers and the encoding of texts; make one by `seeded` or `open`.

    `len(model)` is V, `model.shape` (V, D). `model[6109]` is a row, (D,) float32; `model[[1, 2]]`, `model[0:5]` and
    `model["Every effort"]` are rows, (n, D) float32, those of a text one per token: never a mean. `" effort" in model`
    tells whether a text is one token with a row. The methods take a text, several texts, or IDs; each returns a frozen
    result, which shows itself as the command shows it. A model can be used from several threads.
    """

    def __init__(self, source: Source, encoding: Encoding | None, watch: Watch = unwatched) -> None:
        self.source = source
        self.encoding = encoding  # of texts; None where none is known
        self.watch = watch

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise InputError("rows of a model are asked for by ID: model[0:5], or model[:] for all of them")

    __iter__ = __array__ = _refuse

    @property
    def shape(self) -> tuple[int, int]:
        """(V, D) of the token layer."""
        return shape_of(self.source, "token")

    @property
    def notes(self) -> Notes:
        """Remarks on how the layers came about; a result has these, and those of its own run."""
        return self.source.notes

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        size, dim = self.shape
        encoding = self.encoding.name if self.encoding else None
        return f"<embcli.Model of {self.source.origin.name}, (V, D) = ({size:,}, {dim:,}), encoding {encoding}>"

    def __contains__(self, text: object) -> bool:
        ids: Sequence[int] | np.ndarray = ()
        with suppress(InputError):
            ids = self.encoding.encode(text) if isinstance(text, str) and self.encoding else ()
        return len(ids) == 1 and int(ids[0]) < len(self)

    @_with_own_notes
    def __getitem__(self, key: int | np.integer[Any] | str | slice | Sequence[int] | np.ndarray) -> np.ndarray:
        if isinstance(key, str):
            return self.lookup(key, show=("token",), position="none").token
        ids = np.arange(*key.indices(len(self))) if isinstance(key, slice) else np.asarray(key)
        tokens = self.tokens(np.atleast_1d(ids))
        check_ids(tokens, len(self), grows=self.source.origin.is_seeded)
        rows = self.source.open({"token": tokens.ids})["token"].rows(tokens.ids)
        return np.asarray(rows if ids.ndim else rows[0])

    def tokens(self, given: Text, special: bool = False, lines: bool = False, around: bool = True) -> Tokens:
        """Return the tokens of a text, of several texts, or of IDs; raises InputError for what is none of these.

        If `special` and `around`, these are also the tokens that the model reads before and after each text.
        """
        if isinstance(given, Tokens):
            return given
        sequences = _sequences(given, lines)
        encoding = self.source.encoding if sequences.texts is None else self.encoding
        if sequences.texts is not None and encoding is None:
            missing = "and no tokenizer that can be read, such as tokenizer.json, is beside them"
            message = f"these rows belong to no known encoding, {missing}: give ids, or encoding"
            raise InputError(message, parameters=("ids", "encoding"))
        tokens = tokenize(sequences, encoding, special, around)
        if encoding and tokens.texts is not None and around and not special:
            read = [
                f"{' '.join(shown(encoding.token_bytes(each)) for each in ids)} {where}"
                for ids, where in zip(encoding.around, ("before", "after"), strict=True)
                if ids
            ]
            if read:
                self.notes.add(f"the model reads {' and '.join(read)} a text; special adds them", ("special",))
        if encoding and not special:
            written = {name for text in tokens.texts or () for name in _SPECIAL.findall(text)}
            if plain := " ".join(sorted(name for name in written if len(encoding.encode(name, special=True)) == 1)):
                self.notes.add(f"{plain} is read as plain text; special makes it one token", ("special",))
        if not len(tokens):
            self.notes.add("the input is empty: there are no tokens")
        return tokens

    @_with_own_notes
    def tokenize(self, text: Text, *, special: bool = False, lines: bool = False) -> Tokenization:
        """Return the tokens of a text: IDs, bytes, and the span of each in characters.

        Special tokens are plain text unless `special`; `lines` makes each line a sequence. Raises InputError for IDs
        that the encoding does not have.

        >>> seeded().tokenize("Every effort").ids.tolist()
        [6109, 3626]
        """
        from embcli.verbs.tokenize import Tokenization

        return Tokenization(self.tokens(text, special, lines), notes=self.notes)

    @_with_own_notes
    def merges(self, text: Text, *, special: bool = False, draw: bool = False) -> Merges:
        """Return how each piece of a text becomes tokens: merge by merge, or as the encoding does it.

        Raises InputError for an encoding that does not tell.

        >>> [step.rank for step in seeded().merges("some").pieces[0].steps]
        [296, 462, 11246]
        """
        from embcli.verbs.merges import merges

        return merges(self.tokens(text, special, around=False), self.notes, draw)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text that IDs stand for; bytes that are not UTF-8 become U+FFFD.

        Raises InputError for IDs that the encoding does not have.

        >>> seeded().decode([6109, 3626])
        'Every effort'
        """
        return self.decode_bytes(ids).decode(errors="replace")

    def decode_bytes(self, ids: Sequence[int] | np.ndarray) -> bytes:
        """Return the bytes that IDs stand for. Raises InputError for IDs that the encoding does not have."""
        if self.encoding is None:
            raise InputError("encoding is required: these rows belong to no known one", parameters=("encoding",))
        array = _ids(ids)
        check_known(array, self.encoding)
        return self.encoding.decode(array)

    @_with_own_notes
    def weights(
        self,
        *,
        layer: names.Layer = "token",
        rows: str | None = None,
        columns: str | None = None,
        sort: names.Sort = "id",
        map: bool = False,
    ) -> WeightMatrix:
        """Return the weight matrix of a layer, (V, D) or (C, D), or the chosen rows and columns (`"0:5,100"`) of it.

        A row can be named by its token, too: `"king,queen"`. `sort="norm"` orders the rows by their norms, the largest
        first; then `order` has the norms and ranks of all rows. `map` returns the size of its numbers in bins instead.
        Raises InputError for rows and columns out of range, LayerError where there is no such layer.

        >>> seeded(vocab=6, dim=3).weights(rows="2").token.round(4).astype(str).tolist()
        [['1.2753', '-0.201', '-0.1606']]
        """
        from embcli.verbs.weights import weights

        check_choice("layer", str(layer), get_args(names.Layer))
        check_choice("sort", sort, get_args(names.Sort))
        return weights(self.source, layer, self.numbered(rows, layer), columns, self.watch, sort, map)

    def numbered(self, rows: str | None, layer: names.Layer = "token") -> str | None:
        """Return chosen rows with IDs in place of tokens, which may begin with a space that is not given.

        Raises InputError for a text that is not one token.

        >>> seeded().numbered("0:5,king,queen")
        '0:5,3364,16599'
        """
        encoding = self.source.encoding if layer == "token" else None
        if encoding is None or not isinstance(rows, str):
            return rows
        parts = rows.split(",")
        for place, part in enumerate(parts):
            if any(character.isalpha() for character in part):  # no ID
                found = [ids for ids in map(encoding.encode, (part, f" {part}")) if len(ids) == 1]
                if not found:
                    what = f"{part[:40]!r} is {counted(len(encoding.encode(part)), 'token')}"
                    raise InputError(f"rows takes IDs and tokens, and {what}", parameters=("rows",))
                parts[place] = str(found[0][0])
        return ",".join(parts)

    @_with_own_notes
    def lookup(
        self,
        text: Text,
        *,
        special: bool = False,
        lines: bool = False,
        window: bool = False,
        show: tuple[names.Matrix, ...] | names.Matrix | None = None,
        columns: str | None = None,
        trace: int | None = None,
        draw: bool = False,
        only: str | None = None,
        position: JoinedKind | None = None,
    ) -> Lookup:
        """Return the rows that tokens pick, (T, D), their position rows, and the input embeddings, their sum.

        `window` splits longer texts into sequences of C tokens, and `position` says which positions are added to the
        token rows. `show` names the matrices to show and save, `only` the tokens, by a text or by IDs (digits alone),
        `trace` the token whose sum is spelled out. Raises InputError for tokens without a row, sequences longer than
        the position layer, and options that do not go together.

        >>> seeded(vocab=6, dim=3).lookup([2, 3]).input.shape
        (2, 3)
        """
        from embcli.verbs.lookup import lookup

        tokens = self.tokens(text, special, lines)
        if window:
            tokens = tokens.window(shape_of(self.source, "position")[0])
        return lookup(
            tokens,
            self.source,
            special=special,
            show=show,
            columns=columns,
            trace=trace,
            draw=draw,
            only=only,
            position=position,
        )

    @_with_own_notes
    def compare(
        self,
        text: Text,
        *,
        special: bool = False,
        show: tuple[str, ...] | str | None = None,
        trace: bool = False,
        gradient: bool = False,
        learning_rate: float | None = None,
        draw: bool = False,
        seed: int | None = None,
    ) -> Comparison:
        """Return what the embedding lookup and the one-hot linear layer give, (T, D) each, with the proof and the cost.

        Both layers are torch's own and share the token matrix; `result.verdict.identical` says whether the outputs
        have the same bits. `gradient` compares a backward pass, `learning_rate` a step of training. `seed` is for the
        linear layer's own first weights. Raises InputError for tokens without a row, and LayerError if memory is
        insufficient.

        >>> seeded(vocab=6, dim=3).compare([2, 3]).verdict.identical
        True
        """
        from embcli.verbs.compare import compare

        return compare(
            self.tokens(text, special),
            self.source,
            show=show,
            trace=trace,
            gradient=gradient,
            learning_rate=learning_rate,
            draw=draw,
            seed=seed,
        )

    @_with_own_notes
    def batch(
        self,
        text: Text,
        *,
        special: bool = False,
        batch_size: int = 8,
        max_length: int = 4,
        stride: int | None = None,
        shuffle: bool = False,
        keep_last: bool = False,
        index: int | None = None,
        all: bool = False,
        context_length: int | None = None,
        draw: bool = False,
        columns: str | None = None,
    ) -> Batches:
        """Return sliding-window batches as the chapter's loader gives them: inputs, targets (B, T), input (B, T, D).

        The position layer has `context_length` rows, by default `max_length`. Raises InputError for a text without such
        a batch, and for a model that is not seeded.

        >>> batch = seeded(dim=3).batch("Every effort moves you forward", batch_size=1)
        >>> batch.inputs.tolist(), batch.targets.tolist()
        ([[6109, 3626, 6100, 345]], [[3626, 6100, 345, 2651]])
        """
        from embcli.verbs.batch import batch

        return batch(
            self.tokens(text, special),
            self.source,
            batch_size=batch_size,
            max_length=max_length,
            stride=stride,
            shuffle=shuffle,
            keep_last=keep_last,
            index=index,
            all=all,
            context_length=context_length,
            draw=draw,
            columns=columns,
        )

    @_with_own_notes
    def positions(
        self,
        kind: Kind | None = None,
        *,
        context_length: int | None = None,
        pairing: names.Pairing | None = None,
        theta: float | None = None,
        ids: str | int | None = None,
        similarity: bool = False,
        rows: str | None = None,
        columns: str | None = None,
    ) -> PositionTable:
        """Return what positions become: learned or sinusoidal rows (T, D), rotary angles, or relative distances.

        Unless `kind` is given, it is the model's own; of seeded layers, learned. T is the context length, of relative
        positions 16; unless it is given, a page shows positions 0 to 15.
        `similarity` returns their dot products, (T, T). Raises InputError for an option that this kind does not have,
        and LayerError for an odd D of rotary positions.

        >>> seeded(dim=4).positions("sinusoidal", context_length=2).position.round(4).astype(str).tolist()
        [['0.0', '1.0', '0.0', '1.0'], ['0.8415', '0.5403', '0.01', '1.0']]
        """
        from embcli.verbs.positions import positions

        return positions(
            self.source,
            kind,
            context_length=context_length,
            pairing=pairing,
            theta=theta,
            ids=ids,
            similarity=similarity,
            rows=rows,
            columns=columns,
        )

    @_with_own_notes
    def neighbors(
        self,
        text: Text | None = None,
        *,
        special: bool = False,
        lines: bool = False,
        plus: Sequence[str] = (),
        minus: Sequence[str] = (),
        vector: np.ndarray | None = None,
        metric: names.Metric = "cosine",
        top: int = 10,
        match: str | None = None,
        rows: str | None = None,
    ) -> Neighbors:
        """Return the rows nearest to the mean row of a text's tokens, or to a vector, (D,) or (n, D) float32.

        The first `top` by their scores in float64; `plus` and `minus` add and subtract the
        rows of other tokens. Raises InputError for queries without a row, and for rows that are not finite or zero.

        >>> seeded(vocab=6, dim=3).neighbors([2], top=2).ids.tolist()
        [0, 1]
        """
        from embcli.verbs.neighbors import neighbors, queries_of_tokens, queries_of_vectors

        self._note_stored_rows()
        if (text is None) == (vector is None):
            raise InputError("give text or vector, one of them", parameters=("text", "vector"))
        if vector is not None:
            queries = queries_of_vectors(vector, self.shape[1])
        else:
            tokens = self.tokens(cast("Text", text), special, lines, around=False)
            encoding = self.encoding if tokens.texts is not None else None
            queries = queries_of_tokens(tokens, encoding, plus, minus, len(self), self.notes)
        return neighbors(self.source, queries, metric=metric, top=top, match=match, rows=rows, watch=self.watch)

    @_with_own_notes
    def audit(self, *, fail_on: Iterable[names.Fault] | None = None, top: int = names.SHOWN_ROWS) -> Audit:
        """Return what looks unusual in the token matrix: broken, unused, equal and under-trained rows, norms.

        `result.broken` are the faults among `fail_on` that there are, by default non-finite, zero and missing rows. The
        page shows `top` rows of each kind.

        >>> seeded(vocab=6, dim=3).audit().broken
        ()
        """
        from embcli.verbs.audit import audit

        self._note_stored_rows()
        return audit(self.source, fail_on=fail_on, top=top, watch=self.watch)

    @_with_own_notes
    def diff(self, other: Model, *, top: int = names.SHOWN_ROWS) -> Diff:
        """Return which rows of the token matrices of two models are equal, and how far the others moved.

        Rows are matched by their tokens; the page shows `top` rows of each kind. Raises InputError for rows of
        different lengths.

        >>> seeded(vocab=6, dim=3).diff(seeded(vocab=6, dim=3)).different
        False
        """
        from embcli.verbs.diff import diff

        if not isinstance(other, Model):
            raise InputError(f"other must be a Model, as open and seeded return it, not {other!r}")
        for remark in other.notes.remarks:
            self.notes.add(remark)
        self._note_stored_rows(other)
        return diff(self.source, other.source.noting(self.notes), top=top, watch=self.watch)

    def _note_stored_rows(self, *others: Model) -> None:
        """Add a remark if a model multiplies its token rows: audit, diff and neighbors take them as stored."""
        for model in (self, *others):
            with suppress(InputError):  # a config.json that does not fit is no matter here
                recipe = model.source.recipe
                if recipe is not None and recipe.scale != 1:
                    self.notes.add(f"the rows are as stored; the model multiplies them by {recipe.scale:.6g}")

    @_with_own_notes
    def info(self, *, tensors: bool = False) -> ModelInfo:
        """Return which tensors the model's file contains and what they are for; `tensors` lists all of them.

        Raises InputError for a model that is not from a file.
        """
        from embcli.files.checkpoint import Checkpoint
        from embcli.verbs.info import model_info

        if not isinstance(self.source, Checkpoint):
            raise InputError("a seeded model has no file")
        return model_info(self.source, tensors)


def _sequences(given: Any, lines: bool) -> Sequences:
    """Return what was given as sequences of text or of IDs; raises InputError for anything else."""
    if isinstance(given, Sequences):
        return given
    if isinstance(given, str):
        return Sequences(texts=tuple(lines_of(given)) if lines else (given,), many=lines)
    if isinstance(given, list | tuple) and given and all(isinstance(each, str) for each in given):
        return Sequences(texts=tuple(given), many=True)
    return Sequences(ids=(_ids(given),))


def _ids(given: Any) -> np.ndarray:
    """Return token IDs as an array, (T,) int64; raises InputError for anything else."""
    ids = np.asarray(given)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise InputError(f"this is neither a text nor a list of token IDs: {str(given)[:60]!r}")
    return ids.astype(np.int64)
