"""What a memory is asked: the question, and all that is known of it before anything is recalled."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, SerializeAsAny

from .frozen import FrozenDict, FrozenMapping, Record
from .items import Item
from .timestamps import read_time
from .turns import format_time

Modality = Literal["question", "dialogue"]
"""A question by itself, or the last turn of a dialogue: of that, a method may make a better query."""
About = Literal["needs", "solutions"]
"""Which half of a memory bears on a query: what a user needs, or what to propose to them."""


class Query(Record):
    """What is asked."""

    text: str
    """The question, request or last turn."""
    options: tuple[str, ...] = ()
    """What may be answered; empty for a free answer."""
    date: datetime | str | None = None
    """When it is asked: a moment, or words as prompts show them."""
    searched_with_date: bool = False
    """Whether memories are searched with the date too, as a benchmark's released code may do."""
    speakers: tuple[str, ...] = ()
    """Names of those who speak in the history, in order of first appearance."""
    dialogue: str = ""
    """What was said before the text, a line per turn."""
    modality: Modality = "question"
    about: About | None = None
    shown_items: tuple[SerializeAsAny[Item], ...] = ()
    """Raw items that the task shows beside the recalled context: a method need not recall them."""
    new_items: tuple[SerializeAsAny[Item], ...] = ()
    """Items that came after the end of the memory."""
    extra: FrozenMapping[str, Any] = Field(default_factory=FrozenDict)
    """Whatever else a benchmark knows about the question, for tasks of its own."""

    @property
    def when(self) -> str:
        """The date in words, "" where it is not known."""
        if isinstance(self.date, datetime):
            return format_time(self.date)
        return self.date or ""

    @property
    def moment(self) -> datetime | None:
        """The date as a moment, None where it tells none."""
        if isinstance(self.date, datetime):
            return self.date
        return read_time(self.date)

    @property
    def dated_text(self) -> str:
        """The text as prompts show it: with the day it is asked on, since "last week" hangs on that."""
        return f"{self.text} (asked on {self.when})" if self.date else self.text

    @property
    def search_text(self) -> str:
        """What a memory is searched with: the text, and what was said before it where it is the turn of a dialogue.

        Options are left out: the wrong ones would find what they claim. So is the date, unless `searched_with_date`:
        the month of asking is seldom the month that is asked about.
        """
        if self.modality == "question":
            return self.dated_text if self.searched_with_date else self.text
        earlier_lines = [line for line in self.dialogue.split("\n") if line]
        return "\n".join([*earlier_lines, f"user: {self.text}"])

    @property
    def shown_turn_ids(self) -> frozenset[str]:
        """Ids of the turns that the task shows as they are."""
        return frozenset(turn.id for item in self.shown_items for turn in item.turns)
