"""What a training gave: an evaluation of each model, how they compare, and where model and program are.

The evaluation is of greedy answers; what a question scored when its memory was sampled is its part `sampled`. They are
compared by paired differences: each with the start and with the baseline (GRPO by trajectories) of its seed, users
resampled; an objective over its seeds, users and seeds resampled, which says little with three seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import BaseModel, ConfigDict

from ..data.benchmark import Benchmark
from ..data.text_metrics import evidence_recall
from ..optimizers.logo_grpo.policy import PolicyScore
from ..optimizers.logo_grpo.reward import Asked
from ..programs.program import MemoryProgram
from ..programs.recording import failure_of
from ..records import Context
from .course import BASELINE
from .pages.page import Page, known_facts, run_page
from .results import Evaluation
from .rows import SHOWN, Row, row_of
from .statistics import Interval, crossed, interval, paired

KINDS = ("greedy", "sampled")
START = "start"
"""The name of the row of the model that all begin from."""


class TrainedRow(BaseModel):
    """A model's scores on the test users, and the training it comes from."""

    model_config = ConfigDict(frozen=True)

    name: str
    """The objective, or `START`."""
    seed: int | None
    model: str
    """Its folder or hub id."""
    evaluation: Evaluation
    """Of greedy answers; the part `sampled` of a question is its mean score at the temperature of the training."""
    greedy_failures: float
    """Share of completions that could not be read."""
    sampled_failures: float
    tokens: int = 0
    """Generated for training."""
    trained_steps: int = 0
    best_step: int | None = None
    """The step whose weights were kept."""
    validation: float | None = None
    """Sampled score of those weights on the validation users."""
    seconds: float = 0.0
    remarks: tuple[str, ...] = ()
    """What a reader has to know besides the scores."""
    steps: tuple[dict[str, Any], ...] = ()
    """The journal's rows: training steps and validations."""

    @property
    def label(self) -> str:
        """Name and seed."""
        return self.name if self.seed is None else f"{self.name}.{self.seed}"

    @property
    def users(self) -> list[str]:
        """The user of each question."""
        return [row.group for row in self.evaluation.rows]

    def scores(self, kind: str) -> list[float]:
        """The score of each question, "greedy" or "sampled"."""
        return [row.parts["sampled"] if kind == "sampled" else row.score for row in self.evaluation.rows]

    def numbers(self) -> dict[str, float]:
        """What is logged as metrics."""
        names = ("greedy_failures", "sampled_failures", "tokens", "trained_steps", "seconds")
        scores = {kind: fmean(self.scores(kind)) for kind in KINDS}
        return {"n": float(self.evaluation.n), **scores, **{name: float(getattr(self, name)) for name in names}}

    def interval(self, kind: str) -> list[float] | None:
        """The ends of the 95 % interval of the mean score."""
        return _ends(interval(self.scores(kind), self.users))

    def summary(self) -> dict[str, Any]:
        """Plain JSON without steps and single questions."""
        spans = {f"{kind}_interval": self.interval(kind) for kind in KINDS}
        counted = {"n": self.evaluation.n, "users": len(set(self.users))}
        return {**self.model_dump(mode="json", exclude={"evaluation", "steps"}), **self.numbers(), **spans, **counted}


def measured(
    name: str,
    seed: int | None,
    model: str,
    greedy: PolicyScore,
    sampled: PolicyScore,
    rows: Mapping[str, Row],
    benchmark: Benchmark,
) -> TrainedRow:
    """A row from a greedy and a sampled scoring of one model, and what was answered greedily, by question."""
    parts = [
        rows[id].model_copy(update={"parts": {**rows[id].parts, "sampled": score}})
        for id, score in zip(greedy.ids, sampled.scores, strict=True)
    ]
    evaluation = Evaluation(
        program=name,
        benchmark=benchmark.name,
        lm=name,
        comparable=not benchmark.source.sample,
        rows=tuple(parts),
        max_lost=1.0,  # a training may begin from a model whose answers cannot be read
        names=dict(benchmark.categories),
        expected=benchmark.expected,
    )
    return TrainedRow(
        name=name,
        seed=seed,
        model=model,
        evaluation=evaluation,
        greedy_failures=greedy.counts.format_failures,
        sampled_failures=sampled.counts.format_failures,
    )


def answered_row(program: MemoryProgram, benchmark: Benchmark, asked: Asked) -> Row:
    """A question that a program was asked, as an evaluation would have it, without what its calls took."""
    example, context = asked.example, asked.prediction.get("context") or Context()
    recall = {}
    if example.get("focus"):
        found = evidence_recall(example.focus, [context.evidence, program.query_of(example).shown_ids], 2)
        recall = {} if found is None else {SHOWN: found}
    return row_of(
        benchmark,
        example,
        asked.prediction,
        context,
        benchmark.score(example, asked.prediction) if asked.error is None else None,
        asked.calls,
        score=asked.score,
        recall=recall,
        seconds=0.0,
        failure=None if asked.error is None else failure_of(str(example.id), asked.error),
    )


