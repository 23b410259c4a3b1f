"""H2Memory's world: what is asked needs a situation, the background, a need with what lies behind it, or a principle.

    before every dialogue   logs: a place's trouble, what it puts off, who asks about that; interleaved
    now and then            logs of what the user is like, in four aspects; some of it takes the place of what was
    dialogues               advice on two of eight themes, with a matter put off; one thing is right, one is wrong
    at the end              logs alone: the current session

What is asked, and what has to be there for it:

    situation           logs linked by caused_by and follows, of the current session (M_G)
    background          what the user is like in the aspect of a current matter, told sessions ago (M_B)
    topic               what was proposed for a need (M_T)
    need by situation   the same of a need that only its own session's situations tell apart (M_G in M_T)
    need by background  the same of a need that only the background of its time tells apart (M_B in M_T)
    principle           the kind of thing that was right most often for a theme (M_P); exceptions are nearest to the
                        question
    principle lately    the same where it changed in the last month, whose dialogues join one by one (M_P)

Things of one kind share no word with it or with one another, so that no search finds a kind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ...grammar.h2memory import (
    KINDS,
    LASTING,
    MATTERS,
    PEOPLE,
    PLACES,
    STATES,
    THEMES,
    TRAITS,
    Affair,
    Asking,
    Aspect,
    Delay,
    Need,
    Proposal,
    Question,
    Trait,
    Trouble,
    Verdict,
    aspect_of,
    say_asking,
    say_delay,
    say_need,
    say_proposal,
    say_question,
    say_traits,
    say_trouble,
    say_verdict,
)
from ...grammar.h2memory import (
    Ask as Asks,
)
from ...records import AnyItem, Logs, Session, Turn
from .world import Ask, Life, World

CATEGORIES: dict[Asks, str] = {
    "state": "situation",
    "person": "situation",
    "traits": "background",
    "rejected": "topic",
    "behind": "need by situation",
    "trade": "need by background",
    "kind": "principle",
    "lately": "principle lately",
}
"""The category of each kind of question."""
EARLY, LATE = datetime(2024, 1, 8, 19, 0), datetime(2024, 6, 3, 19, 0)
"""When the first dialogue is, and the first of the last month; a week between any two."""
MIXED, TURNED = 5, 3
"""Themes with exceptions, and themes whose principle changes in the last month."""
USUAL, EXCEPTIONS, SINCE = 3, 2, 2
"""Topics of a theme: of its kind, against it (of a mixed one), and of the new kind (of a turned one)."""
TOLD: tuple[int, ...] = (1, 9)
"""The sessions whose logs tell what the user is like: at first, and what changes."""


@dataclass(frozen=True)
class Talk:
    """A topic of a dialogue."""

    theme: str
    affair: Affair
    """Its situation."""
    right: str
    wrong: str

    @property
    def need(self) -> str:
        """What the user says of it."""
        return say_need(Need(self.theme, self.affair.matter))


@dataclass(frozen=True)
class Theme:
    """What is talked about under one theme."""

    name: str
    kind: str
    """The kind that suits on the whole, in the end."""
    early: tuple[Talk, ...]
    late: tuple[Talk, ...]
    matter: str = ""
    """That of the exceptions, where there are any."""


class H2MemoryWorld(World):
    """Questions about situations, background, needs and principles."""

    name = "world.h2memory"

    @classmethod
    def life(cls, rng: random.Random, **sizes: int) -> Life:
        names = rng.sample(THEMES, MIXED + TURNED)
        themes = [_mixed(rng, name) for name in names[:MIXED]] + [_turned(rng, name) for name in names[MIXED:]]
        diary = _Diary(_traits(rng))
        early = [talk for theme in themes for talk in theme.early]
        late = [talk for theme in themes for talk in theme.late]
        for first, talks in ((EARLY, early), (LATE, late)):
            for n, pair in enumerate(_paired(rng, talks)):
                diary.session(first + timedelta(weeks=n), pair)
        now = _current(rng)
        diary.logs(diary.until + timedelta(weeks=1), now)
        return Life(
            diary.items, [*_about_now(now, diary), *_about_topics(rng, themes, diary), *_about_kinds(themes, diary)]
        )


class _Diary:
    """The items of a life as they come, and what was said where.

    Args:
        traits: What the user is like at first, and what is added later, by aspect.
    """

    def __init__(self, traits: Sequence[Sequence[Trait]]) -> None:
        self.items: list[AnyItem] = []
        self.until = EARLY
        self.turns: dict[Talk | Affair, tuple[str, ...]] = {}
        """Ids of the turns of a topic, and of the logs of an affair."""
        self.known: dict[Aspect, tuple[Trait, ...]] = {}
        """What the user is like by now."""
        self.then: dict[Talk, tuple[Trait, ...]] = {}
        """What the user was like in the aspect of a topic's matter when it was talked about."""
        self.told: dict[Trait, str] = {}
        self._traits = dict(zip(TOLD, traits, strict=True))
        self._number = 0

    def session(self, time: datetime, talks: Sequence[Talk]) -> None:
        """Logs and the dialogue that they lead to."""
        self.logs(time - timedelta(days=1), [talk.affair for talk in talks])
        id, lines = f"D{self._number}", list[tuple[str, str]]()
        for talk in talks:
            said = _said(talk)
            self.turns[talk] = tuple(f"{id}:{n}" for n in range(len(lines) + 1, len(lines) + len(said) + 1))
            lines += said
            aspect = aspect_of(talk.affair.matter)
            self.then[talk] = self.known.get(aspect, ()) if aspect else ()
        turns = tuple(Turn(id=f"{id}:{n}", speaker=who, text=text) for n, (who, text) in enumerate(lines, 1))
        self.items.append(Session(id=id, time=time, turns=turns))
        self.until = time

    def logs(self, time: datetime, affairs: Sequence[Affair]) -> None:
        """Logs of what the user is like, if it is time for them, and of some affairs side by side."""
        self._number += 1
        id, texts = f"L{self._number}", list[str]()
        for trait in self._traits.get(self._number, ()):
            before = self.known.get(trait.aspect, ()) if trait.aspect in LASTING else ()
            self.known[trait.aspect] = (*before, trait)
            texts.append(f"The user {say_traits([trait])}.")
            self.told[trait] = f"{id}:{len(texts)}"
        for n, affair in enumerate(affairs, len(texts) + 1):
            self.turns[affair] = tuple(f"{id}:{n + step * len(affairs)}" for step in range(3))
        texts += [say_trouble(Trouble(one.place, one.state)) for one in affairs]
        texts += [say_delay(Delay(one.matter, one.place)) for one in affairs]
        texts += [say_asking(Asking(one.person, one.matter)) for one in affairs]
        turns = tuple(Turn(id=f"{id}:{n}", speaker="log", text=text) for n, text in enumerate(texts, 1))
        self.items.append(Logs(id=id, time=time, turns=turns))


