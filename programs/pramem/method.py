"""PraMem: a user's own records are practised on beforehand, and what practice teaches is the memory.

    write    records and profile join the memory; no LM call
    settle   80 rounds of trial, reflection and review; every 5 rounds what several proposals support becomes experience
    recall   all patterns and alerts; the task adds the newest records as they are

Equations to functions (Li et al., "PraMem: Practice-derived Experiential Memory for Long-horizon Behavior Prediction"):
    Eq. 2  M_t = Practice(H_t, M_t')       `PraMem.settle`; the suffix: `BehaviorPrediction.suffix`
    Eq. 3  practice samples, trial         `samples.draw`, `practice.tried`
    Eq. 4  reflection, proposal pool       `practice.practise`, `ExperienceMemory.after_round`
    Eq. 5  consensual adjustment           `consensus.adjust`, `adjustment.adjusted`
    Eq. 6  groundedness review             `review.perturbations`, `review.reviewed`
    Eq. 7  generalizability review         `review.virtual_scenes`, `review.reviewed`

Critical path: 5 calls per `adjust_every` rounds (trial, reflection, two reviews, adjustment), 80 for 80 rounds, where
496 would follow one another. Rounds between two adjustments see the same experience and are independent, so they run at
the same time; they join the memory in order, and the result is that of `parallel=False`. Then 1 answer.

t' stays where it is during a run and moves to the end of the records with it: records that come later continue the
practice, older ones are never practised again. `python perf/pramem_parallel.py` measures both.

Deviations: samples are drawn without replacement, so there are no more rounds than records; a sample shows no later
record; consensus is checked by code; reviews reject what has no clear verdict; no model is asked to adjust a pool that
is too small for any change, or to which the last rounds added nothing. The rest is in `docs/coverage.md`.

Example:
    >>> program = build("pramem", task="behavior-prediction", rounds=20)
    >>> program.remember(history).memory.experiences[0].text
    'This user watches outdoor streams to the end.'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, ClassVar, Literal, TypeVar

import dspy

from ...errors import UserError
from ...memory.index import Index
from ...memory.sparse import SparseIndex
from ...records import Behavior, Context, Hit, Item, Profile, estimate_tokens
from ...signatures.pramem import (
    AdjustExperience,
    PractiseAtOnce,
    PractiseWithExperience,
    ProposeAtOnce,
    ReflectOnPractice,
)
from ...signatures.pramem_review import (
    JudgeGenerality,
    JudgeGroundedness,
    JudgeOnRewritten,
    PickScene,
    PlanPerturbations,
    RewriteActions,
    WriteScenes,
)
from ..gather import gather
from ..method import Method
from ..predictor import predictor
from .answer import ExperiencedPrediction
from .consensus import adjust
from .memory import COMMON_BIASES, ExperienceMemory, Kind
from .practice import practise
from .samples import Sample, Weighting, draw

T = TypeVar("T")


class PraMem(Method):
    """Practises on a user's records and recalls what practice has taught.

    Args:
        rounds: The most practice rounds of a run.
        samples: Practice samples per round (q); each is tried, reflected on and reviewed on its own.
        adjust_every: Rounds between two adjustments (T); the last rounds of a run are followed by one too.
        proposals: The most proposals of one reflection (n).
        virtual_scenes: Scenes beside the true one (m).
        perturbations: Perturbations per sample.
        practice_tokens: Most tokens of records before a practised one.
        predict_tokens: Most tokens of the newest records beside the question.
        weighting: How records are drawn: all alike, or the later the likelier (quadratic, as the released code does).
        start: "profile": patterns from the profile and alerts about common biases; "empty", as the released code does.
        min_history: Records that come before any practised one (released code; the paper gives none).
        execute_perturbation: Perturbed records are written and judged (Eq. 6) instead of described (Figure 10).
        blind: The true scene must be found among all (Eq. 7) instead of being named (Figure 11).
        groundedness: Review proposals for groundedness (Figure 6).
        generalizability: Review proposals for generality (Figure 6).
        patterns: Keep patterns (Figure 5).
        alerts: Keep alerts (Figure 5).
        deep_thinking: Trials name what bears on them and reason before they predict (Table 2).
        reflection: Proposals come from reflection on thinking and outcome, not from the outcome alone (Table 2).
        consensus: Only what several proposals support is adopted, not all of them (Table 2).
        seed: What samples, and shuffled scenes, are drawn with.
        parallel: Run what is independent at the same time; the memory is the same without.
    """

    Memory = ExperienceMemory
    continues = True
    writing = (
        *("trial", "reflect", "plan", "rewrite", "judge_groundedness"),
        *("write_scenes", "judge_generality", "adjust"),
    )
    tasks: ClassVar[dict[str, type[dspy.Module]]] = {"behavior-prediction": ExperiencedPrediction}

    def __init__(
        self,
        rounds: int = 80,
        samples: int = 1,
        adjust_every: int = 5,
        proposals: int = 10,
        virtual_scenes: int = 7,
        perturbations: int = 1,
        practice_tokens: int = 12_000,
        predict_tokens: int = 8_000,
        weighting: Weighting = "uniform",
        start: Literal["profile", "empty"] = "profile",
        min_history: int = 10,
        execute_perturbation: bool = False,
        blind: bool = False,
        groundedness: bool = True,
        generalizability: bool = True,
        patterns: bool = True,
        alerts: bool = True,
        deep_thinking: bool = True,
        reflection: bool = True,
        consensus: bool = True,
        seed: int = 0,
        parallel: bool = True,
    ) -> None:
        super().__init__()
        _check_settings(rounds, samples, adjust_every, proposals, virtual_scenes, perturbations, min_history)
        _check_choices(weighting, start, patterns or alerts)
        self.rounds = rounds
        self.samples = samples
        self.adjust_every = adjust_every
        self.proposals = proposals
        self.virtual_scenes = virtual_scenes
        self.perturbations = perturbations
        self.practice_tokens = practice_tokens
        self.predict_tokens = predict_tokens
        self.weighting: Weighting = weighting
        self.start = start
        self.min_history = min_history
        self.execute_perturbation = execute_perturbation
        self.blind = blind
        self.groundedness = groundedness
        self.generalizability = generalizability
        self.patterns = patterns
        self.alerts = alerts
        self.deep_thinking = deep_thinking
        self.reflection = reflection
        self.consensus = consensus
        self.seed = seed
        self.parallel = parallel
        self._make_predictors()

    trial: dspy.Predict
    reflect: dspy.Predict
    plan: dspy.Predict
    rewrite: dspy.Predict
    judge_groundedness: dspy.Predict
    write_scenes: dspy.Predict
    judge_generality: dspy.Predict
    adjust: dspy.Predict

    def _make_predictors(self) -> None:
        """Makes the prompts that the settings use, and no others: an optimizer would tune them in vain."""
        self.trial = predictor(PractiseWithExperience if self.deep_thinking else PractiseAtOnce)
        self.reflect = predictor(ReflectOnPractice if self.reflection else ProposeAtOnce)
        if self.groundedness:
            self.plan = predictor(PlanPerturbations)
            self.judge_groundedness = predictor(JudgeOnRewritten if self.execute_perturbation else JudgeGroundedness)
        if self.groundedness and self.execute_perturbation:
            self.rewrite = predictor(RewriteActions)
        if self.generalizability:
            self.write_scenes = predictor(WriteScenes)
            self.judge_generality = predictor(PickScene if self.blind else JudgeGenerality)
        if self.consensus:
            self.adjust = predictor(AdjustExperience)

    @property
    def off(self) -> tuple[Kind, ...]:
        """Kinds of experience that are switched off."""
        kept: dict[Kind, bool] = {"pattern": self.patterns, "alert": self.alerts}
        return tuple(kind for kind, on in kept.items() if not on)

    def writers(self) -> dict[str, dspy.Predict]:
        """The writing predictors that the settings use, by attribute name."""
        return {name: getattr(self, name) for name in self.writing if hasattr(self, name)}

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Runs calls that do not depend on one another, at the same time or in order."""
        return gather(calls) if self.parallel else [call() for call in calls]

    def write(self, memory: ExperienceMemory, item: Item, prepared: Any = None) -> ExperienceMemory:
        """Takes behaviour records, which then wait for practice, or a profile; other items change nothing."""
        if isinstance(item, Behavior):
            return memory.with_records(item.actions)
        if not isinstance(item, Profile):
            return memory
        memory = memory.with_profile(item.turns)
        if self.start == "empty" or not self.patterns:
            return memory
        return memory.with_entries("pattern", [(turn.content, (turn.id,)) for turn in item.turns])

    def settle(self, memory: ExperienceMemory) -> ExperienceMemory:
        """Practises on the records that wait; nothing happens where none do."""
        if not memory.waiting:
            return memory
        memory = memory if memory.snapshots else self._begun(memory)
        drawn = draw(
            memory, self.rounds, self.samples, self.practice_tokens, self.weighting, self.min_history, self.seed
        )
        first = memory.rounds
        for _, batch in groupby(drawn, key=lambda sample: (sample.round - first - 1) // self.adjust_every):
            memory = self._practised(memory, list(batch))
        return memory.covered(self.practice_tokens)

    def search(
        self, memory: ExperienceMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return self.index(memory).search(queries, k, 0.0 if min_score is None else min_score)

    def recall(self, memory: ExperienceMemory, query: str, **hints: Any) -> Context:
        """All experience, what shares words with the query first; proposals are not shown."""
        entries = memory.experiences
        found = self.search(memory, [query], max(1, len(entries)))[0]
        known = {hit.id for hit in found}
        rest = [part.entry().hit(0.0) for part in entries if part.id not in known]
        tokens = sum(estimate_tokens(part.line()) for part in entries)
        counts = {"patterns": len(memory.patterns), "alerts": len(memory.alerts), "tokens": tokens}
        return Context(hits=(*found, *rest), counts=counts)

    def build_index(self, memory: ExperienceMemory) -> Index:
        index = SparseIndex()
        index.add(part.entry() for part in memory.experiences)
        return index

    def answering(self, task: str) -> dspy.Module:
        """The task with PraMem's own prompt and its budget of newest records."""
        return ExperiencedPrediction(self.predict_tokens)

    def _begun(self, memory: ExperienceMemory) -> ExperienceMemory:
        if self.start == "profile" and self.alerts:
            memory = memory.with_entries("alert", [(text, ()) for text in COMMON_BIASES])
        return memory.snapped(0)

    def _practised(self, memory: ExperienceMemory, batch: list[Sample]) -> ExperienceMemory:
        """The memory after the rounds between two adjustments, and the adjustment."""
        before = memory
        outcomes = self.run([lambda sample=sample: practise(self, before, sample) for sample in batch])
        for outcome in outcomes:
            memory = memory.after_round(outcome.round, outcome.accepted)
        if any(outcome.accepted for outcome in outcomes):
            memory = adjust(self, memory)
        return memory.snapped(batch[-1].round)


def _check_settings(*numbers: int) -> None:
    names = ("rounds", "samples", "adjust_every", "proposals", "virtual_scenes", "perturbations", "min_history")
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
