"""What a memory is asked: the question, and what is known about it before anything is recalled."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, SerializeAsAny

from .frozen import FrozenDict, FrozenMapping, Record
from .items import Item
from .timestamps import read_time
from .turns import format_time

Modality = Literal["question", "dialogue"]
"""A question by itself, or the last turn of a dialogue, from which a method may make a query."""
About = Literal["needs", "solutions"]
"""The half of a memory that matters: what a user needs, or what to propose to them."""


class Query(Record):
    """A question to a memory."""

    text: str
    """The question, request or last turn."""
    options: tuple[str, ...] = ()
    """The answers to choose from; empty for a free answer."""
    date: datetime | str | None = None
    """When it is asked: a time, or words as prompts show them."""
    searched_with_date: bool = False
    """Whether memories are searched with the date too, as the code of a benchmark may do."""
    speakers: tuple[str, ...] = ()
    """Names of those who speak in the history, in order of first appearance."""
    dialogue: str = ""
    """What was said before the text, one line per turn."""
    modality: Modality = "question"
    about: About | None = None
    shown_items: tuple[SerializeAsAny[Item], ...] = ()
    """Raw items that the task shows beside the recalled context: a method need not recall them."""
    new_items: tuple[SerializeAsAny[Item], ...] = ()
    """Items that came after the end of the memory."""
    extra: FrozenMapping[str, Any] = Field(default_factory=FrozenDict)
    """Whatever else a benchmark knows about the question, for its own tasks."""

    @property
    def when(self) -> str:
        """The date in words, "" if it is not known."""
        if isinstance(self.date, datetime):
            return format_time(self.date)
        return self.date or ""

    @property
    def moment(self) -> datetime | None:
        """The date as a time; None if it is not known, or its words are no date."""
        if isinstance(self.date, datetime):
            return self.date
        return read_time(self.date)

    @property
    def dated_text(self) -> str:
        """The text as prompts show it: with the date, on which words like "last week" depend."""
        if not self.date:
            return self.text
        return f"{self.text} (asked on {self.when})"

    @property
    def search_text(self) -> str:
        """The text that a memory is searched with.

        It never contains the options. A search for "(a) He moved to Oslo" finds memories about
        Oslo, even if the option is wrong.
        """
        if self.modality == "dialogue":
            return self._whole_dialogue()
        # Few questions are about the month in which they are asked, and with the date a search
        # would find what happened in that month.
        return self.dated_text if self.searched_with_date else self.text

    def _whole_dialogue(self) -> str:
        """Return all turns of a dialogue, one a line. The last turn is the text of the query.

        That turn alone may be no more than "Yes, please.", which finds nothing.
        """
        lines = [line for line in self.dialogue.split("\n") if line]
        lines.append(f"user: {self.text}")
        return "\n".join(lines)

    @property
    def shown_turn_ids(self) -> frozenset[str]:
        """Ids of the turns in `shown_items`."""
        return frozenset(turn.id for item in self.shown_items for turn in item.turns)
