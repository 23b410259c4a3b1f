"""Practice samples and their settings: records whose outcome is hidden (PraMem, equation 3).

No sample shows a record at or after its target: the suffix is cut from the records before it (the authors' released
code shows later ones, the target among them). A record that carries no question is never a target.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from ...records import Action, Turn
from ...signatures.pramem import KnownExperience
from ..settings import Settings
from .memory import Experience, ExperienceMemory, Kind, suffix

DRAWS = 100
"""Draws by recency, of which the rounds take the first (released code)."""
SHUFFLE = 1024
"""What these draws are shuffled with (released code)."""


class PracticeSettings(Settings):
    """What can be set of practice.

    Defaults suit a user's own records; `mempiler reproduce pramem` sets what the paper, or else its released code, has.
    """

    deprecated: ClassVar = {"start": "profile", "parallel": True}
    at_least_one_of = ("patterns", "alerts")
    rounds: int = Field(default=20, ge=1, description="most practice rounds of a run (section 4.1: 80)")
    samples: int = Field(default=1, ge=1, description="samples of a round (q), each tried and reviewed on its own")
    adjust_every: int = Field(default=5, ge=1, description="rounds between two adjustments (T), and at most before the last")
    proposals: int = Field(default=10, ge=1, description="most proposals of one reflection (n)")
    virtual_scenes: int = Field(default=7, ge=1, description="scenes beside the true one (m)")
    blind: bool = Field(
        default=True, description="the generality review is not told which of the shuffled scenes is true (Figure 11: it is)"
    )
    scene_chars: int = Field(default=128, ge=1, description="most characters of a scene that others are written for (code)")
    perturbations: int = Field(default=1, ge=1, description="perturbations of a sample")
    practice_tokens: int = Field(default=12_000, ge=0, description="most tokens of records before a practised one (code)")
    weighting: Literal["uniform", "recency"] = Field(
        default="uniform", description="all records alike and each once, or the later the likelier (code: quadratic, repeating)"
    )
    min_history: int = Field(default=10, ge=1, description="records that come before any practised one (code)")
    groundedness: bool = Field(default=True, description="review proposals for groundedness (Figure 6)")
    generalizability: bool = Field(default=True, description="review proposals for generality (Figure 6)")
    patterns: bool = Field(default=True, description="keep patterns (Figure 5)")
    alerts: bool = Field(default=True, description="keep alerts (Figure 5)")
    deep_thinking: bool = Field(default=True, description="trials name what bears on them, and reason, first (Table 2)")
    reflection: bool = Field(default=True, description="proposals come from thinking and outcome, not outcome alone (Table 2)")
    consensus: bool = Field(default=True, description="only what several proposals support is adopted, not all (Table 2)")
    needed: int = Field(default=3, ge=1, description="proposals that a change needs (Figure 9)")
    distinct_records: bool = Field(
        default=True, description="proposals of one practised record support a change once (Figure 9: each counts)"
    )
    keep_rounds: bool = Field(default=False, description="keep the experience after every adjustment, for `at_round`")
    seed: int = Field(default=42, description="what samples are drawn with (code)")

    @property
    def off(self) -> tuple[Kind, ...]:
        """Kinds of experience that are switched off."""
        kept: dict[Kind, bool] = {"pattern": self.patterns, "alert": self.alerts}
        return tuple(kind for kind, on in kept.items() if not on)


@dataclass(frozen=True)
class Sample:
    """One exercise."""

    round: int
    """Counted over all runs, from 1."""
    target: Action
    past: tuple[Action, ...]
    """The records right before the target, oldest first."""
    profile: tuple[Turn, ...] = ()

    @property
    def records(self) -> str:
        """The profile and the past, one line each."""
        return "\n".join([*(turn.line() for turn in self.profile), *(action.turn().line() for action in self.past)])

    @property
    def situation(self) -> str:
        """The target without what the user did, and what is asked about it, one line each."""
        text = f"{self.target.scene}; {self.target.situation}"
        line = Turn(id=self.target.id, speaker="user", text=text, time=self.target.time).line()
        return "\n".join((line, *self._asked))

    @property
    def exercise(self) -> str:
        """The target with what the user did, and what was asked about it, one line each."""
        return "\n".join((self.target.turn().line(), *self._asked))

    def scene(self, chars: int) -> str:
        """The target's scene and situation, so many characters, and its questions: what virtual scenes are like."""
        text = f"{self.target.scene}; {self.target.situation}"
        shown = text if len(text) <= chars else f"{text[:chars]}..."
        return " ".join((shown, *self._asked))

    @property
    def _asked(self) -> list[str]:
        return [f"{n}. {question}" for n, question in enumerate(self.target.questions or (), 1)]

    @property
    def ids(self) -> frozenset[str]:
        """Ids of all records it shows once its outcome is known."""
        return frozenset((self.target.id, *(action.id for action in self.past)))


def draw(memory: ExperienceMemory, settings: PracticeSettings, draws: int = DRAWS) -> list[Sample]:
    """The samples of a practice run, in the order of their rounds; fewer where there are fewer records.

    Seed and t' decide which records after `practised` are drawn; fewer rounds draw the first of the same samples.
    """
    start = max(memory.practised, settings.min_history) - memory.dropped
    places = [n for n in range(start, len(memory.records)) if memory.records[n].questions != ()]
    dice, count = random.Random(settings.seed + memory.practised), settings.rounds * settings.samples
    if settings.weighting == "uniform" or not places:
        drawn = dice.sample(places, len(places))
    else:
        weights = [(n + 1) ** 2 for n in range(len(places))]
        drawn = shuffled(dice.choices(places, weights, k=max(draws, count)))
    rounds = (memory.rounds + 1 + n // settings.samples for n in range(count))
    rows = zip(drawn, rounds, strict=False)
    return [sample_of(memory, memory.records[at], at, round, settings.practice_tokens) for at, round in rows]


def shuffled(drawn: Sequence[int]) -> list[int]:
    """The order in which what was drawn by recency is practised: always the same (released code)."""
    order = list(drawn)
    random.Random(SHUFFLE).shuffle(order)
    return order


def sample_of(memory: ExperienceMemory, target: Action, place: int, round: int, max_tokens: int) -> Sample:
    """The sample of a record at a place among `records`; its past takes at most so many tokens."""
    past = suffix(memory.records[:place], max_tokens)
    return Sample(round=round, target=target, past=past, profile=memory.profile)


def known(entries: Sequence[Experience]) -> list[KnownExperience]:
    """Entries as prompts show them."""
    return [KnownExperience(experience_id=part.id, text=part.text) for part in entries]
