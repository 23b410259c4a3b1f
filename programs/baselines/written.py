"""Baselines whose memory a model writes.

Recursive summary: Wang et al. (arXiv:2308.15022). What an update drops is lost. ConditionMem: Yuan et al. (COLING
2025), of which only the abstract was available: the prompt is ours, its self-reflection is left out.

MemoryBank: Zhong et al. (AAAI 2024). A piece is forgotten once its retention R = exp(-t / (days * S)) falls below its
threshold, a number from 0 to 1 given by its id; t are days since it was learned or last recalled, S counts its recalls
from 1: what the assistant would have recalled while the dialogues took place. The released formula `-t / 5*S` makes
strong pieces fade faster; a piece is a turn, not a turn with its reply; digests are per session instead of per day.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.entry import Entry
from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from ...memory.memory import Memory, MemoryPart, turn_entries
from ...records import Context, Failure, Hit, Item, Query, comparable, format_time, latest
from ...signatures.baselines import (
    ConditionalRecord,
    DigestEvents,
    InferPersonality,
    MergeEvents,
    MergePersonality,
    RecordConditions,
    UpdateSummary,
)
from ...text import one_line
from .._embedders import offline_embedder
from ..method import Method
from ..reader import EntryReader
from ..settings import EntryCount, Settings
from ..writer import ExtractionFailed, Update, Writer
from ..predictor import predictor
from ..recording import record_failure
from ..threads import gather

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
LONGEST_ACCOUNT = 40_000
"""Most characters of a summary, a digest or an account."""


class SummarySettings(Settings):
    """What can be set of `RecursiveSummary`."""

    max_words: int = Field(default=300, ge=1, description="most words of the summary; the last sentences of a longer one go")


class SummaryMemory(Memory):
    """The summary of all sessions so far."""

    sentences: tuple[Entry, ...] = ()
    """Each rests on the session after which it was first written in these words."""
    sources: tuple[str, ...] = ()
    """Turn ids of all sessions written, newest session first."""

    @property
    def summary(self) -> str:
        """The whole text."""
        return " ".join(sentence.text for sentence in self.sentences)

    def hits(self, id: str) -> tuple[Hit, ...]:
        """The whole summary as one hit; none where there is no summary yet."""
        text = self.summary
        return (Hit(id=id, text=text, kind="summary", score=1.0, sources=self.sources),) if text else ()

    def entries(self) -> tuple[Entry, ...]:
        return self.sentences

    def after(self, found: Any, field: str, where: str, item: Item, max_words: int) -> Update[SummaryMemory]:
        """The memory after the update of a predictor by an item; unchanged, with the item failed, if it failed."""
        text = _said(found, field)
        if not text:
            if found is not None and not self.sentences:
                return Update(self)
            if found is not None:
                message = f"the {field} after session {item.id} is empty; the one before it was kept"
                record_failure(Failure(kind="parse", where=where, message=message))
            return Update(self, (item,))
        turns = tuple(turn.id for turn in item.spoken)
        known = {sentence.text: sentence.sources for sentence in self.sentences}
        sentences = tuple(
            Entry(id=f"s{n}", text=part, kind="sentence", sources=known.get(part, turns))
            for n, part in enumerate(_within(text, max_words), 1)
        )
        return Update(self.replace(sentences=sentences, sources=tuple(dict.fromkeys((*turns, *self.sources)))))


class SummaryWriter(Writer[SummaryMemory, None]):
    """Rewrites the summary after every session."""

    Memory = SummaryMemory
    longest_text = LONGEST_ACCOUNT

    settings: SummarySettings

    def __init__(self, settings: SummarySettings) -> None:
        super().__init__(settings)
        self.update_summary = predictor(UpdateSummary)

    def update(self, memory: SummaryMemory, item: Item, extraction: None = None) -> Update[SummaryMemory]:
        if not item.spoken:
            return Update(memory)
        lines, most = "\n".join(turn.line() for turn in item.spoken), self.settings.max_words
        about = {"session_date": item.date, "dialogue": lines, "max_words": most}
        found = self.try_call(self.update_summary, known_before=memory.summary, **about)
        return memory.after(found, "summary", "update_summary", item, most)


class SummaryReader(EntryReader[SummaryMemory]):
    """Recalls the whole summary; `search` finds its sentences."""

    def recall(self, memory: SummaryMemory, query: Query) -> Context:
        return Context(hits=memory.hits("summary"))


class RecursiveSummary(Method):
    """Keeps a summary, rewritten session by session. Critical path: one update per session, in order, and one answer.

    An update that is unreadable, or empty where there was a summary, leaves that and counts as a failed write.
    """

    Settings = SummarySettings

    def __init__(self, settings: SummarySettings | None = None) -> None:
        settings = settings or SummarySettings()
        super().__init__(SummaryWriter(settings), SummaryReader(), settings=settings)


def _within(text: str, max_words: int) -> list[str]:
    """The first sentences that fit, each once; a first one that is too long is cut."""
    kept: list[str] = []
    for sentence in dict.fromkeys(one_line(part) for part in _SENTENCE_END.split(text) if part.strip()):
        words = sentence.split()
        if len(words) > max_words:
            return kept or [" ".join(words[:max_words])]
        kept.append(sentence)
        max_words -= len(words)
    return kept


class RecordSettings(Settings):
    """What can be set of `ConditionMem`."""

    deprecated: ClassVar = {"reflection": False}

    k: EntryCount = Field(default=3, description="records recalled per query; Mem-PAL's number")


class RecordMemory(Memory):
    """The records of one user."""

    records: tuple[Entry, ...] = ()
    """In the order of the dialogues; ids r1, r2, ..."""

    def entries(self) -> tuple[Entry, ...]:
        return self.records


class RecordWriter(Writer[RecordMemory]):
    """Records what each dialogue teaches; a record of equal words that is there is not kept twice."""

    Memory = RecordMemory

    def __init__(self) -> None:
        super().__init__()
        self.record = predictor(RecordConditions)

    def extract(self, item: Item) -> list[ConditionalRecord] | ExtractionFailed:
        """The records of a dialogue."""
        if not item.spoken:
            return []
        found = self.try_call(self.record, past_dialogue="\n".join(turn.line(item.time) for turn in item.spoken))
        return ExtractionFailed() if found is None else found.records

    def update(self, memory: RecordMemory, item: Item, extraction: Any) -> Update[RecordMemory]:
        found = extraction
        if isinstance(found, ExtractionFailed):
            return Update(memory, (item,))
        turns, kept = tuple(turn.id for turn in item.turns), {entry.text: entry for entry in memory.records}
        for record in found:
            condition, content = one_line(record.condition), one_line(record.content)
            text = f"{content} (when: {condition})" if content and condition else content
            if text and text not in kept:
                id = record.turn_id.strip("[]() ")
                sources = (id,) if id in turns else turns
                kept[text] = Entry(id=f"r{len(kept) + 1}", text=text, kind="lesson", sources=sources, time=item.time)
        return Update(memory.replace(records=tuple(kept.values())))


class ConditionMem(Method):
    """Recalls the `k` records nearest to the query. Critical path: one call for all dialogues, and the answer."""

    Settings = RecordSettings
    embedder_use = "required"

    def __init__(self, settings: RecordSettings | None = None, embedder: Embedder | None = None) -> None:
        settings = settings or RecordSettings()
        embedder = embedder or offline_embedder()
        super().__init__(RecordWriter(), EntryReader(settings.k, embedder=embedder), embedder, settings)


class BankSettings(Settings):
    """What can be set of `MemoryBank`."""

    deprecated: ClassVar = {"seed": 0, "portrait": True}

    k: EntryCount = Field(default=3, description="pieces recalled per query, and per utterance while dialogues are written")
    forgetting: bool = Field(default=True, description="whether pieces fade")
    days: float = Field(default=5.0, gt=0, description="days after which a piece of strength 1 is remembered by 1/e")


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


class Digest(MemoryPart):
    """What one dialogue, with these turns, came to."""

    session: str
    time: datetime | None = None
    events: str = ""
    personality: str = ""
    sources: tuple[str, ...] = ()


class BankMemory(Memory):
    """What is kept for one user."""

    pieces: tuple[Entry, ...] = ()
    """Turns, and digests of dialogues."""
    recalled: dict[str, Strength] = Field({})
    """How well those pieces are remembered that were recalled, by their ids."""
    digests: tuple[Digest, ...] = ()
    events: str = ""
    """The account of what happened in all dialogues."""
    portrait: str = ""
    settled: int = 0
    """Digests in both accounts."""
    now: datetime | None = None  # the latest time of any item

    def entries(self) -> tuple[Entry, ...]:
        return self.pieces

    def strength(self, piece: Entry) -> Strength:
        return self.recalled.get(piece.id) or Strength(last=piece.time)

    def remembered(self, now: datetime | None, settings: BankSettings) -> frozenset[str]:
        """Ids of the pieces that are not forgotten; all of them where nothing fades."""
        fades, days = settings.forgetting, settings.days
        return frozenset(p.id for p in self.pieces if not (fades and self.strength(p).forgotten(p.id, now, days)))


class BankWriter(Writer[BankMemory]):
    """Digests dialogues, recalls older pieces by what is said, and keeps two accounts of the whole."""

    Memory = BankMemory
    longest_text = LONGEST_ACCOUNT

    settings: BankSettings

    def __init__(self, settings: BankSettings, embedder: Embedder, indexes: IndexCache) -> None:
        super().__init__(settings)
        self.embedder, self.indexes = embedder, indexes
        self.digest, self.infer = predictor(DigestEvents), predictor(InferPersonality)
        self.merge_events, self.merge_personality = predictor(MergeEvents), predictor(MergePersonality)

    def extract(self, item: Item) -> Digest:
        """The digest of a dialogue, and what it shows of the user."""
        entries = turn_entries(item)
        digest = Digest(session=item.id, time=item.time, sources=tuple(entry.id for entry in entries))
        if not entries:
            return digest
        about = {"session_date": item.date, "spoken": "\n".join(entry.text for entry in entries)}
        events, note = gather(
            [lambda: self.call_predictor("digest", **about), lambda: self.call_predictor("infer", **about)]
        )
        return digest.replace(events=_said(events, "event_digest"), personality=_said(note, "personality_note"))

    def update(self, memory: BankMemory, item: Item, extraction: Digest | None) -> Update[BankMemory]:
        """Recalls older pieces by the user's messages, then writes the dialogue."""
        digest = extraction or self.extract(item)
        entries, now = turn_entries(item), latest(memory.now, item.time)
        if not entries:
            return Update(memory.replace(now=now))
        recalled, recalls = dict(memory.recalled), self._recalls(memory, now, entries)
        for piece in memory.pieces:
            if piece.id in recalls:
                before = memory.strength(piece)
                recalled[piece.id] = Strength(before.recalls + recalls[piece.id], latest(before.last, now))
        digests = (*memory.digests, digest)
        if digest.events:
            about = {"kind": "digest", "sources": digest.sources, "time": item.time}
            entries = (*entries, Entry(id=f"digest-{len(digests)}", text=digest.events, **about))
        return Update(memory.replace(now=now, pieces=(*memory.pieces, *entries), recalled=recalled, digests=digests))

    def finalize(self, memory: BankMemory) -> Update[BankMemory]:
        """Writes both accounts anew where there are digests that they do not cover."""
        if memory.settled == len(memory.digests):
            return Update(memory)
        events = "\n".join(_dated(one, one.events) for one in memory.digests if one.events)
        notes = "\n".join(_dated(one, one.personality) for one in memory.digests if one.personality)
        account, drawn = gather(
            [
                lambda: self.call_predictor("merge_events", event_digests=events) if events else None,
                lambda: self.call_predictor("merge_personality", personality_notes=notes) if notes else None,
            ]
        )
        events, portrait = _said(account, "overall_events"), _said(drawn, "user_portrait")
        kept = {"events": events or memory.events, "portrait": portrait or memory.portrait}
        return Update(memory.replace(**kept, settled=len(memory.digests)))

    def _recalls(self, memory: BankMemory, now: datetime | None, entries: Sequence[Entry]) -> dict[str, int]:
        """How often each piece is recalled while a dialogue takes place; nothing fades without forgetting."""
        queries = [entry.text for entry in entries if (entry.speaker or "").lower() != "assistant"]
        if not (self.settings.forgetting and memory.pieces and queries):
            return {}
        there = memory.remembered(now, self.settings)
        rows = self.indexes.search(memory, queries, self.settings.k, 0.0, lambda entry: entry.id in there)
        return Counter(hit.id for hits in rows for hit in hits)


