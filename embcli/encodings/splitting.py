r"""How pre-tokenizers split a text into pieces: merges of byte-pair encoding never cross their edges.

A GGUF file names its pre-tokenizer in `tokenizer.ggml.pre`. The names and the rules are those of llama.cpp's
src/llama-vocab.cpp: a text is split by each rule in turn, and what a rule does not match is a piece, too. In its rules,
\p{Lu}, \p{Ll} and other kinds of letters are \p{L}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any, TypeVar

Rule = str | Callable[[str], Iterable[str]]
_Value = TypeVar("_Value")
_LONGEST_CACHED, _MOST_CACHED = 64, 1 << 18  # characters of a piece whose value is kept, and pieces


class Cache(dict[str, _Value]):
    """What a function returns for pieces; that of short ones is kept."""

    def __init__(self, function: Callable[[str], _Value]) -> None:
        self._function = function

    def __missing__(self, piece: str) -> _Value:
        value = self._function(piece)
        if len(piece) <= _LONGEST_CACHED and len(self) < _MOST_CACHED:
            self[piece] = value
        return value


_SUFFIX = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
_HEAD = r"[^\r\n\p{L}\p{N}]?"
_LETTERS = _HEAD + r"\p{L}+"
_MARKED = _HEAD + r"[\p{L}\p{M}]+"
_OTHERS = r" ?[^\s\p{L}\p{N}]+"
_LINES = r"\s*[\r\n]+"
_SPACES = r"\s+(?!\S)|\s+"
_KANA = r"[\u4e00-\u9fa5\u3040-\u30ff]+"
_HAN = (
    r"\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002ebef\uf900-\ufaff"
    r"\U0002f800-\U0002fa1f"
)
# Letters with a case, as DeepSeek's first tokenizer lists them.
_CASED = (
    r"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    r"\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    r"\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    r"\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    r"\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    r"\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    r"\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    r"\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    r"\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    r"\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)


def _rule(*parts: str) -> str:
    return "|".join(parts)


def _cased(kinds: str, suffix: str) -> str:
    """Return a rule that splits words before an upper-case letter that follows a lower-case one."""
    upper, lower = f"[{kinds}--[a-z]]", f"[{kinds}--[A-Z]]"
    return rf"{_HEAD}{upper}*{lower}+{suffix}|{_HEAD}{upper}+{lower}*{suffix}"


def _in_thousands(text: str) -> Iterator[str]:
    """Yield digits in groups of three from their right end; the first group follows the text before it."""
    place = 0
    for digits in _compiled(r"\p{N}+").finditer(text):
        end = digits.start() + ((digits.end() - digits.start()) % 3 or 3)
        while end <= digits.end():
            yield text[place:end]
            place, end = end, end + 3
    yield text[place:]


def _before_thousands(text: str) -> Iterator[str]:
    """Yield a text that is split before each group of three digits, counted from their right end."""
    place = 0
    for digits in _compiled("[0-9]+").finditer(text):
        for start in range(digits.start() + (digits.end() - digits.start()) % 3, digits.end(), 3):
            yield text[place:start]
            place = start
    yield text[place:]


_GPT2 = r"'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _rule(_SUFFIX, _LETTERS, r"\p{N}{1,3}", _OTHERS + r"[\r\n]*", _LINES, _SPACES)
_QWEN2 = _rule(_SUFFIX, _LETTERS, r"\p{N}", _OTHERS + r"[\r\n]*", _LINES, _SPACES)
_ASCII_WORDS = r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_DEEPSEEK3 = _rule(_ASCII_WORDS, r" ?[\p{P}\p{S}]+[\r\n]*", _LINES, _SPACES)
_O200K_ENDS = (r"\p{N}{1,3}", _OTHERS + r"[\r\n/]*", _LINES, _SPACES)
_BLOOM = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_IDEOGRAPHS = r"[[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]--\s]+"
_EAST_ASIAN = _rule(
    r"[\uac00-\ud7a3\u3131-\u318e]+",
    r"[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+",
    r"[\u3105-\u312f]+",
    _KANA,
)
_ASIAN = (
    r"[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    r"\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_LINE = r"[^\n]+|\n+"


@dataclass(frozen=True)
class Splitting:
    """A pre-tokenizer: its rules, and what else its name says about an encoding."""

    rules: tuple[Rule, ...]
    ignores_merges: bool = False  # a piece that is a token is not split, whatever the merges say
    adds_bos: bool = False  # unless the file says otherwise
    escapes_spaces: bool = False  # texts are spelled with U+2581 for a space
    is_of_bytes: bool = True  # merges join bytes; otherwise characters
    keeps_lines: bool = False  # a run of newlines is not split if it is a token

    def pieces(self, text: str) -> Iterable[str]:
        """Return the pieces of a text in order."""
        pieces: Iterable[str] = _split(self.rules[0], text)
        for rule in self.rules[1:]:
            pieces = chain.from_iterable(map(partial(_split_again, rule, _cache(rule)), pieces))
        return pieces


def _split(rule: Rule, text: str) -> Iterator[str]:
    """Yield what a rule matches in a text, and what is between."""
    if not isinstance(rule, str):
        yield from filter(None, rule(text))
        return
    place = 0
    for match in _compiled(rule).finditer(text):
        start, end = match.span()
        if start > place:
            yield text[place:start]
        yield text[start:end]
        place = end
    if place < len(text):
        yield text[place:]


def _split_again(rule: Rule, cached: Cache[tuple[str, ...]], piece: str) -> Iterable[str]:
    return cached[piece] if len(piece) <= _LONGEST_CACHED else _split(rule, piece)


@cache
def _cache(rule: Rule) -> Cache[tuple[str, ...]]:
    """Return how a rule splits pieces: most of those that another rule leaves are short and occur often."""
    return Cache(lambda piece: tuple(_split(rule, piece)))


@cache
def _compiled(rule: str) -> Any:
    import regex

    return regex.compile(rule, regex.VERSION1)


def _plain(*rules: Rule) -> Splitting:
    return Splitting(rules)


_LLAMA3_NAMES = (
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
)
_GPT2_NAMES = (
    *("gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum"),
    *("modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "exaone4"),
    *("mpt", "olmo", "jais", "trillion", "granite-docling"),
)
_DIGIT_NAMES = (*("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"),)
_QWEN2_NAMES = (
    *("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"),
)
_O200K = _plain(_rule(_cased(r"\p{L}", f"(?:{_SUFFIX})?"), *_O200K_ENDS))
_GEMMA = Splitting((_LINE,), adds_bos=True, escapes_spaces=True, is_of_bytes=False, keeps_lines=True)

SPLITTINGS: dict[str, Splitting] = {
    "default": _plain(r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    **dict.fromkeys(_LLAMA3_NAMES, Splitting((_LLAMA3,), ignores_merges=True, adds_bos=True)),
    **dict.fromkeys(_GPT2_NAMES, _plain(_GPT2)),
    **dict.fromkeys(_DIGIT_NAMES, _plain(r"\p{N}", _GPT2)),
    **dict.fromkeys(_QWEN2_NAMES, _plain(_QWEN2)),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), _plain(_LLAMA3)),
    **dict.fromkeys(("glm4", "glm5"), Splitting((_LLAMA3,), ignores_merges=True)),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _O200K),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _plain(r"\p{N}{1,3}", _KANA, _DEEPSEEK3)),
    **dict.fromkeys(("poro-chat", "bloom", "gpt3-finnish"), _plain(_BLOOM)),
    **dict.fromkeys(
        ("bailingmoe", "bailingmoe2", "llada-moe"),
        _plain(_rule(_SUFFIX, _LETTERS, r"\p{N}", _OTHERS + r"[\r\n]*", r"\s*[\r\n]", _SPACES)),
    ),
    **dict.fromkeys(
        ("tiny_aya", "cohere2moe"),
        _plain(_in_thousands, _rule(f"{_MARKED}(?:{_SUFFIX})?", *_O200K_ENDS)),
    ),
    **dict.fromkeys(("gemma4", "granite-embed-multi-311m"), _GEMMA),
    "sarvam-moe": Splitting((_LINE,), escapes_spaces=True, is_of_bytes=False),
    "whitespace": Splitting((r"\S+",), is_of_bytes=False),
    "qwen35": _plain(_rule(_SUFFIX, _MARKED, r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _LINES, _SPACES)),
    "minicpm5": Splitting(
        (r"\p{N}{1,3}", _rule(_SUFFIX, _LETTERS, r"\p{N}+", _OTHERS + r"[\r\n]*", _LINES, _SPACES)),
        ignores_merges=True,
    ),
    "jais-2": _plain(
        _rule(
            *(_SUFFIX, _LETTERS, r"\p{N}{1,3}", _OTHERS + r"[\r\n]*", _LINES),
            *(rf"\s{{{count}}}(?!\S)" for count in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2")),
            r"\s",
        )
    ),
    "deepseek-llm": _plain(
        r"[\r\n]",
        rf"\s?[{_CASED}]+",
        r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+",
        r"\s+\Z",
        _IDEOGRAPHS,
        r"\p{N}+",
    ),
    "deepseek-coder": _plain(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _IDEOGRAPHS, r"\p{N}"),
    "spark2_5": _plain(
        *(r"\p{N}{1,3}", _KANA, _rule(_ASCII_WORDS, r" ?[\p{P}\p{S}]+", r"[\r\n]", _SPACES), r"\p{N}"),
    ),
    "youtu": Splitting(
        (
            _EAST_ASIAN,
            _rule(f"{_MARKED}(?:{_SUFFIX})?", r"\p{N}", _OTHERS + r"[\r\n/]*", _LINES, _SPACES),
        ),
        ignores_merges=True,
    ),
    "falcon": _plain(r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "viking": _plain(_BLOOM, r"\p{N}"),
    "tekken": Splitting(
        (_rule(_cased(r"\p{L}", ""), r"\p{N}", _OTHERS + r"[\r\n/]*", _LINES, _SPACES),),
        ignores_merges=True,
        adds_bos=True,
    ),
    "chameleon": Splitting(
        (*("<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", _GPT2),),
        adds_bos=True,
    ),
    "granite-embed-multi-97m": Splitting(
        (_rule(_cased(r"[\p{L}\p{M}]", f"(?:{_SUFFIX})?"), *_O200K_ENDS),), ignores_merges=True
    ),
    "kimi-k2": _plain(
        _rule(
            *(f"[{_HAN}]+", rf"{_HEAD}[\p{{L}}--[{_HAN}]]+(?:{_SUFFIX})?", r"\p{N}{1,3}", _OTHERS + r"[\r\n]*"),
            *(_LINES, _SPACES),
        )
    ),
    "superbpe": _plain(r"\p{N}+", _before_thousands),
    "seed-coder": _plain(_rule(_SUFFIX, _LETTERS, r"\p{N}", r" ?[^\s\p{L}\p{N}]+", _LINES, _SPACES)),
    "ufakzeka": _plain(_rule(_LETTERS, r"\p{N}", _OTHERS + r"[\r\n]*", _LINES, _SPACES)),
    "afmoe": _plain(_in_thousands, _ASIAN, _DEEPSEEK3),
    "laguna": _plain(_LINE, _QWEN2),
    "exaone-moe": _plain(
        _rule(
            *(_SUFFIX, _HEAD + r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", r"\p{N}", _OTHERS + r"[\r\n/]?"),
            *(r"\s*[\r\n]", _SPACES),
        )
    ),
}
