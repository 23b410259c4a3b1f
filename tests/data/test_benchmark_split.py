"""Benchmarks by name: options, judges, refusals, bundled samples, and how they are cut into train, dev and test."""

from itertools import combinations
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mempiler.data.benchmark import Benchmark
from mempiler.data.catalog import BENCHMARKS, benchmark
from mempiler.data.check import check
from mempiler.data.dataset import Split
from mempiler.data.palbench.benchmark import NeedsJudge
from mempiler.errors import DataError, UnknownNameError, UserError
from mempiler.signatures.judges import (
    JudgeAcknowledgement,
    JudgeAcknowledgementStrictly,
    JudgeGenerously,
    judge_hash,
    judges_hash,
)

from .forms import FORMS, write

TEN = [
    "conv-26",
    "conv-30",
    "conv-41",
    "conv-42",
    "conv-43",
    "conv-44",
    "conv-47",
    "conv-48",
    "conv-49",
    "conv-50",
]


def questions(folder: Path, conversations: int, each: int = 9) -> Benchmark:
    (row,) = FORMS["jsonl"]["own.jsonl"]
    pairs = [(user, n) for user in range(conversations) for n in range(each)]
    rows = [
        {**row, "user": f"u{user}", "question": f"{n}?", "id": f"u{user}:{n}"} for user, n in pairs
    ]
    return benchmark("jsonl", write(folder, {"questions.jsonl": rows}))


def locomo(folder: Path, conversations: list[str], **options: Any) -> Benchmark:
    (talk,) = FORMS["locomo"]["locomo.json"]
    file = []
    for id in conversations:
        categories = (1, 4) if id == "conv-30" else (1, 3, 4)
        qa = [
            {"question": f"{n}?", "answer": "a", "evidence": [], "category": n} for n in categories
        ]
        file.append({**talk, "sample_id": id, "qa": qa})
    return benchmark("locomo", write(folder, {"locomo.json": file}), **options)


def parts(split: Split) -> list[tuple[Any, ...]]:
    return [split.train, split.dev, split.test]


def ids(part: tuple[Any, ...]) -> list[str]:
    return [example.id for example in part]


def groups(part: tuple[Any, ...]) -> set[str]:
    return {example.history.id for example in part}


@pytest.mark.parametrize(
    ("conversations", "sizes"),
    [
        (1, [3, 3, 3]),  # 9 questions cut in three
        (2, [9, 3, 6]),  # the second conversation's 9 are cut into a third and the rest
        (3, [9, 9, 9]),  # a conversation each
        (12, [54, 27, 27]),  # 6, 3 and 3 conversations
        (14, [72, 27, 27]),  # 14 // 4 = 3 for dev and test each, 8 for train
    ],
)
def test_sizes_by_number_of_conversations(
    tmp_path: Path, conversations: int, sizes: list[int]
) -> None:
    assert [len(part) for part in parts(questions(tmp_path, conversations).split())] == sizes


@pytest.mark.parametrize(
    ("conversations", "each", "sizes"),
    [
        # A quarter is 2 conversations of 7; a third one makes 21 of dev and test each, and leaves 28.
        (10, 7, [28, 21, 21]),
        # Test would need 4 of 6 conversations, which leaves too few for the others; so would dev.
        (6, 6, [24, 6, 6]),
        # Dev takes 3 more of 7 conversations of 6, test none: without them dev and train had 18, less than 20 + 10.
        (7, 6, [12, 24, 6]),
        # One conversation: a third of 55 is 18, a third of 45 is 15, of which test could have 20 only without dev's.
        (1, 55, [15, 20, 20]),
        (1, 45, [10, 20, 15]),
        (1, 40, [14, 13, 13]),
        # Two: dev has 20 of the second's questions if test keeps 10.
        (2, 30, [30, 20, 10]),
        (2, 29, [29, 9, 20]),
    ],
)
def test_dev_and_test_get_what_a_verdict_needs_where_the_data_allow(
    tmp_path: Path, conversations: int, each: int, sizes: list[int]
) -> None:
    found = questions(tmp_path, conversations, each)
    split = found.split()
    assert [len(part) for part in parts(split)] == sizes
    if conversations > 1:
        assert not groups(split.train) & (groups(split.dev) | groups(split.test))
    assert len({id for part in parts(split) for id in ids(part)}) == sum(sizes)


