"""Session RAG: keep every turn, and recall whole sessions that match a query.

BM25 searches one text per session: its turns, one a line. An embedding model adds the cosine of the
session's nearest turn, or searches one vector per session in the place of BM25 (`hybrid=False`, as
the baselines of papers search). The offline embedder, which compares spelling, does neither.

Nothing caps the context: where sessions are long, choose a small `k`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.entry import Entry
from ...memory.memory import Memory, MemoryPart, turn_entries
from ...memory.search.embedder import Embedder
from ...records import Context, Hit, Item, Query
from .._embedders import semantic_embedder
from ..method import Method
from ..reader import ANY_COSINE, EntryReader
from ..settings import EntryCount, SearchWeights
from ..writer import Update, Writer

_PRESETS = {"palbench": {"k": 3, "hybrid": False}}
"""What the baselines of Mem-PAL recall, and how (appendix C)."""


# The docstrings of these two classes, and their fields, are part of the key of stored memories.


class StoredSession(MemoryPart):
    """One session: its turns as turn RAG keeps them."""

    id: str
    """The id of the session; a later session of the same id gets a number behind it."""
    time: datetime | None = None
    turns: tuple[Entry, ...]


class SessionMemory(Memory[StoredSession]):
    """Sessions in time order; each has its own id."""

    sessions: tuple[StoredSession, ...] = ()

    def parts(self) -> tuple[StoredSession, ...]:
        return self.sessions

    def entry(self, part: StoredSession) -> Entry:
        """Return the entry of a session: its text is that of its turns, one a line."""
        return Entry(
            id=part.id,
            text="\n".join(turn.text for turn in part.turns),
            kind="session",
            sources=tuple(turn.id for turn in part.turns),
            time=part.time,
        )


class SessionWriter(Writer[SessionMemory, None]):
    """Keep every session in which something is said."""

    Memory = SessionMemory

    def update(
        self, memory: SessionMemory, item: Item, extraction: None = None
    ) -> Update[SessionMemory]:
        """Return the memory with a session added at its end; an empty session adds nothing.

        Args:
            memory: The sessions so far.
            item: The session.
            extraction: Not used, since nothing is extracted from sessions.
        """
        turns = turn_entries(item)
        if not turns:
            return Update(memory)

        session_id = item.id
        known_ids = {session.id for session in memory.sessions}
        if session_id in known_ids:
            # Histories may repeat an id. The number of the session makes it unique.
            session_id = f"{item.id}#{len(memory.sessions) + 1}"
        session = StoredSession(id=session_id, time=item.time, turns=turns)
        return Update(memory.replace(sessions=(*memory.sessions, session)))


class SessionReader(EntryReader[SessionMemory]):
    """Search sessions, and show them turn by turn."""

    def entries(self, memory: SessionMemory) -> Sequence[Entry]:
        """Return the sessions, which are searched, and their turns, which are shown."""
        entries = list(super().entries(memory))
        for session in memory.sessions:
            entries.extend(session.turns)
        return entries

    def with_edits(self, memory: SessionMemory, edits: EntryEdits) -> SessionMemory:
        """Return the memory as a user's edits change it: without what they hide, turns reworded.

        The text of a session is made from its turns, so only a turn can be reworded.
        """
        visible_sessions: list[StoredSession] = []
        for session in memory.sessions:
            visible_session = self._visible_session(session, memory, edits)
            if visible_session.turns:
                visible_sessions.append(visible_session)
        return memory.replace(sessions=tuple(visible_sessions))

    def _visible_session(
        self, session: StoredSession, memory: SessionMemory, edits: EntryEdits
    ) -> StoredSession:
        """Return a session with the user's edits applied; a hidden session has no turns left.

        A user can hide a whole session, or hide or reword some of its turns.
        """
        # A cheap check, since most sessions have not been edited. A session comes from its turns:
        # an edit that hides the session names at least one of them, so it is noticed here too.
        may_change = any(edits.touches(turn.id, turn.sources) for turn in session.turns)
        if not may_change:
            return session

        # `edited_entry` returns None for an entry of the memory that the user has hidden.
        is_hidden = edits.edited_entry(memory.entry(session)) is None
        if is_hidden:
            return session.replace(turns=())
        return session.replace(turns=edits.amended_entries(session.turns))

    def fallback(self, memory: SessionMemory, query: Query) -> Iterator[Hit]:
        """Yield single turns to show where nothing was found, newest first.

        Whole sessions would be too long for that.
        """
        for session in reversed(memory.sessions):
            for turn in reversed(session.turns):
                yield turn.hit()

    def recall(self, memory: SessionMemory, query: Query) -> Context:
        """Return the turns of the `k` sessions nearest to the query, in time order.

        Every turn has the score of its session.
        """
        scores = {hit.id: hit.score for hit in self.nearest(memory, query, self.k)}
        hits: list[Hit] = []
        for session in memory.sessions:
            if session.id not in scores:
                continue
            for turn in session.turns:
                hits.append(turn.hit(scores[session.id]))
        return Context(hits=tuple(hits))


class SessionRAGSettings(SearchWeights):
    """What can be set of `SessionRAG`."""

    k: EntryCount = Field(default=3, description="sessions recalled per query")
    hybrid: bool = Field(
        default=True,
        description="with an embedding model: true adds its cosine to BM25, false searches by the "
        "cosine alone; without one: both search by BM25, and only with true the month that a "
        "question names counts",
    )


class SessionRAG(Method):
    """Recall the `k` best-matching sessions, turn by turn. Critical path: no LM call."""

    Settings = SessionRAGSettings
    embedder_use = "optional"
    presets = _PRESETS

    def __init__(
        self, settings: SessionRAGSettings | None = None, embedder: Embedder | None = None
    ) -> None:
        settings = settings or SessionRAGSettings()
        embedder = semantic_embedder(embedder)
        reader = SessionReader(
            settings.k,
            min_score=ANY_COSINE,
            embedder=embedder,
            hybrid=settings.hybrid,
            weights=settings.search,
        )
        super().__init__(SessionWriter(), reader, embedder, settings)
