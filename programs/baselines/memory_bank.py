"""MemoryBank: turns and digests that fade unless they are recalled, an account of events, and a portrait of the user.

    dialogue ── digest, personality ──> pieces, notes        (one call each, for all dialogues at the same time)
    dialogue ── what its user says, as queries ──> older pieces are recalled: strength + 1, time anew
    settle   ── merge ──> the account of all events, the portrait of the user
    query    ── cosine, of what is not forgotten ──> the k nearest pieces, the account, the portrait

Source: Zhong et al., "MemoryBank: Enhancing Large Language Models with Long-Term Memory" (AAAI 2024), as Mem-PAL
compares with it (Table 2 and 4).

    retention R = exp(-t / (days * S))    t: days since a piece was learned or last recalled; S: its strength, from 1

A piece is forgotten once R falls below its threshold, a number from 0 to 1 given by its id and a seed. So of many the
share R is remembered, as in the paper, and the same calls forget the same pieces; one that is forgotten stays so, for
without being found it cannot be recalled. Accounts are never forgotten.

Where this differs from the released code: recalling a query leaves the memory as it is, as in every method here;
strength grows by the recalls that the assistant would have made while the dialogues took place, one per utterance of
the user. What is forgotten is left out of every search and stays stored. The released formula `-t / 5*S` makes strong
pieces fade faster; here it is -t / (5 S). Lots are drawn once per piece, and not at every load. A turn is a piece, not
a turn with its reply; digests are per session instead of per day, and fade by the same rule.

Critical path: one call for all dialogues together, one for both accounts, and the answer.

Limits: with the default of five days a piece that was never recalled is forgotten after a month with probability
.998; of a long history little but the two accounts remains. They are made anew from all digests when the memory
settles, in one call each, which a history of thousands of sessions outgrows.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import dspy
from pydantic import BaseModel, ConfigDict

from ...errors import UserError
from ...memory.amending import Amend
from ...memory.index import Embedder, Entry
from ...memory.indexes import Indexes
from ...memory.memory import Memory
from ...memory.turns import turn_entries
from ...records import Context, Hit, Item, Query, comparable, format_time, one_line, read_time
from ...signatures.baselines import DigestEvents, InferPersonality, MergeEvents, MergePersonality
from ..gather import gather
from ..method import EntryReader, Method, Writer
from ..predictor import predictor

_SPOKEN_DATES = ("%d %B %Y %H:%M", "%d %B %Y")
_WEEKDAY = re.compile(r",\s*\w+day")


class BankSettings(BaseModel):
    """What can be set of the method: see `MemoryBank`."""

    model_config = ConfigDict(frozen=True)

    k: int
    forgetting: bool
    days: float
    seed: int
    portrait: bool


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
        passed = (comparable(now) - comparable(self.last)).total_seconds() / 86_400
        return math.exp(-max(0.0, passed) / (days * self.strength))

    def forgotten(self, now: datetime | None, days: float, seed: int) -> bool:
        """Whether its retention has fallen below its threshold, which is the same each time."""
        lot = hashlib.sha256(f"{seed}:{self.entry.id}".encode()).digest()[:8]
        return self.retention(now, days) < int.from_bytes(lot, "big") / 2**64

    def recalled(self, now: datetime | None, times: int = 1) -> Piece:
        """The piece after recalls; it does not become older by them."""
        return self.model_copy(update={"strength": self.strength + times, "last": later(self.last, now)})


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

    def entries(self) -> list[Entry]:
        return [piece.entry for piece in self.pieces]

    def parts(self) -> tuple[Piece, ...]:
        return self.pieces

    def entry(self, part: Piece) -> Entry:
        return part.entry

    def remembered(self, now: datetime | None, settings: BankSettings) -> frozenset[str]:
        """Ids of the pieces that are not forgotten; all of them where nothing fades."""
        kept = (p for p in self.pieces if not (settings.forgetting and p.forgotten(now, settings.days, settings.seed)))
        return frozenset(piece.entry.id for piece in kept)


class Told(NamedTuple):
    """What is extracted from one dialogue."""

    events: str = ""
    personality: str = ""


class BankWriter(Writer):
    """Digests dialogues, recalls older pieces by what is said, and keeps two accounts of the whole.

    Args:
        embedder: Vectors of pieces and utterances.
        settings: Of the method.
        indexes: Searches pieces.
    """

    Memory = BankMemory
    longest_text = 40_000

    def __init__(self, embedder: Embedder, settings: BankSettings, indexes: Indexes) -> None:
        super().__init__()
        self.embedder, self.settings, self.indexes = embedder, settings, indexes
        self.digest = predictor(DigestEvents)
        if settings.portrait:
            self.infer = predictor(InferPersonality)
            self.merge_events = predictor(MergeEvents)
            self.merge_personality = predictor(MergePersonality)

    def prepare(self, item: Item) -> Told:
        """The digest of a dialogue, and what it shows of the user."""
        entries = turn_entries(item)
        if not entries:
            return Told()
        about = {
            "session_date": format_time(item.time) if item.time else "unknown",
            "spoken": "\n".join(entry.text for entry in entries),
        }
        asked = [(self.digest, "event_digest")] + ([(self.infer, "personality_note")] if self.settings.portrait else [])
        said = gather([lambda ask=ask, name=name: _said(self.attempt(ask, **about), name) for ask, name in asked])
        return Told(*said)

    def write(self, memory: BankMemory, item: Item, prepared: Told | None = None) -> BankMemory:
        """Recalls older pieces by the user's messages, then writes the dialogue."""
        told = self.prepare(item) if prepared is None else prepared
        entries, now = turn_entries(item), later(memory.now, item.time)
        if not entries:
            return memory.model_copy(update={"now": now})
        recalls = self._recalls(memory, now, entries)
        old = (p.recalled(now, recalls[p.entry.id]) if p.entry.id in recalls else p for p in memory.pieces)
        digests = (*memory.digests, Digest(session=item.id, time=item.time, sources=_ids(entries), **told._asdict()))
        if told.events:
            id, sources = f"digest-{len(digests)}", _ids(entries)
            entries = (*entries, Entry(id=id, text=told.events, kind="digest", sources=sources, time=item.time))
        new = (Piece(entry=entry, last=entry.time) for entry in entries)
        return memory.model_copy(update={"now": now, "pieces": (*old, *new), "digests": digests})

    def settle(self, memory: BankMemory) -> BankMemory:
        """Writes both accounts anew where there are digests that they do not cover."""
        if not self.settings.portrait or memory.settled == len(memory.digests):
            return memory
        events = "\n".join(_dated(one, one.events) for one in memory.digests if one.events)
        notes = "\n".join(_dated(one, one.personality) for one in memory.digests if one.personality)

        def overall() -> str:
            return _said(self.attempt(self.merge_events, event_digests=events), "overall_events") if events else ""

        def portrait() -> str:
            found = self.attempt(self.merge_personality, personality_notes=notes) if notes else None
            return _said(found, "user_portrait")

        account, drawn = gather([overall, portrait])
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
    """Finds the nearest pieces that are not forgotten.

    Args:
        settings: Of the method.
        indexes: Searches pieces.
    """

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
        notes = {"what happened": memory.events, "the user": memory.portrait} if self.settings.portrait else {}
        counts = {"pieces": len(found), "forgotten": len(memory.pieces) - len(there)}
        return Context(hits=tuple(found), notes=notes, counts=counts)

    def amended(self, memory: BankMemory, amend: Amend) -> BankMemory:
        def reworded(piece: Piece, text: str) -> Piece:
            return piece.model_copy(update={"entry": piece.entry.model_copy(update={"text": text})})

        def left(text: str) -> str:
            # An account rests on all dialogues.
            every = tuple(turn for digest in memory.digests for turn in digest.sources)
            after = amend(Entry(id="", text=text, kind="summary", sources=every)) if text else None
            return after.text if after else ""

        pieces = amend.parts(memory.pieces, memory.entry, reworded)
        return memory.model_copy(
            update={"pieces": pieces, "events": left(memory.events), "portrait": left(memory.portrait)}
        )

    def otherwise(self, memory: BankMemory, query: Query) -> Sequence[Hit]:
        """The newest of what is not forgotten at the date of the query."""
        there = memory.remembered(later(memory.now, time_of(query.date)), self.settings)
        kept = tuple(piece for piece in memory.pieces if piece.entry.id in there)
        return super().otherwise(memory.model_copy(update={"pieces": kept}), query)


