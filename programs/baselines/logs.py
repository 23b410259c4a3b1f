"""The basic handling of logs that Mem-PAL gives its baselines, behind their setting `logs`.

    no memory            the logs of the current session
    retrieval            the same, and the k best entries of all earlier sessions' logs
    recursive summary    the same, and a summary of the logs beside that of the dialogues

Source: Mem-PAL, appendix C, "Implementation Details of Memory Baselines". Without the setting, logs are read as if they
were turns of a dialogue.

Example:
    >>> program = build("turn-rag", k=3, logs=True)

Honest limits: a benchmark that shows the current logs by itself (`show_logs` of palbench) shows them once: what a task
shows as raw items is not recalled again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, Self, TypeVar

from ...memory.device_logs import LogMemory
from ...memory.index import Entry, Index
from ...records import Hit, Item, Logs


class Logged(Protocol):
    """A memory that keeps logs apart."""

    @property
    def logs(self) -> LogMemory: ...
    def model_copy(self, *, update: Any = None, deep: bool = False) -> Self: ...


M = TypeVar("M", bound=Logged)


def apart(item: Item, logs: bool) -> bool:
    """Whether an item is kept apart from the dialogues: where it is one of logs and the setting is on."""
    return logs and isinstance(item, Logs)


def seen(memory: M, item: Item, logs: bool) -> M:
    """The memory that knows of an item's logs, or that a dialogue has followed them; as it is without the setting."""
    if not logs:
        return memory
    kept = memory.logs.after(item)
    return memory if kept is memory.logs else memory.model_copy(update={"logs": kept})


def is_dialogue(entry: Entry) -> bool:
    """Whether an index entry is none of logs."""
    return entry.tags.get("kind") != "logs"


def current_hits(logs: LogMemory, shown: Iterable[Item] = ()) -> tuple[Hit, ...]:
    """The logs of the current session in time order, but for those that the task shows by itself."""
    there = {turn.id for item in shown for turn in item.turns}
    return tuple(entry.hit(0.0) for entry in logs.current if entry.id not in there)


def log_hits(logs: LogMemory, index: Index, query: str, k: int, shown: Sequence[Item] | None = None) -> tuple[Hit, ...]:
    """The k best entries of earlier sessions' logs, and after them the logs of the current session.

    Args:
        logs: What is kept.
        index: Holds the entries of `logs`, tagged as such.
        query: What is searched with.
        k: Most earlier entries.
        shown: Items that the task shows by itself.
    """
    if not logs.entries:
        return ()
    earlier = {entry.id for entry in logs.earlier}
    found = index.search([query], k, 0.0, lambda entry: not is_dialogue(entry) and entry.id in earlier)[0]
    return (*found, *current_hits(logs, shown or ()))
