"""Answers that a store keeps so that their user can rate them, and the feedback on them.

Nothing is kept unless somebody asked for it (`UserMemory(..., feedback=True)`, or `feedback=on` of
a tenant). `memory.store.answers` stores these values. `runs.feedback_questions` turns them into
questions, from which a program can be compiled.

A turn is one message of a session, and a memory is made of entries. The sources of an entry or an
answer are the turns that it was made from.

Texts of users are hostile input, so everything has a limit: the number of answers, the lengths of
texts, and the number of entries and turns that are named.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated
from uuid import uuid4

from pydantic import ConfigDict, Field

from ..errors import UserError
from .names import MAX_ENTRY_LENGTH, MAX_ID_LENGTH, StorableText

MAX_ANSWERS = 1_000
"""The most answers of a user that are kept: the newest."""
MAX_ANSWER_LENGTH = 20_000
"""The most characters of a question, and of an answer. Longer ones are not kept."""
MAX_CORRECTION_LENGTH = MAX_ENTRY_LENGTH
"""The most characters of a correction."""
MAX_RECALLED_ENTRIES = 200
"""The most entries that are kept with an answer: those that were recalled first."""
MAX_SOURCES = 1_000
"""The most turns that are kept as sources of an answer or an entry."""
MAX_ENTRY_ID_LENGTH = 2 * MAX_ID_LENGTH
"""The longest id of an entry that is kept, in characters."""
MAX_USEFUL_ENTRIES = 100
"""The most entries that one feedback names."""
MAX_OPEN_SESSIONS = 1_000
"""The most open sessions, those that have not ended, that are kept with an answer."""

ANSWER_ID_PATTERN = r"^ans_[0-9a-f]{32}$"
"""The form of the id of an answer."""

_ANSWER_ID = re.compile(ANSWER_ID_PATTERN)
_MAX_NUMBER = 2**31 - 1
"""Numbers are less, so that an integer column of a database holds them."""

AnswerId = Annotated[str, Field(pattern=ANSWER_ID_PATTERN)]
_Id = Annotated[StorableText, Field(max_length=MAX_ENTRY_ID_LENGTH)]
"""The id of an entry, a turn or a session."""
_Number = Annotated[int, Field(ge=0, lt=_MAX_NUMBER)]


@dataclass(frozen=True)
class EntrySources:
    """An entry of a memory, and the turns that it was made from."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: _Id
    sources: Annotated[tuple[_Id, ...], Field(max_length=MAX_SOURCES)] = ()
    """Ids of the turns."""


@dataclass(frozen=True)
class KeptAnswer:
    """One answer, and the state of the memory that it was given from."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: AnswerId
    question: Annotated[StorableText, Field(min_length=1, max_length=MAX_ANSWER_LENGTH)]
    answer: Annotated[StorableText, Field(max_length=MAX_ANSWER_LENGTH)]
    memory_version: Annotated[StorableText, Field(max_length=MAX_ID_LENGTH)]
    """The version of the memory that was asked."""
    position: _Number
    """The position of the last stored item that the memory was made from; 0 if there was none."""
    open_turns: Annotated[dict[_Id, _Number], Field(max_length=MAX_OPEN_SESSIONS)] = field(
        default_factory=dict[str, int]
    )
    """How many turns each open session had before the question, by the id of the session."""
    entries: Annotated[tuple[EntrySources, ...], Field(max_length=MAX_RECALLED_ENTRIES)] = ()
    """The entries that were recalled, best first."""
    sources: Annotated[tuple[_Id, ...], Field(max_length=MAX_SOURCES)] = ()
    """Ids of the turns that the answer was made from. If one is forgotten, so is the answer."""
    rests_on_all: bool = False
    """Whether the answer may have been made from any turn, e.g. from a summary of all of them.
    Then `sources` is empty."""
    at: datetime | None = None
    """When it was given, in UTC without a zone."""


@dataclass(frozen=True)
class StoredFeedback:
    """What a user said about an answer."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    answer: AnswerId
    right: bool | None = None
    """None if the user did not say."""
    correction: Annotated[
        StorableText | None, Field(min_length=1, max_length=MAX_CORRECTION_LENGTH)
    ] = None
    """What the answer should have been."""
    useful_entries: Annotated[tuple[EntrySources, ...], Field(max_length=MAX_USEFUL_ENTRIES)] = ()
    """The entries that hold what the right answer needs."""
    at: datetime | None = None
    """When it was given, in UTC without a zone."""


def new_answer_id() -> str:
    """Return a new, random id for an answer."""
    return f"ans_{uuid4().hex}"


def answer_id_of_turn(tenant: str, user: str, turn_id: str) -> str:
    """Return the id of the answer to a stored turn.

    It is always the same one, so a client that repeats its request gets the same id.
    """
    # No name holds NUL, so different names never give the same text.
    names = "\0".join((tenant, user, turn_id))
    return f"ans_{hashlib.sha256(names.encode()).hexdigest()[:32]}"


def is_answer_id(text: str) -> bool:
    """Return whether a text has the form of an id of an answer."""
    return _ANSWER_ID.fullmatch(text) is not None


def check_answer_id(answer_id: str) -> str:
    """Return the id of an answer if it has the form of one.

    Raises:
        UserError: It has another form.
    """
    # Callers without type checks may pass anything.
    if not is_answer_id(str(answer_id)):
        raise UserError(
            f"answer {answer_id!a:.100} is no id of an answer; give the `answer_id` of an answer,"
            " ans_ and 32 hexadecimal digits"
        )
    return str(answer_id)
