"""LongMemEval: questions about a user's many chats with an assistant, judged by type (Wu et al., ICLR 2025; MIT).

    longmemeval              all six types, the task "question-answering"
    longmemeval.preference   single-session-preference alone, the task "personal-response" (Mem-PAL, Table 4)

The genuine files are those of the hub sets xiaowu0162/longmemeval-cleaned (`longmemeval_oracle.json`,
`longmemeval_s_cleaned.json`, `longmemeval_m_cleaned.json`) and xiaowu0162/longmemeval, see `reader`. The
sample that is bundled is our own, in the same form.

An example holds `history`, `question`, `date` (when it is asked, as words), `focus` (inputs; the turns that hold the
answer), `answer`, `category` (the type), `evidence`, `answer_sessions`, `abstention` and `id` (labels).

Metrics: "judge" is the official one, one of five prompts a question (`signatures.judges_longmemeval`). "f1" asks no
model: token F1; a question without an answer scores 1 for a phrase that declines; preferences have only a rubric to be
measured by, so they are reported apart. Both print the mean over types, the mean over questions and, of the questions
that cannot be answered (which count in their types as well), theirs.

Retrieval, beside evidence recall by turns: recall_any, recall_all and NDCG of the evidence sessions, of the memory's
plain search, without the questions that cannot be answered.

Example:
    >>> benchmark = LongMemEval.load("longmemeval_s_cleaned.json", categories="knowledge-update", limit=10)
    >>> benchmark.examples[0].date
    '10 April 2023, Monday 23:07'

Honest limits: every question has a past of its own, so nothing is remembered twice and memories are written once per
question. An empty answer is wrong without asking the judge. Short answers suit five of the types; preferences want
`longmemeval.preference`. Sums are over the questions that were asked; the mean over types is over the types among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import dspy

from ...errors import DataError, UnknownNameError, UserError
from ...signatures.judges_longmemeval import ABSTENTION, JUDGES, JudgeStated, judges_hash
from ..benchmark import Benchmark, Score, Source, refuse_fatal
from ..confusion import Answered
from ..judge import AnyJudge, PromptJudge, Verdict
from ..samples import sample
from ..text_metrics import explain, squad_f1, squad_words
from .metrics import declines, mean, retrieval_metrics
from .reader import TYPES, file_of, read_longmemeval

METRICS: Mapping[str, str] = {"judge": "accuracy", "f1": "token F1"}
_COLUMNS = {"judge": "accuracy", "f1": "F1"}
PREFERENCE = "single-session-preference"
RETRIEVAL_AT = (5, 10)


class TypedJudge(AnyJudge, Protocol):
    """What answers are judged by."""

    def __call__(self, kind: str, question: str, gold_answer: str, answer: str) -> Verdict:
        """Judges one answer by the prompt of its type; may be called from many threads at once."""
        ...


class LongMemEvalJudge:
    """Asks the prompt of a question's type.

    Args:
        lm: The model that judges.
        adapter: How it is asked; DSPy's default if None.
    """

    def __init__(self, lm: Any, adapter: dspy.Adapter | None = None) -> None:
        self.lm = lm
        kinds = {
            kind: type(f"_{prompt.__name__}", (PromptJudge,), {"signature": prompt}) for kind, prompt in JUDGES.items()
        }
        self._prompts: dict[str, PromptJudge] = {kind: made(lm, adapter) for kind, made in kinds.items()}

    @property
    def hash(self) -> str:
        """Names all five prompts."""
        return judges_hash()

    def __call__(self, kind: str, question: str, gold_answer: str, answer: str) -> Verdict:
        """Judges one answer. An empty one is wrong without a call.

        Args:
            kind: One of `JUDGES`.
            question: What was asked.
            gold_answer: The answer, the rubric of a preference, or why there is no answer.
            answer: What is judged.

        Raises:
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        if not answer.strip():
            return Verdict(False, "no answer was given")
        gold = {PREFERENCE: "rubric", ABSTENTION: "explanation"}.get(kind, "gold_answer")
        found = self._prompts[kind].ask(question=question, answer=answer, **{gold: gold_answer})
        return Verdict(found.verdict == "yes")