class BankReader(EntryReader[BankMemory]):
    """Finds the nearest pieces that are not forgotten."""

    settings: BankSettings

    def __init__(self, settings: BankSettings, indexes: IndexCache) -> None:
        super().__init__(settings.k, indexes=indexes, settings=settings)

    def search(
        self, memory: BankMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """The nearest pieces that are remembered at the time of the latest item."""
        there, low = memory.remembered(memory.now, self.settings), min_score or 0.0
        return self.indexes.search(memory, queries, k, low, lambda entry: entry.id in there)

    def recall(self, memory: BankMemory, query: Query) -> Context:
        """The context of a query at its date, or else at the time of the latest item; the memory stays as it is."""
        there = self._remembered(memory, query)
        found = self.indexes.search(memory, [query.search_text], self.k, 0.0, lambda entry: entry.id in there)[0]
        notes = {"what happened": memory.events, "the user": memory.portrait}
        counts = {"pieces": len(found), "forgotten": len(memory.pieces) - len(there)}
        return Context(hits=tuple(found), notes=notes, counts=counts)

    def fallback(self, memory: BankMemory, query: Query) -> Iterable[Hit]:
        """The newest of what is not forgotten at the date of the query."""
        there = self._remembered(memory, query)
        return super().fallback(memory.replace(pieces=tuple(p for p in memory.pieces if p.id in there)), query)

    def with_edits(self, memory: BankMemory, edits: EntryEdits) -> BankMemory:
        # An account rests on all dialogues.
        every = tuple(turn for digest in memory.digests for turn in digest.sources)

        def left(text: str) -> str:
            after = edits.visible_entry(Entry(id="", text=text, kind="summary", sources=every)) if text else None
            return after.text if after else ""

        return super().with_edits(memory, edits).replace(events=left(memory.events), portrait=left(memory.portrait))

    def _remembered(self, memory: BankMemory, query: Query) -> frozenset[str]:
        return memory.remembered(latest(memory.now, query.moment), self.settings)


class MemoryBank(Method):
    """Recalls the pieces nearest to the query that are not forgotten, with both accounts.

    Critical path: one call for all dialogues together, one for both accounts, and the answer.
    """

    Settings = BankSettings
    embedder_use = "required"

    def __init__(self, settings: BankSettings | None = None, embedder: Embedder | None = None) -> None:
        settings = settings or BankSettings()
        embedder = embedder or offline_embedder()
        indexes = IndexCache(embedder)
        writer = BankWriter(settings, embedder, indexes)
        super().__init__(writer, BankReader(settings, indexes), embedder, settings)


def _said(found: Any, name: str) -> str:
    return str(found[name] or "").strip() if found else ""


def _dated(digest: Digest, text: str) -> str:
    return one_line(f"({format_time(digest.time)}) {text}" if digest.time else text)
