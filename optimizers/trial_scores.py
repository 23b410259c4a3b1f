"""Score a program with one set of settings, for the optimizer `settings`.

There are two ways. A `RecallScorer` lets the program recall and asks no model to answer; an
`AnswerScorer` lets it answer, and scores by the benchmark's metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import dspy

from ..data.support import SUPPORT
from ..data.text_metrics import evidence_recall
from ..errors import MempilerError, UserError
from ..programs.recording import recording
from ..records import Context, estimate_tokens
from .job import MAX_ERRORS

if TYPE_CHECKING:
    from ..programs.cache import CachedMemory
    from ..programs.call_recorder import CallRecorder
    from ..programs.program import MemoryProgram
    from .job import OptimizerJob

RecallMetric = Callable[[dspy.Example, dspy.Prediction], float]
"""Scores what was recalled for a question, from 0 to 1."""

_MILLISECONDS = 1000


@dataclass(frozen=True)
class TrialScores:
    """What a program reached and what it cost, each a mean over the questions."""

    score: float
    """From 0 to 1; a question that failed counts as 0."""
    n: int
    """How many questions there were."""
    context_tokens: float
    """Tokens of what was recalled for a question."""
    search_milliseconds: float | None = None
    """Time of the searches for a question, by the clock; None if it was not measured."""


class ProgramScorer(Protocol):
    """Scores programs that differ in their settings on the same questions."""

    start: MemoryProgram
    """The program whose settings are tuned."""

    def score(self, program: MemoryProgram, writes_memories: bool) -> TrialScores:
        """Score a program.

        Args:
            program: The program.
            writes_memories: Whether its memories may differ from those of the start.
        """
        ...


class AnswerScorer:
    """Scores answers by the benchmark's metric, as other optimizers do.

    Args:
        job: The questions and the metric.
    """

    def __init__(self, job: OptimizerJob) -> None:
        self.start = job.student
        self._job = job

    def score(self, program: MemoryProgram, writes_memories: bool) -> TrialScores:
        """Let a program answer all training questions, and score the answers."""
        evaluate = dspy.Evaluate(
            devset=list(self._job.train),
            metric=self._job.metric_views.score,
            num_threads=self._job.threads,
            max_errors=MAX_ERRORS,
        )
        result: Any = evaluate(program)
        tokens = [_context_tokens(prediction) for _, prediction, _ in result.results]
        # `dspy.Evaluate` returns percent.
        return TrialScores(result.score / 100, len(tokens), _mean(tokens))


class RecallScorer:
    """Scores what is recalled, without asking for an answer.

    Args:
        start: The program whose settings are tuned. It does not answer.
        examples: The questions.
        metric: Scores what was recalled for one of them.
        measures_time: Whether the searches are timed.
    """

    def __init__(
        self,
        start: MemoryProgram,
        examples: Sequence[dspy.Example],
        metric: RecallMetric,
        measures_time: bool = False,
    ) -> None:
        self.start = start
        self._examples = examples
        self._metric = metric
        self._measures_time = measures_time
        self._memories: list[CachedMemory] | None = None
        """The memory of the start for each question, once it is needed."""

    def score(self, program: MemoryProgram, writes_memories: bool) -> TrialScores:
        """Let a program recall for all questions, one after the other, and score that."""
        memories = self._write_memories(program) if writes_memories else self._start_memories()
        scores: list[float] = []
        tokens: list[int] = []
        milliseconds: list[float] = []
        for example, memory in zip(self._examples, memories, strict=True):
            if self._measures_time:
                with recording() as recorder:
                    prediction = self._recall(program, example, memory)
                milliseconds.append(_search_milliseconds(recorder))
            else:
                prediction = self._recall(program, example, memory)
            score = 0.0 if prediction is None else self._metric(example, prediction)
            scores.append(score)
            tokens.append(_context_tokens(prediction))

        time = _mean(milliseconds) if self._measures_time else None
        return TrialScores(_mean(scores), len(scores), _mean(tokens), time)

    def _start_memories(self) -> list[CachedMemory]:
        if self._memories is None:
            self._memories = self._write_memories(self.start)
        return self._memories

    def _write_memories(self, program: MemoryProgram) -> list[CachedMemory]:
        """Return the memory of each question; histories with several are written once."""
        return [program.remember(program.history_of(example)) for example in self._examples]

    def _recall(
        self, program: MemoryProgram, example: dspy.Example, memory: CachedMemory
    ) -> dspy.Prediction | None:
        """Return what is recalled for a question; None if recalling failed.

        Raises:
            MempilerError: The optimizer cannot go on, for instance because a limit was reached.
        """
        try:
            return program(**example.inputs(), remembered=memory)
        except MempilerError:
            raise
        except Exception:
            # The code of the user's method, or an answer that a model gave to it.
            return None


def recalled_evidence(example: dspy.Example, prediction: dspy.Prediction) -> float:
    """Return the share of a question's gold evidence that was recalled."""
    context: Context = prediction.context
    recalled_ids = context.without_fallback().evidence
    return evidence_recall(example.evidence_ids, [recalled_ids], k=1) or 0.0


def make_scorer(job: OptimizerJob, objective: str, measures_time: bool = False) -> ProgramScorer:
    """Return what scores the programs of a job.

    Args:
        job: The job.
        objective: "metric", "evidence_recall" or "support".
        measures_time: Whether searches are timed, where no answer is asked for.

    Raises:
        UserError: The training questions lack what the objective needs.
    """
    benchmark = job.metric_views.benchmark
    if objective == "metric" and benchmark.scorer.needs_answer:
        return AnswerScorer(job)

    student = job.student.recalling_only()
    if objective == "metric":
        return RecallScorer(student, job.train, job.metric_views.score, measures_time)

    if objective == "evidence_recall":
        examples = [example for example in job.train if example.get("evidence_ids")]
        if not examples:
            raise UserError(
                "objective = 'evidence_recall': no training question names its evidence; "
                "choose 'support' or 'metric'"
            )
        return RecallScorer(student, examples, recalled_evidence, measures_time)

    support = benchmark.make_scorer(SUPPORT)
    examples = [example for example in job.train if support.in_headline(example)]
    if not examples:
        raise UserError(
            "objective = 'support': no training question has a gold answer with words; "
            "choose 'metric'"
        )

    def score_support(example: dspy.Example, prediction: dspy.Prediction) -> float:
        return float(support.score(example, prediction).value)

    return RecallScorer(student, examples, score_support, measures_time)


def _context_tokens(prediction: dspy.Prediction | None) -> int:
    """Return the tokens of what was recalled for a question; 0 if it failed."""
    context: Context | None = None if prediction is None else prediction.get("context")
    return 0 if context is None else estimate_tokens(context.text())


def _search_milliseconds(recorder: CallRecorder) -> float:
    return _MILLISECONDS * sum(search.wall for search in recorder.searches)


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)
