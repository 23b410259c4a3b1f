"""Contract checks of a benchmark: its examples, its split and its scorer.

Example:
    >>> from mempiler.testing.benchmark import check_benchmark
    >>> check_benchmark("locomo")
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.catalog import benchmark as load_benchmark
from ..errors import DataError, UnknownNameError, UserError
from ..programs.tasks.task import task as task_class
from ..records import Context

Broken = Iterator[str]
"""Violations, each in one sentence."""


def check_benchmark(benchmark: str | Benchmark, path: str | Path | None = None, **options: Any) -> None:
    """Checks a benchmark's contract.

    Args:
        benchmark: A name, `module:Class`, or a benchmark that was loaded already.
        path: Its file; the bundled sample if None.
        **options: Options of its `load`.

    Raises:
        UserError: The contract is broken; each violation is a line of the message.
    """
    loaded = benchmark if isinstance(benchmark, Benchmark) else load_benchmark(benchmark, path, **options)
    broken = [line for check in CHECKS for line in check(loaded)]
    if broken:
        raise UserError("\n".join([f"benchmark {loaded.name} breaks {len(broken)} of its promises:", *broken]))


def _examples(benchmark: Benchmark) -> Broken:
    """What every example must hold."""
    repeated = [id for id, count in Counter(str(example.id) for example in benchmark.examples).items() if count > 1]
    if repeated:
        yield f"ids are not unique: {', '.join(repeated[:5])}"
    task: Any = task_class(benchmark.task)()
    histories: dict[str, Any] = {}
    for example in benchmark.examples:
        inputs = dict(example.inputs())
        missing = {"history", "focus"} - inputs.keys()
        if missing:
            yield f"example {example.id}: {', '.join(sorted(missing))} is no input; see with_inputs"
            return
        if "answer" in inputs:
            yield f"example {example.id}: the gold answer is an input, so every program sees it"
            return
        strange = [id for id in example.focus if id not in example.history.turns]
        recent = {turn.id for item in inputs.get("recent") or () for turn in item.turns}
        if set(strange) - recent:
            yield f"example {example.id}: focus names {strange[0]}, which is no turn of its history"
        first = histories.setdefault(example.history.digest, example.history)
        if first is not example.history:
            yield f"example {example.id}: its history is equal to another one's but no shared object; make it once"
            return
        if benchmark.interaction is None:
            try:
                task.query(
                    {name: value for name, value in inputs.items() if name not in ("history", "focus", "recent")}
                )
            except UserError as error:
                yield f"example {example.id}: {error}"
                return


def _split(benchmark: Benchmark) -> Broken:
    """How the examples are cut."""
    try:
        split = benchmark.split()
    except DataError:
        return  # too few to be cut, which load may allow
    parts = {"train": split.train, "dev": split.dev, "test": split.test}
    ids = [str(example.id) for part in parts.values() for example in part]
    if len(ids) != len(set(ids)):
        yield "a question is in two parts of the split"
    groups = {name: {benchmark.group(example) for example in part} for name, part in parts.items()}
    if len(set.union(*groups.values())) >= 3 and groups["train"] & (groups["dev"] | groups["test"]):
        yield "a conversation is in train and in another part of the split"
    if benchmark.split().digest != split.digest:
        yield "the split differs from call to call"


def _scorer(benchmark: Benchmark) -> Broken:
    """The scorer's results for the gold answer, for nothing, and twice for the same."""
    scorer = benchmark.scorer
    if scorer.asked or benchmark.interaction is not None:
        try:
            scorer.score(benchmark.examples[0], dspy.Prediction(answer="x", context=Context(), rival="y"))
        except UserError:
            return
        yield "a scorer that names judges scores without any; ask self.judge(role)"
        return
    for example in benchmark.examples[:50]:
        gold, nothing = (dspy.Prediction(answer=answer, context=Context()) for answer in (example.answer, ""))
        found, empty = scorer.score(example, gold), scorer.score(example, nothing)
        values = [found.value, empty.value, *found.parts.values(), *empty.parts.values()]
        if not all(isinstance(value, int | float) and isfinite(value) for value in values):
            yield f"example {example.id}: a score or part is no finite number"
            return
        if not -1 <= empty.value <= found.value <= 1:
            yield f"example {example.id}: the gold answer scores {found.value}, no answer {empty.value}"
            return
        if scorer.score(example, gold) != found:
            yield f"example {example.id}: the same answer scores otherwise the second time"
            return
        if not found.feedback or not empty.feedback:
            yield f"example {example.id}: the feedback is empty"
            return


def _options(benchmark: Benchmark) -> Broken:
    """An option that does not exist must not pass in silence."""
    try:
        type(benchmark).load(None, no_such_option=1)
    except UnknownNameError:
        return
    except Exception as error:
        if isinstance(error, UserError):
            return
        yield f"load fails on an unknown option with {type(error).__name__}; call refuse_options"
        return
    yield "load takes an option that does not exist; call refuse_options"


CHECKS: Sequence[Callable[[Benchmark], Broken]] = (_examples, _split, _scorer, _options)
