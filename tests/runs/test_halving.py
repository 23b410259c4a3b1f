"""Successive halving: who is asked how much, who leaves when, and what is said in the end.

The scores of a candidate are a list here, one score for each question. `halve` must not look at
more of them than its share allows. Most tests set `min_n` so high that nobody is ever clearly
behind: then only halving decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from mempiler.runs.halving import HalvingResult, count_rounds, first_round_size, halve

NEVER_TOLD_APART = 10_000
"""So many questions are needed for a verdict, so nobody is clearly behind."""


@dataclass
class Scores:
    """Scores of all candidates, which also writes down who was asked what."""

    of_candidates: Sequence[Sequence[float]]
    limit: int = 10_000
    """How many answers are given before a limit is reached."""
    requests: list[tuple[int, int, int]] = field(default_factory=list)
    """Candidate, first question, and the one after the last."""

    def __call__(self, candidate: int, start: int, stop: int) -> Sequence[float]:
        """Score a candidate, as `halve` asks for it."""
        self.requests.append((candidate, start, stop))
        scores = self.of_candidates[candidate][start:stop][: self.limit]
        self.limit -= len(scores)
        return scores


def equal_scores(score: float, count: int = 100) -> list[float]:
    """Return the same score for every question."""
    return [score] * count


def run_halving(scores: Scores, share: float = 0.3, min_n: int = NEVER_TOLD_APART) -> HalvingResult:
    """Run `halve` on questions that are each about a conversation of its own."""
    count = len(scores.of_candidates[0])
    groups = [f"user {number}" for number in range(count)]
    return halve(scores, groups, len(scores.of_candidates), share, min_n)


def order_of(result: HalvingResult) -> list[int]:
    """Return the candidates, the best first."""
    return [standing.candidate for standing in result.standings]


def test_of_eight_candidates_four_and_then_two_are_asked_more() -> None:
    """A share of .3 of 8 x 100 answers is 240, so each of three rounds has 80 of them."""
    scores = Scores([equal_scores(candidate / 10) for candidate in range(8)])

    run_halving(scores)

    first_round = [(candidate, 0, 10) for candidate in range(8)]
    second_round = [(candidate, 10, 30) for candidate in (7, 6, 5, 4)]
    third_round = [(candidate, 30, 70) for candidate in (7, 6)]
    assert scores.requests == [*first_round, *second_round, *third_round]


def test_who_left_later_is_ahead_of_who_left_before() -> None:
    """Round 1 asks four candidates 15 questions, and round 2 asks the better two 30 more.

    The second candidate is right in round 1 alone. So it is right on 15 of 45 questions, which is
    less than the scores of the two that left before.
    """
    lucky = equal_scores(1.0, 15) + equal_scores(0.0, 85)
    scores = Scores([equal_scores(0.4), lucky, equal_scores(0.6), equal_scores(0.5)])

    result = run_halving(scores)

    assert order_of(result) == [2, 1, 3, 0]
    has_left = [standing.dropout is not None for standing in result.standings]
    assert has_left == [False, False, True, True]


def test_the_worse_half_leaves_for_that_reason() -> None:
    scores = Scores([equal_scores(0.1), equal_scores(0.9), equal_scores(0.8), equal_scores(0.2)])

    result = run_halving(scores)

    last = result.standings[-1]
    assert last.candidate == 0
    assert last.dropout is not None
    assert last.dropout.round == 1
    assert last.dropout.reason == "in the worse half"


def test_a_candidate_that_is_clearly_behind_leaves_although_it_is_in_the_better_half() -> None:
    """Both others of four are even worse. With 30 questions there is a verdict."""
    scores = Scores(
        [
            equal_scores(1.0, 200),
            equal_scores(0.5, 200),
            equal_scores(0.4, 200),
            equal_scores(0.3, 200),
        ]
    )

    result = run_halving(scores, min_n=20)

    second = result.standings[1]
    assert second.candidate == 1
    assert second.dropout is not None
    assert second.dropout.round == 1
    assert second.dropout.reason == "clearly behind"


def test_nobody_is_asked_more_when_the_leader_is_alone() -> None:
    """A share of .3 of 4 x 200 answers is 240, so each of two rounds has 120 of them.

    After the first round of 30 questions, three of four are clearly behind.
    """
    scores = Scores(
        [
            equal_scores(1.0, 200),
            equal_scores(0.5, 200),
            equal_scores(0.4, 200),
            equal_scores(0.3, 200),
        ]
    )

    result = run_halving(scores, min_n=20)

    assert result.answers == 4 * 30
    assert result.rounds == 1
    assert result.difference.verdict == "better"


def test_two_that_nobody_tells_apart_both_stay() -> None:
    scores = Scores([equal_scores(0.5, 200), equal_scores(0.5, 200)])

    result = run_halving(scores, min_n=20)

    assert result.difference.verdict == "not told apart"
    assert [standing.dropout for standing in result.standings] == [None, None]


def test_of_equal_candidates_the_one_named_first_leads() -> None:
    scores = Scores([equal_scores(0.5)] * 6)

    result = run_halving(scores)

    assert result.leader == 0
    assert result.runner_up == 1


def test_the_difference_is_that_of_the_leader_to_the_next_best_on_the_questions_of_both() -> None:
    """A share of .3 of 3 x 100 answers is 90, so each of two rounds has 45 of them.

    The first round asks all three 15 questions. Then the worst leaves, and the second round asks
    the others 22 more.
    """
    scores = Scores([equal_scores(0.2), equal_scores(0.9), equal_scores(0.6)])

    result = run_halving(scores)

    # 0.9 - 0.6
    assert result.difference.mean == pytest.approx(0.3)
    assert result.difference.n == 15 + 22


def test_a_dropout_is_compared_with_the_leader_on_the_questions_that_it_was_asked() -> None:
    """The first of two rounds has half of 90 answers, so it asks three candidates 15 questions."""
    scores = Scores([equal_scores(0.2), equal_scores(0.9), equal_scores(0.6)])

    result = run_halving(scores)

    last = result.standings[-1]
    assert last.difference is not None
    # 0.2 - 0.9
    assert last.difference.mean == pytest.approx(-0.7)
    assert last.difference.n == 15


@pytest.mark.parametrize(
    ("candidate_count", "share"), [(2, 0.1), (8, 0.1), (3, 0.3), (5, 0.55), (2, 1.0), (8, 1.0)]
)
def test_the_share_is_never_exceeded(candidate_count: int, share: float) -> None:
    scores = Scores([equal_scores(number / 10) for number in range(candidate_count)])

    result = run_halving(scores, share)

    assert 0 < result.answers <= share * candidate_count * 100


def test_no_question_is_asked_twice_where_the_share_allows_more_than_there_are() -> None:
    """With a share of 1, two candidates are asked everything once."""
    scores = Scores([equal_scores(0.2), equal_scores(0.4)])

    result = run_halving(scores, share=1.0)

    assert scores.requests == [(0, 0, 100), (1, 0, 100)]
    assert result.answers == 200


def test_nothing_is_asked_after_a_limit_was_reached() -> None:
    """The limit of 18 answers is reached while the second of three is asked 15 questions."""
    scores = Scores([equal_scores(0.2), equal_scores(0.4), equal_scores(0.9)], limit=18)

    result = run_halving(scores)

    assert scores.requests == [(0, 0, 15), (1, 0, 15)]
    assert result.answers == 18
    assert result.rounds == 0


def test_a_round_that_a_limit_ended_is_decided_by_the_questions_of_both() -> None:
    """The first one is ahead on the three questions that both answered, and behind later."""
    first = equal_scores(1.0, 3) + equal_scores(0.0, 97)
    scores = Scores([first, equal_scores(0.5)], limit=33)

    result = run_halving(scores)

    assert result.leader == 0
    assert result.difference.n == 3
    assert result.difference.mean == pytest.approx(0.5)


def test_without_any_answer_there_is_no_verdict() -> None:
    scores = Scores([equal_scores(0.2), equal_scores(0.4)], limit=0)

    result = run_halving(scores)

    assert result.difference.verdict == "too few to tell"
    assert result.answers == 0


@pytest.mark.parametrize(("candidates", "rounds"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_half_of_the_candidates_leave_in_each_round_until_two_are_asked(
    candidates: int, rounds: int
) -> None:
    assert count_rounds(candidates) == rounds


def test_the_size_of_the_first_round_is_known_before() -> None:
    """A share of .3 of 8 x 100 answers is 240. Three rounds have 80 each, so 10 a candidate."""
    assert first_round_size(candidate_count=8, question_count=100, share=0.3) == 10
