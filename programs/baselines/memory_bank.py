"""MemoryBank: turns and digests that fade unless they are recalled, an account of events, and a portrait of the user.

    dialogue ── digest, personality ──> pieces, notes        (one call each, for all dialogues at the same time)
    dialogue ── what its user says, as queries ──> older pieces are recalled: strength + 1, time anew
    settle   ── merge ──> the account of all events, the portrait of the user
    query    ── cosine, of what is not forgotten ──> the k nearest pieces, the account, the portrait

Source: Zhong et al., "MemoryBank: Enhancing Large Language Models with Long-Term Memory" (AAAI 2024), as Mem-PAL
compares with it (Table 2 and 4). The forgetting curve is in `bank`.

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

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import dspy

from ...errors import UserError
from ...memory.amending import Amend
from ...memory.index import Embedder, Entry
from ...memory.indexes import Indexes
from ...memory.turns import turn_entries
from ...records import Context, Hit, Item, Query, format_time
from ...signatures.baselines import DigestEvents, InferPersonality, MergeEvents, MergePersonality
from ..gather import gather
from ..method import EntryReader, Method, Writer
from ..predictor import predictor
from .bank import BankMemory, Digest, Piece, later, tally

_SPOKEN_DATE = "%d %B %Y %H:%M"
_WEEKDAY = re.compile(r",\s*\w+day")


@dataclass(frozen=True)
class Told:
    """What is extracted from one dialogue."""

    events: str = ""
    personality: str = ""


class BankWriter(Writer):
    """Digests dialogues, recalls older pieces by what is said, and keeps two accounts of the whole.

    Args:
        embedder: Vectors of pieces and utterances.
        k: Pieces recalled per utterance.
        forgetting: Whether pieces fade.
        days: Days after which a piece of strength 1 is remembered with probability 1/e.
        seed: Draws the lots of the pieces.
        portrait: Whether the account of events and the portrait of the user are written.
        indexes: Searches pieces.
    """

    Memory = BankMemory
    longest_text = 40_000

    def __init__(
        self, embedder: Embedder, k: int, forgetting: bool, days: float, seed: int, portrait: bool, indexes: Indexes
    ) -> None:
        super().__init__()
        self.embedder, self.indexes = embedder, indexes
        self.k, self.forgetting, self.days, self.seed, self.portrait = k, forgetting, days, seed, portrait
        self.digest = predictor(DigestEvents)
        if portrait:
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
        asked = [(self.digest, "event_digest")] + ([(self.infer, "personality_note")] if self.portrait else [])
        said = gather([lambda ask=ask, name=name: _said(self.attempt(ask, **about), name) for ask, name in asked])
        return Told(*said)

    def write(self, memory: BankMemory, item: Item, prepared: Told | None = None) -> BankMemory:
        """Recalls older pieces by the user's messages, then writes the dialogue."""
        told = self.prepare(item) if prepared is None else prepared
        before = memory
        memory = memory.at(item.time)
        entries = turn_entries(item)
        if not entries:
            return memory
        memory = memory.with_recalls(self._recalls(before, memory.now, entries))
        digest = Digest(
            session=item.id,
            time=item.time,
            events=told.events,
            personality=told.personality,
            sources=tuple(entry.id for entry in entries),
        )
        return memory.with_dialogue(entries, digest)

    def settle(self, memory: BankMemory) -> BankMemory:
        """Writes both accounts anew where there are digests that they do not cover."""
        if not self.portrait or memory.settled == len(memory.digests):
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
        if not (self.forgetting and memory.pieces and queries):
            return {}
        there = memory.remembered(now, self.days, self.seed)
        rows = self.indexes.search(memory, queries, self.k, 0.0, lambda entry: entry.id in there)
        return tally([hit.id for hit in hits] for hits in rows)


class BankReader(EntryReader):
    """Finds the nearest pieces that are not forgotten.

    Args:
        k: Pieces recalled per query.
        forgetting: Whether pieces fade.
        days: As the writer has it.
        seed: As the writer has it.
        portrait: Whether both accounts are shown.
        indexes: Searches pieces.
    """

    def __init__(self, k: int, forgetting: bool, days: float, seed: int, portrait: bool, indexes: Indexes) -> None:
        super().__init__(k, indexes=indexes)
        self.forgetting, self.days, self.seed, self.portrait = forgetting, days, seed, portrait

    def search(
        self, memory: BankMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """The nearest pieces that are remembered at the time of the latest item."""
        there = self._remembered(memory, memory.now)
        low = 0.0 if min_score is None else min_score
        return self.indexes.search(memory, queries, k, low, lambda entry: entry.id in there)

    def recall(self, memory: BankMemory, query: Query) -> Context:
        """The context of a query at its date, or else at the time of the latest item; the memory stays as it is."""
        there = self._remembered(memory, later(memory.now, time_of(query.date)))
        found = self.indexes.search(memory, [query.probe], self.k, 0.0, lambda entry: entry.id in there)[0]
        notes = {"what happened": memory.events, "the user": memory.portrait} if self.portrait else {}
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
        there = self._remembered(memory, later(memory.now, time_of(query.date)))
        kept = tuple(piece for piece in memory.pieces if piece.entry.id in there)
        return super().otherwise(memory.model_copy(update={"pieces": kept}), query)

    def _remembered(self, memory: BankMemory, now: datetime | None) -> frozenset[str]:
        if not self.forgetting:
            return frozenset(piece.entry.id for piece in memory.pieces)
        return memory.remembered(now, self.days, self.seed)


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
        indexes = Indexes(embedder)
        writer = BankWriter(embedder, k, forgetting, days, seed, portrait, indexes)
        super().__init__(writer, BankReader(k, forgetting, days, seed, portrait, indexes), embedder)


def time_of(date: Any) -> datetime | None:
    """A time from a query: a datetime, an ISO date, or a date in the words of prompts; None for anything else."""
    if isinstance(date, datetime):
        return date
    text = _WEEKDAY.sub("", str(date or "")).strip()
    readers: tuple[Callable[[str], datetime], ...] = (
        datetime.fromisoformat,
        lambda t: datetime.strptime(t, _SPOKEN_DATE),
        lambda t: datetime.strptime(t, "%d %B %Y"),
    )
    for read in readers:
        try:
            return read(text)
        except ValueError:
            continue
    return None


def _said(found: dspy.Prediction | None, name: str) -> str:
    return "" if found is None else str(found[name] or "").strip()


def _dated(digest: Digest, text: str) -> str:
    when = f"({format_time(digest.time)}) " if digest.time else ""
    return f"{when}{' '.join(text.split())}"
