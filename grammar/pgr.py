"""Sentences of the world of PGR, and what everybody knows of its errands.

What is said (`FACTS`) shares its only content word, the thing, with an imagined step (`STEPS`), and none with a
question about an errand (`QUESTIONS`): all other words are ones that no search counts. `ERRANDS` is common sense, not
knowledge of a user: an errand takes four steps in the order of time, each with three options, the usual one first; the
first and the third step serve one sub-goal, the second and the fourth another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .form import WORDS, Form, Forms

Slots = tuple[tuple[str, str, str], ...]

ERRANDS: Mapping[str, Slots] = {
    "camp by the lake": (
        ("ferry", "bus", "canoe"),
        ("tent", "hammock", "cabin"),
        ("compass", "atlas", "beacon"),
        ("stove", "grill", "hamper"),
    ),
    "hold the wedding": (
        ("chapel", "marquee", "courthouse"),
        ("quartet", "jukebox", "accordion"),
        ("carriage", "limousine", "tandem"),
        ("banquet", "buffet", "fondue"),
    ),
    "paint the attic": (
        ("ladder", "scaffold", "trestle"),
        ("brush", "roller", "sponge"),
        ("primer", "varnish", "whitewash"),
        ("overall", "apron", "smock"),
    ),
    "sail to the island": (
        ("dinghy", "yacht", "catamaran"),
        ("lifejacket", "wetsuit", "raincoat"),
        ("anchor", "buoy", "mooring"),
        ("chart", "sextant", "radio"),
    ),
    "give the lecture": (
        ("slideshow", "blackboard", "handout"),
        ("microphone", "megaphone", "lectern"),
        ("auditorium", "classroom", "library"),
        ("pointer", "laptop", "projector"),
    ),
    "grow vegetables": (
        ("seedling", "sapling", "bulb"),
        ("spade", "rake", "tractor"),
        ("greenhouse", "allotment", "balcony"),
        ("hose", "bucket", "sprinkler"),
    ),
    "run the marathon": (
        ("tracksuit", "singlet", "poncho"),
        ("stopwatch", "pedometer", "metronome"),
        ("physician", "coach", "masseur"),
        ("banana", "pretzel", "lemonade"),
    ),
    "move the household": (
        ("van", "trailer", "barge"),
        ("carton", "crate", "trunk"),
        ("janitor", "porter", "cousin"),
        ("dolly", "hoist", "pulley"),
    ),
    "film the documentary": (
        ("camera", "camcorder", "drone"),
        ("script", "storyboard", "interview"),
        ("tripod", "gimbal", "crane"),
        ("studio", "warehouse", "theatre"),
    ),
    "bake the cake": (
        ("oven", "microwave", "kiln"),
        ("flour", "semolina", "marzipan"),
        ("whisk", "blender", "mortar"),
        ("candle", "sparkler", "lantern"),
    ),
    "nurse the foal": (
        ("stable", "paddock", "barn"),
        ("bottle", "syringe", "pipette"),
        ("blanket", "straw", "sawdust"),
        ("farrier", "veterinarian", "groom"),
    ),
    "celebrate the carnival": (
        ("mask", "costume", "cape"),
        ("drum", "trumpet", "whistle"),
        ("float", "unicycle", "sledge"),
        ("confetti", "garland", "rocket"),
    ),
}
"""Errand -> its steps in the order of time, each the things that it can be done with."""


@dataclass(frozen=True)
class State:
    """How a thing is: what an errand may come to grief over."""

    thing: str
    how: str


@dataclass(frozen=True)
class Link:
    """What a thing does not work without."""

    thing: str
    other: str


@dataclass(frozen=True)
class Trivia:
    """What does not matter."""

    thing: str
    how: str
    whom: str


@dataclass(frozen=True)
class Closed:
    """A thing that is out of the question."""

    thing: str


@dataclass(frozen=True)
class Alias:
    """What the user calls an errand."""

    name: str
    errand: str


@dataclass(frozen=True)
class Remark:
    """How a thing looked, and when: "shiny on monday", or several of these with commas."""

    thing: str
    looks: str


@dataclass(frozen=True)
class Count:
    """How many there are."""

    thing: str
    n: int


@dataclass(frozen=True)
class More:
    """One more than there were."""

    thing: str


FACTS = Forms(
    Form(State, "The {thing} is {how}."),
    Form(Link, "Where the {thing} is, there has to be the {other} too."),
    Form(Trivia, "The {thing} was {how} {whom}.", how="from|with|for|by"),
    Form(Closed, "The {thing} is not to be had."),
    Form(Alias, "My {name} is to {errand}.", name=WORDS, errand=WORDS),
    Form(Remark, "That {thing}, the very {thing}, my {thing} was {looks}.", looks=r"[\w ,]+"),
    Form(Count, "There are {n} of the {thing}.", n=r"\d+"),
    Form(More, "There is one more of the {thing}."),
)
"""What is said, kept, merged and recalled."""


@dataclass(frozen=True)
class Act:
    """An imagined step."""

    thing: str


STEPS = Forms(Form(Act, "Have the {thing}"))


@dataclass(frozen=True)
class Concern:
    """What the matter comes down to, in the order in which it comes up."""

    thing: str
    how: str


@dataclass(frozen=True)
class Left:
    """The only option of a step that is left."""

    thing: str


SUMMARY = Forms(Form(Concern, "Then it is the {thing}, which is {how}."), Form(Left, "What is left is the {thing}."))
"""What a prospection summary says."""


@dataclass(frozen=True)
class Wanted:
    """What is wrong with what an errand takes."""

    errand: str


@dataclass(frozen=True)
class First:
    """What goes wrong first."""

    errand: str


@dataclass(frozen=True)
class Means:
    """Which option is left."""

    errand: str


@dataclass(frozen=True)
class HowIs:
    """How a thing is; names it."""

    thing: str


@dataclass(frozen=True)
class HowMany:
    """How many there are; names the thing."""

    thing: str


@dataclass(frozen=True)
class HowWas:
    """How a thing looked in a month, "March 2025"."""

    thing: str
    month: str


Question = Wanted | First | Means | HowIs | HowMany | HowWas

QUESTIONS = Forms(
    Form(Wanted, "I will {errand}. What is it that is not as it should be?", errand=WORDS),
    Form(First, "I will {errand}. What is it at first?", errand=WORDS),
    Form(Means, "I will {errand}. What have I to do it with?", errand=WORDS),
    Form(HowIs, "How is the {thing}?"),
    Form(HowMany, "How many of the {thing} are there?"),
    Form(HowWas, "How was my {thing} in {month}?", month=WORDS),
)
MINE = "do my "
"""What the user's own name of an errand follows."""


def question_of(text: str) -> Question | None:
    """The question that a text asks, if it is one of this world."""
    return next(iter(QUESTIONS.read(text)), None)


def errand_of(question: Question | None, facts: Sequence[object]) -> str | None:
    """The errand of a question; one under the user's own name is what the facts say of that name."""
    name = question.errand if isinstance(question, Wanted | First | Means) else ""
    if name.startswith(MINE):
        name = next((fact.errand for fact in facts if isinstance(fact, Alias) and MINE + fact.name == name), "")
    return name if name in ERRANDS else None


def looks(remark: Remark) -> tuple[str, ...]:
    """How a thing looked, a word for each time."""
    return tuple(part.split()[0] for part in remark.looks.split(", "))


_DATE = re.compile(r"\((\d+) (\w+ \d{4})")


def dated(text: str) -> list[tuple[str, str, object]]:
    """The facts of every line of a context, with the month and the whole date that the line bears ("" without)."""
    found: list[tuple[str, str, object]] = []
    for line in text.splitlines():
        match = _DATE.search(line)
        month = match[2] if match else ""
        found += [(month, f"{match[1]} {month}" if match else "", fact) for fact in FACTS.read(line)]
    return found
