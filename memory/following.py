"""One index for all versions of a memory: it goes from one to the next by what they do not share.

    version 1 ── write ──> version 2 ── write ──> version 3        frozen values that share their parts
        └──────── Line: what they have in common ────────┘
                    └─ Following: the index, at one of them; moved when another one is searched

A writer makes a memory from the one before it, and of thousands of parts it replaces a few. Those are found by identity
(the same object is the same part), so that searching the next version costs what it changed, not what it holds. An
older version is searched in the same way: the index moves back. Entries that do not stand where the moved index would
have them are taken out and added again behind the others, so that equal scores come in the same order as in an index
that is built there: parts that grow are best kept behind those that stay.

Searches of one version go side by side; another version waits for them, and holds up those who come after it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import compress, count
from operator import is_not
from typing import Any

from .index import Entry, Index

Made = Callable[[Any, Any], Iterable[Entry]]
"""Makes the entries of a part of a memory: (memory, part) -> entries. The same part always has equal ones."""


class Line:
    """What the versions of a memory have in common; it lives as long as any of them, and their indexes with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: weakref.WeakKeyDictionary[Any, Following] = weakref.WeakKeyDictionary()

    def of(self, keeper: Any, make: Callable[[], Following]) -> Following:
        """The index that a keeper has for this line, made if it has none."""
        with self._lock:
            found = self._kept.get(keeper)
            if found is None:
                found = self._kept[keeper] = make()
            return found

    def drop(self, keeper: Any) -> None:
        """Takes out the index of a keeper."""
        with self._lock:
            self._kept.pop(keeper, None)

    def __deepcopy__(self, memo: object = None) -> Line:
        return self

    def __reduce__(self) -> tuple[type[Line], tuple[()]]:
        return Line, ()


class Following:
    """The index of a line, at one of its versions.

    Args:
        empty: Makes an index without entries.
        parts: The parts of a memory, in the order of their entries.
        made: Makes the entries of a part.
    """

    def __init__(self, empty: Callable[[], Index], parts: Callable[[Any], Sequence[Any]], made: Made) -> None:
        self._empty, self._parts_of, self._made = empty, parts, made
        self._turn = threading.Lock()
        self._free = threading.Condition()
        self._searching = 0
        self._failure: BaseException | None = None
        self._memory: Callable[[], Any] = lambda: None
        self._index: Index | None = None
        self._parts: Sequence[Any] = ()
        self._entries: list[tuple[Entry, ...]] = []

    def __len__(self) -> int:
        """The number of entries in it."""
        return 0 if self._index is None else len(self._index)

    @contextmanager
    def at(self, memory: Any) -> Generator[Index]:
        """The index at a version, which stays there meanwhile.

        Raises:
            Exception: What the embedder raised; whoever waited for the same gets the same.
        """
        before = self._failure
        with self._turn:
            if self._memory() is not memory:
                if self._failure is not None and self._failure is not before:
                    raise self._failure
                with self._free:
                    self._free.wait_for(lambda: not self._searching)
                self._go(memory)
            with self._free:
                self._searching += 1
            index = self._index
        assert index is not None
        try:
            yield index
        finally:
            with self._free:
                self._searching -= 1
                self._free.notify_all()

    def _go(self, memory: Any) -> None:
        """Moves the index to another version, or builds it there; after a failure it is built."""
        parts, index, self._memory = self._parts_of(memory), self._index, lambda: None
        try:
            if index is None or not self._moved(index, memory, parts):
                self._built(memory, parts)
        except BaseException as error:
            self._index, self._parts, self._entries, self._failure = None, (), [], error
            raise
        self._parts, self._memory, self._failure = parts, weakref.ref(memory), None

    def _built(self, memory: Any, parts: Sequence[Any]) -> None:
        index = self._empty()
        self._entries = [tuple(self._made(memory, part)) for part in parts]
        index.add(entry for entries in self._entries for entry in entries)
        self._index = index

    def _moved(self, index: Index, memory: Any, parts: Sequence[Any]) -> bool:
        """Moves an index by what differs; False if it is better built there."""
        start = shared(self._parts, parts)
        known = {id(part): entries for part, entries in zip(self._parts[start:], self._entries[start:], strict=True)}
        tail = [known[id(p)] if id(p) in known else tuple(self._made(memory, p)) for p in parts[start:]]
        old = {entry.id: entry for entries in self._entries[start:] for entry in entries}
        new = {entry.id: entry for entries in tail for entry in entries}
        stay = [id for id in old if id in new]
        misplaced = stay[
            next((n for n, (id, there) in enumerate(zip(stay, new, strict=False)) if id != there), len(stay)) :
        ]
        gone = [id for id in old if id not in new]
        size = len(index) + len(new) - len(old)
        if len(new) != sum(map(len, tail)) or 2 * (len(gone) + len(misplaced)) > len(index):
            return False
        index.remove(misplaced)
        again = set(misplaced)
        # Entries of parts that stayed are the same objects, which need not be compared.
        index.add(e for id, e in new.items() if id in again or (old.get(id) is not e and old.get(id) != e))
        index.remove(gone)
        self._entries[start:] = tail
        # An id of the tail may be one of the shared parts as well.
        return len(index) == size


def shared(first: Sequence[Any], second: Sequence[Any]) -> int:
    """How many objects two sequences share at their beginning."""
    return next(compress(count(), map(is_not, first, second)), min(len(first), len(second)))
