"""MemoryBank: turns and digests of dialogues that fade unless they are recalled.

    write     turns are kept, and each dialogue is digested: its events, and the user's personality;
              what the user says recalls older pieces, which makes these stronger
    finalize  all digests ──> one account of what happened, and one portrait of the user
    question  the `k` nearest pieces that are not forgotten, and both accounts; no LM call

A piece is a turn or the events of a dialogue. Its retention t days after it was learned or last
recalled is

    R = exp(-t / (days * S))

where the strength S counts its recalls from 1: what the assistant would have recalled while the
dialogues took place. A piece is forgotten once R falls below its threshold, a number from 0 to 1
that its id decides. Thus a piece is kept with probability R, and the same pieces are forgotten each
time.

Three things differ from the released code. Its formula `-t / 5*S` makes strong pieces fade faster,
so ours divides by the strength. There a piece is a turn with its reply, here a turn alone. There
digests are per day, here per session.

Paper: Zhong et al., "MemoryBank: Enhancing Large Language Models with Long-Term Memory" (AAAI
2024).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import dspy
from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.entry import Entry
from ...memory.memory import Memory, MemoryPart, turn_entries
from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from ...memory.search.speakers import is_assistant
from ...memory.tuning_range import TuningRange
from ...records import Context, Hit, Item, Query, comparable, format_time, latest
from ...signatures.baselines import (
    DigestEvents,
    InferPersonality,
    MergeEvents,
    MergePersonality,
)
from ...text import one_line
from .._embedders import offline_embedder
from ..method import Method
from ..predictor import predictor
from ..reader import EntryReader
from ..settings import EntryCount, Settings
from ..threads import gather
from ..writer import Update, Writer

MAX_ACCOUNT_LENGTH = 40_000
"""Most characters of a digest or account that is taken from a model; a longer one is no answer."""

_SECONDS_PER_DAY = 86_400


# The docstrings of these classes, and their fields, are part of the key of stored memories.


class Strength(NamedTuple):
    """How well a piece is remembered."""

    recalls: int = 1
    """S: 1, and 1 more for every recall."""
    last: datetime | None = None
    """When the piece was learned or last recalled; without a time it is never forgotten."""

    def retention(self, now: datetime | None, days: float) -> float:
        """Return how much of a piece is still remembered, from 0 to 1.

        It falls with the time since the piece was last recalled, and more slowly the more often it
        was recalled. It is 1 if that time is not known. Source: R = exp(-t / S) in the paper.

        Args:
            now: The time at which the piece is looked for.
            days: Days in which the retention of a piece that is never recalled falls to 0.37 (1/e).
        """
        if now is None or self.last is None:
            return 1.0

        age = comparable(now) - comparable(self.last)
        age_in_days = max(0.0, age.total_seconds() / _SECONDS_PER_DAY)
        return math.exp(-age_in_days / (days * self.recalls))

    def is_forgotten(self, piece_id: str, now: datetime | None, days: float) -> bool:
        """Return whether a piece is forgotten at a time: its retention is below its threshold.

        The threshold of a piece is a number from 0 to 1 that is computed from a hash of its id, so
        that the same pieces are forgotten in every run.

        Args:
            piece_id: The id of the piece.
            now: The time at which the piece is looked for.
            days: Days in which the retention of a piece that is never recalled falls to 0.37 (1/e).
        """
        return self.retention(now, days) < _threshold(piece_id)


def _threshold(piece_id: str) -> float:
    """Return the retention below which a piece is forgotten: from 0 to 1, evenly distributed."""
    # A hash serves as a random number that is the same in every run. The 0 is a seed that could
    # once be set; another seed would forget other pieces.
    first_bytes = hashlib.sha256(f"0:{piece_id}".encode()).digest()[:8]
    return int.from_bytes(first_bytes, "big") / 2**64


class Digest(MemoryPart):
    """What one dialogue, with these turns, came to."""

    session: str
    """The id of the dialogue."""
    time: datetime | None = None
    events: str = ""
    """What it was about, and what happened; "" if no answer could be read."""
    personality: str = ""
    """What it shows of the user; "" if no answer could be read."""
    sources: tuple[str, ...] = ()
    """Ids of its turns."""


class BankMemory(Memory[Entry]):
    """What is kept for one user."""

    pieces: tuple[Entry, ...] = ()
    """Turns, and the events of dialogues, in the order in which they were written."""
    recalled: dict[str, Strength] = Field({})
    """The strengths of those pieces that were recalled since they were learned, by their ids."""
    digests: tuple[Digest, ...] = ()
    """One for each dialogue, in their order."""
    events: str = ""
    """The account of what happened in all dialogues."""
    portrait: str = ""
    """The account of the user's personality."""
    settled: int = 0
    """How many of the digests are in both accounts."""
    now: datetime | None = None
    """The latest time of any item."""

    def entries(self) -> tuple[Entry, ...]:
        return self.pieces

    def strength(self, piece: Entry) -> Strength:
        """Return how well a piece is remembered: as when it was learned, if never recalled."""
        as_learned = Strength(last=piece.time)
        return self.recalled.get(piece.id, as_learned)

    def remembered_ids(self, now: datetime | None, settings: BankSettings) -> frozenset[str]:
        """Return the ids of the pieces that are not forgotten at a time.

        Args:
            now: The time; None if it is not known, and then nothing is forgotten.
            settings: Whether, and how fast, pieces are forgotten.
        """
        if not settings.forgetting:
            return frozenset(piece.id for piece in self.pieces)

        remembered_ids: set[str] = set()
        for piece in self.pieces:
            if not self.strength(piece).is_forgotten(piece.id, now, settings.days):
                remembered_ids.add(piece.id)
        return frozenset(remembered_ids)


