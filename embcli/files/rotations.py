"""Rotary positions of a real model: theta, the share of a head's columns, pairing and scaling, by config.json.

The scalings are those of transformers' `rope_type`: linear (Chen et al. 2023), yarn (Peng et al. 2023), longrope (Ding
et al. 2024) and Llama 3.1's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.files.recipes import Settings
from embcli.names import DEFAULT_THETA
from embcli.recipe import Rotation

if TYPE_CHECKING:
    from collections.abc import Callable

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


def rotation_of(settings: Settings, dim: int, architecture: str | None) -> Rotation:
    """Return how a model rotates queries and keys; `architecture` is that of a GGUF file.

    Raises InputError for numbers out of range and for an unknown scaling.
    """
    model = str(settings.values.get("model_type"))
    rope = _of_rope(settings)
    theta = rope.number("rope_theta", rope.number("rotary_emb_base", DEFAULT_THETA, least=1), least=1)
    heads = next((settings.whole(key, 1) for key in _HEADS if settings.values.get(key)), 1)
    size = next((settings.whole(key, dim) for key in _SIZES if settings.values.get(key)), dim)
    head = settings.whole("qk_rope_head_dim", settings.whole("head_dim", size // max(heads, 1)))
    share = rope.number("partial_rotary_factor", rope.number("rotary_pct", 1, least=0), least=0)
    rotated = settings.whole("rotary_dim", int(head * share))
    if not 2 <= rotated <= head or rotated % 2:
        raise settings.refused(f"{settings.where} rotates {rotated:,} columns of a head of {head:,}; it must be pairs")
    interleaved = model in _INTERLEAVED if architecture is None else architecture in _INTERLEAVED_IN_GGUF
    exact = theta ** (-np.arange(0, rotated, 2) / rotated)  # radians for each position
    kind = rope.values.get("rope_type", rope.values.get("type")) or "default"
    if not isinstance(kind, str) or kind not in _SCALINGS:
        known = ", ".join(_SCALINGS)
        raise settings.refused(f"{settings.where} has {str(kind)[:40]!r} as rope_type, which must be one of {known}")
    rates, scaling = _SCALINGS[kind](exact, theta, rope)
    return Rotation("interleaved" if interleaved else "halves", theta, head, tuple(rates.tolist()), scaling)


def _of_rope(settings: Settings) -> Settings:
    """Return the settings with those of rotary positions beside them; of several kinds of layers, full attention's."""
    values = dict(settings.values)
    for key in ("rope_scaling", "rope_parameters"):
        rope = values.get(key)
        if isinstance(rope, dict):
            full = rope.get("full_attention", rope)
            values |= full if isinstance(full, dict) else {}
    if "global_rope_theta" in values:  # ModernBERT
        values["rope_theta"] = values["global_rope_theta"]
    return Settings(values, settings.refused, settings.where)


def _plain(rates: np.ndarray, theta: float, rope: Settings) -> tuple[np.ndarray, str]:
    return rates, ""


def _dynamic(rates: np.ndarray, theta: float, rope: Settings) -> tuple[np.ndarray, str]:
    length = rope.whole("max_position_embeddings", 0)
    return rates, f"dynamic scaling, which begins after {length:,} positions"


def _linear(rates: np.ndarray, theta: float, rope: Settings) -> tuple[np.ndarray, str]:
    factor = rope.number("factor", 1, least=1)
    return rates / factor, f"linear scaling by {factor:g}"


def _llama3(rates: np.ndarray, theta: float, rope: Settings) -> tuple[np.ndarray, str]:
    """Divide slow rotations by a factor, keep fast ones, and blend between."""
    factor, length = rope.number("factor", 8, least=1), rope.whole("original_max_position_embeddings", 8192)
    low, high = rope.number("low_freq_factor", 1, least=0), rope.number("high_freq_factor", 4, least=0)
    if high <= low:
        raise rope.wrong("high_freq_factor", "more than low_freq_factor")
    turns = length * rates / (2 * math.pi)  # in the original length
    share = np.clip((turns - low) / (high - low), 0, 1)
    return (1 - share) * rates / factor + share * rates, f"Llama 3.1's scaling by {factor:g}"


def _yarn(rates: np.ndarray, theta: float, rope: Settings) -> tuple[np.ndarray, str]:
    """Divide slow rotations by a factor, keep fast ones, and blend between by the number of the pair."""
    factor, pairs = rope.number("factor", 1, least=1), len(rates)
    length = rope.whole("original_max_position_embeddings", rope.whole("max_position_embeddings", 2048))

    def pair(turns: float) -> float:  # that turns so often in the original length
        return 2 * pairs * math.log(max(length, 1) / (turns * 2 * math.pi)) / (2 * math.log(max(theta, 1 + 1e-9)))

    first, last = pair(rope.number("beta_fast", 32, least=1e-9)), pair(rope.number("beta_slow", 1, least=1e-9))
    if rope.values.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    share = np.clip((np.arange(pairs) - first) / (last - first or 0.001), 0, 1)
    return share * rates / factor + (1 - share) * rates, f"YaRN scaling by {factor:g}"


def _longrope(rates: np.ndarray, theta: float, rope: Settings) -> tuple[np.ndarray, str]:
    factors: Any = rope.values.get("short_factor")
    if (
        not isinstance(factors, list)
        or len(factors) != len(rates)
        or not all(isinstance(each, int | float) and 0 < each < 1e300 for each in factors)
    ):
        raise rope.refused(f"{rope.where} has no short_factor of {len(rates):,} numbers, one for each pair")
    length = rope.whole("original_max_position_embeddings", 0)
    return rates / np.array(factors, np.float64), f"LongRoPE scaling, of texts of up to {length:,} tokens"


_SCALINGS: dict[Any, Callable[[np.ndarray, float, Settings], tuple[np.ndarray, str]]] = {
    "default": _plain,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