def _said(talk: Talk) -> list[tuple[str, str]]:
    return [
        ("user", talk.need),
        ("assistant", say_proposal(Proposal(talk.wrong))),
        ("user", say_verdict(Verdict(talk.wrong, False))),
        ("assistant", say_proposal(Proposal(talk.right))),
        ("user", say_verdict(Verdict(talk.right, True))),
    ]


def _mixed(rng: random.Random, name: str) -> Theme:
    """A theme with exceptions, which share a matter."""
    usual, other = rng.sample(list(KINDS), 2)
    matters, places = _matters(rng, USUAL + 1), rng.sample(PLACES, USUAL + EXCEPTIONS)
    matters += matters[-1:] * (EXCEPTIONS - 1)
    kinds = [(usual, other)] * USUAL + [(other, usual)] * EXCEPTIONS
    return Theme(name, usual, tuple(_talks(rng, name, kinds, matters, places)), (), matters[-1])


def _turned(rng: random.Random, name: str) -> Theme:
    """A theme whose kind changes in the last month."""
    before, now = rng.sample(list(KINDS), 2)
    matters, places = _matters(rng, USUAL + SINCE), rng.sample(PLACES, USUAL + SINCE)
    talks = _talks(rng, name, [(before, now)] * USUAL + [(now, before)] * SINCE, matters, places)
    return Theme(name, now, tuple(talks[:USUAL]), tuple(talks[USUAL:]))


