"""PraMem's world: what a user does with videos, where only practice tells habits from accidents.

    cycles of 12 records   one of each category that has a rule, and three of accidental or neutral ones
    10 records at the end  of categories of their own, about which practice asks nothing
    questions              each about another category, so that no newest record gives its answer away

Every video is liked by many people or by few. A model that knows no better goes by that crowd; a record *deviates*
where the user does the opposite. What a question needs, by its category:

    habit       a pattern: the user likes all of a category, or passes all of it over. Every second record deviates
    lucky       a pattern of which one record deviates: only reflection on predictions that went right, by accident,
                finds the support that it needs
    contrary    an alert: every record deviates, by turns this way and that, so that no pattern holds
    outdated    a change: the profile names a taste that the records contradict. The pattern made of it has to be
                removed, or turned round
    stated      a pattern that the profile alone tells
    accident    consensus: three records deviate, the first with nothing before it that could bear it out. What no more
                than two practised records support is no habit here: the answer is the crowd's
    author      generality: a new category by the author of a habit, whose other videos were taken for their category:
                the answer is the crowd's
    part        groundedness: a new category at noon, when other records deviate by turns this way and that, so that no
                claim about noon holds: the answer is the crowd's
    recent      the newest records: a category that came up after practice, of which two records deviate
    crowd       nothing: a control

Limits: a video is liked and shared, or neither. Practice asks about both, questions about the like.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from ...errors import DataError
from ...grammar.pramem import LIKES, SCENE, SHARES, Claim, Clip, Stance, say_claim, say_clip, say_did
from ...records import Action, Profile, Turn
from ..behavior import ChosenOption, Since, asked, batches
from ..scorer import Scorer
from .world import Ask, Life, World

CYCLES = 8
LEAST_CYCLES, MOST_CYCLES = 4, 20
SLIPS = 3
"""Records of an accident."""
FILLERS = 10
NEUTRAL = 14
"""Neutral categories, which come again in turn."""
OPTIONS = ("Yes", "No")
AROUND = ("habit", "neutral", "recent", "crowd")
"""Kinds whose records are not at noon."""
START = datetime(2025, 1, 1)
USER = "user"
CATEGORIES = (
    *("jazz", "opera", "chess", "pottery", "sailing", "gardening", "cycling", "knitting", "baking", "surfing"),
    *("astronomy", "robots", "horses", "magic", "ballet", "boxing", "camping", "comedy", "dogs", "drumming"),
    *("fishing", "geology", "golf", "hiking", "judo", "karaoke", "languages", "makeup", "poetry", "puppetry"),
    *("racing", "rowing", "sculpture", "skating", "skiing", "tailoring", "tennis", "trains", "travel", "volcanoes"),
    *("weaving", "whales", "wrestling", "yoga", "zoology", "archery", "birds", "calligraphy", "carpentry", "castles"),
)
FIRST = (
    "Nola",
    "Piet",
    "Rhea",
    "Sven",
    "Tara",
    "Umut",
    "Vera",
    "Wim",
    "Xenia",
    "Yuri",
    "Zora",
    "Abel",
    "Britt",
    "Cleo",
)
LAST = (
    *("Kern", "Lund", "Moss", "Nash", "Orr", "Pace", "Quist", "Rood", "Sands", "Thorn", "Vale", "Webb", "Yates"),
    *("Arden", "Brook", "Cole", "Drew", "Eads", "Fenn", "Grove", "Holt", "Ives", "Jarvis"),
)


@dataclass(frozen=True)
class Topic:
    """A category, and how the user takes it."""

    kind: str
    category: str
    stance: Stance
    asked: bool
    """Whether many people like what is asked about; of an accident, its records too."""
    author: str | None = None
    """Who makes all of it; somebody new each time where None."""
    believed: Stance | None = None
    """What the profile says."""

    def truth(self, clip: Clip) -> bool:
        """Whether the user likes a clip of it."""
        return Claim(self.stance, "category", self.category).foretells(clip)

    def popular(self, cycle: int) -> bool:
        """Whether many people like its record of a cycle."""
        if self.kind == "contrary":
            return cycle % 2 == 0
        if self.stance == "with the crowd":
            return cycle % 3 == 0
        deviates = {"habit": cycle % 2 == 1, "lucky": cycle == 1, "outdated": cycle % 4 != 0}[self.kind]
        return (self.stance == "reacts") != deviates


class PraMemWorld(World):
    """Whether a user likes a video, where every part of PraMem's practice is needed; see the module."""

    name = "world.pramem"
    task = "behavior-prediction"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"accuracy": ChosenOption}
    sizes: ClassVar[Mapping[str, int]] = {"cycles": CYCLES}

    @classmethod
    def life(cls, rng: random.Random, **sizes: int) -> Life:
        """Makes one user with `cycles` records of every rule.

        Raises:
            DataError: These are too few or too many.
        """
        cycles = sizes["cycles"]
        if not LEAST_CYCLES <= cycles <= MOST_CYCLES:
            raise DataError(f"cycles={cycles} is out of range; choose {LEAST_CYCLES} to {MOST_CYCLES}")
        return Teller(rng).life(cycles)


