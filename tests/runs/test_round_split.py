"""How a round of `mempiler improve` cuts its questions: who decides, and what is learned from."""

from collections.abc import Sequence

import dspy
import pytest
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
    """Split a benchmark for a round, in which at least four new questions of two users decide.

    Args:
        benchmark: The questions.
        decided: Old questions, on which an earlier round has decided.
        seed: Chooses the users who decide.
    """
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
    """The dev questions decide whether the new program is better. Ten users have 40 questions."""
    parts = split(benchmark_of(TEN_USERS, questions_each=4))

    assert len(parts.dev) == 20
    assert len(parts.train) == 20


def test_the_seed_chooses_the_users_who_decide() -> None:
    benchmark = benchmark_of(TEN_USERS, questions_each=3)

    first_split = split(benchmark, seed=0)
    repeated_split = split(benchmark, seed=0)
    other_split = split(benchmark, seed=1)

    assert users_of(repeated_split.dev) == users_of(first_split.dev)
    assert users_of(other_split.dev) != users_of(first_split.dev)


def old_questions_of(benchmark: JsonlBenchmark) -> list[dspy.Example]:
    """Return the first two questions of each user."""
    first_two = ("Question 0?", "Question 1?")
    return [example for example in benchmark.examples if example.question in first_two]


def test_questions_that_have_decided_before_do_not_decide_again() -> None:
    """Each of ten users has four questions. The first two have decided in an earlier round."""
    benchmark = benchmark_of(TEN_USERS, questions_each=4)

    parts = split(benchmark, decided=old_questions_of(benchmark))

    assert parts.new_questions == 20
    assert {example.question for example in parts.dev} == {"Question 2?", "Question 3?"}


def test_new_questions_to_learn_from_come_before_old_ones() -> None:
    """Five of ten users do not decide, so the program learns from their questions.

    Each of them has two new questions, 2 and 3, and two on which an earlier round has decided.
    """
    benchmark = benchmark_of(TEN_USERS, questions_each=4)

    parts = split(benchmark, decided=old_questions_of(benchmark))

    questions = [example.question for example in parts.train]
    assert set(questions[:10]) == {"Question 2?", "Question 3?"}
    assert set(questions[10:]) == {"Question 0?", "Question 1?"}


@pytest.mark.parametrize("seed", range(10))
def test_a_user_without_new_questions_does_not_decide_whatever_the_seed(seed: int) -> None:
    """An earlier round has decided on all questions of user 0, so the program learns from them."""
    benchmark = benchmark_of(TEN_USERS, questions_each=3)
    old_questions = [example for example in benchmark.examples if example.history.id == "user 0"]

    parts = split(benchmark, decided=old_questions, seed=seed)

    assert "user 0" in users_of(parts.train)
    assert "user 0" not in users_of(parts.dev)


def test_a_shortage_of_questions_and_users_is_named() -> None:
    """Four new questions of two users must decide, and ten of other users are to learn from.

    There are three questions of one user.
    """
    parts = split(benchmark_of(["user 0"], questions_each=3))

    assert parts.shortage == (
        "1 more questions that no earlier round decided on, 1 more users with such questions,"
        " 10 more questions of other users to learn from"
    )
