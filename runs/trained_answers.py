"""What the models of a training answered on the held-out users, as rows that its page shows like those of a compile.

    Asked (what scoring heard) ── answered_row ──> Row      TrainedRow.asked of start and kept model ── phases ──> page

Rows of greedy decoding are kept; what a sampled memory answered is another one every time.
"""

from __future__ import annotations

import dspy

from ..data.benchmark import Benchmark
from ..data.text_metrics import evidence_recall
from ..optimizers.logo_grpo.reward import Asked
from ..programs.failing import failure_of
from ..programs.program import MemoryProgram
from ..records import Context
from .results import SHOWN, Evaluation, Row
from .rows import row_of
from .trained import Trained
from .trained_row import TrainedRow


def answered_row(program: MemoryProgram, benchmark: Benchmark, asked: Asked) -> Row:
    """A question as an evaluation would have it, without what its calls took.

    Args:
        program: Answered it.
        benchmark: Asked it.
        asked: What came of it.
    """
    example, context = asked.example, asked.prediction.get("context") or Context()
    failed, answered = asked.error, asked.error is None
    score = benchmark.score(example, asked.prediction) if answered else None
    return row_of(
        benchmark,
        example,
        asked.prediction,
        context,
        score,
        asked.calls,
        score=asked.score,
        recall=_recall(program, example, context),
        seconds=0.0,
        failure=None if failed is None else failure_of(str(example.id), failed),
    )


def phases(outcome: Trained, benchmark: Benchmark) -> dict[str, Evaluation]:
    """What the model that all begin from answered, and the one that was kept; nothing where either kept no answers."""
    sides = {"before": outcome.rows[0], "after": outcome.kept}
    if not all(row.asked for row in sides.values()):
        return {}
    return {name: _evaluation(outcome, row, benchmark) for name, row in sides.items()}


def _recall(program: MemoryProgram, example: dspy.Example, context: Context) -> dict[str, float]:
    if not example.get("focus"):
        return {}
    found = evidence_recall(example.focus, [context.evidence, program.query_of(example).shown_ids], 2)
    return {} if found is None else {SHOWN: found}


def _evaluation(outcome: Trained, row: TrainedRow, benchmark: Benchmark) -> Evaluation:
    return Evaluation(
        program=outcome.objective,
        benchmark=benchmark.name,
        lm=row.label,
        embedder=None,
        comparable=not benchmark.source.sample,
        rows=row.asked,
        calls={},
        tokens={},
        cost=None,
        max_lost=1.0,  # a training may begin from a model whose answers cannot be read
        write_failures=0,
        seconds=0.0,
        names=dict(benchmark.categories),
        expected=benchmark.expected,
    )
