"""A real model's file as a source of weights: which of its tensors are the token and the position matrix, and the rest.

Names are matched by their last parts, so that any prefix will do, and what is found must fit in shape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from embcli.files import open_tensors
from embcli.files.hub import located
from embcli.files.stored import Binary
from embcli.files.strict_json import parsed
from embcli.files.tensors import shortened
from embcli.layer import Layer, Origin
from embcli.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from embcli.encodings import Encoding
    from embcli.errors import InputError
    from embcli.files.tensors import Tensor, Tensors

_ADDED = ("weight", "embedding")  # parts that may follow a name
# The names of the token matrix, the first that is there.
_TOKEN = (
    "wte",  # GPT-2, GPT-Neo, GPT-J, MPT, nanoGPT
    "tok_emb",  # the book's GPTModel, minGPT
    "shared",  # T5, BART, Marian: one matrix for encoder and decoder
    "embed_tokens",  # Llama, Mistral, Qwen, Gemma, Phi, OPT, fairseq
    "tok_embeddings",  # Llama as Meta publishes it, InternLM2, ModernBERT
    "word_embeddings",  # BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA, BLOOM, Falcon
    "word_embedding",  # XLNet
    "embed_in",  # GPT-NeoX, Pythia
    "token_embd",  # GGUF, whatever the model
    "token_embedding",  # CLIP, Whisper as OpenAI publishes it
    "tokens_embed",  # the first GPT
    "token",  # an archive of the user's own
    "embeddings",  # Mamba, RWKV, XLM, Model2Vec
    "embedding",  # plain torch modules
    "emb",  # RWKV as BlinkDL publishes it
)
# The names of the position matrix, likewise.
_POSITION = (
    "wpe",  # GPT-2, GPT-Neo, nanoGPT
    "pos_emb",  # the book's GPTModel, minGPT
    "position_embeddings",  # BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA, XLM
    "embed_positions",  # OPT, BART, Whisper, fairseq
    "position_embd",  # GGUF
    "position_embedding",  # CLIP
    "positional_embedding",  # CLIP and Whisper as OpenAI publishes them
    "positions_embed",  # the first GPT
    "position",  # an archive of the user's own
)
_TOKEN_TYPE = (
    "token_type_embeddings",  # BERT and its kin
    "token_types",  # GGUF
)
# The names of the output head, likewise.
_HEAD = (
    "lm_head",  # most of Hugging Face's causal models
    "out_head",  # the book's GPTModel
    "output",  # GGUF, Llama as Meta publishes it, InternLM2
    "embed_out",  # GPT-NeoX, Pythia
    "cls.predictions.decoder",  # BERT
    "lm_head.decoder",  # RoBERTa
    "output_layer",  # ChatGLM
    "head",  # RWKV, minGPT
)
_NAMES = {"token": _TOKEN, "position": _POSITION, "token_type": _TOKEN_TYPE, "head": _HEAD}

# Models whose position 0 is not row 0 but row 2, and those in which it is the row behind that of their padding, ID 1.
_FIRST_ROW = 2
_SHIFTED_MODELS = {
    *("opt", "bart", "mbart", "plbart", "mvp", "biogpt", "mpnet", "nystromformer", "yoso", "mra"),
}
_BEHIND_PADDING = {
    *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert", "xmod", "ibert"),
    *("data2vec-text", "longformer", "luke", "markuplm", "layoutlmv3", "esm"),
}
_SHIFTED_NAMES = re.compile(r"(?:^|\.)(?:roberta|xlm_roberta|camembert|longformer|mpnet|esm)\.")

_CAUSAL = re.compile("(?:LMHeadModel|ForCausalLM)$")  # how classes of models with an output head are named

_LAYER = {"encoding": "token", "first_position": "position"}  # which a guess about something else is of

_MOST_NAMED = 8  # candidates in a message
_COMPARED = 1 << 26  # bytes of two matrices that are compared at most
_CONFIG_LONGEST = 1 << 24  # bytes
_SAID = ("model_type", "position_embedding_type", "max_position_embeddings", "n_positions", "rope_theta")


@dataclass(frozen=True)
class Head:
    """The output head: `same` as the token matrix in the file, `equal` to it in the rows compared, or `other`.

    `tensor` is None where the file has none: the token matrix stands in for it, by `reason`, or nothing is known.
    """

    tensor: Tensor | None
    relation: Literal["same", "equal", "other", "none"]
    rows: int = 0  # how many were compared
    reason: str = ""  # where it is not the tensors that tell


class ShiftedLayer(Layer):
    """The rows of a layer from one on: those of the positions from 0 on."""

    def __init__(self, layer: Layer, first: int) -> None:
        self.shape, self.dtype = (layer.shape[0] - first, layer.shape[1]), layer.dtype
        self._layer, self._first = layer, first

    @property
    def changed(self) -> int:
        """How many of the values read so far float32 cannot hold."""
        return changed(self._layer)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows, (n,) int64 -> (n, D) float32."""
        return self._layer.rows(ids + self._first)


