"""Practice samples: a record whose outcome is hidden, and the records right before it (PraMem, equation 3).

    records   1 .. t' | t'+1 ......... j ......... t        j is drawn where practice has not been
    sample             [suffix of k records] j              k: as many as fit a budget of tokens

No sample shows a record at or after its target: the suffix is cut from the records before it (the authors' released
code shows later ones, the target among them). Within one run no record is practised twice; the released code draws with
replacement.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from ...records import Action, Turn
from .memory import ExperienceMemory, suffix

Weighting = Literal["uniform", "recency"]


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
        """The target without what the user did."""
        text = f"{self.target.scene}; {self.target.situation}"
        return Turn(id=self.target.id, speaker="user", text=text, time=self.target.time).line()

    @property
    def scene(self) -> str:
        """The target's scene and situation alone, without id and date: what virtual scenes are modelled on."""
        return f"{self.target.scene}; {self.target.situation}"

    @property
    def outcome(self) -> str:
        """The target with what the user did."""
        return self.target.turn().line()

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
    seed: int = 0,
) -> list[Sample]:
    """The samples of a practice run, in the order of their rounds.

    Args:
        memory: Its records; those after `practised` are drawn from.
        rounds: The most rounds; fewer where there are fewer records.
        per_round: Samples of a round (q).
        max_tokens: What the past of a sample may take.
        weighting: Every record alike, or in proportion to the square of its place in the pool.
        min_history: Records that must come before a target.
        seed: With t', all that the draw depends on; a run of fewer rounds draws the first of the same samples.
    """
    start = max(memory.practised, min_history)
    places = list(range(start - memory.dropped, len(memory.records)))
    dice = random.Random(f"{seed} {memory.practised}")
    weights = [(n + 1) ** 2 if weighting == "recency" else 1 for n in range(len(places))]
    # Sorting by u ** (1 / w) draws without replacement in proportion to w (Efraimidis and Spirakis 2006).
    keys = [dice.random() ** (1 / weight) for weight in weights]
    order = sorted(range(len(places)), key=lambda n: (-keys[n], n))
    drawn = [places[n] for n in order[: rounds * per_round]]
    return [
        Sample(
            round=memory.rounds + 1 + n // per_round,
            target=memory.records[place],
            past=suffix(memory.records[:place], max_tokens),
            profile=memory.profile,
        )
        for n, place in enumerate(drawn)
    ]


def again(memory: ExperienceMemory, target: Action, max_tokens: int) -> Sample:
    """One more sample of a record that was practised on in vain, after the rounds so far."""
    place = next((n for n, action in enumerate(memory.records) if action.id == target.id), len(memory.records))
    past = suffix(memory.records[:place], max_tokens)
    return Sample(round=memory.rounds, target=target, past=past, profile=memory.profile)
