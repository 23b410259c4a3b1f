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
        """H~_j: the profile and the past, one line each."""
        profile_lines = [turn.line() for turn in self.profile]
        past_lines = [action.turn().line() for action in self.past]
        return "\n".join([*profile_lines, *past_lines])

    @property
    def situation(self) -> str:
        """s~_j: the target without what the user did, and its questions, one line each."""
        turn = Turn(id=self.target.id, speaker="user", text=self._scene_text, time=self.target.time)
        return "\n".join([turn.line(), *self._numbered_questions])

    @property
    def exercise(self) -> str:
        """s~_j with a~_j: the target with what the user did, and its questions, one line each."""
        return "\n".join([self.target.turn().line(), *self._numbered_questions])

    @property
    def shown_ids(self) -> frozenset[str]:
        """Ids of the records that a reflection sees: the past and the target."""
        past_ids = [action.id for action in self.past]
        return frozenset([self.target.id, *past_ids])

    def true_scene(self, max_chars: int) -> str:
        """Return s~_j in one line, as virtual scenes are written for it (Eq. 7).

        Args:
            max_chars: Where the situation is cut; the questions after it are whole.
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
    """Draw the samples of a practice run, in the order in which they are practised (Eq. 3).

    There are q samples a round, and fewer where records run out. A run of fewer rounds has the
    first samples of a longer run; by recency, as long as both need at most `recency_draws`.

    Args:
        memory: Holds the records; those after t' may be drawn.
        settings: How many are drawn, and how.
        recency_draws: How many are drawn by recency, if the rounds do not need more.
    """
    places = _drawable_places(memory, settings.min_history)
    sample_count = settings.rounds * settings.samples
    dice = random.Random(settings.seed + memory.practised)
    if settings.weighting == "uniform":
        drawn_places = dice.sample(places, len(places))
    else:
        draw_count = max(recency_draws, sample_count)
        drawn_places = _draw_by_recency(places, draw_count, dice)

    samples: list[Sample] = []
    for number, place in enumerate(drawn_places[:sample_count]):
        round_number = memory.rounds + 1 + number // settings.samples
        target = memory.records[place]
        samples.append(make_sample(memory, target, place, round_number, settings.practice_tokens))
    return samples


def make_sample(
    memory: ExperienceMemory, target: Action, place: int, round_number: int, max_tokens: int
) -> Sample:
    """Return the sample of a record.

    Args:
        memory: Holds the profile and the records.
        target: The record to predict.
        place: Where the target stands among the memory's records; those before it are its past.
        round_number: The practice round.
        max_tokens: Most tokens of the past.
    """
    past = short_suffix(memory.records[:place], max_tokens)
    return Sample(round=round_number, target=target, past=past, profile=memory.profile)


def shuffle_as_released(places: Sequence[int]) -> list[int]:
    """Return places in the order in which the released code practises them: always the same."""
    order = list(places)
    random.Random(SHUFFLE_SEED).shuffle(order)
    return order


def _drawable_places(memory: ExperienceMemory, min_history: int) -> list[int]:
    """Return the places among `records` after t' and after `min_history` records, t' < j < t."""
    start = max(memory.practised, min_history) - memory.dropped
    places: list[int] = []
    for place in range(start, len(memory.records)):
        # None is not empty: where the data has no questions, the user's action is predicted.
        asks_nothing = memory.records[place].questions == ()
        if not asks_nothing:
            places.append(place)
    return places


def _draw_by_recency(places: Sequence[int], count: int, dice: random.Random) -> list[int]:
    """Draw places as the released code does: later ones more often, and some repeatedly."""
    if not places:
        return []
    weights = [rank**2 for rank in range(1, len(places) + 1)]
    return shuffle_as_released(dice.choices(places, weights, k=count))
