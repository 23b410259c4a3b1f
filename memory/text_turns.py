"""Turns for long work on text: a service does it for one tenant after the other.

Words are stemmed and cut in Python, and threads that do so leave little time to all others of a process. Whoever works
on many or long texts waits for a turn first; how turns are given, a service says. Elsewhere nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from ..records.scope import holding

T = TypeVar("T")

CHARACTERS = 2000
"""Characters of text that are worked on without a turn, and of one turn where there are many texts."""

Turn = Callable[[], AbstractContextManager[None]]
"""Makes what waits for a turn and ends it."""
TURNS: ContextVar[Turn | None] = ContextVar("text_turns", default=None)
"""How turns are given in the running work; None where nobody waits."""


@contextmanager
def text_turn(characters: int) -> Generator[None]:
    """Work on so many characters in a turn of its own; few characters, and work within a turn, need none."""
    turn = TURNS.get()
    if turn is None or characters <= CHARACTERS:
        yield
        return
    with turn(), holding(TURNS, None):
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
