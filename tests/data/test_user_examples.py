"""Your own examples in Python: every field is read rightly, or refused with its name.

Users may give their examples as DSPy objects: a question, its answer, and a history, from which a
memory is made. `from_examples` makes a benchmark of them. Evidence lists the turns that hold the
answer: D1:1 is the first turn of session 1.
"""

import functools
import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import dspy
import mempiler
import numpy as np
import pandas as pd
import pytest
from mempiler.data.benchmark import Benchmark
from mempiler.errors import DataError


def make_example(number: int = 1, **fields: Any) -> dspy.Example:
    """Return a question of the user with this number, with other or further fields."""
    plain_fields: dict[str, Any] = {
        "history": [{"role": "user", "content": f"I moved to Porto, number {number}."}],
        "question": "Where?",
        "answer": "Porto",
        "user": f"user-{number}",
    }
    return dspy.Example({**plain_fields, **fields})


def read_one(**fields: Any) -> dspy.Example:
    """Return the example that a benchmark reads from one with these fields."""
    [read_example] = Benchmark.from_examples([make_example(**fields)]).examples
    return read_example


def test_a_zero_is_an_id_a_user_and_a_category() -> None:
    """A zero is false in Python, so code such as `if id` would take it for a missing value."""
    read_example = read_one(id=0, user=0, category=0)
    assert read_example.id == "0"
    assert read_example.history.id == "0"
    assert read_example.category == "0"


def test_the_id_zero_is_not_given_twice() -> None:
    with pytest.raises(DataError, match=r"trainset\[1\]: id '0' is used twice"):
        Benchmark.from_examples([make_example(1, id=0), make_example(2, id=0)])


EMPTY_CELLS = pytest.mark.parametrize(
    "empty",
    [
        pytest.param(None, id="None"),
        pytest.param(float("nan"), id="nan"),
        pytest.param(np.float32("nan"), id="nan of NumPy"),
        pytest.param(pd.NA, id="NA"),
        pytest.param(pd.NaT, id="NaT"),
    ],
)


@EMPTY_CELLS
def test_an_empty_cell_of_a_data_frame_is_a_missing_field(empty: object) -> None:
    """A user without an id is named by the content of the history, and the question by the user."""
    read_example = read_one(id=empty, user=empty, category=empty, evidence=empty)
    assert read_example.history.id == read_example.history.digest[:12]
    assert read_example.id == f"{read_example.history.id}:0"
    assert read_example.category == "all"


@EMPTY_CELLS
def test_an_answer_that_is_an_empty_cell_is_refused(empty: object) -> None:
    """The examples may come from a data frame of pandas, whose empty cells have several forms."""
    with pytest.raises(DataError, match=r"trainset\[0\]: answer is empty; fill it in"):
        Benchmark.from_examples([make_example(answer=empty)])


@pytest.mark.parametrize("name", ["evidence", "evidence_ids"])
def test_evidence_in_one_text_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=rf"{name} is 'D1:1'; give a list of turn ids"):
        Benchmark.from_examples([make_example(**{name: "D1:1"})])


TWO_TURNS = [
    {"role": "user", "content": "I moved to Porto."},
    {"role": "user", "content": "Yes."},
]


def test_two_different_lists_of_evidence_are_refused() -> None:
    """Evidence may be given as `evidence_ids` or as `evidence`."""
    example = make_example(history=TWO_TURNS, evidence_ids=["D1:1"], evidence=["D1:2"])
    with pytest.raises(DataError, match="two names of one field, and differ"):
        Benchmark.from_examples([example])


@pytest.mark.parametrize("other_list", [[], "", ["D1:2", "D1:1"]], ids=str)
def test_the_same_evidence_in_another_order_or_in_only_one_list_is_no_difference(
    other_list: object,
) -> None:
    """Evidence may be given as `evidence_ids`, as `evidence`, or as both."""
    read_example = read_one(history=TWO_TURNS, evidence_ids=["D1:1", "D1:2"], evidence=other_list)
    assert set(read_example.evidence_ids) == {"D1:1", "D1:2"}


