"""A turn: what was said, logged or done at one time, with an id that memories cite as their source.

Example:
    >>> from mempiler.records import Turn
    >>> Turn(id="D3:11", speaker="Ann", text="I moved to Lisbon.").line()
    '[D3:11] Ann: I moved to Lisbon.'
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from ..text import one_line
from .frozen import Record
from .timestamps import Moment


def format_time(time: datetime) -> str:
    """Return a time as people and prompts read it: `8 May 2023, Monday 13:56`.

    The clock is left out at midnight, since a date without a clock is read as midnight.
    """
    # Times of two zones can be equal although their clocks differ. With their zones they would
    # share one cached text.
    return _format_without_zone(time.replace(tzinfo=None))


@lru_cache(maxsize=4096)
def _format_without_zone(time: datetime) -> str:
    day = f"{time.day} {time:%B %Y}, {time:%A}"
    is_midnight = time.hour == time.minute == 0
    return day if is_midnight else f"{day} {time:%H:%M}"


class Turn(Record):
    """One utterance of a session."""

    id: str
    """Unique within its history, e.g. "D3:11" (session 3, turn 11)."""
    speaker: str
    text: str = ""
    caption: str | None = None
    """What an image that was sent with the turn shows."""
    time: Moment | None = None
    """When it was said, if that is known more exactly than by the time of the item."""

    @property
    def content(self) -> str:
        """The text, followed by the caption of the image."""
        if not self.caption:
            return self.text
        image = f"[shares an image of {self.caption}]"
        if not self.text:
            return image
        return f"{self.text} {image}"

    def at(self, time: datetime | None) -> Turn:
        """Return the turn with a time, if it has none of its own."""
        if self.time or not time:
            return self
        return self.model_copy(update={"time": time})

    def line(self, time: datetime | None = None) -> str:
        """Render the turn on one line: `[D1:3] (8 May 2023, Monday 13:56) Ann: text`.

        Args:
            time: When it was said, if it has no time of its own.
        """
        shown_time = self.time or time
        date = f" ({format_time(shown_time)})" if shown_time else ""
        return one_line(f"[{self.id}]{date} {self.speaker}: {self.content}")