class BankWriter(Writer[BankMemory, Digest]):
    """Digest dialogues, recall older pieces by what is said, and keep two accounts of the whole.

    Args:
        settings: How pieces are recalled and fade.
        embedder: Decides which pieces are near. Its name is part of the key of the memories.
        indexes: Searches pieces by that embedder.
    """

    Memory = BankMemory
    longest_text = MAX_ACCOUNT_LENGTH

    settings: BankSettings

    def __init__(self, settings: BankSettings, embedder: Embedder, indexes: IndexCache) -> None:
        super().__init__(settings)
        self.embedder = embedder
        self.indexes = indexes
        self.digest = predictor(DigestEvents)
        self.infer = predictor(InferPersonality)
        self.merge_events = predictor(MergeEvents)
        self.merge_personality = predictor(MergePersonality)

    def extract(self, item: Item) -> Digest:
        """Ask the model for two notes on a dialogue: what happened, and what it shows of the user.

        A note whose answer cannot be read is "". The two calls run at the same time.
        """
        turns = turn_entries(item)
        digest = Digest(
            session=item.id,
            time=item.time,
            sources=tuple(turn.id for turn in turns),
        )
        if not turns:
            return digest

        dialogue = {
            "session_date": item.date,
            "spoken": "\n".join(turn.text for turn in turns),
        }
        events, personality = gather(
            [
                partial(self.try_call, self.digest, **dialogue),
                partial(self.try_call, self.infer, **dialogue),
            ]
        )
        return digest.replace(
            events=_text_of(events, "event_digest"),
            personality=_text_of(personality, "personality_note"),
        )

    def update(self, memory: BankMemory, item: Item, extraction: Digest) -> Update[BankMemory]:
        """Return the memory after a dialogue, with its turns and its digest as new pieces.

        What the user says in the dialogue also makes older pieces on the same subjects stronger.

        Args:
            memory: The memory before the dialogue.
            item: The dialogue.
            extraction: Its digest.
        """
        now = latest(memory.now, item.time)
        memory = memory.replace(now=now)
        turns = turn_entries(item)
        if not turns:
            return Update(memory)

        # Strengths come first: a dialogue does not recall its own turns.
        strengths = self._strengths_after(turns, memory)
        digests = (*memory.digests, extraction)
        pieces = [*memory.pieces, *turns]
        if extraction.events:
            digest_piece = Entry(
                id=f"digest-{len(digests)}",
                text=extraction.events,
                kind="digest",
                sources=extraction.sources,
                time=item.time,
            )
            pieces.append(digest_piece)
        return Update(memory.replace(pieces=tuple(pieces), recalled=strengths, digests=digests))

    def finalize(self, memory: BankMemory) -> Update[BankMemory]:
        """Write the account of events and the portrait of the user anew from all digests.

        Nothing is done if no dialogue was digested since they were written.
        """
        # `settled` is how many digests there were then.
        if memory.settled == len(memory.digests):
            return Update(memory)

        events, portrait = gather(
            [
                partial(self._account_of_events, memory),
                partial(self._portrait_of_user, memory),
            ]
        )
        finalized = memory.replace(events=events, portrait=portrait, settled=len(memory.digests))
        return Update(finalized)

    def _strengths_after(self, turns: Sequence[Entry], memory: BankMemory) -> dict[str, Strength]:
        """Return the strengths of pieces, by their ids, after the turns of a dialogue.

        A recall makes a piece stronger by 1, and it begins to fade anew from the time of the
        dialogue. Pieces that were never recalled are not in the result.
        """
        strengths = dict(memory.recalled)
        recall_counts = self._recall_counts(turns, memory)
        for piece in memory.pieces:
            if piece.id in recall_counts:
                strength = memory.strength(piece)
                strengths[piece.id] = Strength(
                    recalls=strength.recalls + recall_counts[piece.id],
                    last=latest(strength.last, memory.now),
                )
        return strengths

    def _recall_counts(self, turns: Sequence[Entry], memory: BankMemory) -> Mapping[str, int]:
        """Return how often the turns of a dialogue recall each older piece, by the id of the piece.

        Every turn of the user is searched for, and recalls the `k` nearest pieces that are not
        forgotten.
        """
        queries = [turn.text for turn in turns if not is_assistant(turn.speaker)]
        # A recall only makes a piece fade later. If nothing ever fades, recalls are not counted.
        if not self.settings.forgetting or not memory.pieces or not queries:
            return {}

        remembered_ids = memory.remembered_ids(memory.now, self.settings)
        hits_per_query = self.indexes.search(
            memory,
            queries,
            self.settings.k,
            min_score=0.0,
            where=lambda entry: entry.id in remembered_ids,
        )
        recall_counts = Counter[str]()
        for hits in hits_per_query:
            recall_counts.update(hit.id for hit in hits)
        return recall_counts

    def _account_of_events(self, memory: BankMemory) -> str:
        """Ask the model what happened in all dialogues, and return its account.

        If its answer is empty or cannot be read, return the account so far.
        """
        digests = [digest for digest in memory.digests if digest.events]
        if not digests:
            return memory.events

        lines = [_dated_line(digest.events, digest.time) for digest in digests]
        prediction = self.try_call(self.merge_events, event_digests="\n".join(lines))
        return _text_of(prediction, "overall_events") or memory.events

    def _portrait_of_user(self, memory: BankMemory) -> str:
        """Ask the model what the user is like, and return its portrait of the user.

        If its answer is empty or cannot be read, return the portrait so far.
        """
        digests = [digest for digest in memory.digests if digest.personality]
        if not digests:
            return memory.portrait

        lines = [_dated_line(digest.personality, digest.time) for digest in digests]
        prediction = self.try_call(self.merge_personality, personality_notes="\n".join(lines))
        return _text_of(prediction, "user_portrait") or memory.portrait


