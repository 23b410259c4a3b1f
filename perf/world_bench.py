"""Methods in a world under the oracle, with any change, and what is found of the claims on them: see `worlds`.

Claim ── Bench ──> method as it is, method with the change ── paired by question ──> Found
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from mempiler.runs.recipes.claims.claim import Arm, Claim, Claims, Found, found
from mempiler.runs.results import Evaluation


class Silenced(OracleEngine):
    """The oracle, mute where the outputs of one predictor are asked for."""

    def __init__(self, outputs: frozenset[str], rate: float = 0.0) -> None:
        super().__init__(rate)
        self.outputs = outputs

    def reply(self, request: Any) -> str:
        prompt = read_prompt(request)
        if self.outputs != frozenset(prompt.outputs):
            return super().reply(request)
        return render(prompt.style, {name: emptiest(schema) for name, schema in prompt.outputs.items()})


class Bench:
    """A paper's world; what was scored once is kept, and memories that are written alike.

    Args:
        claims: Of the paper.
        users: How many users its world has.
        options: Further options of the world.
    """

    def __init__(self, claims: Claims, users: int, **options: Any) -> None:
        self.claims = claims
        self.world = benchmark(claims.world, users=users, **options)
        self.categories = tuple(dict.fromkeys(str(each.category) for each in self.world.examples))
        self._scored: dict[str, Evaluation] = {}
        self._written: dict[str, MemoryCache] = {}

    def scored(self, arm: Arm, rate: float = 0.0) -> Evaluation:
        """The scores of an arm, by an oracle that leaves a share of the prompts unanswered."""
        key = f"{arm.key} {rate}"
        if key not in self._scored:
            meter = Meter()
            lm = MeteredLM("oracle/worlds-1", meter, engine=Silenced(arm.silent, rate), cache=False)
            cache = self._written.setdefault(f"{sorted(arm.silent)} {rate}", MemoryCache())
            with dspy.context(lm=lm):
                program = build(arm.method, self.world.task, embedder(), cache, **arm.settings)
                self._scored[key] = evaluate(program, self.world, self.world.examples, meter, threads=1)
        return self._scored[key]

    def means(self, settings: dict[str, Any] | None = None, method: str = "", rate: float = 0.0) -> dict[str, float]:
        """The mean score of every category, of a method (the paper's own) with some settings."""
        arm = Arm(method or self.claims.method, settings or {})
        rows = self.scored(arm, rate).rows
        scores = {name: [row.score for row in rows if row.category == name] for name in self.categories}
        return {name: sum(found) / len(found) for name, found in scores.items()}

    def found(self, claims: Sequence[Claim]) -> Iterator[Found]:
        """What is found of some of the claims."""
        for claim in claims:
            before, after = map(self.scored, self.claims.arms(claim))
            yield from found(claim, before.rows, after.rows)