class MemoryBank(Method):
    """Recalls the pieces nearest to the query that are not forgotten, with both accounts.

    Args:
        embedder: Vectors of pieces and queries.
        k: Pieces recalled per query, and per utterance while dialogues are written; Mem-PAL's number.
        forgetting: Whether pieces fade.
        days: Days after which a piece of strength 1 is remembered with probability 1/e (the released code's 5).
        seed: Draws the lots of the pieces.
        portrait: Whether the account of events and the portrait of the user are written and shown.

    Raises:
        UserError: `days` is not above 0.
    """

    def __init__(
        self,
        embedder: Embedder,
        k: int = 3,
        forgetting: bool = True,
        days: float = 5.0,
        seed: int = 0,
        portrait: bool = True,
    ) -> None:
        if not days > 0:
            raise UserError(f"days = {days} is not above 0")
        settings, indexes = (
            BankSettings(k=k, forgetting=forgetting, days=days, seed=seed, portrait=portrait),
            Indexes(embedder),
        )
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


def _ids(entries: Sequence[Entry]) -> tuple[str, ...]:
    return tuple(entry.id for entry in entries)


def _said(found: dspy.Prediction | None, name: str) -> str:
    return "" if found is None else str(found[name] or "").strip()


def _dated(digest: Digest, text: str) -> str:
    when = f"({format_time(digest.time)}) " if digest.time else ""
    return f"{when}{one_line(text)}"
