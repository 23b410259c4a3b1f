"""What is claimed of a mechanism in a world, and what is found: see `worlds`.

Claim(change, categories) ── Bench ──> method as it is, method with the change ── paired by question ──> Found
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.engines.offline.prompt import read_prompt, render
from mempiler.engines.oracle import OracleEngine
from mempiler.engines.oracle.engine import emptiest
from mempiler.programs.catalog import build
from mempiler.programs.remember import MemoryCache
from mempiler.runs.evaluate import evaluate
from mempiler.runs.results import Evaluation
from mempiler.runs.statistics import Difference, paired

TIE = 1e-9


@dataclass(frozen=True)
class Claim:
    """That a change lowers the score of some questions and of no others."""

    name: str
    lowers: tuple[str, ...] = ()
    """The categories whose score it lowers; none: it lowers no score."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of the method that differ from its own."""
    silent: frozenset[str] = frozenset()
    """Outputs of the predictor whose prompts are answered with nothing."""
    beside: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings that both methods have, the changed one and the one it is compared with."""


@dataclass(frozen=True)
class Found:
    """What a claim predicted of some questions, and what was found."""

    name: str
    questions: str
    lower: bool
    difference: Difference
    n: int

    @property
    def holds(self) -> bool:
        """Lower: the interval lies above zero. Not lower: it does not."""
        span = self.difference.interval
        return span is not None and (span.low > TIE) == self.lower

    def line(self) -> str:
        """The row of the table."""
        span = self.difference.interval
        told = f" [{span.low:+.3f}, {span.high:+.3f}]" if span else ""
        word = "lower" if self.lower else "not lower"
        found = f"{self.difference.mean:+.3f}{told}"
        return f"{self.name:<34}{self.questions:<52}{word:<11}{found:<34}{self.n:>5}  {'yes' if self.holds else 'NO'}"


class Silenced(OracleEngine):
    """The oracle, mute where the outputs of one predictor are asked for."""

    def __init__(self, outputs: frozenset[str]) -> None:
        super().__init__()
        self.outputs = outputs

    def reply(self, request: Any) -> str:
        prompt = read_prompt(request)
        if self.outputs != frozenset(prompt.outputs):
            return super().reply(request)
        return render(prompt.style, {name: emptiest(schema) for name, schema in prompt.outputs.items()})


class Bench:
    """One method in one world, under any change; what was scored once is kept, and memories that are written alike.

    Args:
        method: The name of the method.
        world: The name of the world.
        users: How many users it has.
        options: Further options of the world.
    """

    def __init__(self, method: str, world: str, users: int, **options: Any) -> None:
        self.method = method
        self.world = benchmark(world, users=users, **options)
        self.categories = tuple(dict.fromkeys(str(each.category) for each in self.world.examples))
        self._scored: dict[str, Evaluation] = {}
        self._written: dict[frozenset[str], MemoryCache] = {}

    def scored(self, settings: Mapping[str, Any], silent: frozenset[str] = frozenset()) -> Evaluation:
        """The scores of the method with some settings, and one predictor silent."""
        key = f"{sorted(settings.items())} {sorted(silent)}"
        if key not in self._scored:
            meter = Meter()
            lm = MeteredLM("oracle/worlds-1", meter, engine=Silenced(silent), cache=False)
            cache = self._written.setdefault(silent, MemoryCache())
            with dspy.context(lm=lm):
                program = build(self.method, self.world.task, embedder(), cache, **settings)
                self._scored[key] = evaluate(program, self.world, self.world.examples, meter, threads=1)
        return self._scored[key]

    def means(self, settings: Mapping[str, Any], silent: frozenset[str] = frozenset()) -> dict[str, float]:
        """The mean score of every category."""
        rows = self.scored(settings, silent).rows
        scores = {name: [row.score for row in rows if row.category == name] for name in self.categories}
        return {name: sum(found) / len(found) for name, found in scores.items()}

    def found(self, claims: Sequence[Claim]) -> Iterator[Found]:
        """For every claim the rows it predicts: each category that is to fall, and all others together."""
        for claim in claims:
            before = self.scored(claim.beside)
            after = self.scored({**claim.beside, **claim.settings}, claim.silent)
            for category in claim.lowers:
                yield _row(claim.name, category, True, before, after, (category,))
            others = tuple(name for name in self.categories if name not in claim.lowers)
            if others:
                yield _row(claim.name, "all others" if claim.lowers else "all", False, before, after, others)


def _row(
    name: str, questions: str, lower: bool, before: Evaluation, after: Evaluation, categories: Sequence[str]
) -> Found:
    scores = {row.id: row.score for row in after.rows}
    rows = [row for row in before.rows if row.category in categories]
    found = paired([row.score for row in rows], [scores[row.id] for row in rows], [row.group for row in rows])
    return Found(name, questions, lower, found, len(rows))
