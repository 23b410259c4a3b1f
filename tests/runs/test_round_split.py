"""How a round of `mempiler improve` cuts its questions: who decides, and what is learned from."""

from collections.abc import Sequence

import dspy
from mempiler.data.jsonl import JsonlBenchmark
from mempiler.runs.decided_questions import question_digest
from mempiler.runs.round_split import RoundSplit, split_round


def questions_of(user: str, count: int) -> list[dspy.Example]:
    """Return questions of one user."""
    examples: list[dspy.Example] = []
    for number in range(count):
        example = dspy.Example(
            user=user,
            history=[{"role": "user", "content": f"I am {user}."}],
            question=f"Question {number}?",
            answer="yes",
        )
        examples.append(example)
    return examples


def benchmark_of(users: Sequence[str], questions_each: int) -> JsonlBenchmark:
    """Return a benchmark in which each user asks "Question 0?", "Question 1?" and so on."""
    examples: list[dspy.Example] = []
    for user in users:
        examples.extend(questions_of(user, questions_each))
    return JsonlBenchmark.from_examples(examples)


def split(
    benchmark: JsonlBenchmark, decided: Sequence[dspy.Example] = (), seed: int = 0
) -> RoundSplit:
    """Split a benchmark; two users with four new questions must decide."""
    digests = {question_digest(example) for example in decided}
    return split_round(benchmark, digests, min_questions=4, min_users=2, seed=seed)


def users_of(examples: Sequence[dspy.Example]) -> set[str]:
    """Return the users of some questions."""
    return {example.history.id for example in examples}


TEN_USERS = [f"user {number}" for number in range(10)]


def test_no_user_is_in_both_parts() -> None:
    parts = split(benchmark_of(TEN_USERS, questions_each=3))

    train_users = users_of(parts.train)
    dev_users = users_of(parts.dev)
    assert parts.shortage is None
    assert train_users.isdisjoint(dev_users)
    assert train_users | dev_users == set(TEN_USERS)


def test_half_of_the_new_questions_decide() -> None:
    """The dev questions decide whether the new program is better; there are 10 x 4 questions."""
    parts = split(benchmark_of(TEN_USERS, questions_each=4))

    assert len(parts.dev) == 20
    assert len(parts.train) == 20


def test_the_seed_chooses_who_decides() -> None:
    benchmark = benchmark_of(TEN_USERS, questions_each=3)

    deciding_users = users_of(split(benchmark, seed=0).dev)

    assert users_of(split(benchmark, seed=0).dev) == deciding_users
    assert users_of(split(benchmark, seed=1).dev) != deciding_users


def test_old_questions_do_not_decide() -> None:
    """Of each user, the first two of four questions have decided before."""
    benchmark = benchmark_of(TEN_USERS, questions_each=4)
    old_questions = [
        example
        for example in benchmark.examples
        if example.question in ("Question 0?", "Question 1?")
    ]

    parts = split(benchmark, decided=old_questions)

    assert parts.new_questions == 20
    assert {example.question for example in parts.dev} == {"Question 2?", "Question 3?"}


def test_old_questions_of_users_who_do_not_decide_are_learned_from_after_new_ones() -> None:
    """Five of ten users do not decide. Each of them has two old questions and two new ones."""
    benchmark = benchmark_of(TEN_USERS, questions_each=4)
    old_questions = [
        example
        for example in benchmark.examples
        if example.question in ("Question 0?", "Question 1?")
    ]

    parts = split(benchmark, decided=old_questions)

    questions = [example.question for example in parts.train]
    assert set(questions[:10]) == {"Question 2?", "Question 3?"}
    assert set(questions[10:]) == {"Question 0?", "Question 1?"}


def test_a_user_without_new_questions_is_learned_from() -> None:
    benchmark = benchmark_of(TEN_USERS, questions_each=3)
    old_questions = [example for example in benchmark.examples if example.history.id == "user 0"]

    for seed in range(10):
        parts = split(benchmark, decided=old_questions, seed=seed)
        assert "user 0" in users_of(parts.train)


def test_everything_that_is_missing_is_named() -> None:
    parts = split(benchmark_of(["user 0"], questions_each=3))

    assert parts.shortage == (
        "1 more questions that no earlier round decided on, 1 more users with such questions,"
        " 10 more questions of other users to learn from"
    )