def test_a_history_of_dspy_is_read_by_its_messages() -> None:
    """DSPy has a class for histories of its own, which holds a list of messages."""
    from_dspy = read_one(history=dspy.History(messages=TWO_TURNS))
    from_messages = read_one(history=TWO_TURNS)
    assert from_dspy.history == from_messages.history


def test_a_made_up_id_is_never_the_id_of_another_example() -> None:
    """An example without an id gets its user's id and a number, here 0 to 3.

    The numbers 0 and 2 are taken, so the others get 1 and 3.
    """
    benchmark = Benchmark.from_examples(
        [make_example(), make_example(question="When?", id="user-1:2")],
        valset=[make_example(question="Why?")],
        testset=[make_example(question="Who?", id="user-1:0")],
    )
    ids_by_question = {example.question: example.id for example in benchmark.examples}
    assert ids_by_question == {
        "Where?": "user-1:1",
        "When?": "user-1:2",
        "Why?": "user-1:3",
        "Who?": "user-1:0",
    }


def train_and_dev(*trainset: dspy.Example, seed: int = 0) -> tuple[Any, Any]:
    """Divide examples into those to train on, and a third that is held out: dev.

    There is a testset beside them, so no test part is taken from them.
    """
    split = Benchmark.from_examples(list(trainset), testset=[make_example(9)], seed=seed).split()
    return split.train, split.dev


def test_one_example_is_not_enough_to_hold_a_third_out() -> None:
    """Without a valset, a third of the trainset is held out, and nothing is trained on it."""
    with pytest.raises(DataError, match="it has 1 example; add more, or give a valset"):
        train_and_dev(make_example(1))


def test_of_two_examples_one_is_held_out() -> None:
    """Without a valset, a third of the trainset is held out, and nothing is trained on it."""
    train, dev = train_and_dev(make_example(1), make_example(2))
    assert len(train) == 1
    assert len(dev) == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_conversation_with_nearly_all_examples_is_divided_into_train_and_dev(seed: int) -> None:
    """User 3 has 28 of the 30 examples. To hold out a third, 10, they have to be divided."""
    examples_of_user_3 = [make_example(3) for _ in range(28)]

    train, dev = train_and_dev(make_example(1), make_example(2), *examples_of_user_3, seed=seed)

    assert len(train) == 20
    assert len(dev) == 10


@pytest.mark.parametrize("seed", range(6))
def test_a_conversation_that_is_far_too_long_is_not_held_out_beside_short_ones(seed: int) -> None:
    """The users 1 to 3 have four examples each, and user 4 has twenty.

    A third of all is about ten examples. Two of the short conversations come near that.
    """
    examples: list[dspy.Example] = []
    for short_user in (1, 2, 3):
        examples += [make_example(short_user) for _ in range(4)]
    examples += [make_example(4) for _ in range(20)]

    train, dev = train_and_dev(*examples, seed=seed)

    assert len(dev) == 8
    train_users = {example.history.id for example in train}
    dev_users = {example.history.id for example in dev}
    assert not train_users & dev_users


def digest_of(**fields: Any) -> str:
    """Return the digest of one example with further fields, by which a resumed run is compared."""
    return Benchmark.from_examples([make_example(**fields)]).source.sha256


class Note:
    """An object whose `repr` shows only its address."""


class Rubric:
    """An object with content, and without a `repr` that shows it."""

    def __init__(self, *criteria: object) -> None:
        self.criteria = list(criteria)


@dataclass
class Gold:
    """A label that shows only a part of its content."""

    words: set[str]
    note: str = field(default="", repr=False)


def frame(middle: int) -> pd.DataFrame:
    """Return a data frame whose `repr` leaves out its middle."""
    return pd.DataFrame({"value": [*range(500), middle, *range(500)]})


