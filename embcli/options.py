"""What each verb can be asked for: one frozen dataclass a verb, whose fields are named as the command's options are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embcli.names import Joined, Metric, Pairing


@dataclass(frozen=True)
class LookupOptions:
    show: tuple[str, ...] | None = None
    columns: str | None = None
    trace: int | None = None
    draw: bool = False
    only: str | None = None
    only_ids: str | None = None
    position: Joined = "learned"
    pairing: Pairing | None = None
    theta: float | None = None
    token_type: int | None = None
