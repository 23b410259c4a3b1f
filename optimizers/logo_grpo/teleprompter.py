"""LoGo-GRPO as DSPy knows optimizers: it compiles a program into a better one.

"Teleprompter" is DSPy's older word for optimizer. This one does not change prompts: it trains the
language model of the predictors that write memories.

    optimizer = LoGoGRPO(metric, TrainingSettings(num_rollouts=8), folder=Path("training"))
    with dspy.context(lm=lm):
        trained = optimizer.compile(program, trainset=train, valset=dev)
    optimizer.progress.rows         # the numbers of every step

docs/coverage.md lists where it differs from the released code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import dspy
from dspy.teleprompt.bootstrap_finetune import FinetuneTeleprompter

from ...data.dataset import questions_after
from ...errors import UserError
from ...programs.program import MemoryProgram
from ...records import History
from .collect import Collector, QuestionsAfter
from .journal import Journal, Progress, Row
from .policy import questions_by_history
from .reward import Metric, released_f1
from .rollout import single_attempt
from .settings import TrainingSettings
from .trainer import Trainer
from .training_loop import OnRow, TrainingLoop

QuestionFilter = Callable[[History, int, Sequence[dspy.Example]], Sequence[dspy.Example]]
"""Returns those of the questions about a history that can be asked after so many sessions."""
InHeadline = Callable[[dspy.Example], bool]
"""Returns whether a question is part of the headline score."""


def _due_by_evidence(
    history: History, sessions: int, examples: Sequence[dspy.Example]
) -> Sequence[dspy.Example]:
    """Return the questions whose evidence has been said."""
    return questions_after(examples, history, sessions)


def _every_question(example: dspy.Example) -> bool:
    return True


def _ignore_row(row: Row) -> None:
    pass


class LoGoGRPO(FinetuneTeleprompter):
    """Reinforcement learning of memory operations, with global and local groups.

    Args:
        metric: Scores an answer, from 0 to 1.
        settings: The settings of the training.
        train_kwargs: The settings of the training job: learning rate, KL weight and so on.
        questions_after: Which questions can be asked after so many sessions of a history.
        reader: The language model that answers; the trained one at temperature 0 if None. Tasks
            that answer by code ask neither.
        folder: Keeps the journal, checkpoints, and at the end the model itself under `model`; with
            a folder, a killed training resumes at its last checkpoint.
        on_row: Called with the numbers of every step, and with the scores of every validation.
        in_headline: Whether a question counts for the score; others are neither rewarded nor
            validated on. LoCoMo's adversarial questions would reward an empty memory.
    """

    def __init__(
        self,
        metric: Metric,
        settings: TrainingSettings | None = None,
        train_kwargs: Mapping[str, Any] | None = None,
        questions_after: QuestionFilter = _due_by_evidence,
        reader: dspy.BaseLM | None = None,
        folder: Path | None = None,
        on_row: OnRow = _ignore_row,
        in_headline: InHeadline = _every_question,
    ) -> None:
        super().__init__(train_kwargs=dict(train_kwargs or {}))
        self.settings = settings or TrainingSettings()
        self.metric: Metric = metric
        if self.settings.reward.metric == "released":
            self.metric = released_f1
        self.questions_after = questions_after
        self.reader = reader
        self.folder = folder
        self.on_row = on_row
        self.in_headline = in_headline
        self.progress = Progress()
        """What the last `compile` did: its rows, its best checkpoint, why it stopped."""

    def compile(  # pyright: ignore[reportIncompatibleMethodOverride]  # as DSPy's own subclasses do
        self,
        student: dspy.Module,
        *,
        trainset: Sequence[dspy.Example],
        teacher: dspy.Module | None = None,
        valset: Sequence[dspy.Example] | None = None,
    ) -> MemoryProgram:
        """Train the student's language model, with the adapter of the context.

        Args:
            student: The program. Only its writing predictors are trained; it does not change.
            trainset: Questions with answers; their histories are the training conversations.
            teacher: Must be None: rollouts come from the student alone.
            valset: Questions that choose the checkpoint; without them the last one is kept.

        Returns:
            A copy of the student. Its language model now has the weights of the last stage's best
            checkpoint.

        Raises:
            UserError: There is nothing to train, to train on, or to train with.
        """
        if teacher is not None:
            raise UserError("LoGo-GRPO takes no teacher: its rollouts come from the student alone")
        if not isinstance(student, MemoryProgram):
            name = type(student).__name__
            raise UserError(f"{name} cannot be trained: LoGo-GRPO takes a MemoryProgram")

        lm = writing_lm(student)
        training_examples = self._headline_examples(trainset)
        validation_examples = self._headline_examples(valset or ())
        histories = training_histories(student, training_examples)

        train_kwargs: dict[str, Any] = dict(self.train_kwargs[lm])
        journal = Journal(self.folder, self._deciding_settings(train_kwargs))
        self.progress = journal.read()

        trainer = Trainer(lm, train_kwargs, self.settings, self.folder)
        loop = TrainingLoop(
            program=student,
            lm=lm,
            reader=self.reader,
            collector=Collector(
                student,
                histories,
                self._askable_training_questions(training_examples),
                self.metric,
                self.settings,
            ),
            trainer=trainer,
            journal=journal,
            validation_examples=validation_examples,
            settings=self.settings,
            on_row=self.on_row,
            progress=self.progress,
        )
        try:
            with dspy.context(adapter=single_attempt(student), trace=None, disable_history=True):
                loop.run()
            self.progress = loop.progress
        finally:
            trainer.end()
        return student.deepcopy()

    def _deciding_settings(self, train_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that decide the result: all but the number of threads."""
        settings = asdict(self.settings)
        del settings["threads"]
        return {**settings, "train_kwargs": train_kwargs}

    def _headline_examples(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Return the questions that count for the score."""
        headline_examples = [example for example in examples if self.in_headline(example)]
        if examples and not headline_examples:
            raise UserError(
                f"none of {len(examples)} questions to train or validate on counts for the score; "
                "raise --train or --dev, or widen --categories"
            )
        return headline_examples

    def _askable_training_questions(self, examples: Sequence[dspy.Example]) -> QuestionsAfter:
        """Return the function that tells what can be asked after so many sessions of a history."""
        questions = questions_by_history(examples)

        def askable_questions(history: History, sessions: int) -> list[dspy.Example]:
            all_questions = questions.get(history, [])
            askable = self.questions_after(history, sessions, all_questions)
            # A benchmark may add questions of its own here. As everywhere in a training, only those
            # are asked that are part of the headline score.
            return [example for example in askable if self.in_headline(example)]

        return askable_questions


def training_histories(program: MemoryProgram, examples: Sequence[dspy.Example]) -> list[History]:
    """Return the histories that a training of a program writes.

    Args:
        program: Its writing predictors are trained.
        examples: The questions to learn from that count for the score.

    Raises:
        UserError: There is no history to write, or the program writes without a language model.
    """
    histories = [history for history in questions_by_history(examples) if len(history)]
    if not histories:
        raise UserError("there is no training history with a session; raise --train")
    if not program.method.writer.predictors_below():
        raise UserError(
            f"{program.name} writes without a language model, so there is nothing to train"
        )
    return histories


def writing_lm(program: MemoryProgram) -> dspy.LM:
    """Return the language model that all writing predictors of a program share.

    Raises:
        UserError: The predictors have no model, or several different ones.
    """
    language_models: list[dspy.BaseLM | None] = []
    for predictor in program.method.writer.predictors_below().values():
        # As in DSPy, a predictor without a model of its own asks the one of `dspy.context`.
        lm = predictor.lm or dspy.settings.lm
        is_known = any(lm is known_lm for known_lm in language_models)
        if not is_known:
            language_models.append(lm)

    if len(language_models) > 1:
        raise UserError(
            "the writing predictors have several language models; they can only share the one "
            "that learns"
        )
    # A program without writing predictors cannot be trained. `training_histories` refuses it later,
    # with a better message than could be given here.
    lm = language_models[0] if language_models else dspy.settings.lm
    if lm is None:
        raise UserError("no language model is set; run under dspy.context(lm=...)")
    # The model need not be a `dspy.LM`. `Trainer` refuses models that cannot be trained.
    return cast("dspy.LM", lm)