class LongMemEval(Benchmark):
    """LongMemEval's question answering.

    Args:
        examples: The questions.
        source: Where they came from.
        metric: "judge" or "f1".
    """

    name = "longmemeval"
    judge_prompt = JudgeStated
    retrieval_depth: ClassVar[int] = 200
    types: ClassVar[tuple[str, ...]] = TYPES
    """The types that the benchmark asks."""

    def __init__(self, examples: Iterable[dspy.Example], source: Source, metric: str = "judge") -> None:
        super().__init__(tuple(examples), source)
        if metric not in METRICS:
            raise UnknownNameError("metric", metric, METRICS)
        self.metric = metric
        self.metric_name = METRICS[metric]
        self.needs_judge = metric == "judge"
        self.typed: TypedJudge | None = None
        """Who judges; set by `set_judge`, or by hand."""

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        metric: str = "judge",
        categories: str | Iterable[str] | None = None,
        limit: int | None = None,
        size: str | None = None,
        **options: Any,
    ) -> Self:
        """Reads the genuine file at `path`, or the bundled sample when it is None.

        Args:
            path: A file of longmemeval_s_cleaned.json's form, or the folder of the released files.
            metric: "judge" or "f1".
            categories: The types of questions to keep, e.g. "knowledge-update,multi-session"; all when None.
            limit: Most questions of each type, the first ones.
            size: "oracle", "s" or "m", for a folder that holds several.
            **options: None are known; any is refused.

        Raises:
            DataError: The file is not of this form, or holds no question of these types.
            UnknownNameError: A metric, a type, a size or an option that does not exist.
            UserError: The limit is no positive number, or the bundled sample is asked for by a size.
        """
        cls.refuse_options(options, ("metric", "categories", "limit", "size"))
        kept = cls._kept(categories)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise UserError(f"limit={limit!r} is no number of questions from 1 up")
        if path is not None:
            return cls._read(file_of(Path(path), size), kept, limit, metric, sample=False)
        if size is not None:
            raise UserError("the bundled sample has one size; give the genuine files with --data")
        with sample("longmemeval.json") as file:
            return cls._read(file, kept, limit, metric, sample=True)

    @classmethod
    def _kept(cls, categories: str | Iterable[str] | None) -> tuple[str, ...]:
        if categories is None:
            return cls.types
        parts = categories.split(",") if isinstance(categories, str) else categories
        kept = tuple(dict.fromkeys(str(part).strip() for part in parts))
        for kind in kept:
            if kind not in cls.types:
                raise UnknownNameError("type of longmemeval", kind, cls.types)
        return kept

    @classmethod
    def _read(cls, path: Path, types: Sequence[str], limit: int | None, metric: str, sample: bool) -> Self:
        examples = read_longmemeval(path, refuse_fatal(path), types, limit).examples
        if not examples:
            raise DataError(f"{path}: no question of the type {', '.join(types)}; choose others")
        return cls(examples, Source.of(path, sample), metric)

    def set_judge(self, lm: Any, adapter: dspy.Adapter | None = None) -> None:
        """Makes the judge that has a prompt for every type."""
        self.typed = LongMemEvalJudge(lm, adapter)

    @property
    def judging(self) -> TypedJudge | None:
        """The judge; None before one is set."""
        return self.typed

    @property
    def judge_hash(self) -> str | None:
        """Names the judge's five prompts together; None where no judge is asked."""
        if not self.needs_judge:
            return None
        return judges_hash() if self.typed is None else self.typed.hash

    def counts(self, example: dspy.Example) -> bool:
        """False for preferences where nobody judges: words of a rubric are not what a good response repeats."""
        return self.needs_judge or example.category != PREFERENCE or example.abstention

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores `prediction.answer` by the judge, or without one by words; see the module.

        Raises:
            UserError: A judge is needed and none is set.
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        answer = str(prediction.get("answer") or "")
        parts = {"f1": float(declines(answer)) if example.abstention else squad_f1(answer, example.answer)}
        if self.needs_judge:
            parts["accuracy"] = float(self._judged(example, answer).correct)
        value = parts["accuracy" if self.needs_judge else "f1"]
        return Score(value, _feedback(example, answer, value), parts)

    def _judged(self, example: dspy.Example, answer: str) -> Verdict:
        if self.typed is None:
            raise UserError(f"{self.name} scores by a judge here, and none is set; pass --judge-lm MODEL")
        kind = ABSTENTION if example.abstention else example.category
        return self.typed(kind, example.question, example.answer, answer)

    def aggregate(self, rows: Sequence[Answered]) -> Mapping[str, float]:
        """The mean over types, the mean over all questions, and that of questions that cannot be answered.

        A failed question counts 0. Source: src/evaluation/print_qa_metrics.py.
        """
        part, column = ("accuracy" if self.needs_judge else "f1"), _COLUMNS[self.metric]
        by_type: dict[str, list[float]] = {}
        for row in rows:
            by_type.setdefault(row.category, []).append(row.parts.get(part, 0.0))
        if not rows:
            return {}
        found = {
            f"task-averaged {column}": mean([mean(values) for values in by_type.values()]),
            f"overall {column}": mean([value for values in by_type.values() for value in values]),
        }
        unanswerable = [row.parts.get(part, 0.0) for row in rows if "_abs" in row.id]
        return {**found, f"abstention {column}": mean(unanswerable)} if unanswerable else found

    def retrieval(self, example: dspy.Example, ranked: Sequence[Sequence[str]]) -> Mapping[str, float]:
        """recall_any, recall_all and NDCG of the evidence sessions at 5 and 10; {} for questions without an answer.

        Args:
            example: The question.
            ranked: For every hit of the memory's search, best first, the ids of its source turns.
        """
        if example.abstention or not example.answer_sessions:
            return {}
        turns = example.history.turns
        order = list(dict.fromkeys(turns[id][1].id for sources in ranked for id in sources if id in turns))
        sessions = [item.id for item in example.history]
        metrics = [retrieval_metrics(order, example.answer_sessions, sessions, k) for k in RETRIEVAL_AT]
        return {name: value for found in metrics for name, value in found.items()}


class LongMemEvalPreference(LongMemEval):
    """The questions whose answer is a response that suits the user, by the task that writes such responses."""

    name = "longmemeval.preference"
    task = "personal-response"
    types = (PREFERENCE,)
    method_settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "h2memory": {"use_situations": False, "use_background": False, "clustered": False}
    }
    """Mem-PAL, appendix C: dialogues without logs, and one principle for every outline."""


def _feedback(example: dspy.Example, answer: str, value: float) -> str:
    if example.abstention:
        verdict = "Right: the answer sees that this is not known." if value else "Wrong: this is not known; say so."
        return f"{verdict} {example.answer}"
    if example.category == PREFERENCE:
        verdict = "Right: the response suits the user." if value >= 1 else "The response does not suit the user enough."
        return f"{verdict} {example.answer}"
    return explain(answer, example.answer, value, example.evidence, squad_words)
