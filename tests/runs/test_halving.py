"""Successive halving: who is asked how much, who leaves when, and what is said in the end.

The scores of a candidate are a list here, one score for each question. `halve` must not look at
more of them than its share allows. Most tests set `min_n` so high that nobody is ever clearly
behind: then only halving decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from mempiler.runs.halving import HalvingResult, count_rounds, halve

NO_VERDICTS = 10_000
"""A `min_n` that is never reached, so no candidate is ever found to be clearly behind."""


class Ask(NamedTuple):
    """A candidate is asked the questions from `start` up to, but not including, `stop`."""

    candidate: int
    start: int
    stop: int


@dataclass
class Scores:
    """Scores of all candidates, which also writes down who was asked what."""

    of_candidates: Sequence[Sequence[float]]
    limit: int = 10_000
    """How many answers are given before a limit is reached."""
    requests: list[Ask] = field(default_factory=list)

    def __call__(self, candidate: int, start: int, stop: int) -> Sequence[float]:
        """Score a candidate, as `halve` asks for it."""
        self.requests.append(Ask(candidate, start, stop))
        scores = self.of_candidates[candidate][start:stop][: self.limit]
        self.limit -= len(scores)
        return scores


def equal_scores(score: float, count: int = 100) -> list[float]:
    """Return the same score for every question."""
    return [score] * count


def run_halving(scores: Scores, share: float = 0.3, min_n: int = NO_VERDICTS) -> HalvingResult:
    """Run `halve` on questions that are each about a conversation of its own.

    Args:
        scores: The scores of each candidate.
        share: The share of all answers that may be asked for.
        min_n: How many questions are needed to find a candidate clearly behind.
    """
    count = len(scores.of_candidates[0])
    groups = [f"user {number}" for number in range(count)]
    return halve(scores, groups, len(scores.of_candidates), share, min_n)


def order_of(result: HalvingResult) -> list[int]:
    """Return the candidates, the best first."""
    return [standing.candidate for standing in result.standings]


def test_the_better_half_of_eight_candidates_is_asked_twice_as_many_questions_next() -> None:
    """Of 8 x 100 answers, 240 may be asked for: 80 in each of three rounds.

    So the rounds ask eight candidates 10 questions each, four candidates 20, and two candidates 40.
    Candidate 7 is the best, and candidate 0 the worst.
    """
    scores = Scores([equal_scores(candidate / 10) for candidate in range(8)])

    run_halving(scores, share=0.3)

    first_round = [Ask(candidate, 0, 10) for candidate in range(8)]
    second_round = [Ask(candidate, 10, 30) for candidate in (7, 6, 5, 4)]
    third_round = [Ask(candidate, 30, 70) for candidate in (7, 6)]
    assert scores.requests == [*first_round, *second_round, *third_round]


def test_a_candidate_that_left_in_a_later_round_is_ranked_above_those_that_left_before() -> None:
    """The lucky candidate is right on the 15 questions of round 1, and wrong on those of round 2.

    In the end it has a lower mean score than the two candidates that left after round 1. But these
    were asked less.
    """
    lucky = equal_scores(1.0, 15) + equal_scores(0.0, 85)
    scores = Scores([equal_scores(0.4), lucky, equal_scores(0.6), equal_scores(0.5)])

    result = run_halving(scores)

    assert order_of(result) == [2, 1, 3, 0]
    has_left = [standing.dropout is not None for standing in result.standings]
    assert has_left == [False, False, True, True]


def test_the_reason_of_a_candidate_in_the_worse_half_is_given() -> None:
    """After round 1, candidates 0 and 3 leave. Candidate 0 is the worst."""
    scores = Scores([equal_scores(0.1), equal_scores(0.9), equal_scores(0.8), equal_scores(0.2)])

    result = run_halving(scores)

    last = result.standings[-1]
    assert last.candidate == 0
    assert last.dropout is not None
    assert last.dropout.round == 1
    assert last.dropout.reason == "in the worse half"


def test_a_candidate_that_is_clearly_behind_leaves_although_it_is_in_the_better_half() -> None:
    """Candidate 1 is the second of four. After 30 questions it is clearly behind candidate 0."""
    scores = Scores([equal_scores(score, 200) for score in (1.0, 0.5, 0.4, 0.3)])

    result = run_halving(scores, min_n=20)

    second = result.standings[1]
    assert second.candidate == 1
    assert second.dropout is not None
    assert second.dropout.round == 1
    assert second.dropout.reason == "clearly behind"


def test_of_equally_good_candidates_the_first_one_leads() -> None:
    scores = Scores([equal_scores(0.5)] * 6)

    result = run_halving(scores)

    assert result.leader == 0
    assert result.runner_up == 1


def test_the_leader_is_compared_with_the_runner_up_on_the_questions_of_both() -> None:
    """The two best of three candidates were asked 15 questions in round 1, and 22 in round 2."""
    scores = Scores([equal_scores(0.2), equal_scores(0.9), equal_scores(0.6)])

    result = run_halving(scores)

    assert result.difference.mean == pytest.approx(0.9 - 0.6)
    assert result.difference.n == 15 + 22


def test_a_dropout_is_compared_with_the_leader_on_the_questions_that_it_was_asked() -> None:
    """The worst of three candidates was asked only the 15 questions of round 1."""
    scores = Scores([equal_scores(0.2), equal_scores(0.9), equal_scores(0.6)])

    result = run_halving(scores)

    dropout = result.standings[-1]
    assert dropout.difference is not None
    assert dropout.difference.mean == pytest.approx(0.2 - 0.9)
    assert dropout.difference.n == 15


@pytest.mark.parametrize(
    ("candidate_count", "share"), [(2, 0.1), (8, 0.1), (3, 0.3), (5, 0.55), (2, 1.0), (8, 1.0)]
)
def test_no_more_than_the_share_of_all_answers_is_asked_for(
    candidate_count: int, share: float
) -> None:
    """Each candidate could be asked 100 questions."""
    scores = Scores([equal_scores(number / 10, 100) for number in range(candidate_count)])

    result = run_halving(scores, share)

    assert 0 < result.answers <= share * candidate_count * 100


def test_with_a_share_of_1_two_candidates_are_asked_every_question_once() -> None:
    """The share of all answers that may be asked for is 1, and there is a single round."""
    scores = Scores([equal_scores(0.2, 100), equal_scores(0.4, 100)])

    result = run_halving(scores, share=1.0)

    assert scores.requests == [Ask(0, 0, 100), Ask(1, 0, 100)]
    assert result.answers == 200


def test_nothing_is_asked_after_a_limit_was_reached() -> None:
    """Three candidates would be asked 15 questions each in round 1.

    A limit of 18 answers is reached when candidate 1 has answered three of its questions.
    """
    scores = Scores([equal_scores(0.2), equal_scores(0.4), equal_scores(0.9)], limit=18)

    result = run_halving(scores)

    assert scores.requests == [Ask(0, 0, 15), Ask(1, 0, 15)]
    assert result.answers == 18
    assert result.rounds == 0


def test_if_a_limit_ends_a_round_candidates_are_compared_on_the_questions_that_both_answered() -> (
    None
):
    """Two candidates are to be asked 30 questions each, and the limit of 33 leaves three of them.

    Candidate 0 is right on the first three questions and wrong on all others, so it scores less
    than candidate 1 on its own 30 questions.
    """
    right_at_first = equal_scores(1.0, 3) + equal_scores(0.0, 97)
    scores = Scores([right_at_first, equal_scores(0.5)], limit=30 + 3)

    result = run_halving(scores)

    assert result.leader == 0
    assert result.difference.n == 3
    assert result.difference.mean == pytest.approx(1.0 - 0.5)


@pytest.mark.parametrize(("candidates", "rounds"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_half_of_the_candidates_leave_after_each_round_until_two_are_left(
    candidates: int, rounds: int
) -> None:
    """The last round asks the two that are left."""
    assert count_rounds(candidates) == rounds
