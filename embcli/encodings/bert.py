"""BERT's `vocab.txt` as an encoding: one token per line; the package `tokenizers` splits a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from embcli.binary import Binary
from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.strict_json import read_object

if TYPE_CHECKING:
    import tokenizers

_LONGEST = 1 << 24  # bytes of a tokenizer_config.json
_SPECIAL = ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")


class BertEncoding(HuggingFaceEncoding):
    """The tokens of a `vocab.txt`; a text is lower-cased unless the tokenizer_config.json beside it says otherwise."""

    kind = "vocab.txt"

    def _maker(self) -> Callable[[bytes], tokenizers.Tokenizer]:
        """Return what makes the tokenizer of the bytes of a file; raises ImportError without the package."""
        import tokenizers  # noqa: F401

        return self._made

    def _made(self, data: bytes) -> tokenizers.Tokenizer:
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

        ids = {word: token_id for token_id, word in enumerate(data.decode().splitlines())}
        tokenizer: tokenizers.Tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))  # noqa: S106 - no password
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=self._lowers())
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        tokenizer.add_special_tokens([token for token in _SPECIAL if token in ids])
        return tokenizer

    def _lowers(self) -> bool:
        path = self.path.with_name("tokenizer_config.json")
        return not path.is_file() or read_object(Binary(path), _LONGEST).get("do_lower_case") is not False
