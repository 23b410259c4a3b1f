"""The page of one user's memory: sessions and what was made of them, entries and the turns that they rest on.

    stored contents ── memory_page ──> MemoryPage ── HTML      every turn leads to its entries, every entry to its turns

It works for the memory of any method: an entry is whatever names its `sources` in the memory's JSON. What a session did
is read off them, too: it made the entries whose first source it holds, and added to those that rest on others before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from ...memory.amending import in_force
from ...memory.stored import Contents
from .html import render

MADE, ADDED = "made", "added to"
"""What a session did to an entry."""
_NO_TEXT = {"id", "sources", "embedding", "time"}
"""Fields of an entry that say nothing by themselves."""
REMOVED = "removed"
"""Where memories keep what they hold no longer."""


class Kept(BaseModel, frozen=True):
    """An entry of the memory."""

    kind: str
    """The field of the memory that holds it, e.g. facts."""
    id: str
    text: str
    sources: tuple[int, ...]
    """Numbers of the turns that it rests on."""
    gone: bool
    """Whether it was removed since."""
    earlier: tuple[str, ...] = ()
    """What it said before, oldest first."""


class Said(BaseModel, frozen=True):
    """A turn."""

    line: str
    entries: tuple[int, ...]
    """Numbers of the entries that rest on it."""


class Sitting(BaseModel, frozen=True):
    """A session and how far it got."""

    id: str
    state: str
    error: str
    turns: tuple[int, ...]
    operations: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """What it did to which entries."""


class MemoryPage(BaseModel, frozen=True):
    """What is shown of a memory."""

    user: str
    tenant: str
    sessions: tuple[Sitting, ...]
    turns: tuple[Said, ...]
    entries: tuple[Kept, ...]
    changes: tuple[str, ...] = ()
    """What users did to single entries, and when; those that stand."""

    @property
    def unused(self) -> int:
        """Turns that no present entry rests on."""
        return sum(not any(not self.entries[n].gone for n in turn.entries) for turn in self.turns)


def memory_page(found: Contents) -> MemoryPage:
    """The page of everything that a store holds of a user."""
    items = [(one.item, one.state, one.error) for one in found.items] + [(one, "open", "") for one in found.open]
    lines = [(turn.id, turn.line(item.time)) for item, _, _ in items for turn in item.turns]
    place = {id: n for n, (id, _) in enumerate(lines)}
    memory = json.loads(found.document.settled or found.document.memory) if found.document else {}
    entries = tuple(
        Kept(
            kind=kind,
            id=str(entry.get("id") or ""),
            text=_text(entry),
            sources=tuple(place[str(source)] for source in entry["sources"] if str(source) in place),
            gone=gone,
            earlier=_earlier(entry),
        )
        for kind, entry, gone in _entries(memory, "memory", False)
    )
    behind: dict[int, list[int]] = {}
    for n, entry in enumerate(entries):
        for turn in dict.fromkeys(entry.sources):
            behind.setdefault(turn, []).append(n)
    sessions, at = [], 0
    for item, state, error in items:
        turns = tuple(range(at, at + len(item.turns)))
        done = _operations(turns, entries, behind)
        sessions.append(Sitting(id=item.id, state=state, error=error, turns=turns, operations=done))
        at += len(item.turns)
    return MemoryPage(
        user=found.owner.user,
        tenant=found.owner.tenant,
        sessions=tuple(sessions),
        turns=tuple(Said(line=line, entries=tuple(behind.get(n, ()))) for n, (_, line) in enumerate(lines)),
        entries=entries,
        changes=tuple(row.line for row in in_force(found.amendments)),
    )


def memory_html(page: MemoryPage) -> str:
    """The page as one HTML file, which needs no script."""
    return render("memory.html", f"Memory of {page.user}", ["memory.css"], page=page)


def _entries(value: Any, kind: str, gone: bool) -> Iterator[tuple[str, dict[str, Any], bool]]:
    if isinstance(value, list):
        for part in value:
            yield from _entries(part, kind, gone)
    elif isinstance(value, dict):
        if isinstance(value.get("sources"), list):
            yield kind, value, gone
        for name, part in value.items():
            if isinstance(part, list | dict):
                yield from _entries(part, name, gone or name == REMOVED)


def _operations(
    turns: Sequence[int], entries: Sequence[Kept], behind: Mapping[int, Sequence[int]]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    touched = sorted({n for turn in turns for n in behind.get(turn, ())})
    made = tuple(n for n in touched if min(entries[n].sources) >= turns[0])
    added = tuple(n for n in touched if min(entries[n].sources) < turns[0])
    return tuple((name, some) for name, some in ((MADE, made), (ADDED, added)) if some)


def _earlier(entry: Mapping[str, Any]) -> tuple[str, ...]:
    found = entry.get("earlier")
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _text(entry: dict[str, Any]) -> str:
    """What an entry says: its text, or all words in it."""
    if isinstance(entry.get("text"), str):
        return entry["text"]
    words = [f"{name}: {value}" for name, value in entry.items() if isinstance(value, str) and name not in _NO_TEXT]
    return "; ".join(words) or "(no words)"