@dataclass(frozen=True)
class Trained:
    """What a training gave."""

    rows: tuple[TrainedRow, ...]
    objective: str
    """The one that was asked for; its model is kept."""
    program: Path
    run: Path
    run_id: str
    benchmark: str
    quick: bool = False

    @property
    def kept(self) -> TrainedRow:
        """Of the seeds of the asked objective, the one that validated best."""
        own = [row for row in self.rows if row.name == self.objective]
        return max(own, key=lambda row: row.validation or 0.0)

    def summary(self) -> dict[str, Any]:
        """The object `train --json` prints."""
        return {
            "benchmark": self.benchmark,
            "quick": self.quick,
            "rows": [row.summary() for row in self.rows],
            "differences": list(differences(self.rows)),
            "objectives": list(over_seeds(self.rows)),
            "kept": self.kept.label,
            "model": self.kept.model,
            "program": str(self.program),
            "run": str(self.run),
            "run_id": self.run_id,
        }

    def page(self, parameters: Mapping[str, Any], program: str) -> Page:
        """What the start and the kept model answered."""
        kept, facts = self.kept, [*known_facts(parameters, program), *_facts(self.rows)]
        phases = {"before": self.rows[0].evaluation, "after": kept.evaluation}
        notes = ("A quick look at what a run gives, too short to tell objectives apart.",) * self.quick
        page = run_page("train", self.run.name, phases, facts, notes, f"{kept.label} was kept")
        title = f"{parameters['program']} on {self.benchmark}, {self.objective}"
        return page.model_copy(update={"title": title})


def differences(rows: Sequence[TrainedRow]) -> Iterator[dict[str, Any]]:
    """Each trained row against the start and, but for the baseline itself, against its seed's baseline."""
    for row in rows:
        start = next((other for other in rows if other.seed is None and row.seed is not None), None)
        for other in (start, _baseline(row, rows)):
            if other is not None:
                gaps = {kind: paired(row.scores(kind), other.scores(kind), row.users).to_dict() for kind in KINDS}
                yield {"row": row.label, "against": other.label, **gaps}


def over_seeds(rows: Sequence[TrainedRow]) -> Iterator[dict[str, Any]]:
    """Each objective over its seeds, in the order of the rows: mean, least and most, and minus the baseline."""
    trained = [row for row in rows if row.seed is not None]
    for name in dict.fromkeys(row.name for row in trained):
        own = [row for row in trained if row.name == name]
        others = [other for row in own if (other := _baseline(row, rows)) is not None]
        found: dict[str, Any] = {"name": name, "seeds": len(own)}
        for kind in KINDS:
            means = [fmean(row.scores(kind)) for row in own]
            found[kind] = {"mean": fmean(means), "min": min(means), "max": max(means)}
            if len(others) == len(own):
                pairs = zip(own, others, strict=True)
                gaps = [[a - b for a, b in zip(x.scores(kind), y.scores(kind), strict=True)] for x, y in pairs]
                span = _ends(crossed(gaps, own[0].users))
                found[f"{kind}_minus_{BASELINE}"] = {"mean": fmean(map(fmean, gaps)), "interval": span}
        yield found


def _baseline(row: TrainedRow, rows: Sequence[TrainedRow]) -> TrainedRow | None:
    if row.seed is None or row.name == BASELINE:
        return None
    return next((other for other in rows if (other.name, other.seed) == (BASELINE, row.seed)), None)


def _facts(rows: Sequence[TrainedRow]) -> Iterator[tuple[str, str]]:
    """Each model, how it compares, and each objective over its seeds, a name and a value each."""
    for row in rows:
        failures = f"format failures {row.greedy_failures:.1%} / {row.sampled_failures:.1%}"
        steps = f"{row.trained_steps} steps" + ("" if row.best_step is None else f" (kept {row.best_step})")
        scores = [f"{kind} {fmean(row.scores(kind)):.3f}{_span(row.interval(kind), '.3f')}" for kind in KINDS]
        told = [*scores, failures, f"{row.tokens:,} tokens", steps, f"{row.seconds:.0f} seconds"]
        yield row.label, ", ".join([*told, *row.remarks])
    for each in differences(rows):
        yield f"{each['row']} - {each['against']}", ", ".join(f"{kind} {_gap(each[kind])}" for kind in KINDS)
    for each in over_seeds(rows):
        if each["seeds"] > 1:
            told = [
                f"{kind} {each[kind]['mean']:.3f} ({each[kind]['min']:.3f} to {each[kind]['max']:.3f})"
                for kind in KINDS
            ]
            minus = {kind: each.get(f"{kind}_minus_{BASELINE}") for kind in KINDS}
            told += [f"{kind} - {BASELINE} {_gap(gap)}" for kind, gap in minus.items() if gap]
            yield f"{each['name']}, {each['seeds']} seeds", ", ".join(told)


def _gap(found: Mapping[str, Any]) -> str:
    return f"{found['mean']:+.3f}" + _span(found["interval"], "+.3f")


def _span(ends: Sequence[float] | None, form: str) -> str:
    return "" if ends is None else f" [{ends[0]:{form}}, {ends[1]:{form}}]"


def _ends(span: Interval | None) -> list[float] | None:
    return None if span is None else [span.low, span.high]
