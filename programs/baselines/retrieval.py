"""Baselines that keep what was said: nothing, the newest turns, or the turns or sessions that bear on the query.

Turn RAG searches by BM25 over stop-worded, stemmed turns with the speaker's name in front; turns of a session lend
their neighbours shares of their scores, and those of the speaker and the month that a question asks for gain
(`memory.search`). An embedding model adds its cosine, or takes the place of BM25 (`hybrid=False`, as the baselines of
papers search); the offline embedder, which compares spelling, does neither.
Session RAG searches one text per session; an embedding model adds the cosine of its nearest turn, or searches one
vector a session. With long sessions choose a small k: nothing caps their context.

The current session of `logs+` is the one whose dialogue is about to begin: all logs since the last dialogue are shown,
until there are newer ones. Of earlier logs a query sees the nearest, a summary, or nothing (`earlier`). Both parts of a
search are merged by score, which compares like with like only where both are searched in one way.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, create_model

from ...memory.edits import EntryEdits
from ...memory.entry import Entry
from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from ...memory.memory import Memory, MemoryPart, TurnMemory, turn_entries
from ...records import Context, Hit, Item, Logs, Query, Session, estimate_tokens
from ...signatures.baselines import UpdateLogSummary
from .._embedders import semantic_embedder
from .._fallback import FEW, as_fallback
from ..method import Method, Policy
from ..reader import ANY_COSINE, EntryReader, Reader
from ..settings import EntryCount, Settings
from ..writer import Update, Writer
from ..predictor import predictor
from .._relative_dates import resolve_item_dates, resolve_line_dates
from .written import LONGEST_ACCOUNT, SummaryMemory

_PRESETS: Mapping[str, Mapping[str, Any]] = {"palbench": {"k": 3, "hybrid": False}}
"""Mem-PAL, appendix C: what its baselines recall, and how."""


class TurnWriter(Writer[TurnMemory, None]):
    """Keeps every turn."""

    Memory = TurnMemory

    def update(self, memory: TurnMemory, item: Item, extraction: None = None) -> Update[TurnMemory]:
        return Update(memory.with_session(item))


class TurnRAGSettings(Settings):
    """What can be set of `TurnRAG`."""

    k: EntryCount = Field(default=10, description="turns recalled per query")
    hybrid: bool = Field(default=True, description="whether an embedding model adds to BM25, or searches alone")


class TurnRAG(Method):
    """Recalls the `k` best-matching turns. Critical path: no LM call."""

    Settings = TurnRAGSettings
    embedder_use = "optional"
    presets = _PRESETS

    def __init__(self, settings: TurnRAGSettings | None = None, embedder: Embedder | None = None) -> None:
        settings = settings or TurnRAGSettings()
        embedder = semantic_embedder(embedder)
        reader = EntryReader(settings.k, ANY_COSINE, embedder, hybrid=settings.hybrid)
        super().__init__(TurnWriter(), reader, embedder, settings)


class FullContextSettings(Settings):
    """What can be set of `FullContext`."""

    max_tokens: int = Field(default=100_000, description="most tokens of context, as `records.estimate_tokens` counts them")


class TruncationSettings(FullContextSettings):
    """What can be set of `Truncation`: the same, with a small budget."""

    max_tokens: int = Field(default=8_000, description="most tokens of context, as `records.estimate_tokens` counts them")


class NewestReader(EntryReader[TurnMemory]):
    """Recalls the newest turns that fit, for any question; `search` finds single turns as turn RAG does."""

    settings: FullContextSettings

    def __init__(self, settings: FullContextSettings) -> None:
        super().__init__(settings=settings)

    def recall(self, memory: TurnMemory, query: Query) -> Context:
        """The newest turns, of the memory and of what came after it, in time order.

        What the task shows by itself comes out of the budget first, and is not recalled. Lines are measured as the
        task shows them.
        """
        room = self.settings.max_tokens
        for item in query.shown_items:
            shown = resolve_item_dates(item) if self.resolve_dates else item
            room -= sum(estimate_tokens(line) + 1 for line in shown.lines())

        for item in query.new_items:
            memory = memory.with_session(item)
        already_shown = query.shown_turn_ids
        newest_first = (entry.hit() for entry in reversed(memory.turns) if entry.id not in already_shown)

        hits: list[Hit] = []
        for hit in newest_first:
            shown_hit = resolve_line_dates(hit) if self.resolve_dates else hit
            room -= estimate_tokens(shown_hit.line()) + 1
            if room < 0:
                break
            hits.append(hit)
        return Context(hits=tuple(reversed(hits)))


class FullContext(Method):
    """Recalls all turns, the newest ones if not all of them fit. Critical path: no LM call."""

    Settings = FullContextSettings
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "omnibehavior": {"max_tokens": 32_000},
        "movielens": {"max_tokens": 32_000},
    }
    """PraMem, section 4.1: the long context is 32K tokens."""

    def __init__(self, settings: FullContextSettings | None = None) -> None:
        settings = settings or FullContextSettings()
        super().__init__(TurnWriter(), NewestReader(settings), settings=settings)


class Truncation(FullContext):
    """The same with a small budget."""

    Settings = TruncationSettings
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, settings: TruncationSettings | None = None) -> None:
        super().__init__(settings or TruncationSettings())


class EmptyMemory(Memory):
    """An empty memory."""


class _NothingWriter(Writer[EmptyMemory, None]):
    Memory = EmptyMemory

    def update(self, memory: EmptyMemory, item: Item, extraction: None = None) -> Update[EmptyMemory]:
        return Update(memory)


class NoMemory(Method):
    """Keeps and recalls nothing. Critical path: no LM call."""

    def __init__(self) -> None:
        super().__init__(_NothingWriter(), EntryReader())


class StoredSession(MemoryPart):
    """One session: its turns as turn RAG keeps them."""

    id: str
    time: datetime | None = None
    turns: tuple[Entry, ...]


class SessionMemory(Memory[StoredSession]):
    """Sessions in time order; each has its own id."""

    sessions: tuple[StoredSession, ...] = ()

    def parts(self) -> tuple[StoredSession, ...]:
        return self.sessions

    def entry(self, part: StoredSession) -> Entry:
        text, sources = "\n".join(turn.text for turn in part.turns), tuple(turn.id for turn in part.turns)
        return Entry(id=part.id, text=text, kind="session", sources=sources, time=part.time)


class SessionWriter(Writer[SessionMemory, None]):
    """Keeps every session with words."""

    Memory = SessionMemory

    def update(self, memory: SessionMemory, item: Item, extraction: None = None) -> Update[SessionMemory]:
        turns, taken = turn_entries(item), {session.id for session in memory.sessions}
        if not turns:
            return Update(memory)
        id = item.id if item.id not in taken else f"{item.id}#{len(memory.sessions) + 1}"
        new = StoredSession(id=id, time=item.time, turns=turns)
        return Update(memory.replace(sessions=(*memory.sessions, new)))


class SessionReader(EntryReader[SessionMemory]):
    """Finds sessions and shows them turn by turn."""

    def entries(self, memory: SessionMemory) -> Sequence[Entry]:
        """Sessions, which are searched, and their turns, which are shown."""
        return [*super().entries(memory), *(turn for session in memory.sessions for turn in session.turns)]

    def with_edits(self, memory: SessionMemory, edits: EntryEdits) -> SessionMemory:
        """A turn that is gone is gone from its session; the text of a session is that of its turns."""
        kept: list[StoredSession] = []
        for session in memory.sessions:
            if any(edits.touches(turn.id, turn.sources) for turn in session.turns):
                turns = edits.amended_entries(session.turns) if edits.edited_entry(memory.entry(session)) is not None else ()
                session = session.replace(turns=turns)
            if session.turns:
                kept.append(session)
        return memory.replace(sessions=tuple(kept))

    def fallback(self, memory: SessionMemory, query: Query) -> Iterable[Hit]:
        """The turns, newest first: a whole session is much for a question that found nothing."""
        return (turn.hit() for session in reversed(memory.sessions) for turn in reversed(session.turns))

    def recall(self, memory: SessionMemory, query: Query) -> Context:
        scores = {hit.id: hit.score for hit in self.nearest(memory, query, self.k)}
        found = [session for session in memory.sessions if session.id in scores]
        return Context(hits=tuple(turn.hit(scores[session.id]) for session in found for turn in session.turns))


class SessionRAGSettings(Settings):
    """What can be set of `SessionRAG`."""

    k: EntryCount = Field(default=3, description="sessions recalled per query")
    hybrid: bool = Field(default=True, description="whether an embedding model adds to BM25, or searches alone")


class SessionRAG(Method):
    """Recalls the `k` best-matching sessions, turn by turn in time order. Critical path: no LM call."""

    Settings = SessionRAGSettings
    embedder_use = "optional"
    presets = _PRESETS

    def __init__(self, settings: SessionRAGSettings | None = None, embedder: Embedder | None = None) -> None:
        settings = settings or SessionRAGSettings()
        embedder = semantic_embedder(embedder)
        reader = SessionReader(settings.k, ANY_COSINE, embedder, hybrid=settings.hybrid)
        super().__init__(SessionWriter(), reader, embedder, settings)


class LogReaderSettings(Settings):
    """What can be set of how logs are recalled."""

    k: EntryCount = Field(default=3, description="log entries of earlier sessions per query; Mem-PAL's number")


class LogWriterSettings(Settings):
    """What can be set of how logs are kept."""

    earlier: Literal["search", "summary", "none"] = Field(default="search", description="what is shown of earlier logs")
    max_words: int = Field(default=300, ge=1, description="most words of a summary of the logs")


class LogSettings(LogWriterSettings, LogReaderSettings):
    """What can be set of `logs+METHOD`."""


class LoggedMemory(Memory):
    """The memory of the inner method, and the logs beside it."""

    inner: Any = None
    earlier: tuple[Entry, ...] = ()
    """Log entries of all sessions but the current one, in time order."""
    current: tuple[Entry, ...] = ()
    """Those of the current session."""
    answered: bool = False
    """Whether the dialogue that follows the current ones has come."""
    log_summary: SummaryMemory = SummaryMemory()

    def entries(self) -> list[Entry]:
        return [*self.inner.entries(), *self.earlier, *self.current]

    def with_logs(self, item: Logs, keep: bool) -> LoggedMemory:
        """The memory with the logs of one more item; `keep` says whether those of earlier sessions are kept."""
        new = turn_entries(item)
        if not self.answered:
            return self.replace(current=(*self.current, *new))
        earlier = (*self.earlier, *self.current) if keep else ()
        return self.replace(earlier=earlier, current=new, answered=False)

    def continue_from(self, finalized: Any) -> Self:
        return self.replace(inner=self.inner.continue_from(finalized.inner))


@functools.cache
def logged(inner: type[Memory]) -> type[LoggedMemory]:
    """The memory type over another one: one class each, so that memories of two programs can be equal."""
    return create_model(f"Logged{inner.__name__}", __base__=LoggedMemory, inner=(inner, inner()))


class LoggedWriter(Writer[LoggedMemory]):
    """Keeps logs apart and hands everything else on to the inner writer."""

    longest_text = LONGEST_ACCOUNT
    embedder: Any = property(lambda self: getattr(self.inner, "embedder", None))
    recent_mode: Any = property(lambda self: self.inner.recent_mode)
    shows_entries: Any = property(lambda self: self.inner.shows_entries)
    needs_extraction: Any = property(lambda self: self.inner.needs_extraction)
    needs_finalizing: Any = property(lambda self: self.inner.needs_finalizing)

    settings: LogWriterSettings

    def __init__(self, inner: Writer, settings: LogWriterSettings) -> None:
        super().__init__(settings)
        self.inner = inner
        self.Memory = logged(inner.Memory)
        if settings.earlier == "summary":
            self.update_logs = predictor(UpdateLogSummary)

    def extract(self, item: Item) -> Any:
        return None if isinstance(item, Logs) else self.inner.extract(item)

    def update(self, memory: LoggedMemory, item: Item, extraction: Any) -> Update[LoggedMemory]:
        if isinstance(item, Logs):
            return self._summed_up(memory.with_logs(item, keep=self.settings.earlier == "search"), item)
        if isinstance(item, Session):
            memory = memory.replace(answered=True)
        inner = self.inner.update(memory.inner, item, extraction)
        return Update(memory.replace(inner=inner.memory), inner.failed_items)

    def update_with_part(self, memory: LoggedMemory, part: Item) -> Update[LoggedMemory]:
        """Write a part of an item; logs are kept already, and lack only in their summary."""
        if isinstance(part, Logs):
            return self._summed_up(memory, part)
        inner = self.inner.update_with_part(memory.inner, part)
        return Update(memory.replace(inner=inner.memory), inner.failed_items)

    def finalize(self, memory: LoggedMemory) -> Update[LoggedMemory]:
        inner = self.inner.finalize(memory.inner)
        return Update(memory.replace(inner=inner.memory), inner.failed_items)

    def _summed_up(self, memory: LoggedMemory, item: Logs) -> Update[LoggedMemory]:
        lines = [turn.line(item.time) for turn in item.spoken]
        if self.settings.earlier != "summary" or not lines:
            return Update(memory)
        max_words = self.settings.max_words
        before, asked = memory.log_summary, {"new_logs": "\n".join(lines), "max_words": max_words}
        found = self.try_call(self.update_logs, logs_known_before=before.summary, **asked)
        summary = before.after(found, "log_summary", "update_logs", item, max_words)
        return Update(memory.replace(log_summary=summary.memory), summary.failed_items)


class LoggedReader(Reader[LoggedMemory]):
    """Recalls what the inner reader recalls, and logs after it."""

    def __init__(self, inner: Reader, settings: LogReaderSettings, embedder: Embedder | None) -> None:
        super().__init__(settings)
        self.inner, self.k, self.hybrid = inner, settings.k, inner.hybrid
        self.low = ANY_COSINE if inner.hybrid else 0.0
        self.indexes = IndexCache(embedder, inner.hybrid, lambda memory: (*memory.earlier, *memory.current))

    def search(
        self, memory: LoggedMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Entries of the inner method and log entries, best first."""
        found = self.inner.search(memory.inner, queries, k, min_score)
        if not (memory.earlier or memory.current):
            return found
        logs = self.indexes.search(memory, queries, k, self.low if min_score is None else min_score)
        both = ([*own, *theirs] for own, theirs in zip(found, logs, strict=True))
        return [sorted(hits, key=lambda hit: -hit.score)[:k] for hits in both]

    def entries(self, memory: LoggedMemory) -> Sequence[Entry]:
        return [*self.inner.entries(memory.inner), *self.indexes.entries(memory)]

    def with_edits(self, memory: LoggedMemory, edits: EntryEdits) -> LoggedMemory:
        told = memory.log_summary.replace(sentences=edits.amended_entries(memory.log_summary.sentences))
        inner = self.inner.with_edits(memory.inner, edits)
        return super().with_edits(memory, edits).replace(inner=inner, log_summary=told)

    def recall(self, memory: LoggedMemory, query: Query) -> Context:
        found = self.inner.recall(memory.inner, query)
        there, earlier = query.shown_turn_ids, {entry.id for entry in memory.earlier}
        current = (entry.hit() for entry in memory.current if entry.id not in there)
        told = found.hits
        if not told:
            others = (hit for hit in self.inner.fallback(memory.inner, query) if hit.id not in there)
            told = as_fallback(islice(others, FEW))
        nearest: list[Hit] = []
        if earlier:
            nearest = self.indexes.search(
                memory, [query.search_text], self.k, self.low, lambda entry: entry.id in earlier
            )[0]
        return found.model_copy(update={"hits": (*told, *memory.log_summary.hits("log_summary"), *nearest, *current)})


class WithLogs(Policy):
    """Device logs apart from the memory of another method."""

    Settings = LogSettings

    def __init__(self, inner: Method, settings: LogSettings | None = None) -> None:
        settings = settings or LogSettings()
        reader = LoggedReader(inner.reader, settings.restrict_to(LogReaderSettings), inner.embedder)
        writer = LoggedWriter(inner.writer, settings.restrict_to(LogWriterSettings))
        super().__init__(inner, reader, writer, settings)

    @classmethod
    def preset(cls, benchmark: str, beneath: str = "") -> dict[str, Any]:
        """What Mem-PAL does with the logs of earlier sessions, by inner baseline."""
        earlier = {"no-memory": "none", "recursive-summary": "summary"}.get(beneath)
        return {"earlier": earlier} if earlier else {}
