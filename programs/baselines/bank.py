"""What MemoryBank keeps: pieces that are forgotten unless they are recalled, and accounts of the whole.

    retention R = exp(-t / (days * S))    t: days since a piece was learned or last recalled; S: its strength, from 1

A piece is forgotten once R falls below its threshold, a number from 0 to 1 given by its id and a seed. So of many the
share R is remembered, as in the paper, and the same calls forget the same pieces; one that is forgotten stays so, for
without being found it cannot be recalled. Accounts are never forgotten.

Source: Zhong et al. 2024, "MemoryBank", section on memory updating. Strength grows by 1 and t begins anew with every
recall.

Example:
    >>> from datetime import datetime
    >>> from mempiler.memory.index import Entry
    >>> from mempiler.programs.baselines.bank import Piece
    >>> first, later = datetime(2024, 1, 1), datetime(2024, 1, 6)
    >>> piece = Piece(entry=Entry(id="D1:1", text="Ann: I have a cat."), last=first)
    >>> round(piece.retention(later, days=5.0), 3), round(piece.recalled(first).retention(later, days=5.0), 3)
    (0.368, 0.607)
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from ...memory.index import Entry
from ...memory.memory import Memory


class Piece(BaseModel):
    """A turn, or the digest of a dialogue."""

    model_config = ConfigDict(frozen=True)

    entry: Entry
    strength: int = 1
    """S: 1, and 1 more for every recall."""
    last: datetime | None = None
    """When it was learned or last recalled; None is never forgotten."""

    def retention(self, now: datetime | None, days: float) -> float:
        """R, from 0 to 1; 1 where it is not known how long ago the last recall was."""
        if now is None or self.last is None:
            return 1.0
        return math.exp(-max(0.0, days_between(self.last, now)) / (days * self.strength))

    def forgotten(self, now: datetime | None, days: float, seed: int) -> bool:
        """Whether its retention has fallen below its threshold."""
        return self.retention(now, days) < lot(self.entry.id, seed)

    def recalled(self, now: datetime | None, times: int = 1) -> Piece:
        """The piece after recalls; it does not become older by them."""
        last = self.last if now is None or (self.last and days_between(self.last, now) < 0) else now
        return self.model_copy(update={"strength": self.strength + times, "last": last})


class Digest(BaseModel):
    """What one dialogue came to."""

    model_config = ConfigDict(frozen=True)

    session: str
    time: datetime | None = None
    events: str = ""
    personality: str = ""
    sources: tuple[str, ...] = ()
    """Ids of its turns."""


class BankMemory(Memory):
    """What is kept for one user."""

    pieces: tuple[Piece, ...] = ()
    digests: tuple[Digest, ...] = ()
    events: str = ""
    """The account of what happened in all dialogues."""
    portrait: str = ""
    """What the user is like, and how to reply to them."""
    settled: int = 0
    """Digests that the two accounts were made from."""
    now: datetime | None = None
    """The latest time of any item."""

    def at(self, time: datetime | None) -> BankMemory:
        """The memory that knows of a later time."""
        return self.model_copy(update={"now": later(self.now, time)})

    def with_recalls(self, recalls: Mapping[str, int]) -> BankMemory:
        """The memory whose pieces were recalled so many times at its latest time."""
        if not recalls:
            return self
        pieces = (p.recalled(self.now, recalls[p.entry.id]) if p.entry.id in recalls else p for p in self.pieces)
        return self.model_copy(update={"pieces": tuple(pieces)})

    def with_dialogue(self, entries: Iterable[Entry], digest: Digest) -> BankMemory:
        """The memory with one more dialogue: its turns and its digest become pieces."""
        new = [Piece(entry=entry, last=entry.time) for entry in entries]
        if digest.events:
            id = f"digest-{len(self.digests) + 1}"
            entry = Entry(id=id, text=digest.events, kind="digest", sources=digest.sources, time=digest.time)
            new.append(Piece(entry=entry, last=digest.time))
        return self.model_copy(update={"pieces": (*self.pieces, *new), "digests": (*self.digests, digest)})

    def entries(self) -> list[Entry]:
        return [piece.entry for piece in self.pieces]

    def parts(self) -> tuple[Piece, ...]:
        return self.pieces

    def entry(self, part: Piece) -> Entry:
        return part.entry

    def remembered(self, now: datetime | None, days: float, seed: int) -> frozenset[str]:
        """Ids of the pieces that are not forgotten."""
        return frozenset(p.entry.id for p in self.pieces if not p.forgotten(now, days, seed))


def lot(id: str, seed: int) -> float:
    """A number from 0 up to 1 for a piece, the same each time."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{id}".encode()).digest()[:8], "big") / 2**64


def days_between(start: datetime, end: datetime) -> float:
    """Days from one time to another; the time zone counts only where both have one."""
    if (start.tzinfo is None) != (end.tzinfo is None):
        start, end = start.replace(tzinfo=None), end.replace(tzinfo=None)
    return (end - start).total_seconds() / 86_400


def later(first: datetime | None, second: datetime | None) -> datetime | None:
    """The later of two times, either of which may be missing."""
    if first is None or second is None:
        return first or second
    return second if days_between(first, second) > 0 else first


def tally(ids: Iterable[Iterable[str]]) -> dict[str, int]:
    """How often each id was found over several searches."""
    return dict(Counter(id for found in ids for id in found))
