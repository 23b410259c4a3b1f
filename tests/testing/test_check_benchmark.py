"""What `check_benchmark` finds: a benchmark that keeps its promises, and one broken promise at a time."""

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import dspy
import pytest
from mempiler import History
from mempiler.data.benchmark import Benchmark
from mempiler.data.dataset import Source
from mempiler.data.scorer import Score, Scorer, TokenF1
from mempiler.errors import UserError
from mempiler.testing import check_benchmark

NAN = float("nan")


class Alike(Benchmark):
    """Questions that each have a conversation of their own."""

    name = "alike"
    metrics: ClassVar = {"f1": TokenF1}

    @classmethod
    def load(cls, path: str | Path | None = None, **options: Any) -> "Alike":
        cls.refuse_options(options, ())
        return alike(cls)


def example(n: int, inputs: Sequence[str] = ("history", "question", "focus"), **changes: Any) -> dspy.Example:
    """Question n about conversation n."""
    said = {"role": "user", "name": "Ann", "content": f"My dog is called Rex{n}."}
    asked = {"question": "What is the dog called?", "focus": ("D1:1",), "answer": f"Rex{n}", "category": "pets"}
    fields = {
        "id": f"q{n}",
        "history": History.from_messages([said], f"ann{n}"),
        "focus": ("D1:1",),
        **asked,
        **changes,
    }
    return dspy.Example(fields).with_inputs(*inputs)


def alike(kind: type[Any] = Alike, examples: Sequence[dspy.Example] | None = None) -> Any:
    return kind(examples or [example(n) for n in range(9)], Source("made", "0" * 64, sample=False))


def test_a_benchmark_that_keeps_its_promises_passes() -> None:
    check_benchmark(alike())


def scoring(change: Callable[[Score], Score]) -> Callable[[], Any]:
    """A benchmark whose scorer changes what a good one says."""

    class Mine(TokenF1):
        def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
            return change(super().score(example, prediction))

    return scored(Mine)


class SaysJudged(TokenF1):
    """Names a judge and scores without it."""

    roles: ClassVar = {"judge": object}


def scored(scorer: type[Scorer]) -> Callable[[], Any]:
    return lambda: alike(type("Scored", (Alike,), {"metrics": {"mine": scorer}}))


def loading(load: Callable[..., Any]) -> Callable[[], Any]:
    """A benchmark that is loaded otherwise."""
    return lambda: alike(type("Loaded", (Alike,), {"load": classmethod(load)}))


def cut(change: Callable[[Any], Any]) -> Callable[[], Any]:
    """A benchmark that changes its split."""

    class Cut(Alike):
        def split(self, *args: Any, **options: Any) -> Any:
            return change(super().split(*args, **options))

    return lambda: alike(Cut)


def asked_again(change: Callable[[dspy.Example], dspy.Example]) -> Callable[[], Any]:
    """A benchmark that tests on what becomes of a question of the training part, too."""
    return cut(lambda split: type(split)(split.train, split.dev, (change(split.train[0]), *split.test)))


COUNTS = itertools.count()
shuffled = cut(lambda split: type(split)(split.train, split.dev[next(COUNTS) % 2 :], split.test))
deaf = loading(lambda cls, path=None, **options: alike(cls))
falls = loading(lambda cls, path=None: alike(cls))


def with_first(**changes: Any) -> Callable[[], Any]:
    return lambda: alike(examples=[example(0, **changes), *(example(n) for n in range(1, 9))])


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (with_first(id="q1"), "ids are not unique: q1"),
        (with_first(inputs=("question",)), "example q0: focus, history is no input; see with_inputs"),
        (with_first(inputs=("history", "question", "focus", "answer")), "example q0: the gold answer is an input"),
        (with_first(focus=("D9:9",)), "example q0: focus names D9:9, which is no turn of its history"),
        (with_first(history=example(1).history), "example q1: its history is equal to another one's but no shared"),
        (with_first(question=""), "example q0: task question-answering needs question"),
        (asked_again(lambda seen: seen), "a question is in two parts of the split"),
        (
            asked_again(lambda seen: seen.copy(id="again")),
            "a conversation is in train and in another part of the split",
        ),
        (shuffled, "the split differs from call to call"),
        (scoring(lambda said: Score(-said.value, said.feedback)), "example q0: the gold answer scores -1.0"),
        (scoring(lambda said: Score(1.0, "Yes.", {"length": NAN})), "example q0: a score or part is no finite number"),
        (scoring(lambda said: Score(said.value, f"{random.random()}")), "example q0: the same answer scores otherwise"),
        (scoring(lambda said: Score(said.value, "")), "example q0: the feedback is empty"),
        (scored(SaysJudged), "a scorer that names judges scores without any; ask self.judge(role)"),
        (deaf, "load takes an option that does not exist; call refuse_options"),
        (falls, "load fails on an unknown option with TypeError; call refuse_options"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_broken_promise_is_named(make: Callable[[], Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        check_benchmark(make())
    assert line in str(caught.value)