def test_questions_outside_the_score_do_not_help_to_a_verdict(tmp_path: Path) -> None:
    """Fourteen conversations of four questions that count and four that do not: five of them have 20 that count.

    Test holds three with 24, because what it holds must not depend on the metric.
    """
    (talk,) = FORMS["locomo"]["locomo.json"]
    qa = [
        {"question": f"{n}?", "answer": "a", "evidence": [], "category": 4 if n < 4 else 5}
        for n in range(8)
    ]
    file = [{**talk, "sample_id": f"talk-{n}", "qa": qa} for n in range(14)]
    found = benchmark("locomo", write(tmp_path, {"locomo.json": file}))
    assert [len(part) for part in parts(found.split())] == [48, 40, 24]


def test_a_size_of_dev_is_taken_from_train_and_never_from_test(tmp_path: Path) -> None:
    found = questions(tmp_path, 10, each=7)
    whole, larger, all_of_it = (found.split(dev=size) for size in (None, 30, 1000))
    assert len(larger.dev) == 30
    assert len(larger.train) == 70 - 21 - 35
    # One conversation stays for train.
    assert len(all_of_it.dev) == 42
    assert len(all_of_it.train) == 7
    assert not groups(larger.train) & groups(larger.dev)
    assert ids(larger.test) == ids(all_of_it.test) == ids(whole.test)
    assert set(ids(found.split(dev=5).dev)) < set(ids(larger.dev)) < set(ids(all_of_it.dev))


def test_test_holds_the_same_conversations_whatever_categories_are_asked_of(tmp_path: Path) -> None:
    """Of ten conversations of seven questions three are test; with two questions of each it would be more."""
    (talk,) = FORMS["locomo"]["locomo.json"]
    qa = [
        {"question": f"{n}?", "answer": "a", "evidence": [], "category": 1 if n < 2 else 4}
        for n in range(7)
    ]
    path = write(
        tmp_path, {"locomo.json": [{**talk, "sample_id": f"talk-{n}", "qa": qa} for n in range(10)]}
    )
    whole = benchmark("locomo", path).split()
    some = benchmark("locomo", path, categories="1").split()
    assert len(whole.test) == 21
    assert len(some.test) == 6
    assert groups(some.test) == groups(whole.test)
    assert not groups(whole.train) & groups(some.test)


def test_test_depends_neither_on_sizes_nor_on_what_a_verdict_needs(tmp_path: Path) -> None:
    """A program is evaluated on `--split test` with options of its own: nothing may have leaked."""
    found = questions(tmp_path, 10, each=7)
    test = groups(found.split().test)
    for options in ({"dev": 40}, {"min_dev": 40}, {"min_dev": 1}, {"train": 1}, {"test": 1000}):
        split = found.split(**options)
        assert groups(split.test) == test, options
        assert not groups(split.train) & test, options


@given(st.sampled_from([1, 2, 3, 8, 10]), st.integers(0, 3), st.integers(0, 40), st.integers(1, 8))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_split_keeps_its_promises(
    tmp_path: Path, conversations: int, seed: int, train: int, test: int
) -> None:
    """Parts share nothing, the seed decides, and the size of one part does not change another."""
    found = questions(tmp_path, conversations)
    split, whole = found.split(train, None, test, seed=seed), found.split(seed=seed)
    taken = [set(ids(part)) for part in parts(split)]
    assert all(not one & other for one, other in combinations(taken, 2))
    if conversations > 1:
        assert not groups(split.train) & (groups(split.dev) | groups(split.test))
    assert len(split.train) == min(train, len(whole.train))
    assert len(split.test) == min(test, len(whole.test))
    assert set(ids(split.train)) <= set(ids(whole.train))
    assert ids(split.test) == ids(found.split(5, 1, test, seed=seed).test)
    assert split.digest == found.split(train, None, test, seed=seed).digest
    if conversations >= 8:
        assert whole.digest != found.split(seed=seed + 1).digest


