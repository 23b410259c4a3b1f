"""The world of Memory-R2: facts that two people state, change, count on and take back, and half say.

Ten sessions of four rounds, in each of which both speak once; a part of a session is one round. What each category
needs, by construction:

    stated      nothing                                                                (control)
    changed     nothing: a value of an earlier session; the reader prefers the newest  (control)
    many        enough memories read: all of eight places
    unsaid      a reader that is told what to answer where nothing is known
    corrected   parts: two values in two rounds of one session. Together in one prompt both become memories of one date
    half        the earlier parts: "it" is a thing that was named the round before; without them it stays unresolved
    retracted   memories beside a fact: what is taken back is deleted, if it is shown
    counted     memories beside a fact, at least four, of its speaker alone: "more" is counted on from how many there
                were. Three facts of the same speaker are nearer, and six of the other one
    them        facts before edits: "more of them", whose count no search for these words finds

Limits: a turn says one thing, in words without much sense.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from ...grammar.memory_r2 import (
    NOT_MENTIONED,
    QUESTIONS,
    TURNS,
    Forget,
    HowMany,
    IFetched,
    IGot,
    IGotThem,
    IHave,
    ItIs,
    IWas,
    MyOwn,
    Named,
    WhatIs,
    Where,
)
from ...records import Session, Turn
from .world import Ask, Life, World

SESSIONS, ROUNDS = 10, 4
EARLY, MIDDLE, LATE = range(3), range(3, 6), range(6, SESSIONS)
PLACES_SEEN = 8
NEARER, OTHERS = 3, 6
"""Facts of the speaker that are nearer to what is counted on than how many there were, and facts of the other."""
START = datetime(2025, 2, 3, 18)
SPEAKERS = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo")
FRIENDS = ("Ines", "Jon", "Kim", "Lea", "Mona", "Nils", "Olga", "Paul", "Rita", "Sven")
THINGS = ("kayak", "piano", "telescope", "umbrella", "wardrobe", "bicycle", "lantern", "carpet", "samovar", "hammock")
VALUES = ("crimson", "silver", "turquoise", "beige", "purple", "golden", "olive", "white", "indigo", "khaki")
PLACES = ("Porto", "Lima", "Oslo", "Cairo", "Quito", "Delhi", "Sofia", "Tallinn", "Hanoi", "Dakar", "Lagos", "Zurich")
CHATTER = ("How are you?", "That sounds nice.", "What a week!", "So it goes.", "Good to hear from you.")

Slot = tuple[int, int, str]
"""A session, a round and a speaker: one turn."""


class MemoryR2World(World):
    """Questions about what two people said last, or in all."""

    name = "world.memory-r2"

    @property
    def unsaid(self) -> bool:
        """Some questions are about what was never said, or was taken back."""
        return True

    @classmethod
    def life(cls, rng: random.Random, **sizes: int) -> Life:
        return _Making(rng).life()


class _Making:
    """One pair of speakers in the making."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.speakers: list[str] = rng.sample(SPEAKERS, 2)
        self.counting = rng.choice(self.speakers)
        """Who counts: the other one's facts would hide those of a second count."""
        self.things = rng.sample(THINGS, len(THINGS))
        self.values: list[str] = rng.sample(VALUES, len(VALUES))
        """Each is said of one thing, as every number is: a fact about another thing is no nearer for it."""
        self.said: dict[Slot, Any] = {}
        self.asked: list[tuple[Any, str, str, tuple[Slot, ...]]] = []

    def life(self) -> Life:
        # Those that take two rounds of one session find room first.
        self._corrected()
        self._half()
        self._them()
        self._counted()
        self._seen()
        self._stated()
        self._changed()
        self._retracted()
        self.asked.append((WhatIs(self.rng.choice(self.speakers), self.things.pop()), NOT_MENTIONED, "unsaid", ()))
        return Life(self._sessions(), [self._ask(*each) for each in self.asked])

    def _who(self) -> str:
        return self.rng.choice(self.speakers)

    def _say(self, who: str, when: Sequence[int], *turns: Any) -> tuple[Slot, ...]:
        """Says turns in rounds of one session that follow one another, and returns their places."""
        firsts = range(ROUNDS - len(turns) + 1)
        rows = [_places(session, first, who, len(turns)) for session in when for first in firsts]
        chosen = self.rng.choice([row for row in rows if not self.said.keys() & row])
        self.said |= dict(zip(chosen, turns, strict=True))
        return chosen

    def _corrected(self) -> None:
        who, thing = self._who(), self.things.pop()
        first, second = self.values.pop(), self.values.pop()
        slots = self._say(who, LATE, MyOwn(thing, first), MyOwn(thing, second))
        self.asked.append((WhatIs(who, thing), second, "corrected", slots))

    def _half(self) -> None:
        who, thing = self._who(), self.things.pop()
        first, second = self.values.pop(), self.values.pop()
        self._say(who, EARLY, MyOwn(thing, first))
        slots = self._say(who, LATE, Named(thing), ItIs(second))
        self.asked.append((WhatIs(who, thing), second, "half", slots))

    def _them(self) -> None:
        who, thing, n, more = self.counting, self.things.pop(), self.rng.randint(10, 19), self.rng.randint(2, 5)
        slots = self._say(who, EARLY, IHave(n, thing))
        slots += self._say(who, LATE[:2], Named(thing), IGotThem(more))
        self.asked.append((HowMany(thing, who), str(n + more), "them", slots))

    def _counted(self) -> None:
        who, thing, n, more = self.counting, self.things.pop(), self.rng.randint(10, 19), self.rng.randint(6, 9)
        other = next(each for each in self.speakers if each != who)
        slots = self._say(who, EARLY, IHave(n, thing))
        friends = self.rng.sample(FRIENDS, NEARER + OTHERS)
        for nth, friend in enumerate(friends):
            self._say(who if nth < NEARER else other, MIDDLE, IFetched(more, thing, friend))
        # After the other count: what is not counted on stays a fact, and would be nearer to that.
        slots += self._say(who, LATE[2:], IGot(more, thing))
        self.asked.append((HowMany(thing, who), str(n + more), "counted", slots))

    def _seen(self) -> None:
        who, places = self._who(), self.rng.sample(PLACES, PLACES_SEEN)
        slots = [slot for place in places for slot in self._say(who, range(SESSIONS), IWas(place))]
        self.asked.append((Where(who), " and ".join(sorted(places)), "many", tuple(slots)))

    def _stated(self) -> None:
        who, thing, value = self._who(), self.things.pop(), self.values.pop()
        slots = self._say(who, range(SESSIONS), MyOwn(thing, value))
        self.asked.append((WhatIs(who, thing), value, "stated", slots))

    def _changed(self) -> None:
        who, thing = self._who(), self.things.pop()
        first, second = self.values.pop(), self.values.pop()
        self._say(who, EARLY, MyOwn(thing, first))
        slots = self._say(who, LATE, MyOwn(thing, second))
        self.asked.append((WhatIs(who, thing), second, "changed", slots))

    def _retracted(self) -> None:
        who, thing = self._who(), self.things.pop()
        self._say(who, EARLY, MyOwn(thing, self.values.pop()))
        slots = self._say(who, LATE, Forget(thing))
        self.asked.append((WhatIs(who, thing), NOT_MENTIONED, "retracted", slots))

    def _ask(self, question: Any, answer: str, category: str, slots: tuple[Slot, ...]) -> Ask:
        return Ask(QUESTIONS.say(question), answer, category, tuple(map(self._id, slots)))

    def _id(self, slot: Slot) -> str:
        session, round, who = slot
        return f"D{session + 1}:{2 * round + self.speakers.index(who) + 1}"

    def _sessions(self) -> list[Session]:
        sessions: list[Session] = []
        for session in range(SESSIONS):
            slots = [(session, round, who) for round in range(ROUNDS) for who in self.speakers]
            turns = tuple(Turn(id=self._id(slot), speaker=slot[2], text=self._text(slot)) for slot in slots)
            time = START + timedelta(weeks=session)
            sessions.append(Session(id=f"D{session + 1}", time=time, turns=turns))
        return sessions

    def _text(self, slot: Slot) -> str:
        return TURNS.say(self.said[slot]) if slot in self.said else self.rng.choice(CHATTER)


def _places(session: int, first: int, who: str, length: int) -> tuple[Slot, ...]:
    return tuple((session, first + n, who) for n in range(length))
