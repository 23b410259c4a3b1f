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

Limits: every question has a past of its own, so nothing is remembered twice and memories are written once per
question. An empty answer is wrong without asking the judge. Short answers suit five of the types; preferences want
`longmemeval.preference`. Sums are over the questions that were asked; the mean over types is over the types among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from ...errors import DataError, UnknownNameError, UserError
from ..benchmark import Benchmark
from ..dataset import Note, Reading, Source, refuse_fatal
from ..samples import given_or_sample
from ..scorer import Scorer
from .reader import TYPES, file_of, read_longmemeval
from .scorer import PREFERENCE, LongMemEvalF1, LongMemEvalJudged


class LongMemEval(Benchmark):
    """LongMemEval's question answering.

    Args:
        examples: The questions.
        source: Where they came from.
        metric: "judge" or "f1".
    """

    name = "longmemeval"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"judge": LongMemEvalJudged, "f1": LongMemEvalF1}
    categories: ClassVar[Mapping[str, str]] = {kind: kind for kind in TYPES}
    types: ClassVar[tuple[str, ...]] = TYPES
    """The types that the benchmark asks."""

    @property
    def unsaid(self) -> bool:
        return any(example.abstention for example in self.examples)

    @classmethod
    def read(cls, path: Path, note: Note, size: str | None = None) -> Reading:
        return read_longmemeval(file_of(path, size), note)

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
        if path is None and size is not None:
            raise UserError("the bundled sample has one size; give the genuine files with --data")
        with given_or_sample(path, "longmemeval.json") as (where, sample):
            file = where if sample else file_of(where, size)
            examples = read_longmemeval(file, refuse_fatal(file), kept, limit).examples
            if not examples:
                raise DataError(f"{file}: no question of the type {', '.join(kept)}; choose others")
            return cls(examples, Source.of(file, sample), metric)

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


class LongMemEvalPreference(LongMemEval):
    """The questions whose answer is a response that suits the user, by the task that writes such responses."""

    name = "longmemeval.preference"
    task = "personal-response"
    types = (PREFERENCE,)
