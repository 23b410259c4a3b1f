"""RGMem's world: traits that show only after many weak signals, hold against noise, and reverse late.

    three activities          a signal in most sessions    steady: a spell of 2 against the trait at the end
                                                           reversed: the last 5 are of the other trait
    three scattered concepts  a signal in most sessions    steady: a spell of 3 at the end; reversed: the last 10
    particulars               what the user bought (11 times), what a neighbour was given (4 times)

A signal names neither activity nor concept (`grammar.rgmem`), so that texts alone find none for a question; every thing
of a scattered concept is another one, so that nothing but the concept ever has three signals. What is asked, under the
names of PersonaMem's skills and one more, and what has to be there for it:

    recall_user_shared_facts                       facts and conclusions, found by their words (L0)
    what_happened_last                             labels of an activity's episodes (L1, read as history)
    acknowledge_latest_user_preferences            the trait of an activity (L1, R_K1)
    track_full_preference_evolution                its turns, without those that were only noise (R_K1)
    recalling_the_reasons_behind_previous_updates  the reason of its last turn (R_K1)
    provide_preference_aligned_recommendations     what holds for a scattered concept, or for three (R_K2)
    suggest_new_ideas                              a condition that was said once, early (R_K2, kept specific facts)
    generalizing_to_new_scenarios                  what holds for the base above them, and what goes against it (R_K3)

By construction three signals of an activity tell a turn from noise, and six of a concept: with fewer a spell looks like
a turn, with more some of the late turns come too late. That is the critical threshold.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ...grammar.rgmem import (
    ADJECTIVES,
    DENSE,
    GOODS,
    MARKET,
    NAMES,
    PRESENTS,
    REASONS,
    SCATTERED,
    TERMS,
    WAYS,
    Gift,
    Kind,
    Proviso,
    Purchase,
    Question,
    Signal,
    leaning,
    listed,
    say_gift,
    say_proviso,
    say_purchase,
    say_question,
    say_signal,
)
from ...records import Session, Turn
from .world import Ask, Life, World

SESSIONS = 24
BOUGHT, GIVEN = 11, 4
"""How often the user buys something and the neighbour is given something, at most once a session."""
START = datetime(2024, 1, 6, 18, 0)
SKILLS: dict[Kind, str] = {
    "purchases": "recall_user_shared_facts",
    "gifts": "recall_user_shared_facts",
    "latest": "acknowledge_latest_user_preferences",
    "course": "track_full_preference_evolution",
    "reason": "recalling_the_reasons_behind_previous_updates",
    "laws": "provide_preference_aligned_recommendations",
    "terms": "suggest_new_ideas",
    "scenario": "generalizing_to_new_scenarios",
    "odd": "generalizing_to_new_scenarios",
    "lately": "what_happened_last",
}
"""The category of each kind of question."""


@dataclass(frozen=True)
class Phases:
    """How many signals a subject has, phase by phase."""

    first: int
    """Clean ones at the start; one more in half of the subjects."""
    spell: int
    """Noise in the middle."""
    then: int
    """Clean ones after it."""
    slack: int
    """Up to so many more of these: where the end falls among the groups of a threshold is left to chance."""
    last: int
    """At the end: noise, or the other trait."""


STEADY, REVERSED = Phases(3, 2, 4, 2, 2), Phases(3, 2, 3, 2, 5)
"""Of activities."""
WIDELY_STEADY, WIDELY_REVERSED = Phases(12, 0, 0, 4, 3), Phases(8, 0, 0, 4, 10)
"""Of scattered concepts."""


@dataclass(frozen=True)
class Subject:
    """An activity or a scattered concept of one user."""

    name: str
    drawn: bool
    """Which way it leans in the end."""
    turned: bool
    """Whether it leaned the other way at first."""
    reason: str
    """Why it turned."""
    signals: tuple[Signal, ...]
    sessions: tuple[int, ...]
    """In which session each signal is said, from 0."""


class RGMemWorld(World):
    """Questions about traits at every scale, and about particulars."""

    name = "world.rgmem"

    @classmethod
    def life(cls, rng: random.Random, **sizes: int) -> Life:
        concept, base = rng.choice(list(DENSE)), rng.choice(sorted({base for base, _ in SCATTERED.values()}))
        activities = _activities(rng, concept)
        concepts = _concepts(rng, [name for name, (above, _) in SCATTERED.items() if above == base])
        particulars = Particulars.drawn(rng, concepts)
        diary = _Diary()
        for subject in (*activities, *concepts):
            diary.tell(subject.name, subject.sessions, map(say_signal, subject.signals))
        particulars.tell(rng, diary)
        asks = [
            *particulars.asks(diary),
            *_about_activities(activities, diary),
            *_about_concepts(base, concepts, diary),
        ]
        return Life(diary.items(), asks)


@dataclass(frozen=True)
class Particulars:
    """What the texts alone tell, and a condition that is said once."""

    goods: tuple[str, ...]
    name: str
    presents: tuple[str, ...]
    concept: Subject
    proviso: Proviso

    @classmethod
    def drawn(cls, rng: random.Random, concepts: Sequence[Subject]) -> Particulars:
        """Those of one user."""
        concept = rng.choice(concepts)
        used = {signal.thing for signal in concept.signals}
        free = [thing for thing in _things(SCATTERED[concept.name][1]) if thing not in used]
        proviso = Proviso(rng.choice(free), rng.choice(TERMS))
        return cls(
            tuple(rng.sample(GOODS, BOUGHT)), rng.choice(NAMES), tuple(rng.sample(PRESENTS, GIVEN)), concept, proviso
        )

    def tell(self, rng: random.Random, diary: _Diary) -> None:
        """Says all of it; the condition early, beside a signal of its concept."""
        days = range(SESSIONS)
        bought = (say_purchase(Purchase(good)) for good in self.goods)
        given = (say_gift(Gift(self.name, present)) for present in self.presents)
        diary.tell("purchases", sorted(rng.sample(days, BOUGHT)), bought)
        diary.tell("gifts", sorted(rng.sample(days, GIVEN)), given)
        diary.tell("terms", [rng.choice(self.concept.sessions[:6])], [say_proviso(self.proviso)])

    def asks(self, diary: _Diary) -> list[Ask]:
        """The questions about it."""
        return [
            _ask("purchases", [MARKET], listed(self.goods), diary.turns("purchases")),
            _ask("gifts", [self.name], listed(self.presents), diary.turns("gifts")),
            _ask("terms", [self.concept.name], self.proviso.terms, diary.turns("terms")),
        ]


class _Diary:
    """What is said in which session, and about what."""

    def __init__(self) -> None:
        self._said: list[list[tuple[str, str]]] = [[] for _ in range(SESSIONS)]

    def tell(self, about: str, sessions: Iterable[int], texts: Iterable[str]) -> None:
        """Says something of one subject in some sessions."""
        for session, text in zip(sessions, texts, strict=True):
            self._said[session].append((about, text))

    def items(self) -> list[Session]:
        """The sessions, a week apart."""
        return [
            Session(
                id=f"D{n}",
                time=START + timedelta(weeks=n),
                turns=tuple(Turn(id=f"D{n}:{m}", speaker="user", text=text) for m, (_, text) in enumerate(said, 1)),
            )
            for n, said in enumerate(self._said, 1)
        ]

    def turns(self, *about: str) -> tuple[str, ...]:
        """Ids of the turns about some subjects, in order."""
        told = ((f"D{n}:{m}", of) for n, said in enumerate(self._said, 1) for m, (of, _) in enumerate(said, 1))
        return tuple(id for id, of in told if of in about)


def _activities(rng: random.Random, concept: str) -> list[Subject]:
    """The three activities of a concept, at least one of them steady and one reversed."""
    turned = rng.choice([(True, False, False), (True, True, False)])
    turns = rng.sample(turned, 3)
    return [
        _subject(rng, name, _things([noun]), rng.random() < 0.5, turn, REVERSED if turn else STEADY)
        for (name, noun), turn in zip(DENSE[concept][1].items(), turns, strict=True)
    ]


def _concepts(rng: random.Random, names: Sequence[str]) -> list[Subject]:
    """Three scattered concepts, one of which leans against the others; one was reversed."""
    most, odd, turned = rng.random() < 0.5, rng.randrange(3), rng.randrange(3)
    chosen = rng.sample(names, 3)
    found: list[Subject] = []
    for n, name in enumerate(chosen):
        phases = WIDELY_REVERSED if n == turned else WIDELY_STEADY
        found.append(_subject(rng, name, _things(SCATTERED[name][1]), most != (n == odd), n == turned, phases))
    return found


def _subject(
    rng: random.Random, name: str, things: Sequence[str], drawn: bool, turned: bool, phases: Phases
) -> Subject:
    reason, excuse = rng.sample(REASONS, 2)
    at_first = drawn != turned
    leans = [(at_first, "")] * (phases.first + rng.randint(0, 1)) + [(not at_first, excuse)] * phases.spell
    leans += [(at_first, "")] * (phases.then + rng.randint(0, phases.slack))
    leans += [(not at_first, reason if turned else excuse)] * phases.last
    signals = tuple(
        Signal(thing, lean, why, rng.randrange(len(WAYS[lean])))
        for thing, (lean, why) in zip(rng.sample(things, len(leans)), leans, strict=True)
    )
    sessions = tuple(sorted(rng.sample(range(SESSIONS), len(signals))))
    return Subject(name, drawn, turned, reason, signals, sessions)


def _things(nouns: Iterable[str]) -> list[str]:
    return [f"{adjective} {noun}" for noun in nouns for adjective in ADJECTIVES]


def _about_activities(activities: Sequence[Subject], diary: _Diary) -> list[Ask]:
    found: list[Ask] = []
    for one in activities:
        turns = diary.turns(one.name)
        course = [not one.drawn, one.drawn] if one.turned else [one.drawn]
        found.append(_ask("latest", [one.name], leaning([one.drawn]), turns))
        found.append(_ask("course", [one.name], leaning(course), turns))
        found.append(_ask("lately", [one.name], one.signals[-2].thing, turns[-2:-1]))
        if one.turned:
            found.append(_ask("reason", [one.name], one.reason, turns[-REVERSED.last :]))
    return found


def _about_concepts(base: str, concepts: Sequence[Subject], diary: _Diary) -> list[Ask]:
    names = [one.name for one in concepts]
    leans = [one.drawn for one in concepts]
    most = sum(leans) > len(leans) / 2
    odd = next(one for one in concepts if one.drawn != most)
    found = [_ask("laws", [one.name], leaning([one.drawn]), diary.turns(one.name)) for one in concepts]
    return [
        *found,
        _ask("laws", names, leaning(leans), diary.turns(*names)),
        _ask("scenario", [base], leaning([most]), diary.turns(*names)),
        _ask("odd", [base], odd.name, diary.turns(*names)),
    ]


def _ask(kind: Kind, subjects: Sequence[str], answer: str, evidence: tuple[str, ...]) -> Ask:
    return Ask(say_question(Question(kind, tuple(subjects))), answer, SKILLS[kind], evidence)
