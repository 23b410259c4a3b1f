"""What a split of the questions allows, known before any model is asked.

A verdict needs `--min-n` questions that count for the score. `SplitPlan` says how many questions
each part has, whether dev and test are large enough for a verdict, what the verdict would hold for,
and which `--dev` or `--test` would be large enough.

Example:
    >>> from mempiler.runs.config import RunConfig
    >>> from mempiler.runs.inputs import RunInputs
    >>> from mempiler.runs.split_plan import plan_split
    >>> config = RunConfig.from_options(benchmark="locomo", dev=4, test=30)
    >>> plan = plan_split(RunInputs(config))
    >>> print(plan.lines()[0])
    split: 80 train questions of 4 conversations or users, 4 dev of 2, 30 test of 2
    >>> print(plan.dev.line())
    dev: too small for a verdict: 4 questions count for the score, 20 are needed; --dev 25 is enough
    >>> plan.test.allows_verdict
    True
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
    """The number of questions that the user requested; None for all there are."""
    questions: int
    conversations: int
    """How many conversations or users the questions are about."""

    def shortage(self) -> str | None:
        """Return a line that says the part is smaller than requested; None if it is not."""
        if self.requested is None or self.questions >= self.requested:
            return None
        available = f"the data allow {self.questions} {self.name} questions, which are taken"
        return f"--{self.name} {self.requested}: {available}"


@dataclass(frozen=True)
class VerdictPlan:
    """Whether dev or test is large enough for a verdict."""

    size: PartSize
    counted: int
    """Questions that count for the score."""
    needed: int
    """Questions that must count for a verdict."""
    size_for_verdict: int | None
    """The smallest size of the part that allows a verdict; None if no size does."""
    scope: Scope
    """What a verdict would hold for."""

    @property
    def allows_verdict(self) -> bool:
        """Whether enough questions count to call a program better or worse."""
        return self.counted >= self.needed

    def line(self) -> str:
        """Return a line that says whether the part is large enough, and if not, what would help."""
        name = self.size.name
        if self.allows_verdict:
            questions = f"{self.counted} questions"
            return f"{name}: large enough for a verdict ({questions}); scope: {self.scope}"

        counts = f"{self.counted} questions count for the score, {self.needed} are needed"
        problem = f"too small for a verdict: {counts}"
        if self.size_for_verdict is not None:
            return f"{name}: {problem}; --{name} {self.size_for_verdict} is enough"
        return f"{name}: {problem}; no --{name} reaches that: add questions, or lower --min-n"

    def summary(self) -> dict[str, Any]:
        """Return the plan of this part as JSON."""
        return {
            "questions": self.size.questions,
            "groups": self.size.conversations,
            "counted": self.counted,
            "needed": self.needed,
            "allows_verdict": self.allows_verdict,
            "size_for_verdict": self.size_for_verdict,
            "scope": self.scope,
        }


@dataclass(frozen=True)
class SplitPlan:
    """The three parts of a split."""

    train: PartSize
    dev: VerdictPlan
    test: VerdictPlan

    def shortages(self, names: Collection[str] = ("train", "dev", "test")) -> list[str]:
        """Return a line for each of the named parts that is smaller than requested."""
        lines: list[str] = []
        for size in (self.train, self.dev.size, self.test.size):
            line = size.shortage()
            if size.name in names and line is not None:
                lines.append(line)
        return lines

    def lines(self) -> list[str]:
        """Return the whole plan in lines: sizes, shortages, and whether verdicts are allowed."""
        train_size = self.train
        dev_size = self.dev.size
        test_size = self.test.size
        sizes = (
            f"split: {train_size.questions} train questions"
            f" of {train_size.conversations} conversations or users,"
            f" {dev_size.questions} dev of {dev_size.conversations},"
            f" {test_size.questions} test of {test_size.conversations}"
        )
        return [sizes, *self.shortages(), self.dev.line(), self.test.line()]

    def summary(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return {
            # No verdict is given on train, so its sizes are all there is to say.
            "train": {"questions": self.train.questions, "groups": self.train.conversations},
            self.dev.size.name: self.dev.summary(),
            self.test.size.name: self.test.summary(),
            "notes": self.shortages(),
        }


def plan_split(inputs: RunInputs) -> SplitPlan:
    """Return the sizes of train, dev and test, and whether dev and test are large enough.

    Whether one program is better than another is decided on dev and test. With too few questions
    there is no verdict. Then the plan says how large the part would have to be.

    Args:
        inputs: The benchmark, and the configuration with the sizes and the seed of the split.

    Raises:
        DataError: A part would be empty.
    """
    benchmark = inputs.benchmark
    requested = inputs.config.data
    min_n = inputs.config.execution.min_n
    split = inputs.split()
    train_size = _part_size("train", requested.train, split.train, benchmark)
    dev_size = _part_size("dev", requested.dev, split.dev, benchmark)
    test_size = _part_size("test", requested.test, split.test, benchmark)

    # The candidates are the questions that a part would get if it were larger.
    dev_candidates = benchmark.candidates_for_dev(requested.seed)
    test_candidates = benchmark.candidates_for_test(requested.seed)
    return SplitPlan(
        train=train_size,
        dev=_verdict_plan(dev_size, split.dev, dev_candidates, benchmark, min_n),
        test=_verdict_plan(test_size, split.test, test_candidates, benchmark, min_n),
    )


def _part_size(
    name: str, requested: int | None, examples: Sequence[dspy.Example], benchmark: Benchmark
) -> PartSize:
    """Return the size of a part with these questions."""
    conversations = {benchmark.group(example) for example in examples}
    return PartSize(name, requested, len(examples), len(conversations))


def _verdict_plan(
    size: PartSize,
    examples: Sequence[dspy.Example],
    candidates: Sequence[dspy.Example],
    benchmark: Benchmark,
    min_n: int,
) -> VerdictPlan:
    """Return how many questions of a part count, and how many a verdict on the part needs.

    Args:
        size: The size of the part.
        examples: The questions of the part.
        candidates: The questions that the part could have. A part of a requested size gets the
            first of them.
        benchmark: Says which questions count for the score.
        min_n: How many questions the user wants for a verdict.
    """
    counted = [example for example in examples if benchmark.in_headline(example)]
    # With fewer questions than that, no difference can be significant, however large it is. So a
    # smaller `min_n` of the user does not help.
    fewest_for_significance = MIN_GROUPS
    needed = max(min_n, fewest_for_significance)
    return VerdictPlan(
        size=size,
        counted=len(counted),
        needed=needed,
        size_for_verdict=_smallest_size(candidates, benchmark, needed),
        scope=scope_of(len({benchmark.group(example) for example in counted})),
    )


def _smallest_size(
    candidates: Sequence[dspy.Example], benchmark: Benchmark, needed: int
) -> int | None:
    """Return how large a part must be to have `needed` questions that count for the score.

    A part gets the first of the candidates. The result is None if all candidates are too few.
    """
    counted = 0
    for size, example in enumerate(candidates, start=1):
        if benchmark.in_headline(example):
            counted += 1
        if counted == needed:
            return size
    return None