def is_city(answer: str) -> bool:
    return bool(answer)


def is_country(answer: str) -> bool:
    return bool(answer)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("tea", "coffee"),
        (1, "1"),
        ({"drinks": ["tea"]}, {"drinks": ["coffee"]}),
        ({"tea", "milk"}, {"tea", "water"}),
        (dspy.Example(drink="tea"), dspy.Example(drink="coffee")),
        (mempiler.History(id="a"), mempiler.History(id="b")),
        (b"tea", b"coffee"),
        (Rubric("tea"), Rubric("coffee")),
        (Gold({"tea"}, "a"), Gold({"tea"}, "b")),
        (frame(middle=1), frame(middle=2)),
        (frame(middle=1), frame(middle=1).rename(columns={"value": "other"})),
        (frame(middle=1)["value"], frame(middle=2)["value"]),
        (np.arange(2000), np.arange(2000)[::-1]),
        (pd.Timestamp("2026-01-01"), pd.Timestamp("2026-01-01", tz="UTC")),
        # Python refuses to write such long numbers as text.
        ([10**5000], [10**5000 + 1]),
        (np.ndarray, np.generic),
        (is_city, is_country),
        (re.compile("a" * 500), re.compile("a" * 499 + "b")),
        (Decimal("1.0"), Decimal("1.1")),
        (Path("tea"), Path("coffee")),
    ],
)
def test_another_label_of_any_kind_makes_another_digest(first: Any, second: Any) -> None:
    """A label is any further field of an example. The digest identifies the data of a run.

    When the run is resumed, a changed label has to be noticed.
    """
    assert digest_of(label=first) != digest_of(label=second)
    assert digest_of(label=first) == digest_of(label=first)


def test_the_digest_depends_on_no_address() -> None:
    """The digest identifies the data of a run, and must be the same when the run is resumed.

    A `Note` shows only where it lies in memory: `<Note object at 0x7f3a...>`.
    """
    # Both objects live at once, so their addresses differ.
    first_note = Note()
    second_note = Note()
    assert digest_of(label=first_note) == digest_of(label=second_note)


def test_the_digest_depends_on_no_order_of_fields_and_keys() -> None:
    """The digest identifies the data of a run, and must be the same when the run is resumed."""
    assert digest_of(label="tea", other="milk") == digest_of(other="milk", label="tea")
    assert digest_of(label={"a": 1, 2: "b"}) == digest_of(label={2: "b", "a": 1})


def digest_of_sets() -> str:
    """Return the digest of an example with sets, which have so many words that orders differ."""
    drinks = {"tea", "milk", "water", "coffee", "juice", "cocoa", "soda", "wine", "beer", "cider"}
    return digest_of(label=Gold(drinks), other=Rubric(drinks))


def test_the_digest_of_sets_in_objects_is_the_same_in_every_process() -> None:
    """The order of a set of texts differs from process to process.

    So the digest is computed here and in another process.
    """
    program = "from tests.data.test_user_examples import digest_of_sets\nprint(digest_of_sets())"
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )

    assert process.stdout.strip() == digest_of_sets()


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        (CYCLE, "contains itself, or more than 100 levels"),
        (object(), "holds an object of builtins.object, which does not show its content"),
        (Rubric(threading.Lock()), "holds an object of _thread.lock"),
        (functools.partial(is_city, "a"), "holds an object of functools.partial"),
        (lambda answer: answer, "lambda>, a function that its name does not identify"),
    ],
)
def test_a_label_that_cannot_be_compared_is_refused_with_its_field(
    label: object, problem: str
) -> None:
    """A label is any further field of an example. A resumed run has to notice a changed label.

    That is impossible for these values, since they do not show what they hold.
    """
    with pytest.raises(DataError, match=rf"example 'user-1:0': the field 'label' .*{problem}"):
        digest_of(label=label)
