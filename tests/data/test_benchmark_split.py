"""How a benchmark is cut into train, dev and test."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from mempiler.data.benchmark import Benchmark
from mempiler.data.dataset import Split
from mempiler.data.jsonl.benchmark import JsonlBenchmark
from mempiler.data.locomo.benchmark import Locomo
from mempiler.errors import DataError

TEN = ["conv-26", "conv-30", "conv-41", "conv-42", "conv-43", "conv-44", "conv-47", "conv-48", "conv-49", "conv-50"]


def questions(folder: Path, conversations: int, each: int = 9) -> Benchmark:
    path = folder / "questions.jsonl"
    rows = []
    for user in range(conversations):
        messages = [{"role": "user", "content": f"I am user {user}."}]
        rows += [
            {"user": f"u{user}", "messages": messages, "question": f"{n}?", "answer": "yes", "id": f"u{user}:{n}"}
            for n in range(each)
        ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return JsonlBenchmark.load(path)


def locomo(folder: Path, conversations: list[str], **options: Any) -> Locomo:
    turn = {"speaker": "Ann", "dia_id": "D1:1", "text": "Hello."}
    talk = {"session_1": [turn], "session_1_date_time": "1:56 pm on 8 May, 2023"}
    file = []
    for id in conversations:
        categories = (1, 4) if id == "conv-30" else (1, 3, 4)
        qa = [{"question": f"{n}?", "answer": "a", "evidence": [], "category": n} for n in categories]
        file.append({"sample_id": id, "conversation": talk, "qa": qa})
    path = folder / "locomo.json"
    path.write_text(json.dumps(file))
    return Locomo.load(path, **options)


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
        (8, [36, 18, 18]),  # 4, 2 and 2 conversations
        (10, [54, 18, 18]),  # 10 // 4 = 2 for dev and test each, 6 for train
    ],
)
def test_sizes_by_number_of_conversations(tmp_path: Path, conversations: int, sizes: list[int]) -> None:
    assert [len(part) for part in parts(questions(tmp_path, conversations).split())] == sizes


@pytest.mark.parametrize("conversations", [1, 2, 3, 8, 10])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_question_is_in_two_parts(tmp_path: Path, conversations: int, seed: int) -> None:
    taken = [set(ids(part)) for part in parts(questions(tmp_path, conversations).split(seed=seed))]
    assert all(not one & other for one, other in combinations(taken, 2))


@pytest.mark.parametrize("conversations", [2, 3, 8, 10])
def test_no_conversation_is_in_train_and_another_part(tmp_path: Path, conversations: int) -> None:
    split = questions(tmp_path, conversations).split()
    assert not groups(split.train) & (groups(split.dev) | groups(split.test))


def test_the_same_seed_gives_the_same_split(tmp_path: Path) -> None:
    benchmark = questions(tmp_path, 8)
    assert benchmark.split(10, 5, 5, seed=3).digest == benchmark.split(10, 5, 5, seed=3).digest


def test_another_seed_gives_another_split(tmp_path: Path) -> None:
    benchmark = questions(tmp_path, 8)
    assert benchmark.split(10, 5, 5, seed=3).digest != benchmark.split(10, 5, 5, seed=4).digest


def test_the_size_of_train_leaves_the_test_questions_as_they_were(tmp_path: Path) -> None:
    benchmark = questions(tmp_path, 8)
    assert ids(benchmark.split(train=4, test=6).test) == ids(benchmark.split(train=20, dev=3, test=6).test)


def test_a_larger_part_contains_the_smaller_one(tmp_path: Path) -> None:
    benchmark = questions(tmp_path, 8)
    assert set(ids(benchmark.split(train=5).train)) < set(ids(benchmark.split(train=20).train))


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (4, 4), (1000, 36)])
def test_a_part_has_as_many_questions_as_asked_for_or_all_there_are(tmp_path: Path, asked: int, given: int) -> None:
    assert len(questions(tmp_path, 8).split(train=asked).train) == given


def test_questions_are_interleaved_by_conversation(tmp_path: Path) -> None:
    order = [example.history.id for example in questions(tmp_path, 8).split().train]
    assert len(set(order[:4])) == 4


def test_an_empty_part_is_refused_unless_nothing_is_asked_of_it(tmp_path: Path) -> None:
    benchmark = questions(tmp_path, 1, each=2)
    with pytest.raises(
        DataError, match="2 questions in 1 conversations leave none for dev; add more, or ask for dev=0"
    ):
        benchmark.split()
    assert len(benchmark.split(dev=0, test=0).train) == 2


def test_a_negative_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="dev=-1"):
        questions(tmp_path, 3).split(dev=-1)


def test_all_ten_conversations_of_locomo_are_split_as_memory_r2_did(tmp_path: Path) -> None:
    split = locomo(tmp_path, TEN).split()
    assert (groups(split.train), groups(split.dev)) == ({"conv-43", "conv-47"}, {"conv-44"})
    assert groups(split.test) == {"conv-26", "conv-30", "conv-41", "conv-42", "conv-48", "conv-49", "conv-50"}


def test_the_fixed_split_stays_when_a_category_leaves_a_conversation_empty(tmp_path: Path) -> None:
    split = locomo(tmp_path, TEN, categories="3").split()
    assert groups(split.dev) == {"conv-44"}
    assert "conv-30" not in groups(split.test)


@pytest.mark.parametrize("conversations", [TEN[:9], [*TEN[:9], "conv-1"]])
def test_other_conversations_have_no_fixed_split(tmp_path: Path, conversations: list[str]) -> None:
    assert locomo(tmp_path, conversations).fixed_split() is None
