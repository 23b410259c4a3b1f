"""Practice samples: past records with a hidden outcome, which the model predicts (Eq. 3).

| in the paper       | here                                                          |
|--------------------|---------------------------------------------------------------|
| j, from t' to t    | a place among the records that wait for practice              |
| s~_j, a~_j         | `Sample.situation`; with the action too, `Sample.exercise`    |
| H~_j               | `Sample.records`: the profile and the `past`                  |
| q                  | the setting `samples`: how many samples a round has           |

The past of a sample that is drawn ends before its target; the released code shows records after it,
and the target itself. A record of which nothing is to be asked is never drawn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ...records import Action, Turn
from .memory import ExperienceMemory, short_suffix
from .settings import PracticeSettings

RECENCY_DRAWS = 100
"""How many places are drawn by recency; the rounds take the first of them (released code)."""
SHUFFLE_SEED = 1024
"""What the places that were drawn by recency are shuffled with (released code)."""


@dataclass(frozen=True)
class Sample:
    """One record to practise on, with what the model may see before it predicts the outcome."""

    round: int
    """The practice round, counted over all runs from 1."""
    target: Action
    past: tuple[Action, ...]
    """The records right before the target, oldest first."""
    profile: tuple[Turn, ...] = ()

    @property
    def records(self) -> str:
        """The user profile and the records before the target, one line each; H~_j in the paper."""
        profile_lines = [turn.line() for turn in self.profile]
        past_lines = [action.turn().line() for action in self.past]
        return "\n".join([*profile_lines, *past_lines])

    @property
    def situation(self) -> str:
        """The target without what the user did, and its questions, one line each; s~_j."""
        turn = Turn(id=self.target.id, speaker="user", text=self._scene_text, time=self.target.time)
        return "\n".join([turn.line(), *self._numbered_questions])

    @property
    def exercise(self) -> str:
        """The target with what the user did, and its questions, one line each; s~_j with a~_j."""
        return "\n".join([self.target.turn().line(), *self._numbered_questions])

    @property
    def shown_ids(self) -> frozenset[str]:
        """Ids of the records that a reflection sees: the past and the target."""
        past_ids = [action.id for action in self.past]
        return frozenset([self.target.id, *past_ids])

    def true_scene(self, max_chars: int) -> str:
        """Return the target's situation and questions in one line, without what the user did.

        A model invents virtual scenes that resemble this line (Eq. 7).

        Args:
            max_chars: Most characters of the situation; the rest is cut. Questions are never cut.
        """
        text = self._scene_text
        if len(text) > max_chars:
            text = f"{text[:max_chars]}..."
        return " ".join([text, *self._numbered_questions])

    @property
    def _scene_text(self) -> str:
        return f"{self.target.scene}; {self.target.situation}"

    @property
    def _numbered_questions(self) -> list[str]:
        questions = self.target.questions or ()
        return [f"{number}. {question}" for number, question in enumerate(questions, 1)]


def draw_samples(
    memory: ExperienceMemory, settings: PracticeSettings, recency_draws: int = RECENCY_DRAWS
) -> list[Sample]:
    """Draw at random the records that a practice run predicts, in the order of practice (Eq. 3).

    A sample is one record to predict, with the records before it. The same memory and settings
    always give the same samples.

    Args:
        memory: Holds the records.
        settings: How many samples a round has, and whether recent records are likelier.
        recency_draws: If recent records are likelier, at least so many are drawn at once, even if
            the run needs fewer. The first of them become the samples.
    """
    # The records that may be drawn, by their positions in `memory.records`: those from after the
    # last run that have enough records before them.
    positions = _drawable_positions(memory, settings.min_history)
    # A run has several rounds, each with equally many samples.
    sample_count = settings.rounds * settings.samples
    generator = random.Random(settings.seed + memory.practised)

    # A short run has to practise on the same records as a longer run does at first. But another
    # number of draws would give another order. So more positions are drawn than are needed, and
    # the first ones are used.
    if settings.weighting == "uniform":
        drawn_positions = generator.sample(positions, len(positions))
    else:
        draw_count = max(recency_draws, sample_count)
        drawn_positions = _draw_by_recency(positions, draw_count, generator)

    samples: list[Sample] = []
    for number, position in enumerate(drawn_positions[:sample_count]):
        # Rounds are numbered over all runs, and have `settings.samples` samples each.
        round_number = memory.rounds + 1 + number // settings.samples
        target = memory.records[position]
        sample = make_sample(memory, target, position, round_number, settings.practice_tokens)
        samples.append(sample)
    return samples


def make_sample(
    memory: ExperienceMemory, target: Action, position: int, round_number: int, max_tokens: int
) -> Sample:
    """Return a record to predict, together with the earlier records that the model is shown.

    Args:
        memory: Holds the records and the user's profile.
        target: The record to predict.
        position: The position of the target in `memory.records`; only records before it are shown.
        round_number: The practice round.
        max_tokens: Most tokens of the earlier records; the newest that fit are shown.
    """
    past = short_suffix(memory.records[:position], max_tokens)
    return Sample(round=round_number, target=target, past=past, profile=memory.profile)


def shuffle_as_released(positions: Sequence[int]) -> list[int]:
    """Return positions shuffled with the fixed seed of the paper's released code."""
    order = list(positions)
    random.Random(SHUFFLE_SEED).shuffle(order)
    return order


def _drawable_positions(memory: ExperienceMemory, min_history: int) -> list[int]:
    """Return the positions in `memory.records` of the records that a practice run may draw.

    These are the records from after the last practice run that have at least `min_history` records
    before them, and ask the model to predict something.
    """
    # Both numbers count all records of the user, also the oldest, which the memory has dropped.
    first_number = max(memory.practised, min_history)
    # `memory.records` begins after the dropped records, so positions in it are smaller.
    first_position = first_number - memory.dropped

    positions: list[int] = []
    for position in range(first_position, len(memory.records)):
        if _asks_for_prediction(memory.records[position]):
            positions.append(position)
    return positions


def _asks_for_prediction(record: Action) -> bool:
    """Return whether there is something to predict about a record."""
    if record.questions is None:
        # The data has no questions at all. Then the model predicts what the user did.
        return True
    # An empty tuple: the data has questions, but none about this record.
    return len(record.questions) > 0


def _draw_by_recency(positions: Sequence[int], count: int, generator: random.Random) -> list[int]:
    """Draw positions as the paper's released code does: later ones more often, some repeatedly.

    The weight of a position is the square of its rank.
    """
    if not positions:
        return []
    weights = [rank**2 for rank in range(1, len(positions) + 1)]
    drawn_positions = generator.choices(positions, weights, k=count)
    return shuffle_as_released(drawn_positions)
