"""The row of a question: of an evaluation, and of what a training heard of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.scorer import Score
from ..programs.recording import Call
from ..records import Context, estimate_tokens
from .results import Row
from .seen import Clock, seen


def row_of(
    benchmark: Benchmark,
    example: dspy.Example,
    prediction: dspy.Prediction,
    context: Context | None,
    judged: Score | None,
    heard: Sequence[Call],
    clock: Clock | None = None,
    **measured: Any,
) -> Row:
    """What became of a question.

    Args:
        benchmark: Asked it.
        example: The question.
        prediction: The outputs of the task; without an answer where it failed.
        context: What was recalled; None where nothing could be.
        judged: The score of the answer, and why; None where it failed.
        heard: What was asked, in program order.
        clock: Of the question; None where its moments are not known.
        **measured: All other fields of the row.
    """
    known = context or Context()
    return Row(
        id=str(example.id),
        group=benchmark.group(example),
        category=benchmark.category(example),
        counts=benchmark.counts(example),
        question=str(example.get("question") or ""),
        gold=str(example.get("answer") or ""),
        answer=str(prediction.get("answer") or ""),
        parts=dict(judged.parts) if judged else {},
        sources=known.sources,
        hits=len(known.hits),
        recalled=tuple(hit.id for hit in known.hits),
        context_tokens=estimate_tokens(known.text()),
        seen=seen(example, context, heard, judged.feedback if judged else "", clock),
        **measured,
    )