class Teller:
    """Draws the tastes of one user, and tells their records in time order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        names = [f"{first} {last}" for first in FIRST for last in LAST]
        self.authors = iter(rng.sample(names, len(names)))
        self.categories = iter(rng.sample(CATEGORIES, len(CATEGORIES)))
        self.neutral = itertools.cycle([self.topic("neutral") for _ in range(NEUTRAL)])
        self.habits = [self.topic("habit", stance, next(self.authors)) for stance in ("reacts", "passes", "reacts")]
        self.ruled = [
            *self.habits,
            *(self.topic("lucky", stance) for stance in ("reacts", "passes")),
            *(self.topic("contrary", "against the crowd", asked=asked) for asked in (True, False)),
            self.topic("outdated", "with the crowd", believed="reacts"),
            self.topic("outdated", "reacts", believed="passes"),
        ]
        self.accidents = [self.topic("accident", asked=asked) for asked in (False, True)]
        self.stated = self.topic("stated", "passes", believed="passes")
        self.recent = self.topic("recent", "reacts")
        self.told: list[Action] = []

    def topic(
        self,
        kind: str,
        stance: Stance = "with the crowd",
        author: str | None = None,
        asked: bool | None = None,
        believed: Stance | None = None,
    ) -> Topic:
        """A new category; unless it is said, what is asked about deviates where it can."""
        deviating = stance == "passes" if asked is None else asked
        return Topic(kind, next(self.categories), stance, deviating, author, believed)

    def life(self, cycles: int) -> Life:
        """The records of the cycles, and what is asked after them."""
        for clip, reacted in self._history(cycles):
            self._tell(clip, reacted, (LIKES, SHARES))
        for n in range(FILLERS):
            filler = self.topic("neutral")
            clip = self._clip(filler, n % 2 == 0)
            self._tell(clip, filler.truth(clip))
        known = tuple(self.told)
        for _ in range(2):
            clip = self._clip(self.recent, self.recent.asked)
            self._tell(clip, self.recent.truth(clip))
        questions = self._questions()
        chosen = [(topic, clip, self._tell(clip, topic.truth(clip))) for topic, clip in questions]
        since = Since(USER, self.told[len(known) :], len(known))
        asks = [
            Ask(
                question=asked(action, LIKES),
                answer=OPTIONS[not topic.truth(clip)],
                category=topic.kind,
                evidence=tuple(
                    each.id for each in self.told[:place] if f"category: {topic.category};" in each.situation
                ),
                more={"options": list(OPTIONS), "recent": since.until(place - len(known))},
            )
            for place, (topic, clip, action) in enumerate(chosen, len(self.told) - len(chosen))
        ]
        return Life((self._profile(), *batches(USER, known)), asks)

    def _history(self, cycles: int) -> Iterator[tuple[Clip, bool]]:
        """What is before the user in the cycles, and what they do: always in the same order within a cycle."""
        slips = [self.rng.sample(range(cycles), SLIPS) for _ in self.accidents]
        order = self.rng.sample(range(len(self.ruled) + 3), len(self.ruled) + 3)
        for cycle in range(cycles):
            shown = [(topic, topic.popular(cycle)) for topic in self.ruled]
            for topic, when in zip(self.accidents, slips, strict=True):
                shown.append((topic, topic.asked) if cycle in when else (next(self.neutral), cycle % 2 == 0))
            shown.append((next(self.neutral), cycle % 2 == 1))
            for topic, popular in (shown[place] for place in order):
                clip = self._clip(topic, popular)
                yield clip, topic.truth(clip) != (topic.kind == "accident")

    def _questions(self) -> list[tuple[Topic, Clip]]:
        """What is asked: what is new first, while its records are among the newest."""
        liked, passed, _ = self.habits
        found = [(topic, self._clip(topic, topic.asked)) for topic in (*self.ruled, *self.accidents, self.stated)]
        for habit, popular in ((liked, False), (passed, True)):
            unruled = (self.topic("author", author=habit.author), self.topic("part"), self.topic("crowd"))
            found += [(topic, self._clip(topic, popular)) for topic in unruled]
        recent = (self.recent, self._clip(self.recent, self.recent.asked))
        return [recent, *self.rng.sample(found, len(found))]

    def _clip(self, topic: Topic, popular: bool) -> Clip:
        """A clip of a category: at noon, or of a kind in `AROUND` in the evening or the morning, by its crowd."""
        part = ("evening", "morning")[popular] if topic.kind in AROUND else "noon"
        return Clip(topic.category, topic.author or next(self.authors), part, popular)

    def _tell(self, clip: Clip, reacted: bool, questions: tuple[str, ...] = ()) -> Action:
        number = len(self.told) + 1
        action = Action(
            id=f"r{number}",
            time=START + timedelta(days=number),
            scene=SCENE,
            situation=say_clip(clip),
            action=say_did(reacted),
            questions=questions,
        )
        self.told.append(action)
        return action

    def _profile(self) -> Profile:
        said = [Claim(t.believed, "category", t.category) for t in (*self.ruled, self.stated) if t.believed]
        turns = [Turn(id=f"profile:{n}", speaker="profile", text=say_claim(claim)) for n, claim in enumerate(said, 1)]
        return Profile(id="profile", turns=tuple(turns))
