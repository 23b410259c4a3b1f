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
def test_the_number_of_conversations_decides_the_sizes_of_train_dev_and_test(
    tmp_path: Path, conversations: int, sizes: list[int]
) -> None:
    """Each conversation has nine questions, and stays in one part, if there are three or more."""
    split = make_benchmark(tmp_path, conversations, questions_each=9).split()
    assert part_sizes(split) == sizes


@pytest.mark.parametrize(
    ("conversations", "questions_each", "sizes"),
    [
        # A quarter is 2 conversations of 7 questions. A third one makes 21 questions of dev and
        # of test, and leaves 28.
        (10, 7, [28, 21, 21]),
        # Test would need 4 of 6 conversations, which leaves too few for the others. So would dev.
        (6, 6, [24, 6, 6]),
        # Dev takes 3 more of 7 conversations of 6 questions, test none: without them dev and
        # train had 18, less than 20 + 10.
        (7, 6, [12, 24, 6]),
        # One conversation: a third of 55 is 18, a third of 45 is 15. Of the 45, test could have 20
        # only without dev's.
        (1, 55, [15, 20, 20]),
        (1, 45, [10, 20, 15]),
        (1, 40, [14, 13, 13]),
        # Two conversations: dev has 20 of the second's questions if test keeps 10.
        (2, 30, [30, 20, 10]),
        (2, 29, [29, 9, 20]),
    ],
)
def test_dev_and_test_get_twenty_questions_where_the_data_allow(
    tmp_path: Path, conversations: int, questions_each: int, sizes: list[int]
) -> None:
    """A verdict, whether one program is better than another, needs 20 questions.

    Dev and test take them from train, of which 10 questions have to stay. `sizes` are those of
    train, dev and test.
    """
    split = make_benchmark(tmp_path, conversations, questions_each).split()

    assert part_sizes(split) == sizes
    assert_parts_share_no_question(split)
    if conversations > 1:
        assert_no_conversation_is_in_train_and_elsewhere(split)


def test_questions_outside_the_score_do_not_count_for_the_verdict(tmp_path: Path) -> None:
    """LoCoMo's questions of category 5 have no gold answer, so its headline score omits them."""
    # Of the eight questions of each conversation, the four of category 5 do not count. So dev
    # needs five conversations for 20 questions that count. Test holds three with 24 questions,
    # because what it holds must not depend on the metric.
    categories = [4, 4, 4, 4, 5, 5, 5, 5]
    path = write_locomo(tmp_path, {f"talk-{number}": categories for number in range(14)})

    split = benchmark("locomo", path).split()

    assert part_sizes(split) == [48, 40, 24]


def test_a_size_of_dev_is_taken_from_train(tmp_path: Path) -> None:
    """By default dev has three conversations here. For 30 questions it needs two more."""
    split = make_benchmark(tmp_path, conversations=10, questions_each=7).split(dev=30)

    # Dev takes five conversations of seven questions, of which it uses 30, and test has three.
    # They are not in train.
    assert part_sizes(split) == [70 - 5 * 7 - 3 * 7, 30, 3 * 7]
    assert not conversations_of(split.train) & conversations_of(split.dev)


def test_dev_leaves_one_conversation_for_train(tmp_path: Path) -> None:
    """Of the ten conversations one is train, six are dev and three are test."""
    split = make_benchmark(tmp_path, conversations=10, questions_each=7).split(dev=1000)
    assert part_sizes(split) == [1 * 7, 6 * 7, 3 * 7]


def test_a_larger_dev_contains_a_smaller_one(tmp_path: Path) -> None:
    """A size that is too large, such as 1000, gives all questions that dev may have."""
    loaded = make_benchmark(tmp_path, conversations=10, questions_each=7)
    small = loaded.split(dev=5)
    large = loaded.split(dev=30)
    largest = loaded.split(dev=1000)

    assert set(example_ids(small.dev)) < set(example_ids(large.dev))
    assert set(example_ids(large.dev)) < set(example_ids(largest.dev))


@pytest.mark.parametrize("dev", [5, 30, 1000])
def test_the_size_of_dev_leaves_test_as_it_is(tmp_path: Path, dev: int) -> None:
    loaded = make_benchmark(tmp_path, conversations=10, questions_each=7)
    assert example_ids(loaded.split(dev=dev).test) == example_ids(loaded.split().test)


def test_the_test_part_holds_the_same_conversations_whatever_categories_are_loaded(
    tmp_path: Path,
) -> None:
    """Of ten conversations with seven questions, three are test.

    If only the two questions of category 1 counted, test would need more conversations.
    """
    categories = [1, 1, 4, 4, 4, 4, 4]
    path = write_locomo(tmp_path, {f"talk-{number}": categories for number in range(10)})

    all_categories = benchmark("locomo", path).split()
    one_category = benchmark("locomo", path, categories="1").split()

    assert len(all_categories.test) == 21
    assert len(one_category.test) == 6
    assert conversations_of(one_category.test) == conversations_of(all_categories.test)
    assert not conversations_of(all_categories.train) & conversations_of(one_category.test)


