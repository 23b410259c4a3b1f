"""Examples of a user's own, in Python: nothing about them is lost or misread without a word."""

from typing import Any

import dspy
import mempiler
import pytest
from mempiler.data.benchmark import Benchmark
from mempiler.errors import DataError


def example(number: int = 1, **fields: Any) -> dspy.Example:
    """A question of one user, with other or further fields."""
    plain_fields: dict[str, Any] = {
        "history": [{"role": "user", "content": f"I moved to Porto, number {number}."}],
        "question": "Where?",
        "answer": "Porto",
        "user": f"user-{number}",
    }
    return dspy.Example({**plain_fields, **fields})


def test_a_zero_is_an_id_a_user_and_a_category() -> None:
    [read] = Benchmark.from_examples([example(id=0, user=0, category=0)]).examples
    assert (read.id, read.history.id, read.category) == ("0", "0", "0")


def test_the_id_zero_is_not_given_twice() -> None:
    with pytest.raises(DataError, match=r"trainset\[1\]: id '0' is used twice"):
        Benchmark.from_examples([example(id=0), example(2, id=0)])


def test_an_empty_cell_of_a_data_frame_is_a_missing_field() -> None:
    empty = float("nan")
    [read] = Benchmark.from_examples([example(id=empty, user=empty, category=empty)]).examples
    assert (read.id, read.category) == (f"{read.history.id}:0", "all")
    with pytest.raises(DataError, match="lacks answer"):
        Benchmark.from_examples([example(answer=empty)])


@pytest.mark.parametrize("name", ["evidence", "evidence_ids"])
def test_evidence_in_one_text_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=rf"{name} is 'D1:1'; give a list of turn ids"):
        Benchmark.from_examples([example(**{name: "D1:1"})])


def test_evidence_goes_by_the_name_that_benchmarks_have_for_it() -> None:
    [read] = Benchmark.from_examples([example(evidence_ids=["D1:1"])]).examples
    assert read.evidence_ids == read.evidence == ("D1:1",)


def test_two_different_lists_of_evidence_are_refused() -> None:
    with pytest.raises(DataError, match="two names of one field, and differ"):
        Benchmark.from_examples([example(evidence_ids=["D1:1"], evidence=[])])


def test_the_questions_of_a_benchmark_keep_their_evidence_as_examples() -> None:
    locomo = mempiler.benchmark("locomo")
    own = Benchmark.from_examples(locomo.examples)
    assert [each.evidence_ids for each in own.examples] == [
        each.evidence_ids for each in locomo.examples
    ]


def test_one_example_is_not_enough_to_hold_a_third_out() -> None:
    with pytest.raises(DataError, match="it has 1 example; add more, or give a valset"):
        Benchmark.from_examples([example(1)], testset=[example(9)])


def test_of_two_examples_one_is_held_out() -> None:
    split = Benchmark.from_examples([example(1), example(2)], testset=[example(9)]).split()
    assert (len(split.train), len(split.dev)) == (1, 1)


@pytest.mark.parametrize("seed", range(6))
def test_a_conversation_with_nearly_all_examples_leaves_something_to_learn_from(seed: int) -> None:
    examples = [example(1), example(2), *[example(3) for _ in range(30)]]
    split = Benchmark.from_examples(examples, testset=[example(9)], seed=seed).split()
    assert split.train
    assert split.dev


def digest_of(**fields: Any) -> str:
    """The digest by which a resumed run is compared, of one example with further fields."""
    return Benchmark.from_examples([example(**fields)]).source.sha256


class Note:
    """An object that shows its address."""


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
    ],
)
def test_another_label_of_any_kind_makes_other_questions(first: Any, second: Any) -> None:
    assert digest_of(label=first) != digest_of(label=second)
    assert digest_of(label=first) == digest_of(label=first)


def test_the_digest_depends_on_no_address_and_no_order_of_fields() -> None:
    assert digest_of(label=Note(), other=[Note]) == digest_of(other=[Note], label=Note())
    assert digest_of(label={"a": 1, 2: "b"}) == digest_of(label={2: "b", "a": 1})
