"""The sentences of H2Memory's world: device logs, dialogues about advice, what is made of them, questions.

    logs                Trouble, Delay, Asking (one affair)   Trait (what the user is like)
    made of logs        Affair (a situation, as far as its logs are linked), Trait
    said in dialogues   Need, Proposal, Verdict
    made of dialogues   Need (with what lies behind it), Preference, Principle
    asked               Question

Each form has `say_x(x)` and `read_xs(text)`, which finds all of them in a text. What belongs to which aspect of life,
and which things are of one kind, is known here: a preference for "a ledger" says nothing of "paper" by its words.

Example:
    >>> from mempiler.grammar.h2memory import Affair, read_affairs, say_affair
    >>> say_affair(Affair("audit", "depot", state="flooded", person="Nora"))
    'The audit is put off by the depot because it is flooded, and Nora asks about it.'
    >>> read_affairs("The audit is put off by the depot.")
    [Affair(matter='audit', place='depot', state='', person='')]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

Aspect = Literal["work", "health", "family", "leisure"]
MATTERS: Mapping[Aspect, tuple[str, ...]] = {
    "work": ("audit", "shift", "inspection", "delivery", "interview", "briefing"),
    "health": ("checkup", "massage", "vaccination", "scan", "dialysis", "fitting"),
    "family": ("reunion", "christening", "adoption", "wedding", "farewell", "graduation"),
    "leisure": ("regatta", "recital", "excursion", "tournament", "vernissage", "masquerade"),
}
"""What can be put off, by aspect of life."""
TRAITS: Mapping[Aspect, tuple[str, tuple[str, ...]]] = {
    "work": ("earns a living as a", ("carpenter", "tailor", "printer", "gardener", "plumber")),
    "health": ("is prone to", ("migraine", "vertigo", "eczema", "asthma", "gout")),
    "family": ("looks after a", ("nephew", "grandmother", "godchild", "stepson", "cousin")),
    "leisure": ("plays the", ("cello", "banjo", "tuba", "harp", "oboe")),
}
"""What a user can be like, by aspect: a phrase and its ends."""
LASTING: frozenset[Aspect] = frozenset({"family", "leisure"})
"""Where what is new comes beside what was before; elsewhere it takes its place."""
PLACES = (
    *("depot", "viaduct", "harbour", "chapel", "tunnel", "quarry", "mill", "library", "arsenal", "jetty", "kiosk"),
    *("orchard", "barracks", "cannery", "foundry", "observatory", "pavilion", "granary", "lighthouse", "aqueduct"),
    *("brewery", "terminal", "monastery", "sawmill"),
)
STATES = ("flooded", "sealed", "scorched", "haunted", "infested", "occupied", "collapsed", "auctioned")
PEOPLE = ("Nora", "Emil", "Vera", "Kurt", "Selma", "Igor", "Paula", "Anton")
THEMES = (
    "sound sleep and calm restful bedroom nights",
    "thrifty household budget and monthly savings plans",
    "healthy weekday lunches and balanced cooking recipes",
    "foreign language vocabulary and grammar revision",
    "balcony tomatoes and herb seedlings watering",
    "bicycle repairs and greasy chain maintenance",
    "birthday surprises and wrapped children gifts",
    "winter wardrobe woollens and mended clothing",
)
"""What advice is asked on; no two share a word."""
KINDS: Mapping[str, tuple[str, ...]] = {
    "paper": ("ledger", "leaflet", "notebook", "almanac", "poster", "postcard"),
    "machine": ("gadget", "sensor", "robot", "timer", "scanner", "console"),
    "person": ("tutor", "coach", "butler", "apprentice", "mentor", "courier"),
    "fabric": ("curtain", "apron", "blanket", "ribbon", "tarpaulin", "satchel"),
}
"""Kinds of solutions, with what is of each kind."""

Ask = Literal["state", "person", "traits", "rejected", "behind", "trade", "kind", "lately"]
FORMS: Mapping[Ask, str] = {
    "state": "In what state is whatever keeps the {} from going ahead?",
    "person": "Who has to wait on account of the {}?",
    "traits": "With the {} put off, what should be borne in mind of the user in general?",
    "rejected": "Which proposal on {} was wrong with the {} put off?",
    "behind": "Which proposal on {} was right when something {} was behind it?",
    "trade": "Which proposal on {} was right for one who {}?",
    "kind": "Which kind of thing suits advice on {} on the whole, even with the {} put off?",
    "lately": "Which kind of thing has come to suit advice on {}?",
}
"""What can be asked of what."""

_TROUBLE = re.compile(rf"The (\w+) is ({'|'.join(STATES)})\.")
_DELAY = re.compile(r"The (\w+) is put off by the (\w+)\.")
_ASKING = re.compile(r"(\w+) asks about the (\w+)\.")
_AFFAIR = re.compile(r"The (\w+) is put off by the (\w+)(?: because it is (\w+))?(?:, and (\w+) asks about it)?\.")
_PHRASES: Mapping[Aspect, re.Pattern[str]] = {
    aspect: re.compile(rf"{phrase} ({'|'.join(ends)})") for aspect, (phrase, ends) in TRAITS.items()
}
_THEME = f"({'|'.join(THEMES)})"
_NEED = re.compile(
    rf"[Aa]dvice on {_THEME} with the (\w+) put off(?: by the (\w+)(?: because it is (\w+))?)?"
    r"(?:, for one who ([\w ]+))?"
)
_PROPOSAL = re.compile(r"What about a (\w+)\?")
_VERDICT = re.compile(r"(Yes|No), a (\w+) is (?:right|wrong)\.")
_PREFERENCE = re.compile(r"Likes a (\w+), not a (\w+)")
_PRINCIPLE = re.compile(rf"Prefers ({'|'.join(KINDS)}) things")
_QUESTIONS = {ask: re.compile(re.escape(form).replace(r"\{\}", "(.+?)")) for ask, form in FORMS.items()}


@dataclass(frozen=True)
class Trouble:
    """A log: what is the matter with a place."""

    place: str
    state: str


@dataclass(frozen=True)
class Delay:
    """A log: what a place keeps from going ahead."""

    matter: str
    place: str


@dataclass(frozen=True)
class Asking:
    """A log: who asks about a matter."""

    person: str
    matter: str


@dataclass(frozen=True)
class Affair:
    """A situation: a matter that is put off, as far as it is known why, and who asks about it."""

    matter: str
    place: str
    state: str = ""
    person: str = ""


@dataclass(frozen=True)
class Trait:
    """What the user is like in one aspect."""

    aspect: Aspect
    end: str


@dataclass(frozen=True)
class Need:
    """What advice is asked on, and what lies behind it as far as that is known."""

    theme: str
    matter: str
    place: str = ""
    state: str = ""
    traits: tuple[Trait, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """What the assistant proposes."""

    thing: str


@dataclass(frozen=True)
class Verdict:
    """What the user thinks of it."""

    thing: str
    right: bool


@dataclass(frozen=True)
class Preference:
    """What was liked and what was not, of one need."""

    liked: str
    rejected: str


@dataclass(frozen=True)
class Principle:
    """The kind of thing that suits."""

    kind: str


@dataclass(frozen=True)
class Question:
    """What is asked, and of what."""

    ask: Ask
    subjects: tuple[str, ...]


def aspect_of(matter: str) -> Aspect | None:
    """The aspect of life that a matter belongs to."""
    return next((aspect for aspect, matters in MATTERS.items() if matter in matters), None)


def kind_of(thing: str) -> str:
    """The kind of a thing; "" for one of none."""
    return next((kind for kind, things in KINDS.items() if thing in things), "")


def say_trouble(trouble: Trouble) -> str:
    """A trouble in words."""
    return f"The {trouble.place} is {trouble.state}."


def read_troubles(text: str) -> list[Trouble]:
    """The troubles in a text."""
    return [Trouble(*found) for found in _TROUBLE.findall(text)]


def say_delay(delay: Delay) -> str:
    """A delay in words."""
    return f"The {delay.matter} is put off by the {delay.place}."


def read_delays(text: str) -> list[Delay]:
    """The delays in a text."""
    return [Delay(*found) for found in _DELAY.findall(text)]


def say_asking(asking: Asking) -> str:
    """Who asks, in words."""
    return f"{asking.person} asks about the {asking.matter}."


def read_askings(text: str) -> list[Asking]:
    """Who asks about what, in a text."""
    return [Asking(*found) for found in _ASKING.findall(text)]


def say_affair(affair: Affair) -> str:
    """A situation in words."""
    why = f" because it is {affair.state}" if affair.state else ""
    who = f", and {affair.person} asks about it" if affair.person else ""
    return f"The {affair.matter} is put off by the {affair.place}{why}{who}."


def read_affairs(text: str) -> list[Affair]:
    """The situations in a text."""
    return [Affair(*found) for found in _AFFAIR.findall(text)]


def say_traits(traits: Iterable[Trait]) -> str:
    """What the user is like, in words."""
    return " and ".join(f"{TRAITS[trait.aspect][0]} {trait.end}" for trait in traits)


def read_traits(text: str) -> list[Trait]:
    """What the user is like, in a text; by aspect, in the order of the text."""
    return [Trait(aspect, end) for aspect, pattern in _PHRASES.items() for end in pattern.findall(text)]


def say_need(need: Need) -> str:
    """A need in words."""
    why = f" by the {need.place}" if need.place else ""
    why += f" because it is {need.state}" if need.place and need.state else ""
    who = f", for one who {say_traits(need.traits)}" if need.traits else ""
    return f"Advice on {need.theme} with the {need.matter} put off{why}{who}."


def read_needs(text: str) -> list[Need]:
    """The needs in a text."""
    return [
        Need(theme, matter, place, state, tuple(read_traits(traits)))
        for theme, matter, place, state, traits in _NEED.findall(text)
    ]


def say_proposal(proposal: Proposal) -> str:
    """A proposal in words."""
    return f"What about a {proposal.thing}?"


def read_proposals(text: str) -> list[Proposal]:
    """The proposals in a text."""
    return [Proposal(found) for found in _PROPOSAL.findall(text)]


def say_verdict(verdict: Verdict) -> str:
    """A verdict in words."""
    return f"Yes, a {verdict.thing} is right." if verdict.right else f"No, a {verdict.thing} is wrong."


def read_verdicts(text: str) -> list[Verdict]:
    """The verdicts in a text."""
    return [Verdict(thing, said == "Yes") for said, thing in _VERDICT.findall(text)]


def say_preference(preference: Preference) -> str:
    """What was liked, in words."""
    return f"Likes a {preference.liked}, not a {preference.rejected}."


def read_preferences(text: str) -> list[Preference]:
    """What was liked, in a text."""
    return [Preference(*found) for found in _PREFERENCE.findall(text)]


def say_principle(principle: Principle) -> str:
    """A principle in words."""
    return f"Prefers {principle.kind} things."


def read_principles(text: str) -> list[Principle]:
    """The principles in a text."""
    return [Principle(found) for found in _PRINCIPLE.findall(text)]


def say_question(question: Question) -> str:
    """A question in words."""
    return FORMS[question.ask].format(*question.subjects)


def read_question(text: str) -> Question | None:
    """The question that a text begins with."""
    matches = ((ask, pattern.match(text.strip())) for ask, pattern in _QUESTIONS.items())
    return next((Question(cast(Ask, ask), match.groups()) for ask, match in matches if match), None)
