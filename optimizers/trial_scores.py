"""Score a program with one set of settings, for the optimizer `settings`.

There are two scorers. An `AnswerScorer` lets the program answer the training questions, and scores
its answers by the benchmark's metric. A `RecallScorer` asks for no answers: it only looks up what
is recalled for each question, and scores that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dspy

from ..data.support import SUPPORT
from ..data.text_metrics import evidence_recall
from ..errors import MempilerError, UserError
from ..programs.identity import writer_digest
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

_MILLISECONDS_PER_SECOND = 1000


@dataclass(frozen=True)
class TrialScores:
    """The score and the costs of a program, each a mean over the questions."""

    score: float
    """From 0 to 1; a question that failed counts as 0."""
    n: int
    """The number of questions."""
    context_tokens: float
    """Tokens of what was recalled for a question."""
    search_milliseconds: float | None = None
    """Clock time of the searches for a question; None if the program answered the questions."""

    def cost(self, name: str) -> float:
        """Return a cost by its name: "context_tokens" or "search_milliseconds"."""
        costs = {
            "context_tokens": self.context_tokens,
            "search_milliseconds": self.search_milliseconds,
        }
        cost = costs[name]
        # `SettingsSearch.check_requirements` refuses to minimize a time that is not measured.
        assert cost is not None, f"{name} was not measured"
        return float(cost)


class AnswerScorer:
    """Scores the answers of a program by the benchmark's metric, as other optimizers do.

    Args:
        job: The questions and the metric.
    """

    def __init__(self, job: OptimizerJob) -> None:
        self.original_program = job.student
        """The program whose settings are tuned."""
        self._job = job

    def score(self, program: MemoryProgram) -> TrialScores:
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
    """Scores what a program recalls, without asking it for an answer.

    Args:
        original_program: The program whose settings are tuned. It recalls and does not answer.
        examples: The questions.
        metric: Scores what was recalled for a question.
    """

    def __init__(
        self,
        original_program: MemoryProgram,
        examples: Sequence[dspy.Example],
        metric: RecallMetric,
    ) -> None:
        self.original_program = original_program
        self._examples = examples
        self._metric = metric
        self._memories: list[CachedMemory] = []
        """The memory of each question, written by the last program that was scored."""
        self._digest_of_writer = ""
        """Tells the writer of these memories from writers with other settings."""

    def score(self, program: MemoryProgram) -> TrialScores:
        """Let a program recall for all questions, one after the other, and score the results."""
        scores: list[float] = []
        tokens: list[int] = []
        milliseconds: list[float] = []
        for example, memory in zip(self._examples, self._memories_of(program), strict=True):
            with recording() as recorder:
                prediction = self._recall_or_none(program, example, memory)
            score = 0.0 if prediction is None else self._metric(example, prediction)
            scores.append(score)
            tokens.append(_context_tokens(prediction))
            milliseconds.append(_search_milliseconds(recorder))

        return TrialScores(_mean(scores), len(scores), _mean(tokens), _mean(milliseconds))

    def _memories_of(self, program: MemoryProgram) -> list[CachedMemory]:
        """Return the memory of each question, as the program writes it.

        Programs that write alike share their memories.
        """
        digest = writer_digest(program.method.writer)
        if digest != self._digest_of_writer:
            # `remember` writes a history with several questions once.
            memories = [program.remember(program.history_of(example)) for example in self._examples]
            self._memories = memories
            self._digest_of_writer = digest
        return self._memories

    def _recall_or_none(
        self, program: MemoryProgram, example: dspy.Example, memory: CachedMemory
    ) -> dspy.Prediction | None:
        """Return what a program recalls for a question, or None if its method raises an error.

        Raises:
            MempilerError: The search cannot continue, for instance because a limit was reached.
        """
        try:
            return program(**example.inputs(), remembered=memory)
        except MempilerError:
            raise
        except Exception:
            # A method of the user's may raise anything. Only this question fails, and counts as 0.
            return None


ProgramScorer = AnswerScorer | RecallScorer
"""Scores copies of the original program that have other settings."""


def recalled_evidence(example: dspy.Example, prediction: dspy.Prediction) -> float:
    """Return the share of a question's gold evidence that was recalled."""
    context: Context = prediction.context
    recalled_ids = context.without_fallback().evidence
    return evidence_recall(example.evidence_ids, [recalled_ids], k=1) or 0.0


def make_scorer(job: OptimizerJob, objective: str) -> ProgramScorer:
    """Return the scorer for an objective of the optimizer.

    Args:
        job: The program, the training questions and the metric.
        objective: "metric", "evidence_recall" or "support".

    Raises:
        UserError: The training questions lack what the objective needs.
    """
    benchmark = job.metric_views.benchmark
    if objective == "metric" and benchmark.scorer.needs_answer:
        return AnswerScorer(job)

    program = job.student.recalling_only()
    if objective == "metric":
        return RecallScorer(program, job.train, job.metric_views.score)

    if objective == "evidence_recall":
        examples = [example for example in job.train if example.get("evidence_ids")]
        if not examples:
            raise UserError(
                "objective = 'evidence_recall': no training question names its evidence; "
                "choose 'support' or 'metric'"
            )
        return RecallScorer(program, examples, recalled_evidence)

    support = benchmark.make_scorer(SUPPORT)
    examples = [example for example in job.train if support.in_headline(example)]
    if not examples:
        raise UserError(
            "objective = 'support': no training question has a gold answer with words; "
            "choose 'metric'"
        )

    def score_support(example: dspy.Example, prediction: dspy.Prediction) -> float:
        return float(support.score(example, prediction).value)

    return RecallScorer(program, examples, score_support)


def _context_tokens(prediction: dspy.Prediction | None) -> int:
    """Return the tokens of what was recalled for a question; 0 if the question failed."""
    if prediction is None:
        return 0
    context: Context | None = prediction.get("context")
    if context is None:
        return 0
    return estimate_tokens(context.text())


def _search_milliseconds(recorder: CallRecorder) -> float:
    """Return the clock time of all searches that were recorded."""
    seconds = sum(search.wall for search in recorder.searches)
    return _MILLISECONDS_PER_SECOND * seconds


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)