def _talks(
    rng: random.Random, name: str, kinds: Sequence[tuple[str, str]], matters: Sequence[str], places: Sequence[str]
) -> list[Talk]:
    """One topic for each pair of the kind that is right and the kind that is wrong; no two of a state."""
    states = rng.sample(STATES, len(kinds))
    return [
        Talk(name, Affair(matter, place, state, rng.choice(PEOPLE)), rng.choice(KINDS[right]), rng.choice(KINDS[wrong]))
        for (right, wrong), matter, place, state in zip(kinds, matters, places, states, strict=True)
    ]


def _matters(rng: random.Random, count: int) -> list[str]:
    return rng.sample([matter for matters in MATTERS.values() for matter in matters], count)


def _current(rng: random.Random) -> list[Affair]:
    """An affair of each aspect."""
    places = rng.sample(PLACES, len(MATTERS))
    return [
        Affair(rng.choice(matters), place, rng.choice(STATES), rng.choice(PEOPLE))
        for matters, place in zip(MATTERS.values(), places, strict=True)
    ]


def _traits(rng: random.Random) -> list[list[Trait]]:
    """What is told of each aspect, at first and later."""
    drawn: list[tuple[Aspect, list[str]]] = [
        (aspect, rng.sample(ends, len(TOLD))) for aspect, (_, ends) in TRAITS.items()
    ]
    return [[Trait(aspect, ends[n]) for aspect, ends in drawn] for n in range(len(TOLD))]


def _paired(rng: random.Random, talks: Sequence[Talk]) -> list[list[Talk]]:
    """The topics in dialogues of two that share no theme, matter or place."""
    while True:
        order = rng.sample(talks, len(talks))
        pairs = [order[n : n + 2] for n in range(0, len(order), 2)]
        if all(_differ(*pair) for pair in pairs):
            return pairs


def _differ(one: Talk, other: Talk) -> bool:
    a, b = one.affair, other.affair
    return one.theme != other.theme and a.matter != b.matter and a.place != b.place


def _about_now(affairs: Sequence[Affair], diary: _Diary) -> Iterator[Ask]:
    for affair in affairs:
        logs, aspect = diary.turns[affair], aspect_of(affair.matter)
        known = diary.known.get(aspect, ()) if aspect else ()
        yield _ask("state", [affair.matter], affair.state, logs[:2])
        yield _ask("person", [affair.place], affair.person, logs[1:])
        yield _ask("traits", [affair.matter], say_traits(known), tuple(diary.told[trait] for trait in known))


def _about_topics(rng: random.Random, themes: Sequence[Theme], diary: _Diary) -> Iterator[Ask]:
    """Of every theme a topic that its matter names, one that a trouble names, and one that only traits tell apart."""
    for theme in themes:
        talks = [*theme.early, *theme.late]
        plain = rng.choice([talk for talk in talks if talk.affair.matter != theme.matter])
        yield _ask("rejected", [theme.name, plain.affair.matter], plain.wrong, diary.turns[plain])
        hidden = rng.choice(talks)
        evidence = (*diary.turns[hidden], *diary.turns[hidden.affair][:2])
        yield _ask("behind", [theme.name, hidden.affair.state], hidden.right, evidence)
        traits = [diary.then[talk] for talk in talks]
        alone = [talk for talk in talks if traits.count(diary.then[talk]) == 1]
        if alone:
            told = rng.choice(alone)
            logs = tuple(diary.told[trait] for trait in diary.then[told])
            yield _ask("trade", [theme.name, say_traits(diary.then[told])], told.right, (*diary.turns[told], *logs))


def _about_kinds(themes: Sequence[Theme], diary: _Diary) -> Iterator[Ask]:
    for theme in themes:
        turns = tuple(turn for talk in (*theme.early, *theme.late) for turn in diary.turns[talk])
        if theme.late:
            yield _ask("lately", [theme.name], theme.kind, turns)
        else:
            yield _ask("kind", [theme.name, theme.matter], theme.kind, turns)


def _ask(ask: Asks, subjects: Sequence[str], answer: str, evidence: Sequence[str]) -> Ask:
    return Ask(say_question(Question(ask, tuple(subjects))), answer, CATEGORIES[ask], tuple(evidence))
