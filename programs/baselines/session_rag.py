"""Session RAG: whole sessions are what is searched for and what is shown.

A turn that answers a question often says so in words of the turns around it. Searching sessions finds it by their
words, and shows it among them; the price is a context of hundreds of turns. Search is the same BM25 as in turn RAG,
over one text per session.

    search   one hit per session: its turns line by line, the ids of all of them as sources
    recall   the k best sessions, oldest first, one hit per turn: `[D1:3] (date) Speaker: text`

Example:
    >>> program = build("session-rag", k=2)

Honest limits: long sessions win many words and so many searches (BM25 only dampens it), and nothing caps the context:
with long sessions choose a small k.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from ...memory.device_logs import LogMemory
from ...memory.index import Entry, Index
from ...memory.sparse import SparseIndex
from ...memory.turns import TurnMemory
from ...records import Context, Hit, Item
from ..method import Method
from .logs import apart, is_dialogue, log_hits, seen


class StoredSession(BaseModel):
    """One session: its turns as turn RAG keeps them."""

    model_config = ConfigDict(frozen=True)

    id: str
    time: datetime | None = None
    turns: tuple[Entry, ...]

    def entry(self) -> Entry:
        """The session as one thing to search for."""
        text = "\n".join(turn.text for turn in self.turns)
        return Entry(id=self.id, text=text, sources=tuple(turn.id for turn in self.turns), time=self.time)


class SessionMemory(BaseModel):
    """Sessions in time order; each has an id of its own."""

    model_config = ConfigDict(frozen=True)

    sessions: tuple[StoredSession, ...] = ()
    logs: LogMemory = LogMemory()
    """Logs that are kept apart from the dialogues, where the method does so."""

    def with_session(self, item: Item) -> SessionMemory:
        """The memory with one more session; one without words is left out."""
        turns = TurnMemory().with_session(item).entries
        if not turns:
            return self
        taken = {session.id for session in self.sessions}
        id = item.id if item.id not in taken else f"{item.id}#{len(self.sessions) + 1}"
        new = StoredSession(id=id, time=item.time, turns=turns)
        return self.model_copy(update={"sessions": (*self.sessions, new)})


class SessionRAG(Method):
    """Recalls the `k` best-matching sessions, turn by turn in time order. Critical path: no LM call.

    Args:
        k: Sessions recalled per query.
        logs: Whether logs are kept apart from the dialogues: then the `k` best-matching log entries of earlier
            sessions and all of the current session follow the turns (Mem-PAL, appendix C).
    """

    Memory = SessionMemory

    def __init__(self, k: int = 3, logs: bool = False) -> None:
        super().__init__()
        self.k = k
        self.logs = logs

    def write(self, memory: SessionMemory, item: Item, prepared: Any = None) -> SessionMemory:
        memory = seen(memory, item, self.logs)
        return memory if apart(item, self.logs) else memory.with_session(item)

    def search(
        self, memory: SessionMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return self.index(memory).search(queries, k, 0.0 if min_score is None else min_score)

    def recall(self, memory: SessionMemory, query: str, **hints: Any) -> Context:
        index = self.index(memory)
        scores = {hit.id: hit.score for hit in index.search([query], self.k, 0.0, is_dialogue)[0]}
        found = [session for session in memory.sessions if session.id in scores]
        turns = (turn.hit(scores[session.id]) for session in found for turn in session.turns)
        return Context(hits=(*turns, *log_hits(memory.logs, index, query, self.k, hints.get("recent"))))

    def build_index(self, memory: SessionMemory) -> Index:
        index = SparseIndex()
        index.add([*(session.entry() for session in memory.sessions), *memory.logs.entries])
        return index
