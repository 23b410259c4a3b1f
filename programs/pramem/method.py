"""PraMem: a user's own records are practised on beforehand, and what practice teaches is the memory.

    write    records and profile join the memory; no LM call
    settle   80 rounds of trial, reflection and review; every 5 rounds what several proposals support becomes experience
    recall   all patterns and alerts; the task adds the newest records as they are

Equations to functions (Li et al., "PraMem: Practice-derived Experiential Memory for Long-horizon Behavior Prediction"):
    Eq. 2  M_t = Practice(H_t, M_t')       `writer.PracticeWriter.settle`; the suffix: `BehaviorPrediction.shown`
    Eq. 3  practice samples, trial         `samples.draw`, `practice.tried`
    Eq. 4  reflection, proposal pool       `practice.practise`, `ExperienceMemory.after_round`
    Eq. 5  consensual adjustment           `adjustment.adjust`, `adjustment.adjusted`
    Eq. 6  groundedness review             `review.perturbations`, `review.reviewed`
    Eq. 7  generalizability review         `review.virtual_scenes`, `review.reviewed`

Critical path: 5 calls per `adjust_every` rounds (trial, reflection, two reviews, adjustment), 80 for 80 rounds, where
496 would follow one another. Rounds between two adjustments see the same experience and are independent, so they run at
the same time; they join the memory in order, and the result is that of `parallel=False`. Then 1 answer.

t' stays where it is during a run and moves to the end of the records with it: records that come later continue the
practice, older ones are never practised again. `perf/pramem_parallel.py` of commit b9d2176 measures both.

Deviations: samples are drawn without replacement, so there are no more rounds than records; a sample shows no later
record; consensus is checked by code, and its supporters come from distinct records; reviews reject what has no clear
verdict; no model is asked to adjust a pool that is too small for any change, or to which the last rounds added nothing.
The rest is in `docs/coverage.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import dspy

from ...errors import UserError
from ..method import Method
from .adjustment import NEEDED
from .reader import ExperiencedPrediction, ExperienceReader
from .samples import Weighting
from .writer import PracticeWriter


class PraMem(Method):
    """Practises on a user's records and recalls what practice has taught.

    Args:
        rounds: The most practice rounds of a run.
        samples: Practice samples per round (q); each is tried, reflected on and reviewed on its own.
        adjust_every: Rounds between two adjustments (T); the last rounds of a run are followed by one too.
        proposals: The most proposals of one reflection (n).
        virtual_scenes: Scenes beside the true one (m).
        scene_chars: Most characters of a scene that virtual ones are written for (released code).
        perturbations: Perturbations per sample.
        practice_tokens: Most tokens of records before a practised one.
        predict_tokens: Most tokens of the newest records beside the question.
        weighting: How records are drawn: all alike and each once, or the later the likelier (as the released code does:
            quadratic, with replacement).
        start: "profile": patterns from the profile and alerts about common biases; "empty", as the released code does.
        min_history: Records that come before any practised one (released code; the paper gives none).
        groundedness: Review proposals for groundedness (Figure 6).
        generalizability: Review proposals for generality (Figure 6).
        patterns: Keep patterns (Figure 5).
        alerts: Keep alerts (Figure 5).
        deep_thinking: Trials name what bears on them and reason before they predict (Table 2).
        reflection: Proposals come from reflection on thinking and outcome, not from the outcome alone (Table 2).
        consensus: Only what several proposals support is adopted, not all of them (Table 2).
        needed: Proposals that a change needs (Figure 9).
        distinct_records: Proposals of one practised record count as one.
        seed: What samples, and shuffled scenes, are drawn with.
        parallel: Run what is independent at the same time; the memory is the same without.
    """

    tasks: ClassVar[Mapping[str, type[dspy.Module]]] = {"behavior-prediction": ExperiencedPrediction}

    def __init__(
        self,
        rounds: int = 80,
        samples: int = 1,
        adjust_every: int = 5,
        proposals: int = 10,
        virtual_scenes: int = 7,
        scene_chars: int = 128,
        perturbations: int = 1,
        practice_tokens: int = 12_000,
        predict_tokens: int = 8_000,
        weighting: Weighting = "uniform",
        start: Literal["profile", "empty"] = "profile",
        min_history: int = 10,
        groundedness: bool = True,
        generalizability: bool = True,
        patterns: bool = True,
        alerts: bool = True,
        deep_thinking: bool = True,
        reflection: bool = True,
        consensus: bool = True,
        needed: int = NEEDED,
        distinct_records: bool = True,
        seed: int = 42,
        parallel: bool = True,
    ) -> None:
        _check_settings(
            rounds, samples, adjust_every, proposals, virtual_scenes, scene_chars, perturbations, min_history, needed
        )
        _check_choices(weighting, start, patterns or alerts)
        self.predict_tokens = predict_tokens
        practice = {name: value for name, value in self.config.items() if name != "predict_tokens"}
        super().__init__(PracticeWriter(practice), ExperienceReader())

    def answering(self, task: str) -> dspy.Module:
        """The task with PraMem's own prompt and its budget of newest records."""
        return ExperiencedPrediction(self.predict_tokens)


def _check_settings(*numbers: int) -> None:
    names = (
        *("rounds", "samples", "adjust_every", "proposals", "virtual_scenes", "scene_chars"),
        *("perturbations", "min_history", "needed"),
    )
    for name, number in zip(names, numbers, strict=True):
        if number < 1:
            raise UserError(f"{name} = {number} is less than 1")


def _check_choices(weighting: str, start: str, any_kind: bool) -> None:
    for name, value, known in (
        ("weighting", weighting, ("uniform", "recency")),
        ("start", start, ("profile", "empty")),
    ):
        if value not in known:
            raise UserError(f"{name} = {value!r} is none of {', '.join(known)}")
    if not any_kind:
        raise UserError("patterns and alerts are both off; leave one of them on")
