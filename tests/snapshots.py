"""Texts that embcli prints, kept as files that a person reads when they change.

`pytest --accept=PATH` writes those below a path anew, as tests/pages/lookup or README.md; others
that differ fail. Whoever changes a page, a sentence or a help reads the difference that git shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.text import Text

PAGES = Path(__file__).parent / "pages"


@dataclass(frozen=True)
class Snapshot:
    """Holds texts against kept ones; below an accepted path, a text replaces the kept one."""

    accepted: list[Path]

    def accepts(self, path: Path) -> bool:
        """Whether a file is, or is below, one of the accepted paths."""
        return any(path.is_relative_to(each) for each in self.accepted)

    def __call__(self, name: str, text: str) -> None:
        """Hold a text against the file of this name under tests/pages/."""
        self.hold(PAGES / name, text)

    def hold(self, path: Path, text: str) -> None:
        """Hold a text against a file."""
        is_equal = path.exists() and path.read_bytes().decode() == text
        if self.accepts(path) and not is_equal:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, newline="")
        assert path.exists(), f"{path} is missing: pytest --accept={path} writes it"
        kept = path.read_bytes().decode()
        assert text == kept, f"pytest --accept={path} keeps the new one"


def with_styles(printed: str) -> str:
    """Return what a terminal is sent with its styles as words: [bold]ID[/].

    Spaces have no style that anybody sees, and are written without one.
    """
    lines = []
    for line in printed.split("\n"):
        parts = []
        for text, style, _ in Text.from_ansi(line).render(Console()):
            part = escape(text)
            if style and not text.isspace():
                part = f"[{style}]{part}[/]"
            parts.append(part)
        lines.append("".join(parts).rstrip("\n"))
    return "\n".join(lines)
