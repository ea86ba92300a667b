"""A tokenizer whose class is Python's only: transformers splits each text in its own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from embcli.asked.folder import AskedTokenizer
from embcli.asked.process import NotAskedError, RefusedError, ask
from embcli.binary import file_error
from embcli.encodings.encoding import BosEos, Encoding
from embcli.encodings.merging import spans_of_spelling
from embcli.wording import in_data


class AskedEncoding(Encoding):
    """The names of tokens, and texts that are split elsewhere.

    Where a token stands in a text is known if the names of its tokens spell it; otherwise its span
    is the whole text.
    """

    def __init__(self, path: Path, name: str, asked: AskedTokenizer) -> None:
        self.path = path
        self.name = in_data(name)
        self.special_ids = asked.special_ids
        self.described_by = asked.kind
        self._names = asked.names
        before, after = asked.around
        self.bos_eos: BosEos = (tuple(before), tuple(after))

    @property
    def vocabulary_size(self) -> int:
        return len(self._names)

    def _ask(self, about: str, **question: Any) -> Any:
        try:
            answer = ask(about, folder=str(self.path.parent.absolute()), **question)
        except (NotAskedError, RefusedError) as error:
            raise file_error(
                self.path, f"{self.described_by} of transformers does not answer: {error}"
            ) from None
        return answer[about]

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        ids = self._ask("ids", text=text, special=special)
        if special:
            # A few classes put nothing after a text that ends like this.
            before, after = self.bos_eos
            ids = ids[len(before) : len(ids) - len(after)]
        return np.array(ids, np.uint32)

    def token_bytes(self, token_id: int) -> bytes | None:
        if not 0 <= token_id < self.vocabulary_size:
            return None
        name = self._names[token_id]
        return None if name is None else name.encode()

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        tokens = [self.token_bytes(token_id) or b"" for token_id in self.encode(text, special)]
        spans = spans_of_spelling(tokens, text)
        if spans is not None:
            return spans
        return np.tile(np.array([[0, len(text)]], np.int64), (len(tokens), 1))

    def decode(self, ids: np.ndarray) -> bytes:
        text: str = self._ask("text", ids=ids.tolist())
        return text.encode()
