"""Session RAG: whole sessions are what is searched for and what is shown.

A turn that answers a question often says so in words of the turns around it. Searching sessions finds it by their
words, and shows it among them; the price is a context of hundreds of turns. Search is BM25 over one text per session.
An embedding model adds the cosine of the session's nearest turn (`memory.index`), or searches alone, one vector a
session (`hybrid=False`, as the baselines of papers); the offline embedder does neither.

    search   one hit per session: its turns line by line, the ids of all of them as sources
    recall   the k best sessions, oldest first, one hit per turn: `[D1:3] (date) Speaker: text`

Limits: long sessions win many words and so many searches (BM25 only dampens it), and nothing caps the context:
with long sessions choose a small k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from ...memory.amending import Amend
from ...memory.index import Embedder, Entry
from ...memory.memory import Memory
from ...memory.turns import turn_entries
from ...records import Context, Hit, Item, Query
from ..method import ANY_COSINE, FEW, EntryReader, Method, Writer, of_meaning


class StoredSession(BaseModel):
    """One session: its turns as turn RAG keeps them."""

    model_config = ConfigDict(frozen=True)

    id: str
    time: datetime | None = None
    turns: tuple[Entry, ...]

    def entry(self) -> Entry:
        """The session as one thing to search for."""
        text, sources = "\n".join(turn.text for turn in self.turns), tuple(turn.id for turn in self.turns)
        return Entry(id=self.id, text=text, kind="session", sources=sources, time=self.time)


class SessionMemory(Memory):
    """Sessions in time order; each has its own id."""

    sessions: tuple[StoredSession, ...] = ()

    def entries(self) -> list[Entry]:
        return [session.entry() for session in self.sessions]

    def parts(self) -> tuple[StoredSession, ...]:
        return self.sessions

    def entry(self, part: StoredSession) -> Entry:
        return part.entry()


class SessionWriter(Writer):
    """Keeps every session with words."""

    Memory = SessionMemory

    def write(self, memory: SessionMemory, item: Item, prepared: Any = None) -> SessionMemory:
        turns, taken = turn_entries(item), {session.id for session in memory.sessions}
        if not turns:
            return memory
        id = item.id if item.id not in taken else f"{item.id}#{len(memory.sessions) + 1}"
        new = StoredSession(id=id, time=item.time, turns=turns)
        return memory.model_copy(update={"sessions": (*memory.sessions, new)})


class SessionReader(EntryReader):
    """Finds sessions and shows them turn by turn."""

    def entries(self, memory: SessionMemory) -> Sequence[Entry]:
        """Sessions, which are searched, and their turns, which are shown."""
        return [*super().entries(memory), *(turn for session in memory.sessions for turn in session.turns)]

    def amended(self, memory: SessionMemory, amend: Amend) -> SessionMemory:
        """A turn that is gone is gone from its session; the text of a session is that of its turns."""
        kept: list[StoredSession] = []
        for session in memory.sessions:
            if any(amend.touches(turn.id, turn.sources) for turn in session.turns):
                turns = amend.entries(session.turns) if amend.own(session.entry()) is not None else ()
                session = session.model_copy(update={"turns": turns})
            if session.turns:
                kept.append(session)
        return memory.model_copy(update={"sessions": tuple(kept)})

    def otherwise(self, memory: SessionMemory, query: Query) -> Sequence[Hit]:
        """The newest turns: a whole session is much for a question that found nothing."""
        turns = [turn for session in memory.sessions for turn in session.turns]
        return [turn.hit() for turn in turns[: -FEW - 1 : -1]]

    def recall(self, memory: SessionMemory, query: Query) -> Context:
        scores = {hit.id: hit.score for hit in self.nearest(memory, query, self.k)}
        found = [session for session in memory.sessions if session.id in scores]
        return Context(hits=tuple(turn.hit(scores[session.id]) for session in found for turn in session.turns))


class SessionRAG(Method):
    """Recalls the `k` best-matching sessions, turn by turn in time order. Critical path: no LM call.

    Args:
        k: Sessions recalled per query.
        hybrid: Whether an embedding model adds to BM25, or searches alone.
        embedder: Adds search by meaning.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"palbench": {"k": 3, "hybrid": False}}
    """Mem-PAL, appendix C: what its baselines recall, and how."""

    def __init__(self, k: int = 3, hybrid: bool = True, embedder: Embedder | None = None) -> None:
        near = of_meaning(embedder)
        super().__init__(SessionWriter(), SessionReader(k, ANY_COSINE, near, hybrid=hybrid), near)
