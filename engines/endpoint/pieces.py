"""Who wants the text of a call piece by piece, while the model writes it; each attempt begins anew.

The endpoint is then asked for a stream, usage included, which makes the response that it gives otherwise. Models of
this process and answers from a cache give no pieces.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager

from ...records.scope import holding

Take = Callable[[str], None]
"""Takes the next piece of the text of one attempt; it must not block."""
Begin = Callable[[], Take]

_begin: contextvars.ContextVar[Begin | None] = contextvars.ContextVar("pieces", default=None)


def in_pieces(begin: Begin) -> AbstractContextManager[None]:
    """Lets the attempts of the block's calls give their text while it comes.

    Args:
        begin: Called at the beginning of each attempt, in the thread of the endpoints.
    """
    return holding(_begin, begin)


def pieces_here() -> Begin | None:
    """Who wants the pieces of the running call."""
    return _begin.get()
