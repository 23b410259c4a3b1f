"""A long exchange of messages cut into sessions.

A message of the role "system" begins a session and stays in it as a turn of the speaker "system" (PersonaMem tells the
persona there).

Example:
    >>> from mempiler.data.blocks import Blocks
    >>> roles = ("system", "user", "assistant", "system", "user", "assistant")
    >>> [len(session.turns) for session in Blocks([{"role": role, "content": "..."} for role in roles]).until(5)]
    [3, 2]

Limit: messages without further system messages are one long session.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import DataError
from ..records import Session, Turn


class Blocks:
    """The messages of a context as sessions D1, D2, ...: each system message begins one.

    Histories that end at different messages get the same objects for the sessions that are whole in both.

    Args:
        messages: `{role, content}` each; one without text is left out.

    Raises:
        DataError: Something is no message, or a content is no text.
    """

    def __init__(self, messages: Sequence[Any]) -> None:
        for number, message in enumerate(messages, 1):
            if not isinstance(message, Mapping) or not isinstance(message.get("content"), str | None):
                raise DataError(f"message {number} is {reprlib.repr(message)}, expected {{role, content}} of texts")
        self.messages: Sequence[Mapping[str, Any]] = messages
        starts = [n for n, message in enumerate(self.messages) if n == 0 or message.get("role") == "system"]
        self._places = list(zip(starts, [*starts, len(self.messages)][1:], strict=True))
        self._made: dict[tuple[int, int], Session] = {}

    def until(self, end: int) -> tuple[Session, ...]:
        """The sessions of the first `end` messages; the last of them may be cut short."""
        cut = [(n, start, min(stop, end)) for n, (start, stop) in enumerate(self._places, 1) if start < end]
        sessions = [self._session(n, start, stop) for n, start, stop in cut]
        return tuple(session for session in sessions if session.turns)

    def _session(self, number: int, start: int, stop: int) -> Session:
        if (number, stop) in self._made:
            return self._made[number, stop]
        turns: list[Turn] = []
        for message in self.messages[start:stop]:
            text = message.get("content")
            if isinstance(text, str) and text.strip():
                speaker = str(message.get("role") or "unknown")
                turns.append(Turn(id=f"D{number}:{len(turns) + 1}", speaker=speaker, text=text.strip()))
        return self._made.setdefault((number, stop), Session(id=f"D{number}", turns=tuple(turns)))
