"""Topics of dialogues: what was needed, what was proposed, what was liked; and the turns each of them takes (M_T).

The spans of a dialogue's topics tile it: no turn is left out and none belongs to two topics. A model's spans are
repaired where they do not (`tiled`).

Example:
    >>> from mempiler.programs.h2memory.outlines import span, tiled
    >>> ids = ["t1", "t2", "t3", "t4"]
    >>> tiled([span(["t1", "t2"], ids), span(["t4", "t4"], ids)], len(ids))
    ([(0, 2), (3, 3)], 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

Content = Literal["needs", "solutions"]
"""What is to be seen of a topic or principle: the need alone, or solutions and preferences too."""
Feedback = Literal["pos", "neg", "others"]
_FEEDBACK = {"pos": "liked", "neg": "rejected", "others": "undecided"}
Span = tuple[int, int]
"""Positions of the first and the last turn, both included."""


class Solution(BaseModel):
    """One solution that was talked about."""

    model_config = ConfigDict(frozen=True)

    text: str
    feedback: str = ""
    kind: Feedback = "others"

    def line(self) -> str:
        """`a walk at noon (rejected: too little time)`."""
        said = f"{_FEEDBACK[self.kind]}: {self.feedback}" if self.feedback else _FEEDBACK[self.kind]
        return f"{self.text} ({said})"


class Topic(BaseModel):
    """The outline of one topic."""

    model_config = ConfigDict(frozen=True)

    id: str = ""
    dialogue: str = ""
    """Id of the session it was talked about in."""
    need: str
    """What the user needed; as refined, once it is."""
    stated: str = ""
    """The need as the dialogue has it."""
    solutions: tuple[Solution, ...] = ()
    preference: str = ""
    sources: tuple[str, ...] = ()
    """Ids of its turns."""
    time: datetime | None = None
    own: tuple[str, ...] = ()
    """Ids of the items of logs that came before its dialogue."""

    def text(self, content: Content | None = None) -> str:
        """The need alone, or with what was proposed and preferred (also where no content is asked for)."""
        if content == "needs":
            return f"Need: {self.need}"
        proposed = "; ".join(solution.line() for solution in self.solutions)
        parts = (("Need", self.need), ("Proposed", proposed), ("Preference", self.preference))
        return " | ".join(f"{name}: {part}" for name, part in parts if part)


def span(named: Sequence[str], ids: Sequence[str]) -> Span | None:
    """The positions that a model's first and last turn id stand for; None if neither of them is a turn.

    Args:
        named: The ids it gave: two, in any order, or one for a topic of one turn; unknown ones are passed over.
        ids: Ids of the turns in order.
    """
    place = {id: n for n, id in enumerate(ids)}
    found = [place[id] for id in named if id in place]
    return (min(found), max(found)) if found else None


def tiled(spans: Sequence[Span | None], turns: int) -> tuple[list[Span], int]:
    """Spans that tile a dialogue, as near to the given ones as there are, and how many had to be changed.

    Where a topic begins counts: it ends where the next one begins, the first begins with the dialogue, the last ends
    with it. Topics without a span share the turns around them evenly; the order of topics is kept. If there are more
    topics than turns, some share a turn.

    Args:
        spans: One per topic, in order.
        turns: Turns of the dialogue, at least 1.
    """
    starts = _starts([None if one is None else one[0] for one in spans], turns)
    ends = [max(start, after - 1) for start, after in zip(starts, [*starts[1:], turns], strict=True)] if starts else []
    found = list(zip(starts, ends, strict=True))
    return found, sum(given != made for given, made in zip(spans, found, strict=True))


def _starts(given: Sequence[int | None], turns: int) -> list[int]:
    """Ascending positions, from 0, each its own as long as there are enough."""
    count = len(given)
    known: dict[int, float] = {n: start for n, start in enumerate(given) if start is not None}
    known = {**known, 0: 0, count: turns}
    marks = sorted(known)
    wanted: list[int] = []
    for n in range(count):
        low = max(mark for mark in marks if mark <= n)
        high = min(mark for mark in marks if mark > n)
        step = (known[high] - known[low]) / (high - low)
        wanted.append(round(known[low] + step * (n - low)))
    starts: list[int] = []
    for n, start in enumerate(wanted):
        # At least one turn for each topic before and behind, where there are so many.
        low = starts[-1] + 1 if starts else 0
        starts.append(min(max(start, low), max(turns - (count - n), 0)))
    return starts