@pytest.mark.parametrize(
    "options", [{"dev": 40}, {"min_dev": 40}, {"min_dev": 1}, {"train": 1}, {"test": 1000}]
)
def test_the_test_part_depends_neither_on_sizes_nor_on_what_a_verdict_needs(
    tmp_path: Path, options: dict[str, int]
) -> None:
    """A program is evaluated on test with other options than it was trained with.

    No question of test may have been trained on.
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
    """The numbers `train` and `test` limit the sizes of these parts."""
    loaded = make_benchmark(tmp_path, conversations, questions_each=9)

    split = loaded.split(train=train, test=test, seed=seed)

    assert_parts_share_no_question(split)
    if conversations > 1:
        assert_no_conversation_is_in_train_and_elsewhere(split)


@given(conversations=CONVERSATIONS, seed=SEEDS, train=st.integers(0, 40), test=st.integers(1, 8))
@ANY_BENCHMARK
def test_a_size_limits_its_own_part_and_changes_no_other(
    tmp_path: Path, conversations: int, seed: int, train: int, test: int
) -> None:
    """The numbers `train` and `test` limit the sizes of these parts."""
    loaded = make_benchmark(tmp_path, conversations, questions_each=9)
    full_split = loaded.split(seed=seed)

    split = loaded.split(train=train, test=test, seed=seed)
    with_other_sizes = loaded.split(train=5, dev=1, test=test, seed=seed)

    assert len(split.train) == min(train, len(full_split.train))
    assert len(split.test) == min(test, len(full_split.test))
    assert set(example_ids(split.train)) <= set(example_ids(full_split.train))
    assert example_ids(with_other_sizes.test) == example_ids(split.test)


@given(conversations=CONVERSATIONS, seed=SEEDS)
@ANY_BENCHMARK
def test_the_same_seed_makes_the_same_split(tmp_path: Path, conversations: int, seed: int) -> None:
    """The digest of a split is that of all its questions."""
    loaded = make_benchmark(tmp_path, conversations, questions_each=9)
    assert loaded.split(seed=seed).digest == loaded.split(seed=seed).digest


@given(conversations=st.sampled_from([8, 10]), seed=SEEDS)
@ANY_BENCHMARK
def test_another_seed_makes_another_split(tmp_path: Path, conversations: int, seed: int) -> None:
    """The digest of a split is that of all its questions."""
    loaded = make_benchmark(tmp_path, conversations, questions_each=9)
    assert loaded.split(seed=seed).digest != loaded.split(seed=seed + 1).digest


def test_questions_are_interleaved_by_conversation(tmp_path: Path) -> None:
    """Train has the nine questions of each of six conversations.

    The first question of each comes before all second ones.
    """
    train = make_benchmark(tmp_path, conversations=12, questions_each=9).split().train

    assert len(train) == 6 * 9
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


def load_locomo(folder: Path, conversations: list[str], **options: Any) -> Any:
    """Return LoCoMo with these conversations. As in the release, conv-30 has no category 3."""
    categories: dict[str, list[int]] = {}
    for name in conversations:
        categories[name] = [1, 4] if name == "conv-30" else [1, 3, 4]
    return benchmark("locomo", write_locomo(folder, categories), **options)


def test_the_published_split_of_locomo_is_used_even_if_only_some_categories_are_loaded(
    tmp_path: Path,
) -> None:
    """In the published split of LoCoMo the conversation conv-44 is dev.

    A conversation without a question of the category is in no part.
    """
    split = load_locomo(tmp_path, LOCOMO_CONVERSATIONS, categories="3").split()
    assert conversations_of(split.dev) == {"conv-44"}
    assert "conv-30" not in conversations_of(split.test)


@pytest.mark.parametrize(
    "conversations",
    [
        pytest.param(LOCOMO_CONVERSATIONS[:9], id="one is missing"),
        pytest.param([*LOCOMO_CONVERSATIONS[:9], "conv-1"], id="one is another"),
    ],
)
def test_the_published_split_of_locomo_is_not_used_for_other_conversations(
    tmp_path: Path, conversations: list[str]
) -> None:
    """The published split is of the ten released conversations."""
    assert load_locomo(tmp_path, conversations).fixed_split() is None


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_refuses_unknown_options(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"option of {name} 'colour'"):
        benchmark(name, None, colour="blue")


def test_a_custom_benchmark_is_named_by_module_and_class(tmp_path: Path) -> None:
    path = write_files(tmp_path, EXAMPLE_FILES["jsonl"])

    loaded = benchmark("mempiler.data.jsonl:JsonlBenchmark", path, metric="exact")

    assert type(loaded).__name__ == "JsonlBenchmark"
    assert loaded.scorer.title == "exact match"


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


def test_a_bundled_sample_is_large_enough(bundled_sample: Benchmark) -> None:
    """A sample has at least 24 questions about six users or conversations (groups), to be split."""
    assert bundled_sample.source.sample
    assert len(bundled_sample.examples) >= 24
    assert len({bundled_sample.group(example) for example in bundled_sample.examples}) >= 6


def test_a_bundled_sample_is_without_faults(bundled_sample: Benchmark) -> None:
    name = bundled_sample.name
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


def test_a_bundled_sample_can_be_split_by_conversations(bundled_sample: Benchmark) -> None:
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
    """A judge is a model that scores answers. The user names it by `--judge-lm`.

    Two scores can be compared only if the judges had the same prompts, which the hash tells.
    """
    loaded = benchmark(name, **options)

    assert loaded.scorer.judge_hash == expected_hash
    with pytest.raises(UserError, match="--judge-lm"):
        loaded.score(loaded.examples[0], dspy.Prediction(answer="x"))


def test_a_metric_without_a_judge_has_no_hash() -> None:
    """The metric "evidence" compares turns and asks no model."""
    assert benchmark("memoryquest", metric="evidence").scorer.judge_hash is None
