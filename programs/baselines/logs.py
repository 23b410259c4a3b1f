"""`logs+METHOD`: the basic handling of device logs that Mem-PAL gives its baselines, over any method.

    logs      ── kept apart ──> those of the current session, those of all sessions before it
    the rest  ──> the inner method
    recall    ──> what the inner method recalls, then earlier logs (by `earlier`), then all of the current session

    earlier "search"    the k nearest log entries of earlier sessions
            "summary"   a summary of the logs, rewritten with every batch
            "none"      nothing

The current session is the one whose dialogue is about to begin: its logs are those since the last dialogue, and once
that dialogue has come they stay current until there are newer ones. Mem-PAL gives no memory "none", the retrieving
baselines "search" and the recursive summary "summary"; programs that are built for a benchmark follow it.

Source: Mem-PAL, appendix C, "Implementation Details of Memory Baselines". A method by itself reads logs as if they were
turns of a dialogue.

Limits: a benchmark that shows the current logs by itself (`show_logs` of palbench) shows them once: what a task
shows as raw items is not recalled again. Search merges both parts by score, which compares like with like only where
both are searched in one way: over an inner method that adds BM25 and cosine logs are searched so too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from ...errors import UserError
from ...memory.amending import Amend
from ...memory.index import Embedder, Entry
from ...memory.indexes import Indexes
from ...memory.memory import Memory
from ...memory.turns import turn_entries
from ...records import Context, Hit, Item, Logs, Query, Session
from ...signatures.baselines import UpdateLogSummary
from ..method import ANY_COSINE, Method, Policy, Reader, Writer
from ..predictor import predictor
from .recursive_summary import SummaryMemory, updated

EARLIER = ("search", "summary", "none")


class KeptLogs(BaseModel):
    """Log entries in time order."""

    model_config = ConfigDict(frozen=True)

    earlier: tuple[Entry, ...] = ()
    """Of all sessions but the current one."""
    current: tuple[Entry, ...] = ()
    """Of the current session."""
    answered: bool = False
    """Whether the dialogue that follows the current ones has come."""

    def after(self, item: Item, keep: bool = True) -> KeptLogs:
        """What is kept after one more item; other items are ignored.

        Args:
            item: The item.
            keep: Whether logs of earlier sessions are kept.
        """
        if isinstance(item, Session):
            return self.model_copy(update={"answered": True})
        if not isinstance(item, Logs):
            return self
        if self.answered:
            return KeptLogs(earlier=(*self.earlier, *self.current) if keep else (), current=turn_entries(item))
        return self.model_copy(update={"current": (*self.current, *turn_entries(item))})


class LoggedMemory(Memory):
    """The memory of the inner method, and the logs beside it."""

    inner: Any = None
    logs: KeptLogs = KeptLogs()
    log_summary: SummaryMemory = SummaryMemory()

    def entries(self) -> list[Entry]:
        return [*self.inner.entries(), *self.logs.earlier, *self.logs.current]

    def holding(self, **parts: Memory) -> LoggedMemory:
        """The memory with other parts; what they could not take in is told by the whole."""
        lost = tuple(each for part in parts.values() for each in part.unwritten)
        bare = {name: part.model_copy(update={"unwritten": ()}) for name, part in parts.items()}
        return self.model_copy(update={**bare, "unwritten": (*self.unwritten, *lost)})

    def resumed(self, settled: Any) -> LoggedMemory:
        return self.model_copy(update={"inner": self.inner.resumed(settled.inner)})


@functools.cache
def logged(inner: type[Memory]) -> type[LoggedMemory]:
    """The memory type over another one: one class each, so that memories of two programs can be equal."""
    return create_model(f"Logged{inner.__name__}", __base__=LoggedMemory, inner=(inner, inner()))


class LoggedWriter(Writer):
    """Keeps logs apart and hands everything else on.

    Args:
        inner: Writes everything else.
        earlier: How logs of earlier sessions are handled.
        max_words: Most words of their summary.
    """

    longest_text = 40_000

    def __init__(self, inner: Writer, earlier: str, max_words: int) -> None:
        super().__init__()
        self.inner, self.earlier, self.max_words = inner, earlier, max_words
        self.Memory = logged(inner.Memory)
        if earlier == "summary":
            self.update_logs = predictor(UpdateLogSummary)

    @property
    def embedder(self) -> Any:
        """That of the inner writer."""
        return getattr(self.inner, "embedder", None)

    @property
    def relates(self) -> bool:
        return self.inner.relates

    @property
    def prepares(self) -> bool:
        return self.inner.prepares

    @property
    def settles(self) -> bool:
        return self.inner.settles

    def prepare(self, item: Item) -> Any:
        return None if isinstance(item, Logs) else self.inner.prepare(item)

    def write(self, memory: LoggedMemory, item: Item, prepared: Any = None) -> LoggedMemory:
        kept = memory.logs.after(item, keep=self.earlier == "search")
        memory = memory.model_copy(update={"logs": kept})
        if isinstance(item, Logs):
            return self._with_logs(memory, item)
        return memory.holding(inner=self.inner.write(memory.inner, item, prepared))

    def write_piece(self, memory: LoggedMemory, piece: Item) -> LoggedMemory:
        """Takes a piece in; logs are kept already, and lack only in their summary."""
        if isinstance(piece, Logs):
            return self._with_logs(memory, piece)
        return memory.holding(inner=self.inner.write_piece(memory.inner, piece))

    def _with_logs(self, memory: LoggedMemory, item: Logs) -> LoggedMemory:
        if self.earlier == "summary" and any(turn.content.strip() for turn in item.turns):
            return memory.holding(log_summary=self._summed_up(memory.log_summary, item))
        return memory

    def settle(self, memory: LoggedMemory) -> LoggedMemory:
        return memory.holding(inner=self.inner.settle(memory.inner))

    def _summed_up(self, before: SummaryMemory, item: Item) -> SummaryMemory:
        found = self.attempt(
            self.update_logs,
            logs_known_before=before.summary,
            new_logs="\n".join(turn.line(item.time) for turn in item.turns if turn.content.strip()),
            max_words=self.max_words,
        )
        return updated(before, found, "log_summary", "update_logs", item, self.max_words)


class LoggedReader(Reader):
    """Recalls what the inner reader recalls, and logs after it.

    Args:
        inner: Reads everything else.
        k: Log entries of earlier sessions per query.
        embedder: Vectors of log entries; BM25 without.
    """

    def __init__(self, inner: Reader, k: int, embedder: Embedder | None) -> None:
        super().__init__()
        self.inner, self.k, self.hybrid = inner, k, inner.hybrid
        self.low = ANY_COSINE if inner.hybrid else 0.0

        def kept(memory: LoggedMemory) -> tuple[Entry, ...]:
            return *memory.logs.earlier, *memory.logs.current

        self.indexes = Indexes(embedder, inner.hybrid, kept)

    def search(
        self, memory: LoggedMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Entries of the inner method and log entries, best first."""
        found = self.inner.search(memory.inner, queries, k, min_score)
        if not (memory.logs.earlier or memory.logs.current):
            return found
        logs = self.indexes.search(memory, queries, k, self.low if min_score is None else min_score)
        return [
            sorted([*own, *theirs], key=lambda hit: -hit.score)[:k] for own, theirs in zip(found, logs, strict=True)
        ]

    def entries(self, memory: LoggedMemory) -> Sequence[Entry]:
        return [*self.inner.entries(memory.inner), *self.indexes.entries(memory)]

    def amended(self, memory: LoggedMemory, amend: Amend) -> LoggedMemory:
        kept, told = memory.logs, memory.log_summary
        logs = {"earlier": amend.entries(kept.earlier), "current": amend.entries(kept.current)}
        found = {"inner": self.inner.amended(memory.inner, amend), "logs": kept.model_copy(update=logs)}
        return memory.model_copy(update={**found, "log_summary": told.amended(amend)})

    def recall(self, memory: LoggedMemory, query: Query) -> Context:
        found = self.inner.recall(memory.inner, query)
        there = query.shown_ids
        current = (entry.hit() for entry in memory.logs.current if entry.id not in there)
        summed_up = memory.log_summary.hits("log_summary")
        told = found.hits or self.inner.otherwise(memory.inner, query)
        hits = (*told, *summed_up, *self._earlier(memory, query.probe), *current)
        return found.model_copy(update={"hits": hits})

    def _earlier(self, memory: LoggedMemory, probe: str) -> list[Hit]:
        if not memory.logs.earlier:
            return []
        earlier = {entry.id for entry in memory.logs.earlier}
        return self.indexes.search(memory, [probe], self.k, self.low, lambda entry: entry.id in earlier)[0]


class WithLogs(Policy):
    """Device logs apart from the memory of another method. Settings of the inner method begin with `inner_`.

    Args:
        inner: The method beneath.
        k: Log entries of earlier sessions per query; Mem-PAL's number.
        earlier: "search", "summary" or "none".
        max_words: Most words of a summary of the logs.

    Raises:
        UserError: `earlier` is none of these.
    """

    def __init__(self, inner: Method, k: int = 3, earlier: str = "search", max_words: int = 300) -> None:
        if earlier not in EARLIER:
            raise UserError(f"earlier = {earlier!r} is none of {', '.join(EARLIER)}")
        reader = LoggedReader(inner.reader, k, inner.embedder)
        super().__init__(inner, reader, LoggedWriter(inner.writer, earlier, max_words))

    @classmethod
    def preset(cls, benchmark: str, beneath: str = "") -> dict[str, Any]:
        """What Mem-PAL does with the logs of earlier sessions, by inner baseline."""
        earlier = {"no-memory": "none", "recursive-summary": "summary"}.get(beneath)
        return {"earlier": earlier} if earlier else {}
