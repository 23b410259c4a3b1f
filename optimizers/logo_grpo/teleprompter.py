"""LoGo-GRPO: trains the language model of a program's writing predictors by reinforcement learning.

    stage (horizon) ── steps ──> Collector: rollouts, reruns, groups ──> Trainer: one update
                       every validate_every steps: score on whole validation histories, checkpoint, journal
    next stage begins from the best checkpoint of this stage, with a new optimizer and that as reference of the KL term;
    the best of the last stage is kept

Each stage chooses among its own checkpoints: a model of short conversations may score as well on the validation
users, and would otherwise be returned whatever the later stages learn. The start counts as a checkpoint of the first
stage. The best is the one whose sampled score is highest, averaged over `samples` samples of each validation history:
that is what is trained. Every writing predictor is a role with groups of its own. Deviations from the released code
are listed in docs/coverage.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dspy
from dspy.teleprompt.bootstrap_finetune import FinetuneTeleprompter

from ...data.dataset import questions_after
from ...errors import UserError
from ...programs.program import MemoryProgram
from ...records import History
from .collect import Collector, QuestionsAfter
from .journal import Best, Journal, Progress
from .policy import by_history, score_policy
from .reward import Metric, released_f1
from .rollout import single_attempt
from .settings import TrainingSettings
from .trainer import Trainer

QuestionFilter = Callable[[History, int, Sequence[dspy.Example]], Sequence[dspy.Example]]
"""Which of the questions about a history can be asked after so many of its sessions."""
InHeadline = Callable[[dspy.Example], bool]
"""Whether a question is part of the headline score."""
OnRow = Callable[[Mapping[str, Any]], None]
"""Told every row: of a step its numbers, of a validation its score."""


class LoGoGRPO(FinetuneTeleprompter):
    """Reinforcement learning of memory operations with global and local groups.

    Args:
        metric: Scores an answer, 0 to 1.
        settings: See `TrainingSettings`.
        train_kwargs: What the model's provider is told: learning rate, KL weight, ...
        questions: Which questions can be asked after so many sessions of a history; those whose evidence has been said
            if None.
        reader: The language model that answers; the trained one at temperature 0 if None. Tasks that answer by code
            ask neither.
        folder: Keeps the journal, checkpoints, and at the end the model itself under `model`; with one, a killed
            training resumes at its last checkpoint.
        note: Called with the row of every step and validation.
        counts: Whether a question is rewarded and validated on: a benchmark's `in_headline`. LoCoMo's adversarial
            questions would reward an empty memory.
    """

    def __init__(
        self,
        metric: Metric,
        settings: TrainingSettings | None = None,
        train_kwargs: Mapping[str, Any] | None = None,
        questions: QuestionFilter | None = None,
        reader: Any = None,
        folder: Path | None = None,
        note: OnRow = lambda row: None,
        counts: InHeadline = lambda example: True,
    ) -> None:
        super().__init__(train_kwargs=dict(train_kwargs or {}))
        self.settings = settings or TrainingSettings()
        self.metric: Metric = released_f1 if self.settings.reward.metric == "released" else metric
        self.questions, self.reader, self.folder = questions, reader, folder
        self.note, self.counts = note, counts
        self.progress = Progress()
        """What the last compile did: its rows, its best checkpoint, why it stopped."""

    def compile(  # pyright: ignore[reportIncompatibleMethodOverride]  # as DSPy's own subclasses do
        self,
        student: Any,
        *,
        trainset: Sequence[dspy.Example],
        teacher: Any = None,
        valset: Sequence[dspy.Example] | None = None,
    ) -> Any:
        """Trains the student's language model, under the adapter of the context.

        Args:
            student: The program; only its writing predictors are trained, and it is not changed itself.
            trainset: Questions with answers; their histories are the training conversations.
            teacher: Not taken: rollouts come from the student alone.
            valset: Questions that choose the checkpoint; without them the last one is kept.

        Returns:
            A copy of the student. Its language model now has the weights of the last stage's best checkpoint.

        Raises:
            UserError: There is nothing to train, on, or with.
        """
        if teacher is not None:
            raise UserError("LoGo-GRPO takes no teacher: its rollouts come from the student alone")
        if not isinstance(student, MemoryProgram):
            raise UserError(f"{type(student).__name__} cannot be trained: LoGo-GRPO takes a MemoryProgram")
        lm = single_lm(student)
        trainset, valset = self._counted(trainset), self._counted(valset or ())
        histories = [history for history, _ in by_history(trainset) if len(history)]
        if not histories:
            raise UserError("there is no training history with a session; raise --train")
        if not student.method.writer.predictors_below():
            raise UserError(f"{student.name} writes without a language model, so there is nothing to train")
        kwargs = dict(self.train_kwargs[lm])
        decisive = {name: value for name, value in asdict(self.settings).items() if name != "threads"}
        journal = Journal(self.folder, {**decisive, "train_kwargs": kwargs})
        self.progress = journal.read()
        trainer = Trainer(lm, kwargs, self.settings, self.folder)
        questions = _asked(trainset, self.questions or _by_evidence, self.counts)
        collector = Collector(student, histories, questions, self.metric, self.settings)
        run = _Run(self, student, lm, trainer, collector, journal, valset, self.settings)
        try:
            with dspy.context(adapter=single_attempt(student), trace=None, disable_history=True):
                self.progress = run.train(self.progress)
        finally:
            trainer.close()
        return student.deepcopy()

    def _counted(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        found = [example for example in examples if self.counts(example)]
        if examples and not found:
            raise UserError(
                f"none of {len(examples)} questions to train or validate on counts for the score; raise --train or "
                "--dev, or widen --categories"
            )
        return found


@dataclass(frozen=True)
class _Run:
    """One compile: the loop, with everything it needs."""

    owner: LoGoGRPO
    student: MemoryProgram
    lm: Any
    trainer: Trainer
    collector: Collector
    journal: Journal
    valset: Sequence[dspy.Example]
    settings: TrainingSettings

    def train(self, progress: Progress) -> Progress:
        curriculum = self.settings.curriculum
        stages = curriculum.stages(max(map(len, self.collector.histories)))
        if progress.stage_start is None:
            progress = self._checked(progress)
        else:
            self.trainer.begin_stage(progress.stage_start)
            if progress.checkpoint not in (None, progress.stage_start):
                self.trainer.job.load_checkpoint(progress.checkpoint)
        while not progress.done:
            ended = curriculum.ended(progress.stage, len(stages), progress.stage_steps, progress.tokens)
            if ended or progress.stopped:
                progress = self._next_stage(progress, len(stages))
                continue
            progress = self._step(progress, stages[progress.stage])
            if progress.stopped is None and progress.stage_steps % self.settings.validate_every == 0:
                progress = self._checked(progress)
        if progress.best is not None:
            self.trainer.job.load_checkpoint(progress.best.checkpoint)
        elif self.valset and progress.checkpoint is not None:
            # The last stage ended before its first validation: back to where it began.
            self.trainer.job.load_checkpoint(progress.checkpoint)
        return progress

    def _step(self, progress: Progress, horizon: int) -> Progress:
        started, number = time.perf_counter(), progress.step + 1
        policy = uncached_lm(self.lm, temperature=self.settings.temperature)
        reader = self.owner.reader if self.owner.reader is not None else uncached_lm(self.lm)
        batch = self.collector.collect(number, horizon, policy, reader)
        losses = self.trainer.train(batch.groups)
        row = {"step": number, "stage": progress.stage, "horizon": horizon, **batch.numbers}
        row |= {f"train_{name}": value for name, value in losses.items()}
        row["seconds"] = time.perf_counter() - started
        self.owner.note(row)
        progress = replace(
            progress.with_row(**row),
            step=number,
            stage_steps=progress.stage_steps + 1,
            tokens=progress.tokens + int(row["tokens"]),
        )
        return replace(progress, stopped=self._collapsed(progress))

    def _checked(self, progress: Progress) -> Progress:
        if progress.saved_step == progress.step:
            return progress
        name = self.trainer.save(f"step-{progress.step}")
        start = progress.stage_start or name
        before, progress = progress, replace(progress, checkpoint=name, saved_step=progress.step, stage_start=start)
        if self.valset:
            row = {"step": progress.step, **self._validated()}
            self.owner.note(row)
            new = Best(progress.step, row["validation"], name)
            progress = replace(progress.with_row(**row), best=_better(progress.best, new))
        return self._kept(before, progress)

    def _validated(self) -> dict[str, float]:
        """How good the weights are now, on the questions that choose a checkpoint."""
        what: Any = (self.student, self.valset, self.owner.metric, uncached_lm(self.lm))
        how: Any = {"name": "validate", "threads": self.settings.threads, "reader": self.owner.reader}
        score = partial(score_policy, *what, **how)
        greedy = score(temperature=0.0)
        sampled = score(temperature=self.settings.temperature, samples=self.settings.samples)
        return {
            "validation": sampled.score,
            "validation_greedy": greedy.score,
            "validation_failures": sampled.counts.format_failures,
        }

    def _next_stage(self, progress: Progress, stages: int) -> Progress:
        if progress.stopped is None:
            progress = self._checked(progress)
        if progress.stage + 1 >= stages or progress.stopped is not None:
            return self._kept(progress, replace(progress, done=True))
        start = progress.best.checkpoint if progress.best else str(progress.checkpoint)
        self.trainer.begin_stage(start)
        next_stage = replace(
            progress, stage=progress.stage + 1, stage_steps=0, checkpoint=start, stage_start=start, best=None
        )
        return self._kept(progress, next_stage)

    def _collapsed(self, progress: Progress) -> str | None:
        shares = [row["format_failures"] for row in progress.rows if "format_failures" in row]
        recent = shares[-self.settings.window :]
        mean = sum(recent) / len(recent)
        limit = max(self.settings.max_format_failures, 2 * shares[0])
        if len(recent) < self.settings.window or mean <= limit:
            return None
        return f"format collapse: {mean:.0%} of the completions of the last {len(recent)} steps could not be read"

    def _kept(self, before: Progress, progress: Progress) -> Progress:
        """Writes the journal, then drops the checkpoints that it no longer names."""
        self.journal.write(progress)
        for name in _checkpoints(before) - _checkpoints(progress):
            self.trainer.drop(name)
        return progress


def single_lm(program: MemoryProgram) -> Any:
    """The one language model of a program's writing predictors.

    Raises:
        UserError: There is none, or there are several.
    """
    found = {id(lm): lm for lm in (p.lm or dspy.settings.lm for p in program.method.writer.predictors_below().values())}
    lms = list(found.values()) or [dspy.settings.lm]
    if len(lms) > 1:
        raise UserError("the writing predictors have several language models; they can only share the one that learns")
    if lms[0] is None:
        raise UserError("no language model is set; run under dspy.context(lm=...)")
    return lms[0]


def uncached_lm(lm: Any, temperature: float = 0.0) -> Any:
    """A copy of a language model that bypasses caches and answers of earlier runs."""
    changes = {"answers": None} if hasattr(lm, "answers") else {}
    return lm.copy(temperature=temperature, cache=False, **changes)


def _checkpoints(progress: Progress) -> set[str]:
    named = {progress.checkpoint, progress.stage_start, progress.best and progress.best.checkpoint}
    return {name for name in named if name is not None}


def _better(old: Best | None, new: Best) -> Best:
    # Of equals the later one: with few questions scores tie, and sampling sharpens all the while.
    return new if old is None or new.score >= old.score else old


def _asked(trainset: Sequence[dspy.Example], can_be: QuestionFilter, counts: InHeadline) -> QuestionsAfter:
    """What can be asked of the training questions, and when; of those that a benchmark makes up, what counts."""
    asked = dict(by_history(trainset))

    def questions(history: History, sessions: int) -> Sequence[dspy.Example]:
        return [example for example in can_be(history, sessions, asked.get(history, ())) if counts(example)]

    return questions


def _by_evidence(history: History, sessions: int, examples: Sequence[dspy.Example]) -> Sequence[dspy.Example]:
    return questions_after(examples, history, sessions)
