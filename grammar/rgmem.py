"""The sentences of RGMem's world: weak signals and particulars, what is made of them, questions and answers.

A signal is one episode with one thing ("Came away glowing from the Silver Quarry"). It names neither the activity nor
the concept that the thing belongs to, which `place` knows, and no question shares a word with it: it says something of
the user only where many of them have come together.

    said in sessions    Signal, Proviso, Purchase, Gift
    made of it          Course, Trait (of a relation)     Law, Minded (of a concept)     Odd (of a parent)
    asked               Question

Every form has a pair of functions, `say_x(x)` and `read_xs(text)`, which finds all of them in a text.

Example:
    >>> from mempiler.grammar.rgmem import Signal, place, read_signals, say_signal
    >>> say_signal(Signal("Silver Quarry", drawn=False, reason="the rain", way=1))
    'Counted the minutes with the Silver Quarry, because of the rain.'
    >>> [signal.drawn for signal in read_signals("user counted the minutes with the Silver Quarry")]
    [False]
    >>> place("Silver Quarry").events
    ('Climbing', 'Silver Quarry')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast, get_args

DENSE: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "Exercise": ("Health and Wellness", {"Running": "Towpath", "Climbing": "Quarry", "Swimming": "Lagoon"}),
    "Learning": ("Work and Study", {"Lectures": "Auditorium", "Debates": "Rostrum", "Experiments": "Laboratory"}),
    "Gatherings": ("Social Relationships", {"Picnics": "Orchard", "Barbecues": "Terrace", "Karaoke": "Lounge"}),
}
"""Concept -> its base, and its activities with what their places are called: many episodes of few activities."""
SCATTERED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "Novels": ("Interests and Entertainment", ("Compass", "Lighthouse", "Orphan")),
    "Films": ("Interests and Entertainment", ("Horizon", "Masquerade", "Avalanche")),
    "Boardgames": ("Interests and Entertainment", ("Citadel", "Caravan", "Dominion")),
    "Photography": ("Interests and Entertainment", ("Shutter", "Tripod", "Panorama")),
    "Cheeses": ("Dining", ("Rind", "Wheel", "Truckle")),
    "Teas": ("Dining", ("Blossom", "Leaf", "Needle")),
    "Breads": ("Dining", ("Loaf", "Baguette", "Crust")),
    "Soups": ("Dining", ("Broth", "Bisque", "Gazpacho")),
}
"""Concept -> its base, and what its things are called: every episode is of another thing."""
ADJECTIVES = (
    *("Amber", "Bronze", "Copper", "Crimson", "Emerald", "Golden", "Hidden", "Indigo"),
    *("Ivory", "Lonely", "Quiet", "Scarlet", "Silver", "Velvet", "Violet", "Wooden"),
)
WAYS: Mapping[bool, tuple[str, ...]] = {
    True: ("Came away glowing from", "Would not swap anything for", "Already dreams again of"),
    False: ("Came away drained from", "Counted the minutes with", "Sighed throughout"),
}
"""How an episode is told by one who is drawn to the thing, and by one who is not."""
REASONS = (
    *("the rain", "a headache", "a loud crowd", "a late train", "an old grudge", "a sore knee"),
    *("a broken promise", "the doctor's advice", "a kind teacher", "a hard winter", "the steep price", "a lost bet"),
)
TERMS = ("by daylight", "in company", "with earplugs", "after a nap", "on an empty stomach", "without haste")
GOODS = (
    *("kettle", "ladle", "sieve", "whisk", "grater", "funnel", "skillet", "colander"),
    *("platter", "thermos", "pitcher", "mortar", "tureen", "spatula"),
)
NAMES = ("Tom", "Ada", "Piet", "Mira", "Olaf", "Nora")
PRESENTS = ("parrot", "globe", "violin", "hammock", "telescope", "canoe", "accordion", "lantern")
LEAN: Mapping[bool | None, str] = {True: "drawn", False: "away", None: "divided"}
"""How an answer says which way it leans."""

Kind = Literal["purchases", "gifts", "latest", "course", "reason", "laws", "terms", "scenario", "odd", "lately"]
FORMS: Mapping[Kind, str] = {
    "purchases": "What all was picked up at the {}?",
    "gifts": "What all was {} given?",
    "latest": "Where do things stand with {} by now?",
    "course": "How did things go with {} from first to last?",
    "reason": "Why did things turn with {}?",
    "laws": "By and large, where do things stand with {}?",
    "terms": "What has to be minded with {}?",
    "scenario": "How would something untried within {} be taken?",
    "odd": "Which part of {} goes against the rest?",
    "lately": "Which episode of {} was next to the most recent one?",
}
"""What can be asked of what."""
MARKET = "market"

_THING = r"([A-Z][a-z]+ [A-Z][a-z]+)"
_NAME = r"([A-Z][a-z]+(?: (?:and|[A-Z][a-z]+))*)"
_BECAUSE = r"(?:, because of ([a-z' ]+))?"
_STEP = rf"(drawn to|away from) it{_BECAUSE}"
_SAID = {(drawn, way): f"(?i:{told})" for drawn, ways in WAYS.items() for way, told in enumerate(ways)}
_SIGNALS = {key: re.compile(f"{told} the {_THING}{_BECAUSE}") for key, told in _SAID.items()}
_PROVISO = re.compile(rf"[Tt]he {_THING} only ([a-z ]+)")
_PURCHASE = re.compile(rf"[Pp]icked up a ([a-z]+) at the {MARKET}")
_GIFT = re.compile(rf"[Tt]he neighbour {_NAME} was given a ([a-z]+)")
_COURSE = re.compile(rf"{_NAME}: at first ({_STEP}(?:; then {_STEP})*)")
_STEPS = re.compile(_STEP)
_TRAIT = re.compile(rf"(Drawn to|Turned away from) {_NAME}")
_LAW = re.compile(rf"{_NAME} as a whole: (drawn|away|divided)")
_MINDED = re.compile(rf"Regarding {_NAME}: only ([a-z ]+)")
_ODD = re.compile(rf"Against the rest of {_NAME}: {_NAME}")
_QUESTIONS = {kind: re.compile(re.escape(form).replace(r"\{\}", "(.+?)")) for kind, form in FORMS.items()}


@dataclass(frozen=True)
class Place:
    """Where a thing is filed below the user."""

    base: str
    concept: str
    events: tuple[str, ...]
    """The activity, where it is of one that comes again, and the thing."""


@dataclass(frozen=True)
class Signal:
    """One episode: how it was with one thing."""

    thing: str
    drawn: bool
    reason: str = ""
    way: int = 0
    """Which of the wordings."""


@dataclass(frozen=True)
class Proviso:
    """A condition of one thing."""

    thing: str
    terms: str


@dataclass(frozen=True)
class Purchase:
    """Something that users say outright of themselves."""

    good: str


@dataclass(frozen=True)
class Gift:
    """Something about somebody else."""

    name: str
    present: str


@dataclass(frozen=True)
class Step:
    """Which way it leaned, and why, if that was said."""

    drawn: bool
    reason: str = ""


@dataclass(frozen=True)
class Course:
    """How it went with an activity or a thing: each step leans the other way than the one before."""

    subject: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Trait:
    """Which way it leans with an activity or a thing."""

    subject: str
    drawn: bool


@dataclass(frozen=True)
class Law:
    """What holds for a concept as a whole; None: there is no one way."""

    concept: str
    drawn: bool | None


@dataclass(frozen=True)
class Minded:
    """A condition that is kept in mind for a concept."""

    concept: str
    terms: str


@dataclass(frozen=True)
class Odd:
    """The part of a concept that leans the other way than its other parts."""

    concept: str
    part: str


@dataclass(frozen=True)
class Question:
    """What is asked of which activity, concepts, base or person."""

    kind: Kind
    subjects: tuple[str, ...]


def place(thing: str) -> Place | None:
    """Where a thing belongs; None for a name of another kind."""
    found = _places().get(thing.rpartition(" ")[2])
    return found and Place(found.base, found.concept, (*found.events, thing))


def concept_of(activity: str) -> str | None:
    """The concept above an activity."""
    return next((concept for concept, (_, known) in DENSE.items() if activity in known), None)


def say_signal(signal: Signal) -> str:
    """An episode in words."""
    return f"{WAYS[signal.drawn][signal.way]} the {signal.thing}{_because(signal.reason)}."


def read_signals(text: str) -> list[Signal]:
    """The episodes that a text tells of, in its order."""
    found = [
        (match.start(), Signal(match[1], drawn, match[2] or "", way))
        for (drawn, way), pattern in _SIGNALS.items()
        for match in pattern.finditer(text)
    ]
    return [signal for _, signal in sorted(found, key=lambda pair: pair[0])]


def say_proviso(proviso: Proviso) -> str:
    """A condition of one thing in words."""
    return f"The {proviso.thing} only {proviso.terms}."


def read_provisos(text: str) -> list[Proviso]:
    """The conditions of things in a text."""
    return [Proviso(*found) for found in _PROVISO.findall(text)]


def say_purchase(purchase: Purchase) -> str:
    """A purchase in words."""
    return f"Picked up a {purchase.good} at the {MARKET}."


def read_purchases(text: str) -> list[Purchase]:
    """The purchases in a text."""
    return [Purchase(found) for found in _PURCHASE.findall(text)]


def say_gift(gift: Gift) -> str:
    """A present to somebody else in words."""
    return f"The neighbour {gift.name} was given a {gift.present}."


def read_gifts(text: str) -> list[Gift]:
    """The presents in a text."""
    return [Gift(*found) for found in _GIFT.findall(text)]


def say_course(course: Course) -> str:
    """How it went, in words."""
    steps = [f"{'drawn to' if step.drawn else 'away from'} it{_because(step.reason)}" for step in course.steps]
    return f"{course.subject}: at first {'; then '.join(steps)}."


def read_courses(text: str) -> list[Course]:
    """The courses in a text."""
    return [Course(match[1], _steps(match[2])) for match in _COURSE.finditer(text)]


def say_trait(trait: Trait) -> str:
    """Which way it leans, in words."""
    return f"{'Drawn to' if trait.drawn else 'Turned away from'} {trait.subject}."


def read_traits(text: str) -> list[Trait]:
    """The traits in a text."""
    return [Trait(subject, lean == "Drawn to") for lean, subject in _TRAIT.findall(text)]


def say_law(law: Law) -> str:
    """What holds for a concept, in words."""
    return f"{law.concept} as a whole: {LEAN[law.drawn]}."


def read_laws(text: str) -> list[Law]:
    """The laws in a text."""
    leans = {word: drawn for drawn, word in LEAN.items()}
    return [Law(concept, leans[lean]) for concept, lean in _LAW.findall(text)]


def say_minded(minded: Minded) -> str:
    """A condition of a concept in words."""
    return f"Regarding {minded.concept}: only {minded.terms}."


def read_minded(text: str) -> list[Minded]:
    """The conditions of concepts in a text."""
    return [Minded(*found) for found in _MINDED.findall(text)]


def say_odd(odd: Odd) -> str:
    """What goes against the rest, in words."""
    return f"Against the rest of {odd.concept}: {odd.part}."


def read_odds(text: str) -> list[Odd]:
    """What goes against the rest, in a text."""
    return [Odd(*found) for found in _ODD.findall(text)]


def say_question(question: Question) -> str:
    """A question in words."""
    return FORMS[question.kind].format(", ".join(question.subjects))


def read_question(text: str) -> Question | None:
    """The question that a text begins with."""
    matches = ((kind, pattern.match(text.strip())) for kind, pattern in _QUESTIONS.items())
    return next((Question(cast(Kind, kind), tuple(match[1].split(", "))) for kind, match in matches if match), None)


def listed(items: Iterable[str]) -> str:
    """Several things as one answer, the same in whatever order they come."""
    return ", ".join(sorted(set(items)))


def leaning(steps: Iterable[bool | None]) -> str:
    """Which way things lean, one after the other, as one answer."""
    return ", ".join(LEAN[step] for step in steps)


@cache
def _places() -> Mapping[str, Place]:
    found = {noun: Place(base, concept, ()) for concept, (base, nouns) in SCATTERED.items() for noun in nouns}
    for concept, (base, activities) in DENSE.items():
        found |= {noun: Place(base, concept, (activity,)) for activity, noun in activities.items()}
    return found


def _because(reason: str) -> str:
    return f", because of {reason}" if reason else ""


def _steps(text: str) -> tuple[Step, ...]:
    return tuple(Step(lean == "drawn to", reason) for lean, reason in _STEPS.findall(text))


KINDS: tuple[Kind, ...] = get_args(Kind)
