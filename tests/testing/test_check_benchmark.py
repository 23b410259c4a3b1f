"""What `check_benchmark` finds: a benchmark that keeps its promises, and one broken promise at a time."""

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


class Alike(Benchmark):
    """Questions that each have a conversation of their own."""

    name = "alike"
    metrics: ClassVar = {"f1": TokenF1}

    @classmethod
    def load(cls, path: str | Path | None = None, **options: Any) -> "Alike":
        cls.refuse_options(options, ())
        return alike(cls)


def example(n: int, **changes: Any) -> dspy.Example:
    """Question n about conversation n."""
    chat = [[{"role": "user", "name": "Ann", "content": f"My dog is called Rex{n}."}]]
    inputs = changes.pop("inputs", ("history", "question", "focus"))
    fields = {
        "id": f"q{n}",
        "category": "pets",
        "history": History.parse(chat, id=f"ann{n}"),
        "question": "What is the dog called?",
        "focus": ("D1:1",),
        "answer": f"Rex{n}",
        **changes,
    }
    return dspy.Example(fields).with_inputs(*inputs)


def alike(kind: type[Any] = Alike, examples: Sequence[dspy.Example] | None = None) -> Any:
    return kind(examples or [example(n) for n in range(9)], Source("made", "0" * 64, sample=False))


def test_a_benchmark_that_keeps_its_promises_passes() -> None:
    check_benchmark(alike())


class Negative(TokenF1):
    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        found = super().score(example, prediction)
        return Score(-found.value, found.feedback)


class Endless(TokenF1):
    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return Score(1.0, "Right.", {"length": float("nan")})


class Moody(TokenF1):
    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return Score(1.0 if prediction.answer else random.random(), "Fine.", {"mood": random.random()})


class Silent(TokenF1):
    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return Score(super().score(example, prediction).value, "")


class SaysJudged(TokenF1):
    """Names a judge and scores without it."""

    roles: ClassVar = {"judge": object}


def scored(scorer: type[Scorer]) -> Callable[[], Any]:
    return lambda: alike(type("Scored", (Alike,), {"metrics": {"mine": scorer}}))


class Deaf(Alike):
    @classmethod
    def load(cls, path: str | Path | None = None, **options: Any) -> "Alike":
        return alike(cls)


class Falls(Alike):
    @classmethod
    def load(cls, path: str | Path | None = None) -> "Alike":  # pyright: ignore[reportIncompatibleMethodOverride]
        return alike(cls)


class Leaking(Alike):
    """Two questions about one conversation, one to train on and one to test on."""

    def split(self, *args: Any, **options: Any) -> Any:
        split = super().split(*args, **options)
        seen = split.train[0]
        return type(split)(split.train, split.dev, (seen.copy(id="again"), *split.test))


class Shuffled(Alike):
    def split(self, *args: Any, **options: Any) -> Any:
        return super().split(*args, **{**options, "seed": random.randrange(10**9)})


class CutTwice(Alike):
    """A question of the training part is a test question too."""

    def split(self, *args: Any, **options: Any) -> Any:
        split = super().split(*args, **options)
        return type(split)(split.train, split.dev, (*split.test, split.train[0]))


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
        (lambda: alike(CutTwice), "a question is in two parts of the split"),
        (lambda: alike(Leaking), "a conversation is in train and in another part of the split"),
        (lambda: alike(Shuffled), "the split differs from call to call"),
        (scored(Negative), "example q0: the gold answer scores -1.0"),
        (scored(Endless), "example q0: a score or part is no finite number"),
        (scored(Moody), "example q0: the same answer scores otherwise the second time"),
        (scored(Silent), "example q0: the feedback is empty"),
        (scored(SaysJudged), "a scorer that names judges scores without any; ask self.judge(role)"),
        (lambda: alike(Deaf), "load takes an option that does not exist; call refuse_options"),
        (lambda: alike(Falls), "load fails on an unknown option with TypeError; call refuse_options"),
    ],
    ids=[
        "repeated id",
        "no inputs",
        "gold answer shown",
        "unknown evidence",
        "history twice",
        "nothing asked",
        "question in two parts",
        "conversation in two parts",
        "split by chance",
        "gold below nothing",
        "not a number",
        "scores by chance",
        "no feedback",
        "judge not asked",
        "options in silence",
        "options with a traceback",
    ],
)
def test_a_broken_promise_is_named(make: Callable[[], Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        check_benchmark(make())
    assert line in str(caught.value)
