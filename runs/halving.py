"""Find the best of several candidates with few questions: successive halving on paired scores.

In the first round, all candidates are asked the same few questions. After a round, the worse half
drops out, and so do candidates that are clearly behind the leader. Those that remain are asked
further questions in the next round, until two are left, or only one. All rounds may ask for about
the same number of answers, so the last two candidates are asked the most questions.

    result = halve(score_questions, groups, candidate_count=8, share=0.3)
    result.leader                  # the number of the best candidate, from 0
    result.difference.verdict      # "better" if it is told apart from the next best one

Every candidate is asked the questions in the same order, from the first one on. So the questions
that two candidates have in common are the first ones of both, and they are compared on these. A
comparison is always "candidate minus other": a positive difference means that the candidate is
better. Nothing here knows about models: `choose.py` scores programs with it.

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
"""The part of all answers (every candidate on every question) that is asked for at most."""

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
    """When and why a candidate dropped out."""

    round: int
    """The round after which it dropped out, counted from 1."""
    reason: DropReason


@dataclass(frozen=True)
class Standing:
    """The result of one candidate."""

    candidate: int
    """Its number, from 0."""
    scores: tuple[float, ...]
    """Its scores on the questions that it was asked, in the order of asking."""
    dropout: Dropout | None
    """When and why it dropped out; None if it stayed to the end."""
    difference: Difference | None
    """Its scores minus those of the leader, on the questions of both; None for the leader."""


@dataclass(frozen=True)
class HalvingResult:
    """The outcome of successive halving."""

    standings: tuple[Standing, ...]
    """All candidates, the best first: those that stayed, then those that dropped out last."""
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
        budget_left = budget - contest.answer_count
        new_questions = budget_left // (rounds_left * len(contest.active))
        new_questions = min(new_questions, contest.unasked_question_count)
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
    """Return how many rounds are needed if half of the candidates drop out after each.

    The last round has two candidates. Eight candidates need three rounds: with eight, four and two.
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
    # In floating point a product may be a little too small: 0.3 * 300 is less than 90.
    return math.floor(share * candidate_count * question_count + TIE_TOLERANCE)


@dataclass
class _Contest:
    """The candidates of `halve`, their scores so far, and which of them have dropped out."""

    score_questions: ScoreQuestions
    groups: Sequence[str]
    """The conversation or user of each question, in the order of asking."""
    candidate_count: int
    min_n: int
    active: list[int] = field(init=False)
    """The candidates that have not dropped out; after a round, the best first."""
    next_question: int = field(default=0, init=False)
    """The position of the first question that no candidate was asked in a completed round."""
    completed_rounds: int = field(default=0, init=False)
    _round_size: int = field(default=0, init=False)
    """How many candidates were asked in the last round."""
    _scores: list[list[float]] = field(init=False)
    """The scores of each candidate on the questions that it was asked, in the order of asking."""
    _dropouts: dict[int, Dropout] = field(default_factory=dict[int, Dropout], init=False)

    def __post_init__(self) -> None:
        self.active = list(range(self.candidate_count))
        self._scores = [[] for _ in self.active]

    @property
    def answer_count(self) -> int:
        """How many answers were scored, over all candidates."""
        return sum(len(scores) for scores in self._scores)

    @property
    def unasked_question_count(self) -> int:
        """How many questions are left for further rounds."""
        return len(self.groups) - self.next_question

    def ask(self, new_questions: int) -> bool:
        """Ask every active candidate further questions, and rank the candidates.

        Return False if a limit was reached. The scores up to there are kept for the result, but the
        round does not count: some candidates were asked more of its questions than others.
        """
        self._round_size = len(self.active)
        stop = self.next_question + new_questions
        for candidate in self.active:
            scores = self.score_questions(candidate, self.next_question, stop)
            self._scores[candidate].extend(scores)
            if len(scores) < new_questions:
                return False

        self.next_question = stop
        self.completed_rounds += 1
        self.active = self._ranking(self.active)
        return True

    def drop_those_clearly_behind(self) -> None:
        """Drop the candidates that are significantly worse than the leader."""
        leader = self.active[0]
        remaining = [leader]
        for candidate in self.active[1:]:
            if self._candidate_minus_other(candidate, leader).verdict == "worse":
                self._dropouts[candidate] = Dropout(self.completed_rounds, "clearly behind")
            else:
                remaining.append(candidate)
        self.active = remaining

    def drop_worse_half(self) -> None:
        """Drop the last candidates until half of the round's candidates remain, but at least two.

        Of two candidates neither drops out here: between two only a significant difference decides.
        """
        places = max(2, math.ceil(self._round_size / 2))
        for candidate in self.active[places:]:
            self._dropouts[candidate] = Dropout(self.completed_rounds, "in the worse half")
        self.active = self.active[:places]

    def result(self) -> HalvingResult:
        """Return the result of every candidate, and how the leader compares with the second."""
        ordered = self._final_order()
        leader = ordered[0]
        runner_up = ordered[1]

        standings: list[Standing] = []
        for candidate in ordered:
            difference_to_leader = None
            if candidate != leader:
                difference_to_leader = self._candidate_minus_other(candidate, leader)
            standing = Standing(
                candidate=candidate,
                scores=tuple(self._scores[candidate]),
                dropout=self._dropouts.get(candidate),
                difference=difference_to_leader,
            )
            standings.append(standing)

        return HalvingResult(
            standings=tuple(standings),
            difference=self._candidate_minus_other(leader, runner_up),
            rounds=self.completed_rounds,
        )

    def _final_order(self) -> list[int]:
        """Return all candidates, the best first; one that stayed longer is ahead."""
        ordered = self._ranking(self.active)
        for round_number in range(self.completed_rounds, 0, -1):
            dropped: list[int] = []
            for candidate, dropout in self._dropouts.items():
                if dropout.round == round_number:
                    dropped.append(candidate)
            ordered.extend(self._ranking(dropped))
        return ordered

    def _ranking(self, candidates: Sequence[int]) -> list[int]:
        """Return candidates by their mean score on the questions that all of them were asked.

        Of candidates with equal scores, the one with the lower number is ahead.
        """
        shared = min((len(self._scores[candidate]) for candidate in candidates), default=0)
        totals: dict[int, float] = {}
        for candidate in candidates:
            totals[candidate] = math.fsum(self._scores[candidate][:shared])
        return sorted(candidates, key=lambda candidate: (-totals[candidate], candidate))

    def _candidate_minus_other(self, candidate: int, other: int) -> Difference:
        """Compare two candidates on the questions that both were asked.

        The verdict "better" means that `candidate` is better than `other`.
        """
        shared = min(len(self._scores[candidate]), len(self._scores[other]))
        return compare_paired_scores(
            self._scores[candidate][:shared],
            self._scores[other][:shared],
            self.groups[:shared],
            min_n=self.min_n,
        )