class Checkpoint:
    """A source of weights: the tensors of a real model by what they are for.

    `token` and `position` name tensors where they are not found by name, `transposed` says that they are (D, V).
    Raises InputError for what cannot be read, and where no tensor, or no single one, can be the token matrix.
    """

    def __init__(
        self,
        tensors: Tensors,
        given: str = "",
        token: str | None = None,
        position: str | None = None,
        transposed: bool = False,
        encoding: Encoding | None = None,
    ) -> None:
        self.tensors = tensors
        self.given = given or str(tensors.path)
        self.encoding = encoding
        self.notes = Notes()
        self.transposed = transposed
        self.notes = Notes()
        self.reasons: dict[str, str] = {}  # a role -> why this tensor, where it is a guess
        self._named = {"token": token, "position": position}
        self._found: dict[str, Tensor | None] = {}
        self._open: dict[str, Layer] = {}
        self._shape = self._rows_and_columns(self._token())

    @classmethod
    def of(
        cls,
        given: str,
        token: str | None = None,
        position: str | None = None,
        transposed: bool = False,
        encoding: Encoding | None = None,
    ) -> Checkpoint:
        """Open a file, a folder, or a model of the local Hugging Face cache."""
        return cls(open_tensors(located(given)), given, token, position, transposed, encoding)

    @property
    def run(self) -> dict[str, Any]:
        """Where the numbers are from, for JSON."""
        return self.origin.document()

    @property
    def origin(self) -> Origin:
        """Where the numbers come from; complete once the layers are open."""
        opened = {name: self._tensor(name) for name in self._open}
        return Origin(
            shapes={name: layer.shape for name, layer in self._open.items()},
            path=self.given,
            tensors={name: tensor.name for name, tensor in opened.items()},
            dtypes={name: tensor.dtype for name, tensor in opened.items()},
            sizes={name: tensor.size for name, tensor in opened.items()},
            guesses={about: why for about, why in self.reasons.items() if _LAYER.get(about, about) in opened},
            first_position=self.first_position if "position" in opened else 0,
        )

    @property
    def changed(self) -> int:
        """How many values that were read so far float32 cannot hold: they were rounded."""
        return sum(changed(layer) for layer in self._open.values())

    def shape(self, name: str) -> tuple[int, int] | None:
        """Return the shape of the `token`, `position`, `token_type` or `head` layer; None where there is none."""
        if name == "token":
            return self._shape
        tensor = self.find(name)
        if tensor is None:
            return None
        rows, dim = self._oriented(tensor)[0]
        return rows - (self.first_position if name == "position" else 0), dim

    def open(self, wanted: Mapping[str, np.ndarray | None]) -> dict[str, Layer]:
        """Return the named layers; for each, the IDs that will be asked for, or None where that may be any."""
        for name in wanted:
            tensor = self._tensor(name)
            layer = self.tensors.layer(tensor.name, self._oriented(tensor)[1])
            shifted = name == "position" and self.first_position
            self._open[name] = ShiftedLayer(layer, self.first_position) if shifted else layer
        return {name: self._open[name] for name in wanted}

    def find(self, name: str) -> Tensor | None:
        """Return the tensor of a layer; None where there is none.

        Raises InputError where several could be meant.
        """
        if name not in self._found:
            self._found[name] = self._by_flag(name) if self._named.get(name) else self._by_name(name)
        return self._found[name]

    @cached_property
    def config(self) -> dict[str, Any]:
        """What the config.json beside the weights says; empty where there is none."""
        path = self.tensors.path.parent / "config.json"
        if not path.is_file():
            return {}
        binary = Binary(path)
        if binary.size > _CONFIG_LONGEST:
            raise binary.refused(f"a config of {binary.size:,} bytes is longer than any")
        config = parsed(path, binary.read(0, binary.size))
        text = config.get("text_config")
        return {**config, **text} if isinstance(text, dict) else config

    @cached_property
    def positions(self) -> dict[str, str | int | float]:
        """What the model says of its positions: config.json, or the metadata of a GGUF file."""
        metadata = self.tensors.metadata
        architecture = metadata.get("general.architecture")
        rope = self.config.get("rope_parameters")
        said = {
            "model_type": architecture,
            "max_position_embeddings": metadata.get(f"{architecture}.context_length"),
            "rope_theta": metadata.get(f"{architecture}.rope.freq_base"),
            **(rope if isinstance(rope, dict) else {}),
            **self.config,
        }
        return {key: said[key] for key in _SAID if isinstance(said.get(key), str | int | float)}

    @cached_property
    def first_position(self) -> int:
        """The row of the position matrix that position 0 picks."""
        tensor, model = self.find("position"), self.config.get("model_type")
        if tensor is None:
            return 0
        rows, first = self._oriented(tensor)[0][0], _FIRST_ROW
        if isinstance(model, str):
            padding = self.config.get("pad_token_id")
            if model in _BEHIND_PADDING and isinstance(padding, int):
                first = padding + 1
            shifted = model in _SHIFTED_MODELS | _BEHIND_PADDING
            reason = f"config.json says that it is a {shortened(model)} model"
        elif _SHIFTED_NAMES.search(tensor.name):
            shifted, reason = True, f"{shortened(tensor.name)} is named as RoBERTa's"
        else:
            shifted = bool(re.search(r"(?:^|\.)embed_positions(?:\.|$)", tensor.name)) and rows % 64 == _FIRST_ROW
            reason = f"{shortened(tensor.name)} has {rows:,} rows, as OPT's and BART's"
        if not shifted or not 0 < first < rows:
            return 0
        self.reasons["first_position"] = f"position 0 is row {first}: {reason}"
        return first

    @cached_property
    def head(self) -> Head:
        """The output head, and whether it is tied to the token matrix."""
        token, tensor = self._tensor("token"), self.find("head")
        tied = self.config.get("tie_word_embeddings")
        if tensor is None:
            if isinstance(tied, bool):
                said = "config.json says so" if tied else "config.json says that it is a matrix of its own"
                return Head(None, "same" if tied else "none", reason=said)
            assumed = self._assumed_tied()
            return Head(None, "same" if assumed else "none", reason=assumed)
        if (tensor.file, tensor.start, tensor.shape) == (token.file, token.start, token.shape):
            return Head(tensor, "same")
        rows = _equal_rows(self.tensors, token, tensor)
        return Head(tensor, "equal", rows) if rows else Head(tensor, "other")

    def _assumed_tied(self) -> str:
        """Return why a model without an output head in its file answers by the token matrix; empty where none says so.

        Hugging Face's config.json leaves `tie_word_embeddings` out where it is true, its default; llama.cpp takes
        token_embd where a causal model has no output.weight.
        """
        metadata, named = self.tensors.metadata, self.config.get("architectures")
        causal = metadata.get(f"{metadata.get('general.architecture')}.attention.causal", True)
        if self.tensors.format == "GGUF" and causal and _parts(self._tensor("token").name)[0] == "token_embd":
            return "the file has no output.weight"
        found = [name for name in named if _CAUSAL.search(str(name))] if isinstance(named, list) else []
        return f"config.json names {shortened(str(found[0]))} and no head of its own" if found else ""

    def _tensor(self, name: str) -> Tensor:
        tensor = self.find(name)
        if tensor is None:
            raise self.tensors.refused(f"it has no {name.replace('_', ' ')} matrix")
        return tensor

    def _by_flag(self, name: str) -> Tensor:
        """Return the tensor that the user names."""
        named, flag = self._named[name] or "", "--tensor" if name == "token" else "--position-tensor"
        if named not in self.tensors:
            raise self._undecided(f"it has no tensor {shortened(named)} ({flag})")
        tensor = self.tensors[named]
        if len(tensor.shape) != 2 or not all(tensor.shape):
            raise self.tensors.refused(f"{flag} {tensor} is no matrix; it takes two dimensions")
        if name == "position" and self._oriented(tensor)[0][1] != self._shape[1]:
            raise self.tensors.refused(f"{flag} {tensor} has rows of another length than the token matrix")
        return tensor

    def _token(self) -> Tensor:
        """Return the token matrix by name, or the only matrix there is."""
        found = self.find("token")
        if found is not None:
            return found
        matrices = list(self._matrices())
        if len(matrices) != 1:
            raise self._undecided("no tensor has a name that a token matrix is known by" if matrices else "")
        self._found["token"] = matrices[0]
        if not self.tensors.words_are_whole:  # of which there is nothing to guess
            self.reasons["token"] = f"{shortened(matrices[0].name)} is the only two-dimensional tensor"
        return matrices[0]

    def _by_name(self, role: str) -> Tensor | None:
        """Return the tensor that a role is known by; of several, the one nearest to the token matrix."""
        for known in _NAMES[role]:
            parts = known.split(".")
            named = [name for name, last in self._by_last_part.get(parts[-1], ()) if last[-len(parts) :] == parts]
            found = [tensor for tensor in map(self.tensors.__getitem__, named) if self._fits(role, tensor)]
            if role != "token" and len(found) > 1:
                near = self._tensor("token").name
                shared = [_shared_parts(tensor.name, near) for tensor in found]
                found = [tensor for tensor, parts in zip(found, shared, strict=True) if parts == max(shared)]
            if found:
                return self._agreed(role, found)
        return None

    @cached_property
    def _by_last_part(self) -> dict[str, list[tuple[str, list[str]]]]:
        """The names of the tensors, and their parts up to the one that tells what it is, by that part."""
        found: dict[str, list[tuple[str, list[str]]]] = {}
        for name in self.tensors:
            parts = _parts(name)
            found.setdefault(parts[-1], []).append((name, parts))
            if len(parts) > 1 and parts[-1] in _ADDED:
                found.setdefault(parts[-2], []).append((name, parts[:-1]))
        return found

    def _agreed(self, role: str, found: list[Tensor]) -> Tensor:
        """Return the first of some tensors that are one and the same, or equal; raises InputError unless they are."""
        first, *others = sorted(found, key=lambda tensor: (tensor.name.count("."), tensor.name))
        for other in others:
            same = (other.file, other.start, other.shape) == (first.file, first.start, first.shape)
            if not same and not _equal_rows(self.tensors, first, other):
                raise self._undecided(f"several tensors could be the {role.replace('_', ' ')} matrix", found, role)
        if others:
            self.reasons[role] = f"{shortened(first.name)} is one of {len(found)} equal tensors"
        return first

    def _fits(self, role: str, tensor: Tensor) -> bool:
        """Say whether a tensor has the shape that its role takes."""
        if len(tensor.shape) != 2 or not all(tensor.shape):
            return False
        if role == "token":
            return True
        (rows, _), dim = self._shape, self._oriented(tensor)[0][1]
        return dim == self._shape[1] and (role != "head" or 2 * self._oriented(tensor)[0][0] > rows)

    def _rows_and_columns(self, tensor: Tensor) -> tuple[int, int]:
        rows, columns = tensor.shape
        return (columns, rows) if self.transposed else (rows, columns)

    def _oriented(self, tensor: Tensor) -> tuple[tuple[int, int], bool]:
        """Return a matrix' shape as it is to be read, and whether it is transposed to that end.

        `--transposed` is about the token matrix; others follow where their rows would have another length otherwise.
        """
        if tensor is self._found.get("token"):
            return self._rows_and_columns(tensor), self.transposed
        rows, columns = tensor.shape
        across = self.transposed and (columns != self._shape[1] or rows == columns)
        return ((columns, rows) if across else (rows, columns)), across

    def _matrices(self) -> Iterator[Tensor]:
        return (tensor for tensor in self.tensors.values() if len(tensor.shape) == 2 and all(tensor.shape))

    def _undecided(self, reason: str, found: list[Tensor] | None = None, role: str = "token") -> InputError:
        """Return the error that lists the matrices there are."""
        candidates = found or sorted(self._matrices(), key=lambda tensor: -max(tensor.shape))
        if not candidates:
            return self.tensors.refused("it has no two-dimensional tensor, as a weight matrix is")
        shown = "; ".join(map(str, candidates[:_MOST_NAMED]))
        more = f"; and {len(candidates) - _MOST_NAMED:,} more" if len(candidates) > _MOST_NAMED else ""
        flag = "--position-tensor" if role == "position" else "--tensor"
        return self.tensors.refused(f"{reason}; name one with {flag}", f"{shown}{more}")


def changed(layer: Layer) -> int:
    """Return how many of the values that a layer has read float32 cannot hold."""
    count: int = getattr(layer, "changed", 0)
    return count


def _parts(name: str) -> list[str]:
    return name.replace("/", ".").replace(":", ".").split(".")


def _shared_parts(name: str, other: str) -> int:
    """Return how many parts two names begin with in common."""
    count = 0
    for part, same in zip(_parts(name), _parts(other), strict=False):
        if part != same:
            break
        count += 1
    return count


def _equal_rows(tensors: Tensors, first: Tensor, second: Tensor) -> int:
    """Return how many rows of two matrices are equal, all or some that are spread over large ones; 0 if any differs."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return 0
    rows, dim = first.shape
    count = min(rows, max(_COMPARED // (8 * dim), 2))
    ids = np.unique(np.linspace(0, rows - 1, count).astype(np.int64))
    one, other = tensors.layer(first.name), tensors.layer(second.name)
    step = max((1 << 20) // dim, 1)
    for start in range(0, len(ids), step):
        part = ids[start : start + step]
        if one.stored(part).tobytes() != other.stored(part).tobytes():
            return 0
    return len(ids)
