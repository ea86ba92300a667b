"""Rotary positions of a real model: theta, the share of a head's columns, pairing and scaling, by config.json.

The scalings are those of transformers' `rope_type`: linear (Chen et al. 2023), yarn (Peng et al. 2023), longrope (Ding
et al. 2024) and Llama 3.1's. A GGUF file has the factors of the last two as tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from embcli.files.recipes import Settings
from embcli.names import DEFAULT_THETA, Pairing
from embcli.recipe import Rotation

# Models whose pairs are neighbouring columns; those of all others are a column and the one half of a head further.
_INTERLEAVED = (
    *("gptj", "codegen", "cohere", "cohere2", "glm", "glm4", "helium"),
    *("ernie4_5", "deepseek_v2", "deepseek_v3"),
)
# The same in GGUF files, whose converter moves the columns of some models, by the name of the architecture.
_INTERLEAVED_IN_GGUF = (
    *("llama", "deepseek", "deepseek2", "granite", "granitemoe", "olmo", "command-r", "cohere2"),
    *("minicpm", "glm4", "chatglm", "ernie4_5", "smollm3"),
)
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_SIZES = ("hidden_size", "n_embd", "d_model")
_LARGEST = 1 << 20  # columns of a head
_LOCAL_THETAS = ("rope_local_base_freq", "local_rope_theta")  # Gemma 3, ModernBERT
_GGUF_FACTORS = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}

Layers = Literal["full_attention", "sliding_attention"]  # as config.json names them


@dataclass(frozen=True)
class _Scaled:
    """The rates after a scaling, radians for each position, and what it is in words."""

    rates: np.ndarray
    words: str = ""
    attention: float = 1.0
    longer: np.ndarray | None = None  # the rates in texts of more than `length` tokens
    length: int = 0


def rotation_of(
    settings: Settings, dim: int, architecture: str | None, vector: Callable[[str], np.ndarray | None]
) -> Rotation:
    """Return how a model rotates queries and keys; `architecture` is that of a GGUF file, and `vector` its tensors.

    Raises InputError for numbers out of range and for an unknown scaling.
    """
    model = str(settings.values.get("model_type"))
    interleaved = model in _INTERLEAVED if architecture is None else architecture in _INTERLEAVED_IN_GGUF
    pairing: Pairing = "interleaved" if interleaved else "halves"
    if architecture is not None:
        settings = _with_factors(settings, vector)
    own, local = (_of_layers(settings, layers) for layers in ("full_attention", "sliding_attention"))
    rotation = _rotation(own or settings, dim, pairing, vector)
    other = None if local is None else _rotation(local, dim, pairing, vector)
    if other is None or other.rates == rotation.rates:
        return rotation
    other = replace(other, layers="sliding attention", other=replace(rotation, layers="full attention"))
    return replace(rotation, layers="full attention", other=other)


def _with_factors(settings: Settings, vector: Callable[[str], np.ndarray | None]) -> Settings:
    """Return the settings of a GGUF file, whose scaling is linear unless it is named, with LongRoPE's factors."""
    tensors = {key: vector(name) for key, name in _GGUF_FACTORS.items()}
    factors = {key: values.tolist() for key, values in tensors.items() if values is not None}
    kind = "longrope" if factors else "linear" if "factor" in settings.values else "default"
    return settings.with_values({"rope_type": settings.values.get("rope_type") or kind, **factors})


def _rotation(rope: Settings, dim: int, pairing: Pairing, vector: Callable[[str], np.ndarray | None]) -> Rotation:
    theta = rope.number("rope_theta", rope.number("rotary_emb_base", DEFAULT_THETA, least=1), least=1)
    head = rope.whole("qk_rope_head_dim", rope.whole("head_dim", 0)) or _columns_of_a_head(rope, dim)
    share = rope.number("partial_rotary_factor", rope.number("rotary_pct", 1, least=0), least=0)
    rotated = rope.whole("rotary_dim", int(min(head * share, _LARGEST)))
    if not 2 <= rotated <= head <= _LARGEST or rotated % 2:
        raise rope.refused(f"{rope.where} rotates {rotated:,} columns of a head of {head:,}; it must be pairs")
    rates = theta ** (-np.arange(0, rotated, 2) / rotated)  # radians for each position
    kind = rope.values.get("rope_type", rope.values.get("type")) or "default"
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise rope.wrong("rope_type" if "rope_type" in rope.values else "type", f"one of {', '.join(_SCALINGS)}")
    scaled = _SCALINGS[kind](rates, theta, rope)
    factors = vector("rope_freqs.weight")  # Llama 3.1's in a GGUF file
    if factors is not None:
        if factors.shape != rates.shape or not (factors > 0).all():
            raise rope.refused(f"its rope_freqs.weight must be {len(rates):,} numbers above 0, one for each pair")
        scaled = _Scaled(rates / factors, "divided by the file's rope_freqs")
    rotation = Rotation(pairing, theta, head, tuple(scaled.rates.tolist()), scaled.words, scaled.attention)
    if scaled.longer is None:
        return rotation
    words = scaled.words.replace("up to", "more than")
    longer = replace(rotation, rates=tuple(scaled.longer.tolist()), scaling=words)
    return replace(rotation, longer=longer, length=scaled.length)


