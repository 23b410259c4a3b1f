"""MemoryBank: turns and digests that fade unless they are recalled, an account of events, and a portrait of the user.

    dialogue ── digest, personality ──> pieces, notes        (one call each, for all dialogues at the same time)
    dialogue ── what its user says, as queries ──> older pieces are recalled: strength + 1, time anew
    settle   ── merge ──> the account of all events, the portrait of the user
    query    ── cosine, of what is not forgotten ──> the k nearest pieces, the account, the portrait

Source: Zhong et al., "MemoryBank: Enhancing Large Language Models with Long-Term Memory" (AAAI 2024), as
Mem-PAL compares with it (Tables 2 and 4).

    retention R = exp(-t / (days * S))    t: days since a piece was learned or last recalled; S: its strength, from 1

A piece is forgotten once R falls below its threshold, a number from 0 to 1 given by its id: of many the share R
is remembered, as in the paper, and what is forgotten stays so. Strength grows by the recalls that the assistant
would have made while the dialogues took place, one per utterance of the user; a question leaves the memory as it is.
The released formula `-t / 5*S` makes strong pieces fade faster; here it is -t / (5 S). A piece is a turn, not a turn
with its reply; digests are per session instead of per day.

Limits: both accounts are made anew from all digests, in one call each, which a history of thousands of sessions
outgrows.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from ...memory.amending import Amend
from ...memory.index import Embedder, Entry
from ...memory.indexes import Indexes
from ...memory.memory import Memory, turn_entries
from ...records import Context, Hit, Item, Query, comparable, format_time, one_line, read_time
from ...signatures.baselines import DigestEvents, InferPersonality, MergeEvents, MergePersonality
from ..gather import gather
from ..method import EntryReader, Method, Writer
from ..predictor import predictor
from ..settings import Settings

_SPOKEN_DATES = ("%d %B %Y %H:%M", "%d %B %Y")
_WEEKDAY = re.compile(r",\s*\w+day")


class BankSettings(Settings):
    """What can be set of `MemoryBank`."""

    retired: ClassVar = {"seed": 0, "portrait": True}

    k: int = Field(3, ge=1, description="pieces recalled per query, and per utterance while dialogues are written")
    forgetting: bool = Field(True, description="whether pieces fade")
    days: float = Field(
        5.0, gt=0, description="days after which a piece of strength 1 is remembered with probability 1/e"
    )


class Strength(NamedTuple):
    """How well a piece is remembered."""

    recalls: int = 1
    """S: 1, and 1 more for every recall."""
    last: datetime | None = None
    """When it was learned or last recalled; None is never forgotten."""

    def retention(self, now: datetime | None, days: float) -> float:
        """R, from 0 to 1; 1 where it is not known how long ago the last recall was."""
        if now is None or self.last is None:
            return 1.0
        passed = (comparable(now) - comparable(self.last)).total_seconds() / 86_400
        return math.exp(-max(0.0, passed) / (days * self.recalls))

    def forgotten(self, piece: str, now: datetime | None, days: float) -> bool:
        """Whether the retention of the piece of an id has fallen below its threshold, which is the same each time."""
        lot = hashlib.sha256(f"0:{piece}".encode()).digest()[:8]
        return self.retention(now, days) < int.from_bytes(lot, "big") / 2**64


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

    pieces: tuple[Entry, ...] = ()
    """Turns, and digests of dialogues."""
    recalled: dict[str, Strength] = Field({})
    """How well those pieces are remembered that were recalled since they were learned, by their ids."""
    digests: tuple[Digest, ...] = ()
    events: str = ""
    """The account of what happened in all dialogues."""
    portrait: str = ""
    """What the user is like, and how to reply to them."""
    settled: int = 0
    """Digests that the two accounts were made from."""
    now: datetime | None = None
    """The latest time of any item."""

    def entries(self) -> tuple[Entry, ...]:
        return self.pieces

    def strength(self, piece: Entry) -> Strength:
        """How well a piece is remembered."""
        return self.recalled.get(piece.id) or Strength(last=piece.time)

    def remembered(self, now: datetime | None, settings: BankSettings) -> frozenset[str]:
        """Ids of the pieces that are not forgotten; all of them where nothing fades."""
        fades, days = settings.forgetting, settings.days
        return frozenset(p.id for p in self.pieces if not (fades and self.strength(p).forgotten(p.id, now, days)))


class BankWriter(Writer):
    """Digests dialogues, recalls older pieces by what is said, and keeps two accounts of the whole."""

    Memory = BankMemory
    longest_text = 40_000

    def __init__(self, embedder: Embedder, settings: BankSettings, indexes: Indexes) -> None:
        super().__init__()
        self.embedder, self.settings, self.indexes = embedder, settings, indexes
        self.digest = predictor(DigestEvents)
        self.infer = predictor(InferPersonality)
        self.merge_events = predictor(MergeEvents)
        self.merge_personality = predictor(MergePersonality)

    def prepare(self, item: Item) -> Digest:
        """The digest of a dialogue, and what it shows of the user."""
        entries = turn_entries(item)
        digest = Digest(session=item.id, time=item.time, sources=tuple(entry.id for entry in entries))
        if not entries:
            return digest
        date = format_time(item.time) if item.time else "unknown"
        about = {"session_date": date, "spoken": "\n".join(entry.text for entry in entries)}
        events, personality = gather(
            [
                lambda: _said(self.attempt(self.digest, **about), "event_digest"),
                lambda: _said(self.attempt(self.infer, **about), "personality_note"),
            ]
        )
        return digest.model_copy(update={"events": events, "personality": personality})

    def write(self, memory: BankMemory, item: Item, prepared: Digest | None = None) -> BankMemory:
        """Recalls older pieces by the user's messages, then writes the dialogue."""
        digest = self.prepare(item) if prepared is None else prepared
        entries, now = turn_entries(item), later(memory.now, item.time)
        if not entries:
            return memory.model_copy(update={"now": now})
        recalled = dict(memory.recalled)
        recalls = self._recalls(memory, now, entries)
        for piece in memory.pieces:
            if piece.id in recalls:
                before = memory.strength(piece)
                recalled[piece.id] = Strength(before.recalls + recalls[piece.id], later(before.last, now))
        digests = (*memory.digests, digest)
        if digest.events:
            about = {"kind": "digest", "sources": digest.sources, "time": item.time}
            entries = (*entries, Entry(id=f"digest-{len(digests)}", text=digest.events, **about))
        kept = {"now": now, "pieces": (*memory.pieces, *entries), "recalled": recalled, "digests": digests}
        return memory.model_copy(update=kept)

    def settle(self, memory: BankMemory) -> BankMemory:
        """Writes both accounts anew where there are digests that they do not cover."""
        if memory.settled == len(memory.digests):
            return memory
        events = "\n".join(_dated(one, one.events) for one in memory.digests if one.events)
        notes = "\n".join(_dated(one, one.personality) for one in memory.digests if one.personality)
        account, drawn = gather(
            [
                lambda: _said(events and self.attempt(self.merge_events, event_digests=events), "overall_events"),
                lambda: _said(notes and self.attempt(self.merge_personality, personality_notes=notes), "user_portrait"),
            ]
        )
        changed = {"events": account or memory.events, "portrait": drawn or memory.portrait}
        return memory.model_copy(update={**changed, "settled": len(memory.digests)})

    def _recalls(self, memory: BankMemory, now: datetime | None, entries: Sequence[Entry]) -> dict[str, int]:
        """How often each piece is recalled while a dialogue takes place; nothing fades without forgetting."""
        queries = [entry.text for entry in entries if (entry.speaker or "").lower() != "assistant"]
        if not (self.settings.forgetting and memory.pieces and queries):
            return {}
        there = memory.remembered(now, self.settings)
        rows = self.indexes.search(memory, queries, self.settings.k, 0.0, lambda entry: entry.id in there)
        return Counter(hit.id for hits in rows for hit in hits)


