"""The world of PGR: needs stated long ago, which no question names and only imagined steps reach.

A user says some ninety facts about things, in sessions of three, then announces errands. What bears on an errand shares
no word with it: whoever knows what the errand takes (`grammar.pgr.ERRANDS`) has to search for that. What each category
needs, by construction:

    direct      nothing: the question names the thing                          (control)
    prospect    imagined steps: the fact is about what the usual way takes
    branch      a tree: the fact is about the last option of a step, which no chain of the usual steps visits
    order       a chain, and its summary: two facts; which comes first is the order of steps in time. A tree goes
                through one sub-goal after the other, and the facts do not tell
    left        the summary: two options of a step are closed; the third is in no fact, only imagined. A tree has all
                three at once, a chain takes a round for each that it gives up
    hop1..3     rounds of refinement: what a step takes does not work without something, and so on. Three such chains
                run side by side, so that a round finds at least six new facts; so many rounds as the number says
    alias       augmentation, where there is no round: the errand goes by a name of the user's own
    merge       consolidation: six remarks of one week on the thing are nearer to the step than the fact, and more than
                a probe finds; merged, they are one
    window      consolidation within a week alone: two remarks of different months; merged, they have one date
    count       updates that see the known facts: "one more" of how many there were

Limits: things, their states and errands are words without much sense, chosen so that a search by spelling meets them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any, ClassVar

from ...grammar.pgr import (
    ERRANDS,
    FACTS,
    MINE,
    QUESTIONS,
    Alias,
    Closed,
    Count,
    First,
    HowIs,
    HowMany,
    HowWas,
    Link,
    Means,
    More,
    Question,
    Remark,
    Slots,
    State,
    Trivia,
    Wanted,
)
from ...records import Session, Turn
from .world import Ask, Life, World

SUPPLIES = (
    "kerosene",
    "funnel",
    "padlock",
    "gasket",
    "battery",
    "adapter",
    "permit",
    "voucher",
    "receipt",
    "deposit",
    "antenna",
    "cartridge",
    "bracket",
    "turpentine",
    "sandpaper",
    "thermostat",
    "generator",
    "extension",
    "password",
    "insurance",
    "passport",
    "vaccine",
    "petrol",
    "lubricant",
)
OWN = ("piano", "telescope", "aquarium", "loom", "typewriter", "chessboard", "saxophone", "microscope")
STATES = (
    "cracked",
    "rusty",
    "torn",
    "leaking",
    "blunt",
    "crooked",
    "mouldy",
    "stained",
    "squeaky",
    "overdue",
    "wobbly",
    "frayed",
)
LOOKS = ("shiny", "gloomy", "dusty", "noisy", "spotless", "sticky")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
WHOM = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jon", "Kim", "Lea")
NAMES = ("old habit", "little secret", "yearly madness", "guilty pleasure")
HOPS = (1, 2, 3)
EARLY = 17
"""Sessions whose facts are there when the memory is first consolidated, after fifty of them."""
START = date(2025, 1, 6)
DAYS_BETWEEN = 5


class PGRWorld(World):
    """Questions about errands, answered by what was said of the things they take."""

    name = "world.pgr"
    sizes: ClassVar = {"fillers": 12}
    """Facts about things that no question is about."""

    @classmethod
    def life(cls, rng: random.Random, fillers: int = 12, **sizes: int) -> Life:
        return _Making(rng).life(fillers)


class _Making:
    """One user in the making: what is said when, and what is asked."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.errands = rng.sample(list(ERRANDS), len(ERRANDS))
        self.supplies, self.own = rng.sample(SUPPLIES, len(SUPPLIES)), rng.sample(OWN, len(OWN))
        self.fixed: dict[int, list[Any]] = {}
        """What is said in a certain session."""
        self.free: list[Any] = []
        """What may be said at any time."""
        self.asked: list[tuple[Question, str, str, tuple[Any, ...]]] = []

    def life(self, fillers: int) -> Life:
        self._direct()
        for category, step, option in (("prospect", 0, 0), ("branch", 1, 2)):
            self._stated(category, self.errands.pop(), step, option)
        self._ordered()
        self._left()
        for hops in HOPS:
            self._linked(hops)
        self._named()
        self._crowded()
        self._windowed()
        self._counted()
        for thing in self.rng.sample([word for slots in self._spare() for word in slots], fillers):
            self.free += self._trivia(thing, 1)
        return self._told()

    def _ask(self, question: Question, answer: str, category: str, *facts: Any) -> None:
        self.asked.append((question, answer, category, facts))

    def _trivia(self, thing: str, n: int) -> list[Trivia]:
        ways = self.rng.sample([(how, whom) for how in ("from", "with", "for", "by") for whom in WHOM], n)
        return [Trivia(thing, how, whom) for how, whom in ways]

    def _state(self, thing: str) -> State:
        return State(thing, self.rng.choice(STATES))

    def _spare(self) -> list[tuple[str, str, str]]:
        return [slot for errand in self.errands for slot in ERRANDS[errand]]

    def _direct(self) -> None:
        fact = self._state(self.own.pop())
        self.free += [fact, *self._trivia(fact.thing, 1)]
        self._ask(HowIs(fact.thing), fact.how, "direct", fact)

    def _stated(self, category: str, errand: str, step: int, option: int) -> None:
        fact = self._state(ERRANDS[errand][step][option])
        self.free += [fact, *self._trivia(fact.thing, 3)]
        self._ask(Wanted(errand), fact.how, category, fact)

    def _ordered(self) -> None:
        """A fact about the second and one about the third step; a tree comes to the third before the second."""
        slots, errand = self._next()
        first, second = (State(slots[n + 1][0], how) for n, how in enumerate(self.rng.sample(STATES, 2)))
        self.free += [first, second, *self._trivia(first.thing, 1), *self._trivia(second.thing, 1)]
        self._ask(First(errand), first.how, "order", first, second)

    def _left(self) -> None:
        slots, errand = self._next()
        options = self.rng.choice(slots)
        closed = [Closed(thing) for thing in options[:2]]
        self.free += [*closed, *(each for fact in closed for each in self._trivia(fact.thing, 1))]
        self._ask(Means(errand), options[2], "left", *closed)

    def _linked(self, hops: int) -> None:
        """Three chains from the usual things of an errand; at the end of one there is something wrong."""
        slots, errand = self._next()
        ends, links = [slot[0] for slot in slots[:3]], list[Link]()
        for _ in range(hops):
            others = [self.supplies.pop() for _ in ends]
            links += [Link(thing, other) for thing, other in zip(ends, others, strict=True)]
            self.free += [each for other in others for each in self._trivia(other, 1)]
            ends = others
        fact = self._state(ends[0])
        self.free += [*links, fact, *(each for thing in ends[1:] for each in self._trivia(thing, 1))]
        self._ask(Wanted(errand), fact.how, f"hop{hops}", fact, *links[0::3])

    def _named(self) -> None:
        slots, errand = self._next()
        alias, fact = Alias(self.rng.choice(NAMES), errand), self._state(slots[0][0])
        self.free += [alias, fact, *self._trivia(fact.thing, 1)]
        self._ask(Wanted(MINE + alias.name), fact.how, "alias", alias, fact)

    def _crowded(self) -> None:
        slots, errand = self._next()
        fact, how = self._state(slots[0][0]), self.rng.choice(LOOKS)
        remarks = [Remark(fact.thing, f"{how} on {day}") for day in DAYS]
        self.fixed |= {0: remarks[:3], 1: remarks[3:]}
        self.free.append(fact)
        self._ask(Wanted(errand), fact.how, "merge", fact)

    def _windowed(self) -> None:
        thing, day = self.own.pop(), self.rng.choice(DAYS)
        for session, how in zip((2, EARLY - 4), self.rng.sample(LOOKS, 2), strict=True):
            remark = Remark(thing, f"{how} on {day}")
            self.fixed.setdefault(session, []).append(remark)
            self._ask(HowWas(thing, f"{_day(session):%B %Y}"), how, "window", remark)

    def _counted(self) -> None:
        count = Count(self.own.pop(), self.rng.randint(3, 9))
        more = More(count.thing)
        self.fixed.setdefault(3, []).append(count)
        self.fixed[EARLY + 1] = [more]
        self._ask(HowMany(count.thing), str(count.n + 1), "count", count, more)

    def _next(self) -> tuple[Slots, str]:
        errand = self.errands.pop()
        return ERRANDS[errand], errand

    def _told(self) -> Life:
        """The sessions, three facts in each, and the questions with the turns that they rest on."""
        self.rng.shuffle(self.free)
        said: dict[Any, str] = {}
        sessions: list[Session] = []
        while self.free or len(sessions) <= max(self.fixed):
            n = len(sessions)
            facts = self.fixed.get(n, [])
            while len(facts) < 3 and self.free:
                facts = [*facts, self.free.pop()]
            ids = [f"D{n + 1}:{m + 1}" for m in range(len(facts))]
            said |= dict(zip(facts, ids, strict=True))
            sessions.append(_session(n, ids, facts))
        asks = [
            Ask(QUESTIONS.say(question), answer, category, tuple(said[fact] for fact in facts))
            for question, answer, category, facts in self.asked
        ]
        return Life(sessions, asks)


def _session(n: int, ids: Sequence[str], facts: Sequence[Any]) -> Session:
    turns = [Turn(id=id, speaker="user", text=FACTS.say(fact)) for id, fact in zip(ids, facts, strict=True)]
    heard = Turn(id=f"D{n + 1}:{len(turns) + 1}", speaker="assistant", text="I see.")
    return Session(id=f"D{n + 1}", time=datetime.combine(_day(n), datetime.min.time()), turns=(*turns, heard))


def _day(session: int) -> date:
    return START + timedelta(days=DAYS_BETWEEN * session)
