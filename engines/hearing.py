"""Who hears what a model is asked and what it answers, in the running piece of work.

DSPy's callbacks tell it too, but are asked at every module and adapter of a call: for two words a question that takes
more time than all else of the suite's own. So a metered model tells who listens by itself.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..records.scope import holding

Hear = Callable[[Any, Sequence[Any]], None]
"""Takes the messages of a call, or its prompt where it has none, and the answers as DSPy has them."""

_hear: contextvars.ContextVar[Hear | None] = contextvars.ContextVar("hear", default=None)


def hearing(hear: Hear | None) -> AbstractContextManager[None]:
    """Lets `hear` know of the calls of the block; None lets nobody."""
    return holding(_hear, hear)


def told(asked: Any, answers: Sequence[Any]) -> Sequence[Any]:
    """The answers, of which whoever listens knows now."""
    hear = _hear.get()
    if hear is not None:
        hear(asked, answers)
    return answers
