"""Sentences of the world of Memory-R2: what two people say, the facts of it in the third person, and questions.

Some turns (`TURNS`) cannot be understood alone: "it" and "them" are what the speaker named last in that session. Facts
(`FACTS`) name their subject. What somebody got is no count: how many there are now follows from how many there were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from .form import Form, Forms


@dataclass(frozen=True)
class Own:
    """How a thing of somebody is."""

    speaker: str
    thing: str
    value: str


@dataclass(frozen=True)
class Have:
    """How many somebody has."""

    speaker: str
    n: int
    thing: str


@dataclass(frozen=True)
class Got:
    """How many more somebody has."""

    speaker: str
    n: int
    thing: str


@dataclass(frozen=True)
class Fetched:
    """What somebody got for somebody else."""

    speaker: str
    n: int
    thing: str
    whom: str


@dataclass(frozen=True)
class Been:
    """Where somebody was."""

    speaker: str
    place: str


@dataclass(frozen=True)
class Withdrawn:
    """That somebody takes back how a thing is."""

    speaker: str
    thing: str


Fact = Own | Have | Got | Fetched | Been | Withdrawn

FACTS = Forms(
    Form(Own, "{speaker}'s {thing} is {value}."),
    Form(Have, "{speaker} has {n} of the {thing}.", n=r"\d+"),
    Form(Got, "{speaker} got {n} more of the {thing}.", n=r"\d+"),
    Form(Fetched, "{speaker} got {n} more of the {thing} for {whom}.", n=r"\d+"),
    Form(Been, "{speaker} was in {place}."),
    Form(Withdrawn, "{speaker} takes back what was said of the {thing}."),
)


@dataclass(frozen=True)
class MyOwn:
    """`Own`, as it is said."""

    thing: str
    value: str


@dataclass(frozen=True)
class ItIs:
    """`Own` of what was named last."""

    value: str


@dataclass(frozen=True)
class IHave:
    """`Have`, as it is said."""

    n: int
    thing: str


@dataclass(frozen=True)
class IGot:
    """`Got`, as it is said."""

    n: int
    thing: str


@dataclass(frozen=True)
class IGotThem:
    """`Got` of what was named last."""

    n: int


@dataclass(frozen=True)
class IFetched:
    """`Fetched`, as it is said."""

    n: int
    thing: str
    whom: str


@dataclass(frozen=True)
class IWas:
    """`Been`, as it is said."""

    place: str


@dataclass(frozen=True)
class Forget:
    """`Withdrawn`, as it is said."""

    thing: str


@dataclass(frozen=True)
class Named:
    """Names a thing and says nothing of it that lasts."""

    thing: str


TURNS = Forms(
    Form(MyOwn, "My {thing} is {value}."),
    Form(ItIs, "It is {value} now."),
    Form(IHave, "I have {n} of the {thing}.", n=r"\d+"),
    Form(IGot, "I got {n} more of the {thing}.", n=r"\d+"),
    Form(IGotThem, "I got {n} more of them.", n=r"\d+"),
    Form(IFetched, "I got {n} more of the {thing} for {whom}.", n=r"\d+"),
    Form(IWas, "I was in {place}."),
    Form(Forget, "Forget what I said of the {thing}."),
    Form(Named, "I looked at the {thing}."),
)


@dataclass(frozen=True)
class WhatIs:
    """How a thing of somebody is."""

    speaker: str
    thing: str


@dataclass(frozen=True)
class HowMany:
    """How many somebody has."""

    thing: str
    speaker: str


@dataclass(frozen=True)
class Where:
    """All places where somebody was, in the order of the alphabet."""

    speaker: str


QUESTIONS = Forms(
    Form(WhatIs, "What is {speaker}'s {thing}?"),
    Form(HowMany, "How many of the {thing} has {speaker}?"),
    Form(Where, "Where was {speaker}?"),
)
NOT_MENTIONED = "Not mentioned in the conversation."
"""The answer where nothing is known, if the prompt asks for it."""


class Line(NamedTuple):
    """A line of a dialogue or of memories."""

    id: str
    time: datetime | None
    speaker: str
    text: str


_LINE = re.compile(r"^\[(\S+)\] (?:\(([^)]*)\) )?([^:\n]+): (.*)$", re.M)
_DATES = ("%d %B %Y, %A %H:%M", "%d %B %Y, %A")


def lines(text: str) -> Iterator[Line]:
    """The lines of a text that have an id and a speaker."""
    for id, when, speaker, said in _LINE.findall(text):
        yield Line(id, _time(when), speaker, said)


def _time(text: str) -> datetime | None:
    for form in _DATES:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return None
