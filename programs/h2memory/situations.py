"""Situations out of device logs: which logs are linked, and which of them are one situation (Mem-PAL, M_G).

    logs ── windows ──> claimed links ── accepted ──> links ── components ──> groups, a Situation each

A window is ten logs whose links are asked for, with the ten before them. A link goes from a log to an earlier one of
its window: caused_by, or else follows. Groups are the connected components of all links, whatever their direction; a
log without links is a group of its own.

Example:
    >>> from mempiler.programs.h2memory.situations import Claim, accepted, components, windows
    >>> ids = ["l1", "l2", "l3"]
    >>> links, refused = accepted(ids, windows(3, 10)[0], [Claim("l3", caused_by=("l1", "l9"))])
    >>> refused, components(ids, links)
    (1, [['l1', 'l3'], ['l2']])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

Aspect = Literal["work", "health", "family", "leisure"]
"""The aspects of a background; the paper's four."""
ASPECTS: tuple[Aspect, ...] = ("work", "health", "family", "leisure")
LinkKind = Literal["caused_by", "follows"]
KINDS: tuple[LinkKind, ...] = ("caused_by", "follows")
"""In the order in which they count."""


class Link(BaseModel):
    """One edge of a log graph."""

    model_config = ConfigDict(frozen=True)

    later: str
    """Id of the log that goes back to the other one."""
    kind: LinkKind
    earlier: str


class Situation(BaseModel):
    """The situation of a group of linked logs."""

    model_config = ConfigDict(frozen=True)

    id: str = ""
    batch: str = ""
    """Id of the item of logs it comes from."""
    text: str
    aspects: tuple[Aspect, ...] = ()
    sources: tuple[str, ...] = ()
    """Ids of its logs, oldest first."""
    links: tuple[Link, ...] = ()
    since: datetime | None = None
    time: datetime | None = None
    """When its last log was written."""


@dataclass(frozen=True)
class Window:
    """Positions in a list of logs: `shown` to `stop` are shown, `first` to `stop` are asked about."""

    shown: int
    first: int
    stop: int


@dataclass(frozen=True)
class Claim:
    """The links of one log as the model gives them."""

    log: str
    caused_by: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()


def windows(count: int, size: int) -> list[Window]:
    """Cuts `count` logs into windows of at most `size`, each shown with the `size` logs before it."""
    return [Window(max(0, n - size), n, min(n + size, count)) for n in range(0, count, size)]


def accepted(ids: Sequence[str], window: Window, claims: Iterable[Claim]) -> tuple[list[Link], int]:
    """The links of one window that can be, by log and kind, and how many claimed ones cannot.

    Refused are links of a log that was not asked about, links to a log that was not shown or is not earlier, and
    follows where caused_by holds. A link that is claimed twice counts once.

    Args:
        ids: Ids of all logs, oldest first.
        window: The positions that the claims are about.
        claims: What the model said.
    """
    place = {id: n for n, id in enumerate(ids)}
    found: dict[tuple[str, str], Link] = {}
    refused = 0
    rows = list(claims)
    said: dict[tuple[str, LinkKind, str], None] = {}
    for kind in KINDS:
        said.update({(_plain(row.log), kind, _plain(id)): None for row in rows for id in getattr(row, kind)})
    for log, kind, other in said:
        later, earlier = place.get(log, -1), place.get(other, -1)
        fits = window.first <= later < window.stop and window.shown <= earlier < later
        if fits and (log, other) not in found:
            found[log, other] = Link(later=log, kind=kind, earlier=other)
        else:
            refused += 1
    return sorted(found.values(), key=lambda link: (place[link.later], place[link.earlier])), refused


def components(ids: Sequence[str], links: Iterable[Link]) -> list[list[str]]:
    """The groups of logs that links join, by their first log; within a group oldest first."""
    group = {id: id for id in ids}

    def root(id: str) -> str:
        while group[id] != id:
            group[id] = group[group[id]]
            id = group[id]
        return id

    place = {id: n for n, id in enumerate(ids)}
    for link in links:
        a, b = sorted((root(link.later), root(link.earlier)), key=place.__getitem__)
        group[b] = a
    found: dict[str, list[str]] = {}
    for id in ids:
        found.setdefault(root(id), []).append(id)
    return list(found.values())


def _plain(id: str) -> str:
    return id.strip("[]()<> \"'")
