"""Practice samples: a record whose outcome is hidden, and the records right before it (PraMem, equation 3).

    records   1 .. t' | t'+1 ......... j ......... t        j is drawn where practice has not been
    sample             [suffix of k records] j              k: as many as fit a budget of tokens

No sample shows a record at or after its target: the suffix is cut from the records before it (the authors' released
code shows later ones, the target among them). A record that carries no question is never a target. Drawn evenly, no
record is practised twice in one run; drawn by recency a record may come again, as in the released code.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...records import Action, Turn
from .memory import ExperienceMemory, suffix

Weighting = Literal["uniform", "recency"]
DRAWS = 100
"""Draws by recency, of which the rounds take the first (released code)."""
SHUFFLE = 1024
"""What these draws are shuffled with (released code)."""


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
    def outcome(self) -> str:
        """The target with what the user did."""
        return self.target.turn().line()

    @property
    def exercise(self) -> str:
        """The target with what the user did, and what was asked about it, one line each."""
        return "\n".join((self.outcome, *self._asked))

    def scene(self, chars: int) -> str:
        """The target's scene and situation, without id and date, and its questions: what virtual scenes are like.

        Args:
            chars: Most characters of scene and situation.
        """
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


def draw(
    memory: ExperienceMemory,
    rounds: int,
    per_round: int = 1,
    max_tokens: int = 12_000,
    weighting: Weighting = "uniform",
    min_history: int = 10,
    seed: int = 42,
    draws: int = DRAWS,
) -> list[Sample]:
    """The samples of a practice run, in the order of their rounds.

    Args:
        memory: Its records; those after `practised` are drawn from.
        rounds: The most rounds; fewer where there are fewer records.
        per_round: Samples of a round (q).
        max_tokens: What the past of a sample may take.
        weighting: Every record alike, or in proportion to the square of its place in the pool and with replacement.
        min_history: Records that must come before a target.
        seed: With t', all that the draw depends on; a run of fewer rounds draws the first of the same samples.
        draws: How many are drawn by recency, of which the rounds take the first.
    """
    start = max(memory.practised, min_history) - memory.dropped
    places = [n for n in range(start, len(memory.records)) if memory.records[n].questions != ()]
    drawn = _drawn(places, rounds * per_round, weighting, random.Random(seed + memory.practised), draws)
    return [
        Sample(
            round=memory.rounds + 1 + n // per_round,
            target=memory.records[place],
            past=suffix(memory.records[:place], max_tokens),
            profile=memory.profile,
        )
        for n, place in enumerate(drawn)
    ]


def shuffled(drawn: Sequence[int]) -> list[int]:
    """The order in which what was drawn by recency is practised: always the same (released code)."""
    order = list(drawn)
    random.Random(SHUFFLE).shuffle(order)
    return order


def _drawn(places: list[int], count: int, weighting: Weighting, dice: random.Random, draws: int) -> list[int]:
    if weighting == "uniform" or not places:
        return dice.sample(places, len(places))[:count]
    weights = [(n + 1) ** 2 for n in range(len(places))]
    return shuffled(dice.choices(places, weights, k=max(draws, count)))[:count]


def again(memory: ExperienceMemory, target: Action, max_tokens: int) -> Sample:
    """One more sample of a record that was practised on in vain, after the rounds so far."""
    place = next((n for n, action in enumerate(memory.records) if action.id == target.id), len(memory.records))
    past = suffix(memory.records[:place], max_tokens)
    return Sample(round=memory.rounds, target=target, past=past, profile=memory.profile)
