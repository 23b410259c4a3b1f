"""Benchmarks of the catalog: options, bundled samples, judges, and the split into three parts.

A program is trained on the questions of train, compared on those of dev, and evaluated on those of
test. Questions about one conversation stay together. The rules of the split stand at the top of
`data/split.py`.

Every benchmark has a bundled sample, which is read if the user names no file.
"""

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

from .forms import EXAMPLE_FILES, write_files

LOCOMO_CONVERSATIONS = [
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
"""The ten conversations of the released file."""

Examples = tuple[dspy.Example, ...]


def make_benchmark(folder: Path, conversations: int, questions_each: int = 9) -> Benchmark:
    """Return a benchmark of so many conversations, with so many questions about each."""
    [plain_row] = EXAMPLE_FILES["jsonl"]["own.jsonl"]
    rows: list[dict[str, Any]] = []
    for user in range(conversations):
        for number in range(questions_each):
            names = {"user": f"u{user}", "question": f"{number}?", "id": f"u{user}:{number}"}
            rows.append({**plain_row, **names})
    return benchmark("jsonl", write_files(folder, {"questions.jsonl": rows}))


def write_locomo(folder: Path, categories_by_conversation: dict[str, list[int]]) -> Path:
    """Write a file of LoCoMo with one question for each category in a list."""
    [plain_conversation] = EXAMPLE_FILES["locomo"]["locomo.json"]
    conversations: list[dict[str, Any]] = []
    for name, categories in categories_by_conversation.items():
        questions = [
            {"question": f"{number}?", "answer": "a", "evidence": [], "category": category}
            for number, category in enumerate(categories)
        ]
        conversations.append({**plain_conversation, "sample_id": name, "qa": questions})
    return write_files(folder, {"locomo.json": conversations})


def part_sizes(split: Split) -> list[int]:
    """Return the numbers of questions in train, dev and test."""
    return [len(split.train), len(split.dev), len(split.test)]


def example_ids(part: Examples) -> list[str]:
    return [example.id for example in part]


def conversations_of(part: Examples) -> set[str]:
    return {example.history.id for example in part}


def assert_parts_share_no_question(split: Split) -> None:
    for part, other_part in combinations([split.train, split.dev, split.test], 2):
        assert not set(example_ids(part)) & set(example_ids(other_part))


def assert_no_conversation_is_in_train_and_elsewhere(split: Split) -> None:
    held_out = conversations_of(split.dev) | conversations_of(split.test)
    assert not conversations_of(split.train) & held_out


def test_one_conversation_is_cut_into_three_equal_parts(tmp_path: Path) -> None:
    split = make_benchmark(tmp_path, conversations=1, questions_each=9).split()

    assert len(split.train) == 3
    assert len(split.dev) == 3
    assert len(split.test) == 3


def test_of_two_conversations_one_is_train_and_the_other_one_is_cut(tmp_path: Path) -> None:
    """Of the second conversation dev gets a third, and test the rest."""
    split = make_benchmark(tmp_path, conversations=2, questions_each=9).split()

    assert len(split.train) == 9
    assert len(split.dev) == 3
    assert len(split.test) == 6


@pytest.mark.parametrize(
    ("conversations", "train", "dev", "test"),
    [(3, 1, 1, 1), (12, 6, 3, 3), (14, 8, 3, 3)],
)
def test_dev_and_test_get_a_quarter_of_the_conversations_each(
    tmp_path: Path, conversations: int, train: int, dev: int, test: int
) -> None:
    """A quarter is rounded down, but is one conversation at least. Train gets the rest."""
    split = make_benchmark(tmp_path, conversations, questions_each=9).split()

    assert len(conversations_of(split.train)) == train
    assert len(conversations_of(split.dev)) == dev
    assert len(conversations_of(split.test)) == test
    assert len(split.train) + len(split.dev) + len(split.test) == conversations * 9


@pytest.mark.parametrize(
    ("conversations", "questions_each", "sizes"),
    [
        # A quarter is two conversations, with 14 questions. A third one makes it 21.
        pytest.param(10, 7, [28, 21, 21], id="dev and test get a third conversation each"),
        # Dev takes three conversations of six questions more. Then train has only two left.
        pytest.param(7, 6, [12, 24, 6], id="enough for dev and not for test"),
        # 20 questions are four of the six conversations.
        pytest.param(6, 6, [24, 6, 6], id="enough for neither"),
    ],
)
def test_dev_and_test_get_twenty_questions_if_train_keeps_enough_conversations(
    tmp_path: Path, conversations: int, questions_each: int, sizes: list[int]
) -> None:
    """A comparison of two programs needs 20 questions to give a verdict.

    `sizes` are the numbers of questions in train, dev and test. Train keeps ten questions at least.
    """
    split = make_benchmark(tmp_path, conversations, questions_each).split()

    assert part_sizes(split) == sizes
    assert_parts_share_no_question(split)
    assert_no_conversation_is_in_train_and_elsewhere(split)


@pytest.mark.parametrize(
    ("conversations", "questions_each", "sizes"),
    [
        pytest.param(1, 55, [15, 20, 20], id="enough for dev and test"),
        pytest.param(1, 45, [10, 20, 15], id="enough for dev"),
        pytest.param(1, 40, [14, 13, 13], id="enough for neither: three equal parts"),
        # The second conversation is cut into dev and test.
        pytest.param(2, 30, [30, 20, 10], id="the second of two has enough for dev"),
        pytest.param(2, 29, [29, 9, 20], id="the second of two has too few for dev"),
    ],
)
def test_dev_gets_twenty_questions_of_a_conversation_that_is_cut_if_ten_are_left(
    tmp_path: Path, conversations: int, questions_each: int, sizes: list[int]
) -> None:
    """A comparison of two programs needs 20 questions to give a verdict.

    `sizes` are the numbers of questions in train, dev and test. Ten stay where others are taken.
    """
    split = make_benchmark(tmp_path, conversations, questions_each).split()

    assert part_sizes(split) == sizes
    assert_parts_share_no_question(split)


def test_questions_outside_the_score_do_not_count_for_the_verdict(tmp_path: Path) -> None:
    """LoCoMo's headline score omits the questions of category 5, which have no gold answer.

    Dev must have 20 questions that count. Each conversation has four, so dev gets five of them.
    """
    categories = [4, 4, 4, 4, 5, 5, 5, 5]
    path = write_locomo(tmp_path, {f"talk-{number}": categories for number in range(14)})

    split = benchmark("locomo", path).split()

    assert len(conversations_of(split.dev)) == 5
    # Test keeps a quarter of the 14: what it holds must not depend on the metric.
    assert len(conversations_of(split.test)) == 3


def test_a_size_of_dev_is_taken_from_train(tmp_path: Path) -> None:
    """Each of the ten conversations has seven questions, so dev needs five of them for 30.

    By default dev has three. The other two come from train, and not from test.
    """
    loaded = make_benchmark(tmp_path, conversations=10, questions_each=7)

    split = loaded.split(dev=30)

    assert len(split.dev) == 30
    assert len(conversations_of(split.dev)) == 5
    assert len(conversations_of(split.test)) == 3
    assert len(conversations_of(split.train)) == 2
    assert not conversations_of(split.train) & conversations_of(split.dev)


def test_dev_leaves_one_conversation_for_train(tmp_path: Path) -> None:
    """More questions are wanted for dev than there are."""
    split = make_benchmark(tmp_path, conversations=10, questions_each=7).split(dev=1000)

    assert len(conversations_of(split.train)) == 1
    assert len(conversations_of(split.dev)) == 6
    assert len(conversations_of(split.test)) == 3


def test_a_larger_dev_contains_a_smaller_one(tmp_path: Path) -> None:
    loaded = make_benchmark(tmp_path, conversations=10, questions_each=7)

    small = loaded.split(dev=5)
    large = loaded.split(dev=30)

    assert set(example_ids(small.dev)) < set(example_ids(large.dev))


def test_the_test_part_holds_the_same_conversations_whatever_categories_are_loaded(
    tmp_path: Path,
) -> None:
    """A program may be trained on all categories, and tested on one.

    Each of the ten conversations has seven questions, of which two are of category 1.
    """
    categories = [1, 1, 4, 4, 4, 4, 4]
    path = write_locomo(tmp_path, {f"talk-{number}": categories for number in range(10)})

    all_categories = benchmark("locomo", path).split()
    one_category = benchmark("locomo", path, categories="1").split()

    assert {example.category for example in one_category.test} == {"1"}
    assert conversations_of(one_category.test) == conversations_of(all_categories.test)
    assert not conversations_of(all_categories.train) & conversations_of(one_category.test)


@pytest.mark.parametrize(
    "options",
    [{"dev": 5}, {"dev": 1000}, {"min_dev": 40}, {"min_dev": 1}, {"train": 1}, {"test": 1000}],
    ids=str,
)
def test_the_conversations_of_test_depend_on_no_size(
    tmp_path: Path, options: dict[str, int]
) -> None:
    """A program may be evaluated with other options than it was trained with.

    If the sizes changed the test part, it could get questions on which the program was trained.
    """
    loaded = make_benchmark(tmp_path, conversations=10, questions_each=7)
    default_test = conversations_of(loaded.split().test)

    split = loaded.split(**options)

    assert conversations_of(split.test) == default_test
    assert not conversations_of(split.train) & default_test


ANY_BENCHMARK = settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
CONVERSATIONS = st.sampled_from([1, 2, 3, 8, 10])
SEEDS = st.integers(0, 3)


@given(conversations=CONVERSATIONS, seed=SEEDS, train=st.integers(0, 40), test=st.integers(1, 8))
@ANY_BENCHMARK
def test_parts_share_no_question(
    tmp_path: Path, conversations: int, seed: int, train: int, test: int
) -> None:
    """The split is limited to `train` questions for training and `test` questions for the test."""
    loaded = make_benchmark(tmp_path, conversations, questions_each=9)

    split = loaded.split(train=train, test=test, seed=seed)

    assert_parts_share_no_question(split)
    if conversations > 1:
        assert_no_conversation_is_in_train_and_elsewhere(split)


@given(conversations=CONVERSATIONS, seed=SEEDS, train=st.integers(0, 40), test=st.integers(1, 8))
@ANY_BENCHMARK
def test_a_size_limits_its_part(
    tmp_path: Path, conversations: int, seed: int, train: int, test: int
) -> None:
    loaded = make_benchmark(tmp_path, conversations, questions_each=9)
    full_split = loaded.split(seed=seed)

    split = loaded.split(train=train, test=test, seed=seed)

    assert len(split.train) == min(train, len(full_split.train))
    assert len(split.test) == min(test, len(full_split.test))
    assert set(example_ids(split.train)) <= set(example_ids(full_split.train))


@given(conversations=CONVERSATIONS, seed=SEEDS, train=st.integers(0, 40), test=st.integers(1, 8))
@ANY_BENCHMARK
def test_the_questions_of_test_do_not_depend_on_the_sizes_of_the_other_parts(
    tmp_path: Path, conversations: int, seed: int, train: int, test: int
) -> None:
    loaded = make_benchmark(tmp_path, conversations, questions_each=9)

    split = loaded.split(train=train, test=test, seed=seed)
    with_other_sizes = loaded.split(train=5, dev=1, test=test, seed=seed)

    assert example_ids(with_other_sizes.test) == example_ids(split.test)


@given(conversations=st.sampled_from([8, 10]), seed=SEEDS)
@ANY_BENCHMARK
def test_the_seed_decides_the_split(tmp_path: Path, conversations: int, seed: int) -> None:
    """The digest of a split is a hash of all its questions."""
    loaded = make_benchmark(tmp_path, conversations, questions_each=9)

    digest = loaded.split(seed=seed).digest

    assert loaded.split(seed=seed).digest == digest
    assert loaded.split(seed=seed + 1).digest != digest


def test_questions_are_interleaved_by_conversation(tmp_path: Path) -> None:
    """The first six questions of train are about six different conversations.

    A file has all questions about the first conversation, then all about the second one. A program
    that is trained on the first questions only should see many conversations.
    """
    train = make_benchmark(tmp_path, conversations=12, questions_each=9).split().train

    assert len(conversations_of(train)) == 6
    assert len(conversations_of(train[:6])) == 6


def test_an_empty_part_is_refused(tmp_path: Path) -> None:
    """Two questions are too few for three parts."""
    loaded = make_benchmark(tmp_path, conversations=1, questions_each=2)

    problem = r"none left for dev \(questions: 2, conversations: 1\); .*, or set --dev 0"
    with pytest.raises(DataError, match=problem):
        loaded.split()


def test_a_part_of_size_zero_may_be_empty(tmp_path: Path) -> None:
    loaded = make_benchmark(tmp_path, conversations=1, questions_each=2)

    split = loaded.split(dev=0, test=0)

    assert part_sizes(split) == [2, 0, 0]


def test_a_negative_size_is_refused(tmp_path: Path) -> None:
    loaded = make_benchmark(tmp_path, conversations=1, questions_each=2)
    with pytest.raises(DataError, match="dev=-1"):
        loaded.split(dev=-1)


def test_the_published_split_of_locomo_is_used_even_if_only_some_categories_are_loaded(
    tmp_path: Path,
) -> None:
    """The published split divides the ten released conversations. In it conv-44 alone is dev.

    As in the release, conv-30 has no question of category 3, so it is in no part here.
    """
    categories = {name: [1, 3, 4] for name in LOCOMO_CONVERSATIONS}
    categories["conv-30"] = [1, 4]
    path = write_locomo(tmp_path, categories)

    split = benchmark("locomo", path, categories="3").split()

    assert conversations_of(split.dev) == {"conv-44"}
    assert "conv-30" not in conversations_of((*split.train, *split.test))


@pytest.mark.parametrize(
    "conversations",
    [
        pytest.param(LOCOMO_CONVERSATIONS[:9], id="one of the ten is missing"),
        pytest.param([*LOCOMO_CONVERSATIONS[:9], "conv-1"], id="one of the ten is another"),
    ],
)
def test_the_published_split_of_locomo_is_not_used_for_other_conversations(
    tmp_path: Path, conversations: list[str]
) -> None:
    """The published split divides the ten conversations of the released file."""
    path = write_locomo(tmp_path, {name: [1, 3, 4] for name in conversations})
    loaded: Any = benchmark("locomo", path)
    assert loaded.fixed_split() is None


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_refuses_unknown_options(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"option of {name} 'colour'"):
        benchmark(name, None, colour="blue")


def test_a_benchmark_of_ones_own_is_named_by_module_and_class(tmp_path: Path) -> None:
    """Any class of benchmarks can be named so; this one is also in the catalog, as "jsonl"."""
    path = write_files(tmp_path, EXAMPLE_FILES["jsonl"])

    loaded = benchmark("mempiler.data.jsonl:JsonlBenchmark", path, metric="exact")

    assert type(loaded).__name__ == "JsonlBenchmark"
    assert loaded.scorer.title == "exact match"


@pytest.mark.parametrize("name", ["implexconv", "personamem-v2", "longmemeval.preference"])
def test_a_request_for_advice_is_answered_with_a_response_to_the_user(name: str) -> None:
    """The task decides how a model is asked to answer.

    "personal-response" asks for advice to this user, other tasks ask for a short answer.
    """
    assert benchmark(name).task == "personal-response"


SAMPLES = [
    "locomo",
    "longmemeval",
    "msc",
    "implexconv",
    "memoryquest",
    "movielens",
    "omnibehavior",
    "palbench.select",
    "membench",
    "personamem",
    "personamem-v2",
]


@pytest.fixture(scope="module", params=SAMPLES)
def bundled_sample(request: pytest.FixtureRequest) -> Benchmark:
    """A benchmark without a file of the user: its bundled sample."""
    return benchmark(request.param)


def test_a_bundled_sample_is_without_faults(bundled_sample: Benchmark) -> None:
    name = bundled_sample.name
    assert bundled_sample.source.sample

    report = check(name, bundled_sample.source.path)

    assert report.ok is True
    # Two rows of this sample show which rows are left out.
    assert report.kinds == ({"left out": 2} if name == "personamem-v2" else {})
    for example in bundled_sample.examples:
        assert set(example.evidence_ids) <= set(example.history.turns)


def test_a_bundled_sample_has_every_category(bundled_sample: Benchmark) -> None:
    """The released files of PersonaMem lack one category, and so does its sample."""
    categories_of_examples = {example.category for example in bundled_sample.examples}

    absent_categories = set(bundled_sample.categories) - categories_of_examples

    if bundled_sample.name == "personamem":
        assert absent_categories == {"acknowledge_latest_user_preferences"}
    else:
        assert absent_categories == set()


def test_a_bundled_sample_is_large_enough_to_be_split(bundled_sample: Benchmark) -> None:
    """The sample is cut by groups: users or conversations. No group of train is in dev or test."""
    groups = {bundled_sample.group(example) for example in bundled_sample.examples}
    assert len(groups) >= 6
    assert len(bundled_sample.examples) >= 24

    split = bundled_sample.split()

    train_groups = {bundled_sample.group(example) for example in split.train}
    dev_groups = {bundled_sample.group(example) for example in split.dev}
    test_groups = {bundled_sample.group(example) for example in split.test}
    assert train_groups
    assert dev_groups
    assert test_groups
    assert not train_groups & (dev_groups | test_groups)


@pytest.mark.parametrize(
    ("name", "options", "expected_hash"),
    [
        ("locomo", {"metric": "judge"}, judge_hash(JudgeGenerously)),
        ("longmemeval", {}, judges_hash()),
        ("implexconv", {"metric": "recall"}, judge_hash(JudgeAcknowledgement)),
        ("memoryquest", {}, judge_hash(JudgeAcknowledgement)),
        ("memoryquest", {"metric": "recall_strict"}, judge_hash(JudgeAcknowledgementStrictly)),
        ("palbench.restate", {"metric": "g_score"}, judge_hash(NeedsJudge.signature)),
    ],
)
def test_a_judged_metric_has_the_hash_of_its_prompt_and_needs_a_judge(
    name: str, options: dict[str, str], expected_hash: str
) -> None:
    """A judge is a model that scores answers. The user names the model by `--judge-lm`.

    Two scores can be compared only if the judges had the same prompt, that is, the same hash.
    """
    loaded = benchmark(name, **options)

    assert loaded.scorer.judge_hash == expected_hash
    with pytest.raises(UserError, match="--judge-lm"):
        loaded.score(loaded.examples[0], dspy.Prediction(answer="x"))