def _columns_of_a_head(rope: Settings, dim: int) -> int:
    heads = next((rope.whole(key, 1) for key in _HEADS if rope.values.get(key)), 1)
    size = next((rope.whole(key, dim) for key in _SIZES if rope.values.get(key)), dim)
    return size // max(heads, 1)


def _of_layers(settings: Settings, layers: Layers) -> Settings | None:
    """Return the settings with those of rotary positions in these layers beside them; None if there are none."""
    ropes = [each for key in ("rope_scaling", "rope_parameters") if isinstance(each := settings.values.get(key), dict)]
    if any(isinstance(each, dict) for rope in ropes for each in rope.values()):  # by the kind of layers
        ropes = [each for rope in ropes if isinstance(each := rope.get(layers), dict)]
        return settings.with_values({key: value for rope in ropes for key, value in rope.items()}) if ropes else None
    if layers == "sliding_attention":
        thetas = [settings.number(key, 0, least=1) for key in _LOCAL_THETAS if settings.values.get(key) is not None]
        return settings.with_values({"rope_theta": thetas[0], "rope_type": "default"}) if thetas else None
    own = {key: value for rope in ropes for key, value in rope.items()}
    if "global_rope_theta" in settings.values:  # ModernBERT
        own["rope_theta"] = settings.number("global_rope_theta", DEFAULT_THETA, least=1)
    return settings.with_values(own)


def _plain(rates: np.ndarray, theta: float, rope: Settings) -> _Scaled:
    return _Scaled(rates)


def _dynamic(rates: np.ndarray, theta: float, rope: Settings) -> _Scaled:
    length = rope.whole("max_position_embeddings", 0)
    return _Scaled(rates, f"dynamic scaling, which begins after {length:,} positions")


def _linear(rates: np.ndarray, theta: float, rope: Settings) -> _Scaled:
    factor = rope.number("factor", 1, least=1)
    return _Scaled(rates / factor, f"linear scaling by {factor:g}" if factor != 1 else "")


def _llama3(rates: np.ndarray, theta: float, rope: Settings) -> _Scaled:
    """Divide slow rotations by a factor, keep fast ones, and blend between."""
    factor, length = rope.number("factor", 8, least=1), rope.whole("original_max_position_embeddings", 8192)
    low, high = rope.number("low_freq_factor", 1, least=0), rope.number("high_freq_factor", 4, least=0)
    if high <= low:
        raise rope.refused(f"{rope.where} has {high:g} as high_freq_factor, which must be more than low_freq_factor")
    rotations = length * rates / (2 * math.pi)  # in the original length
    share = np.clip((rotations - low) / (high - low), 0, 1)
    return _Scaled((1 - share) * rates / factor + share * rates, f"Llama 3.1's scaling by {factor:g}")


def _yarn(rates: np.ndarray, theta: float, rope: Settings) -> _Scaled:
    """Divide slow rotations by a factor, keep fast ones, and blend between by the number of the pair."""
    pairs, length = len(rates), _original_length(rope)
    factor = rope.number("factor", max(rope.whole("max_position_embeddings", 1) / max(length, 1), 1), least=1)

    def pair(rotations: float) -> float:  # with this many rotations in the original length
        return 2 * pairs * math.log(max(length, 1) / (rotations * 2 * math.pi)) / (2 * math.log(max(theta, 1 + 1e-9)))

    first, last = pair(rope.number("beta_fast", 32, least=1e-9)), pair(rope.number("beta_slow", 1, least=1e-9))
    if rope.values.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    share = np.clip((np.arange(pairs) - first) / (last - first or 0.001), 0, 1)
    by, over = rope.number("mscale", 0), rope.number("mscale_all_dim", 0)
    usual = [0.1 * scale * math.log(factor) + 1 for scale in ((by, over) if by and over else (1, 0))]
    attention = rope.number("attention_factor", usual[0] / usual[1]) * rope.number("attn_factor", 1)
    return _Scaled(share * rates / factor + (1 - share) * rates, f"YaRN scaling by {factor:g}", attention)


def _longrope(rates: np.ndarray, theta: float, rope: Settings) -> _Scaled:
    """Divide each rotation by a factor of its own, and by another one in long texts."""
    length, short, long = _original_length(rope), *(_factors(rope, key, len(rates)) for key in _GGUF_FACTORS)
    factor = rope.number("factor", rope.whole("max_position_embeddings", 1) / max(length, 1), least=0)
    usual = math.sqrt(1 + math.log(factor) / math.log(length)) if factor > 1 and length > 1 else 1.0
    attention = rope.number("attention_factor", rope.number("attn_factor", usual))
    words = f"LongRoPE scaling of texts of up to {length:,} tokens"
    return _Scaled(rates / short, words, attention, rates / long, length)


def _original_length(rope: Settings) -> int:
    return rope.whole("original_max_position_embeddings", rope.whole("max_position_embeddings", 2048))


def _factors(rope: Settings, key: str, pairs: int) -> np.ndarray:
    factors: Any = rope.values.get(key)
    if (
        not isinstance(factors, list)
        or len(factors) != pairs
        or not all(isinstance(each, int | float) and 0 < each < 1e300 for each in factors)
    ):
        raise rope.refused(f"{rope.where} has no {key} of {pairs:,} numbers, one for each pair")
    return np.array(factors, np.float64)


_SCALINGS: dict[Any, Callable[[np.ndarray, float, Settings], _Scaled]] = {
    "default": _plain,
    "none": _plain,  # in GGUF files
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