def test_questions_are_interleaved_and_an_empty_part_is_refused_unless_nothing_is_asked_of_it(
    tmp_path: Path,
) -> None:
    assert len({example.history.id for example in questions(tmp_path, 12).split().train[:6]}) == 6
    found = questions(tmp_path, 1, each=2)
    with pytest.raises(
        DataError, match=r"none left for dev \(questions: 2, conversations: 1\); .*, or set --dev 0"
    ):
        found.split()
    assert len(found.split(dev=0, test=0).train) == 2
    with pytest.raises(DataError, match="dev=-1"):
        found.split(dev=-1)


def test_the_fields_own_split_holds_for_some_categories_and_for_no_other_conversations(
    tmp_path: Path,
) -> None:
    split = locomo(tmp_path, TEN, categories="3").split()
    assert groups(split.dev) == {"conv-44"}
    assert "conv-30" not in groups(split.test)
    for others in (TEN[:9], [*TEN[:9], "conv-1"]):
        assert locomo(tmp_path, others).fixed_split() is None


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_of_the_catalog_loads_and_refuses_unknown_options(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"option of {name} 'colour'"):
        benchmark(name, None, colour="blue")


def test_a_custom_benchmark_is_named_by_module_and_class(tmp_path: Path) -> None:
    path = write(tmp_path, FORMS["jsonl"])
    loaded = benchmark("mempiler.data.jsonl:JsonlBenchmark", path, metric="exact")
    assert type(loaded).__name__ == "JsonlBenchmark"
    assert loaded.scorer.title == "exact match"


SAMPLES = (
    "locomo",
    "longmemeval",
    "msc",
    "implexconv",
    "memoryquest",
    "movielens",
    "omnibehavior",
    "palbench.select",
)


@pytest.mark.parametrize("name", [*SAMPLES, "membench", "personamem", "personamem-v2"])
def test_a_bundled_sample_is_large_enough_fit_to_load_and_can_be_split(name: str) -> None:
    loaded = benchmark(name)
    assert loaded.source.sample
    assert len(loaded.examples) >= 24
    assert len({loaded.group(example) for example in loaded.examples}) >= 6
    assert all(
        set(example.evidence_ids) <= set(example.history.turns) for example in loaded.examples
    )
    absent = set(loaded.categories) - {example.category for example in loaded.examples}
    assert absent == ({"acknowledge_latest_user_preferences"} if name == "personamem" else set())
    report = check(name, loaded.source.path)
    assert report.ok is True
    assert report.kinds == ({"left out": 2} if name == "personamem-v2" else {})
    split = loaded.split()
    parts = [
        {loaded.group(example) for example in part} for part in (split.train, split.dev, split.test)
    ]
    assert all(parts)
    assert not parts[0] & (parts[1] | parts[2])


JUDGED: list[tuple[str, str | None, str | None]] = [
    ("locomo", "judge", judge_hash(JudgeGenerously)),
    ("longmemeval", None, judges_hash()),
    ("implexconv", "recall", judge_hash(JudgeAcknowledgement)),
    ("memoryquest", None, judge_hash(JudgeAcknowledgement)),
    ("memoryquest", "recall_strict", judge_hash(JudgeAcknowledgementStrictly)),
    ("memoryquest", "evidence", None),
    ("palbench.restate", "g_score", judge_hash(NeedsJudge.signature)),
]
"""Benchmark, metric, and the hash of the prompt that judges, if one does."""


@pytest.mark.parametrize(("name", "metric", "hash"), JUDGED)
def test_a_metric_that_needs_a_judge_has_the_hash_of_its_prompt_and_refuses_to_score_without(
    name, metric, hash
) -> None:
    found = benchmark(name, **({"metric": metric} if metric else {}))
    assert found.scorer.judge_hash == hash
    if hash:
        with pytest.raises(UserError, match="--judge-lm"):
            found.score(found.examples[0], dspy.Prediction(answer="x"))
