"""Find the best of several candidates with few questions: successive halving on paired scores.

All candidates are asked the same few questions. The worse half leaves, and so does whoever is
clearly behind the leader. Those that stay are asked further questions, until two are left. Each
round may ask about as many questions as any other, so the last two get the most.

    result = halve(score_questions, groups, candidate_count=8, share=0.3)
    result.leader                  # the number of the best candidate, from 0
    result.difference.verdict      # "better" if it is told apart from the next best one

Questions are asked in a fixed order, so two candidates share the first questions of both, and are
compared on these. Nothing here knows about models: `choose.py` scores programs with it.

Source: Karnin, Koren and Somekh, Almost Optimal Exploration in Multi-Armed Bandits, ICML 2013
(sequential halving: an equal budget for each round). Leaving early by a paired test is added here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from .statistics import MIN_N, TIE_TOLERANCE, Difference, compare_paired_scores

DEFAULT_SHARE = 0.3
"""The share of all answers (every candidate on every question) that is asked for at most."""

DropReason = Literal["clearly behind", "in the worse half"]
"""Why a candidate is asked no further questions."""


class ScoreQuestions(Protocol):
    """Scores a candidate on some of the questions."""

    def __call__(self, candidate: int, start: int, stop: int) -> Sequence[float]:
        """Return the scores of a candidate on the questions from `start` up to before `stop`.

        Fewer scores mean that a limit was reached: nothing is asked after that.
        """
        ...


@dataclass(frozen=True)
class Dropout:
    """How a candidate left."""

    round: int
    """The round after which it left, counted from 1."""
    reason: DropReason


@dataclass(frozen=True)
class Standing:
    """How a candidate did."""

    candidate: int
    """Its number, from 0."""
    scores: tuple[float, ...]
    """Its scores on the first questions."""
    dropout: Dropout | None
    """How it left; None if it stayed to the end."""
    difference: Difference | None
    """Its scores minus those of the leader, on the questions of both; None for the leader."""


@dataclass(frozen=True)
class HalvingResult:
    """The outcome of successive halving."""

    standings: tuple[Standing, ...]
    """All candidates, the best first: those that stayed, then those that left last."""
    difference: Difference
    """The scores of the leader minus those of the next best one, on the questions of both."""
    rounds: int
    """How many rounds were completed."""

    @property
    def leader(self) -> int:
        """The number of the best candidate."""
        return self.standings[0].candidate

    @property
    def runner_up(self) -> int:
        """The number of the next best candidate."""
        return self.standings[1].candidate

    @property
    def answers(self) -> int:
        """How many answers were scored, over all candidates."""
        return sum(len(standing.scores) for standing in self.standings)


def halve(
    score_questions: ScoreQuestions,
    groups: Sequence[str],
    candidate_count: int,
    share: float = DEFAULT_SHARE,
    min_n: int = MIN_N,
) -> HalvingResult:
    """Find the best candidate, and whether it is told apart from the next best one.

    Args:
        score_questions: Scores a candidate on some questions.
        groups: The conversation or user of each question, in the order in which they are asked.
        candidate_count: How many candidates there are; 2 or more.
        share: The share of all answers, `candidate_count` times the number of questions, that is
            asked for at most; above 0, up to 1.
        min_n: With fewer questions in common, two candidates are not told apart.
    """
    contest = _Contest(score_questions, groups, candidate_count, min_n)
    budget = answer_budget(candidate_count, len(groups), share)
    rounds_left = count_rounds(candidate_count)

    while rounds_left > 0 and len(contest.active) > 1:
        # Every round may spend an equal part of what is left of the budget.
        budget_left = budget - contest.answers
        new_questions = budget_left // (rounds_left * len(contest.active))
        new_questions = min(new_questions, contest.unasked)
        if new_questions == 0:
            break

        is_complete = contest.ask(new_questions)
        if not is_complete:
            break
        contest.drop_those_clearly_behind()
        if rounds_left == 1:
            break
        contest.drop_worse_half()
        rounds_left = count_rounds(len(contest.active))
    return contest.result()


def count_rounds(candidate_count: int) -> int:
    """Return how many rounds it takes until two candidates have been asked by themselves.

    Of eight candidates, four are in the second round and two in the third.
    """
    return max(1, math.ceil(math.log2(candidate_count)))


def first_round_size(candidate_count: int, question_count: int, share: float) -> int:
    """Return how many questions every candidate is asked in the first round."""
    budget = answer_budget(candidate_count, question_count, share)
    return budget // (count_rounds(candidate_count) * candidate_count)


def most_questions(candidate_count: int, question_count: int, share: float) -> int:
    """Return how many questions a candidate is asked at most.

    That is the case if all but two candidates leave after the first round.
    """
    first_count = first_round_size(candidate_count, question_count, share)
    answers_left = answer_budget(candidate_count, question_count, share)
    answers_left -= first_count * candidate_count
    return min(question_count, first_count + answers_left // 2)


def answer_budget(candidate_count: int, question_count: int, share: float) -> int:
    """Return how many answers may be asked for."""
    # 0.3 * 300 is a little less than 90 in floating point.
    return math.floor(share * candidate_count * question_count + TIE_TOLERANCE)


@dataclass
class _Contest:
    """The candidates with their scores so far: who is still asked, and who has left."""

    score_questions: ScoreQuestions
    groups: Sequence[str]
    candidate_count: int
    min_n: int
    active: list[int] = field(init=False)
    """The candidates that are still asked, after a round the best first."""
    asked: int = field(default=0, init=False)
    """How many questions each active candidate was asked."""
    rounds: int = field(default=0, init=False)
    """How many rounds were completed."""
    _round_size: int = field(default=0, init=False)
    """How many candidates were in the last round."""
    _scores: list[list[float]] = field(init=False)
    """The scores of each candidate on the first questions."""
    _dropouts: dict[int, Dropout] = field(default_factory=dict[int, Dropout], init=False)

    def __post_init__(self) -> None:
        self.active = list(range(self.candidate_count))
        self._scores = [[] for _ in self.active]

    @property
    def answers(self) -> int:
        """How many answers were scored."""
        return sum(len(scores) for scores in self._scores)

    @property
    def unasked(self) -> int:
        """How many questions nobody was asked yet."""
        return len(self.groups) - self.asked

    def ask(self, new_questions: int) -> bool:
        """Ask every active candidate further questions; return False if a limit was reached."""
        self._round_size = len(self.active)
        stop = self.asked + new_questions
        for candidate in self.active:
            scores = self.score_questions(candidate, self.asked, stop)
            self._scores[candidate].extend(scores)
            if len(scores) < new_questions:
                return False

        self.asked = stop
        self.rounds += 1
        self.active = self._ranking(self.active)
        return True

    def drop_those_clearly_behind(self) -> None:
        """Let go the candidates that are significantly worse than the leader."""
        leader = self.active[0]
        staying = [leader]
        for candidate in self.active[1:]:
            if self._compare(candidate, leader).verdict == "worse":
                self._dropouts[candidate] = Dropout(self.rounds, "clearly behind")
            else:
                staying.append(candidate)
        self.active = staying

    def drop_worse_half(self) -> None:
        """Let at most half of the round's candidates stay, but two if there are two.

        Between two, a verdict decides.
        """
        places = max(2, math.ceil(self._round_size / 2))
        for candidate in self.active[places:]:
            self._dropouts[candidate] = Dropout(self.rounds, "in the worse half")
        self.active = self.active[:places]

    def result(self) -> HalvingResult:
        """Return all candidates with their standing, and the verdict on the first two."""
        ordered = self._final_order()
        leader = ordered[0]
        standings: list[Standing] = []
        for candidate in ordered:
            standing = Standing(
                candidate=candidate,
                scores=tuple(self._scores[candidate]),
                dropout=self._dropouts.get(candidate),
                difference=None if candidate == leader else self._compare(candidate, leader),
            )
            standings.append(standing)
        return HalvingResult(tuple(standings), self._compare(leader, ordered[1]), self.rounds)

    def _final_order(self) -> list[int]:
        """Return all candidates, the best first: who left later is ahead of who left before."""
        ordered = self._ranking(self.active)
        for round_number in range(self.rounds, 0, -1):
            leavers: list[int] = []
            for candidate, dropout in self._dropouts.items():
                if dropout.round == round_number:
                    leavers.append(candidate)
            ordered.extend(self._ranking(leavers))
        return ordered

    def _ranking(self, candidates: Sequence[int]) -> list[int]:
        """Return candidates by their mean score on the questions that all of them were asked.

        Of equal ones, the one that was named first is ahead.
        """
        shared = min((len(self._scores[candidate]) for candidate in candidates), default=0)
        totals: dict[int, float] = {}
        for candidate in candidates:
            totals[candidate] = math.fsum(self._scores[candidate][:shared])
        return sorted(candidates, key=lambda candidate: (-totals[candidate], candidate))

    def _compare(self, candidate: int, other: int) -> Difference:
        """Return the scores of a candidate minus those of another, on the questions of both."""
        shared = min(len(self._scores[candidate]), len(self._scores[other]))
        return compare_paired_scores(
            self._scores[candidate][:shared],
            self._scores[other][:shared],
            self.groups[:shared],
            min_n=self.min_n,
        )