def _text_of(prediction: dspy.Prediction | None, field: str) -> str:
    """Return a text field of a prediction; "" if there is no prediction, or no text in it."""
    if prediction is None:
        return ""
    return (prediction[field] or "").strip()


def _dated_line(text: str, time: datetime | None) -> str:
    """Return a text on one line, with its date in front if it is known."""
    if time is None:
        return one_line(text)
    return one_line(f"({format_time(time)}) {text}")


class BankReader(EntryReader[BankMemory]):
    """Find the nearest pieces that are not forgotten."""

    settings: BankSettings

    def __init__(self, settings: BankSettings, indexes: IndexCache) -> None:
        super().__init__(settings.k, indexes=indexes, settings=settings)

    def search(
        self,
        memory: BankMemory,
        queries: Sequence[str],
        k: int = 10,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Return the nearest pieces for each query, best first.

        Pieces that are forgotten at the time of the latest item are not found.
        """
        remembered_ids = memory.remembered_ids(memory.now, self.settings)
        return self._search_among(remembered_ids, memory, queries, k, min_score)

    def recall(self, memory: BankMemory, query: Query) -> Context:
        """Return the nearest pieces that are not forgotten when the query is asked.

        The account of events and the portrait of the user come with them, as notes. Unlike
        dialogues, questions make no piece stronger.
        """
        remembered_ids = self._remembered_at(query, memory)
        hits = self._search_among(remembered_ids, memory, [query.search_text], self.k)[0]
        notes = {
            "what happened": memory.events,
            "the user": memory.portrait,
        }
        counts = {
            "pieces": len(hits),
            "forgotten": len(memory.pieces) - len(remembered_ids),
        }
        return Context(hits=tuple(hits), notes=notes, counts=counts)

    def fallback(self, memory: BankMemory, query: Query) -> Iterator[Hit]:
        """Yield the pieces that are remembered when the query is asked, newest first."""
        remembered_ids = self._remembered_at(query, memory)
        for piece in reversed(memory.pieces):
            if piece.id in remembered_ids:
                yield piece.hit()

    def with_edits(self, memory: BankMemory, edits: EntryEdits) -> BankMemory:
        """Return the memory as a user's edits change it.

        The account of events and the portrait of the user are made from all dialogues. So the turns
        of all dialogues decide whether the two are hidden.
        """
        all_turn_ids: list[str] = []
        for digest in memory.digests:
            all_turn_ids.extend(digest.sources)

        edited_memory = super().with_edits(memory, edits)
        return edited_memory.replace(
            events=_visible_account(memory.events, all_turn_ids, edits),
            portrait=_visible_account(memory.portrait, all_turn_ids, edits),
        )

    def _search_among(
        self,
        piece_ids: frozenset[str],
        memory: BankMemory,
        queries: Sequence[str],
        k: int,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Return the pieces nearest to each query, best first, among those with some ids."""
        lowest = self.min_score if min_score is None else min_score
        return self.indexes.search(
            memory, queries, k, lowest, where=lambda entry: entry.id in piece_ids
        )

    def _remembered_at(self, query: Query, memory: BankMemory) -> frozenset[str]:
        """Return the ids of the pieces that are remembered when a query is asked.

        A query without a date, or with an earlier one, is asked at the time of the latest item.
        """
        return memory.remembered_ids(latest(memory.now, query.moment), self.settings)


def _visible_account(account: str, sources: Sequence[str], edits: EntryEdits) -> str:
    """Return a text that a model wrote about turns; "" if the user's edits hide it.

    Args:
        account: The text.
        sources: The ids of the turns.
        edits: The user's edits.
    """
    if not account:
        return ""
    # Edits apply to entries. A user cannot edit an account, so it needs no id.
    entry = Entry(id="", text=account, kind="summary", sources=tuple(sources))
    visible_entry = edits.visible_entry(entry)
    if visible_entry is None:
        return ""
    return visible_entry.text


class BankSettings(Settings):
    """What can be set of `MemoryBank`."""

    deprecated: ClassVar[Mapping[str, Any]] = {"seed": 0, "portrait": True}

    k: EntryCount = Field(
        default=3,
        description="pieces recalled per query, and per turn of the user while dialogues are "
        "written",
    )
    forgetting: bool = Field(
        default=True,
        description="whether pieces fade",
    )
    days: Annotated[float, TuningRange(1, 60, log=True)] = Field(
        default=5.0,
        gt=0,
        description="days after which the retention of a piece of strength 1 has fallen to 1/e",
    )


class MemoryBank(Method):
    """Recall the pieces nearest to the query that are not forgotten, with both accounts.

    Critical path: one call for all dialogues together, one for both accounts, and the answer.
    """

    Settings = BankSettings
    embedder_use = "required"

    def __init__(
        self, settings: BankSettings | None = None, embedder: Embedder | None = None
    ) -> None:
        settings = settings or BankSettings()
        embedder = embedder or offline_embedder()
        indexes = IndexCache(embedder)
        writer = BankWriter(settings, embedder, indexes)
        super().__init__(writer, BankReader(settings, indexes), embedder, settings)
