"""What users said and this process still keeps: it goes when somebody is forgotten, here or in another process.

    work with a user's memory   ── nobody was forgotten meanwhile ──> parsed memory, index, vectors, words are kept
                                ── somebody was ──> they go when the work ends, whatever it put there last

The store counts how often anybody was forgotten. A process sees a new count when it next reads a memory, or when its
worker looks; then everything goes that was kept of that store's users. It is made again when it is asked for.

Limits: memory that was freed is not overwritten, and what a caller holds (an answer, a memory) is the caller's.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dspy

from ..memory.store import Store
from ..memory.tokens import forget_words

if TYPE_CHECKING:
    from .program import MemoryProgram


class Forgets:
    """The counts of forgetting that a program has seen, by store; shared by all copies of the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}

    def seen(self, url: str) -> int:
        """The last count of a store."""
        return self._seen.get(url, 0)

    def see(self, url: str, count: int) -> bool:
        """Notes a count; whether it is news."""
        with self._lock:
            news = count > self._seen.get(url, 0)
            if news:
                self._seen[url] = count
            return news

    def __deepcopy__(self, memo: object = None) -> Forgets:
        return self


@contextmanager
def leaving_nothing(program: MemoryProgram, store: Store, lm: Any = None, since: int | None = None) -> Generator[None]:
    """Surrounds work with what users said.

    Args:
        program: Keeps it.
        store: Whose users.
        lm: The language model; that of `dspy.settings` if None.
        since: What `Store.forgets` was when it was read; the last count that was seen if None.
    """
    before = program.forgets.seen(store.url) if since is None else since
    try:
        yield
    finally:
        if program.forgets.seen(store.url) != before:
            wipe(program, store, lm)


def notice(program: MemoryProgram, store: Store, count: int, lm: Any = None) -> None:
    """Drops what is kept if somebody was forgotten since this process last looked.

    Args:
        program: Keeps it.
        store: Whose users.
        count: What `Store.forgets` or a snapshot says.
        lm: The language model; that of `dspy.settings` if None.
    """
    if program.forgets.see(store.url, count):
        wipe(program, store, lm)


def wipe(program: MemoryProgram, store: Store, lm: Any = None) -> None:
    """Drops everything that this process keeps of what a store's users said."""
    program.live.drop(lambda key: isinstance(key, tuple) and key[:2] == ("view", store.url))
    forget_words()
    for keeper in (store, program.method.embedder, getattr(lm or dspy.settings.lm, "engine", None)):
        clear = getattr(keeper, "clear", None)
        if clear is not None:
            clear()
