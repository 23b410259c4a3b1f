"""Turns for long work on text: a service does it for one tenant after the other.

Words are stemmed and cut in Python, and threads that do so leave little time to all others of a process. So work on
many or long texts waits for a turn first. A service decides who gets the next turn; elsewhere nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from ..records.context_variables import set_context

T = TypeVar("T")

CHARACTERS = 2000
"""Characters of text that are worked on without a turn, and of one turn where there are many texts."""

Slot = Callable[[], AbstractContextManager[None]]
"""Returns a context manager that waits for a turn, and ends it with its block."""
CURRENT_SLOT: ContextVar[Slot | None] = ContextVar("text_turns", default=None)
"""What the running work waits for before it handles long texts; None if it need not wait."""


@contextmanager
def text_slot(characters: int) -> Generator[None]:
    """Hold a turn while the block works on so many characters; few characters, and work within a turn, need none."""
    turn = CURRENT_SLOT.get()
    if turn is None or characters <= CHARACTERS:
        yield
        return
    with turn(), set_context(CURRENT_SLOT, None):
        yield


def in_parts(texts: Iterable[T], characters: Callable[[T], int]) -> Iterator[list[T]]:
    """Divide many texts into parts, for a turn each: a part has more than `CHARACTERS` with its last text only."""
    part: list[T] = []
    size = 0
    for text in texts:
        part.append(text)
        size += characters(text)
        if size > CHARACTERS:
            yield part
            part = []
            size = 0
    if part:
        yield part