class BankReader(EntryReader):
    """Finds the nearest pieces that are not forgotten."""

    def __init__(self, settings: BankSettings, indexes: Indexes) -> None:
        super().__init__(settings.k, indexes=indexes)
        self.settings = settings

    def search(
        self, memory: BankMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """The nearest pieces that are remembered at the time of the latest item."""
        there = memory.remembered(memory.now, self.settings)
        low = 0.0 if min_score is None else min_score
        return self.indexes.search(memory, queries, k, low, lambda entry: entry.id in there)

    def recall(self, memory: BankMemory, query: Query) -> Context:
        """The context of a query at its date, or else at the time of the latest item; the memory stays as it is."""
        there = memory.remembered(later(memory.now, time_of(query.date)), self.settings)
        found = self.indexes.search(memory, [query.probe], self.k, 0.0, lambda entry: entry.id in there)[0]
        notes = {"what happened": memory.events, "the user": memory.portrait}
        counts = {"pieces": len(found), "forgotten": len(memory.pieces) - len(there)}
        return Context(hits=tuple(found), notes=notes, counts=counts)

    def amended(self, memory: BankMemory, amend: Amend) -> BankMemory:
        def left(text: str) -> str:
            # An account rests on all dialogues.
            every = tuple(turn for digest in memory.digests for turn in digest.sources)
            after = amend(Entry(id="", text=text, kind="summary", sources=every)) if text else None
            return after.text if after else ""

        accounts = {"events": left(memory.events), "portrait": left(memory.portrait)}
        return super().amended(memory, amend).model_copy(update=accounts)

    def otherwise(self, memory: BankMemory, query: Query) -> Sequence[Hit]:
        """The newest of what is not forgotten at the date of the query."""
        there = memory.remembered(later(memory.now, time_of(query.date)), self.settings)
        kept = tuple(piece for piece in memory.pieces if piece.id in there)
        return super().otherwise(memory.model_copy(update={"pieces": kept}), query)


class MemoryBank(Method):
    """Recalls the pieces nearest to the query that are not forgotten, with both accounts.

    Critical path: one call for all dialogues together, one for both accounts, and the answer.

    Args:
        embedder: Vectors of pieces and queries.
        settings: `BankSettings`.
    """

    Settings = BankSettings

    def __init__(self, embedder: Embedder, settings: BankSettings) -> None:
        indexes = Indexes(embedder)
        super().__init__(BankWriter(embedder, settings, indexes), BankReader(settings, indexes), embedder)


def later(first: datetime | None, second: datetime | None) -> datetime | None:
    """The later of two times, either of which may be missing."""
    return max((time for time in (first, second) if time), key=comparable, default=None)


def time_of(date: datetime | str | None) -> datetime | None:
    """A time from a query: a datetime, an ISO date, or a date in the words of prompts; None for anything else."""
    if isinstance(date, datetime):
        return date
    text = _WEEKDAY.sub("", str(date or "")).strip()
    for form in _SPOKEN_DATES:
        with suppress(ValueError):
            return datetime.strptime(text, form)
    return read_time(text)


def _said(found: Any, name: str) -> str:
    return str(found[name] or "").strip() if found else ""


def _dated(digest: Digest, text: str) -> str:
    when = f"({format_time(digest.time)}) " if digest.time else ""
    return f"{when}{one_line(text)}"
