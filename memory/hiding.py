"""What a writer's model is shown of a memory: its entries as their user left them, not as they were written.

    Amendments ── writing_under ──> as_left(part, entry) of every part that a prompt shows or an answer may change

A deleted entry stays in the memory, so that the deletion can be undone, and no prompt shows it; what is said of it
later becomes an entry of its own. An entry with another text is shown with it, and becomes another entry where a
writer changes it: an amendment means an entry by its id, and would keep hiding what is true since.

Example:
    >>> from mempiler.memory.amending import Amendment, Amendments
    >>> from mempiler.memory.hiding import as_left, writing_under
    >>> from mempiler.memory.index import Entry
    >>> secret = Entry(id="m1", text="the code is falcon", kind="fact", sources=("D1:1",))
    >>> gone = Amendment(number=1, what="delete", entry="m1", kind="fact", text=secret.text, sources=("D1:1",))
    >>> with writing_under(Amendments([gone])):
    ...     as_left(secret, lambda part: part) is None
    True
    >>> as_left(secret, lambda part: part) is secret
    True
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from .amending import Amend
from .index import Entry

P = TypeVar("P")

_amend: ContextVar[Amend | None] = ContextVar("mempiler_writing_under", default=None)


@contextmanager
def writing_under(amend: Amend | None) -> Generator[None]:
    """What is written in the block sees entries as an amendment leaves them; as they are written if None."""
    token = _amend.set(amend)
    try:
        yield
    finally:
        _amend.reset(token)


def as_left(part: P, entry: Callable[[P], Entry]) -> Entry | None:
    """The entry of a part of a memory as its user left it; None if it was deleted.

    Args:
        part: The part.
        entry: Makes its entry.
    """
    amend, found = _amend.get(), entry(part)
    return found if amend is None else amend(found)


def is_as_written(part: P, entry: Callable[[P], Entry]) -> bool:
    """Whether the entry of a part is there as it was written."""
    if _amend.get() is None:
        return True
    after = as_left(part, entry)
    return after is not None and after.text == entry(part).text
