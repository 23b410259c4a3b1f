"""What a split of the questions allows, known before any model is asked.

A verdict needs `--min-n` questions that count for the score. `SplitPlan` says how many questions each part has, whether
dev and test are large enough, what a verdict would speak of, and which `--dev` or `--test` would be large enough.

Example:
    >>> from mempiler.runs.config import RunConfig
    >>> from mempiler.runs.inputs import RunInputs
    >>> from mempiler.runs.split_plan import plan_split
    >>> config = RunConfig.from_options(benchmark="locomo", dev=4, test=30)
    >>> for line in plan_split(RunInputs(config)).lines():
    ...     print(line)
    split: 80 train questions of 4 conversations or users, 4 dev of 2, 30 test of 2
    dev: too small for a verdict: 4 questions count for the score, 20 are needed; --dev 25 is enough
    test: large enough for a verdict (25 questions); scope: other questions about these conversations
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from .inputs import RunInputs
from .statistics import MIN_GROUPS, Scope, scope_of


@dataclass(frozen=True)
class PartSize:
    """The size of train, dev or test."""

    name: str
    requested: int | None
    """The size that was asked for; None if all there is."""
    questions: int
    conversations: int
    """Conversations or users of the questions."""

    def shortage(self) -> str | None:
        """Say that the part is smaller than asked for; return None if it is not."""
        if self.requested is None or self.questions >= self.requested:
            return None
        return f"--{self.name} {self.requested}: the data allow {self.questions} {self.name} questions, which are taken"


@dataclass(frozen=True)
class VerdictPlan:
    """Whether dev or test is large enough for a verdict."""

    size: PartSize
    counted: int
    """Questions that count for the score."""
    needed: int
    """Questions that must count for a verdict."""
    size_for_verdict: int | None
    """The smallest size with so many; None if no size has."""
    scope: Scope
    """What a verdict would speak of."""

    @property
    def allows_verdict(self) -> bool:
        """Whether a difference on this part can be told to be better or worse."""
        return self.counted >= self.needed

    def line(self) -> str:
        """Say whether the part is large enough, and else what would make it so."""
        name = self.size.name
        if self.allows_verdict:
            return f"{name}: large enough for a verdict ({self.counted} questions); scope: {self.scope}"

        problem = f"too small for a verdict: {self.counted} questions count for the score, {self.needed} are needed"
        if self.size_for_verdict is not None:
            return f"{name}: {problem}; --{name} {self.size_for_verdict} is enough"
        return f"{name}: {problem}; no --{name} reaches that: add questions, or lower --min-n"


@dataclass(frozen=True)
class SplitPlan:
    """The three parts of a split."""

    train: PartSize
    dev: VerdictPlan
    test: VerdictPlan

    def shortages(self, names: Collection[str] = ("train", "dev", "test")) -> list[str]:
        """Return a line for each of the named parts that is smaller than asked for."""
        sizes = (self.train, self.dev.size, self.test.size)
        lines = [size.shortage() for size in sizes if size.name in names]
        return [line for line in lines if line is not None]

    def lines(self) -> list[str]:
        """Return all there is to say, a line each."""
        train, dev, test = self.train, self.dev.size, self.test.size
        sizes = (
            f"split: {train.questions} train questions of {train.conversations} conversations or users, "
            f"{dev.questions} dev of {dev.conversations}, {test.questions} test of {test.conversations}"
        )
        return [sizes, *self.shortages(), self.dev.line(), self.test.line()]

    def summary(self) -> dict[str, Any]:
        """Return plain JSON."""
        parts: dict[str, Any] = {"train": {"questions": self.train.questions, "groups": self.train.conversations}}
        for plan in (self.dev, self.test):
            parts[plan.size.name] = {
                "questions": plan.size.questions,
                "groups": plan.size.conversations,
                "counted": plan.counted,
                "needed": plan.needed,
                "allows_verdict": plan.allows_verdict,
                "size_for_verdict": plan.size_for_verdict,
                "scope": plan.scope,
            }
        return {**parts, "notes": self.shortages()}


def plan_split(inputs: RunInputs) -> SplitPlan:
    """Return what the split of a run's questions allows.

    Args:
        inputs: The questions, the sizes, the seed, and how many questions a verdict needs.

    Raises:
        DataError: A part would be empty.
    """
    config = inputs.config
    benchmark = inputs.benchmark
    split = inputs.split()
    train = _part_size("train", config.data.train, split.train, benchmark)
    dev = _part_size("dev", config.data.dev, split.dev, benchmark)
    test = _part_size("test", config.data.test, split.test, benchmark)
    return SplitPlan(
        train,
        _verdict_plan(dev, split.dev, benchmark.candidates_for_dev(config.data.seed), benchmark, config.execution.min_n),
        _verdict_plan(test, split.test, benchmark.candidates_for_test(config.data.seed), benchmark, config.execution.min_n),
    )


def _part_size(name: str, requested: int | None, examples: Sequence[dspy.Example], benchmark: Benchmark) -> PartSize:
    conversations = {benchmark.group(example) for example in examples}
    return PartSize(name, requested, len(examples), len(conversations))


def _verdict_plan(
    size: PartSize,
    examples: Sequence[dspy.Example],
    candidates: Sequence[dspy.Example],
    benchmark: Benchmark,
    min_n: int,
) -> VerdictPlan:
    """Plan the verdict on a part, which holds the first of the `candidates` if a size is asked for."""
    counted = [example for example in examples if benchmark.in_headline(example)]
    # Where conversations are few, questions are resampled, and of those too fewer cannot be significant.
    needed = max(min_n, MIN_GROUPS)
    return VerdictPlan(
        size=size,
        counted=len(counted),
        needed=needed,
        size_for_verdict=_smallest_size(candidates, benchmark, needed),
        scope=scope_of(len({benchmark.group(example) for example in counted})),
    )


def _smallest_size(candidates: Sequence[dspy.Example], benchmark: Benchmark, needed: int) -> int | None:
    """Return how many of the candidates must be taken for `needed` that count; None if there are too few."""
    counted = 0
    for size, example in enumerate(candidates, start=1):
        counted += benchmark.in_headline(example)
        if counted == needed:
            return size
    return None
