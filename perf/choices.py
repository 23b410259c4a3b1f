"""Simulate choices between methods, and count how often `mempiler choose` finds the best one.

No program runs here. Whether a method is right on a question is drawn at random, and `halve`
chooses by these scores, as it does in a run. Its choice is compared with the truth: the method that
scores best if every method is asked every question. `halve` sees only 30 % of these answers.

Usage:
    $ python perf/choices.py                     # minutes
    $ python perf/choices.py --draws 20

Sample output:
    of 100 draws                            best found  in final  winner  wrong winner  answers
    clear winner of 8, 600 in 20 spread         100.0%    100.0%   99.0%          0.0%    21.6%

Every line is a case:
    clear winner of 8     one method is right in 75 % of the questions, and the others in 40 to 58 %
    two close of 6        two methods are right in 65 and 63 %, and the others in 40 to 50 %
    equal, 6              all methods are right in 55 %: there is no best one
    five points, 2        one method is right in 65 %, and the other in 60 %
    600 in 20 spread      600 questions about 20 conversations, asked round-robin over all of these
    600 in 20 whole       the same, asked conversation by conversation, as `mempiler choose` does if
                          a method writes its memories with a model

Columns:
    best found            the leader is the method with the best score on all questions
    in final              this method is one of the last two
    winner                the leader is told apart from the next best method
    wrong winner          a winner that is not the method with the best score on all questions
    answers               the share of all answers that is asked for, on average

How to read it:
    Where methods are equal, "best found" is luck, and every winner is a mistake. The draws have a
    seed, so the same version gives the same figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mempiler.runs.halving import DEFAULT_SHARE, HalvingResult, halve

DRAWS = 100
HARDNESS_OF_QUESTIONS = 1.2
"""How much questions differ, for all methods alike; the spread on the scale of log odds."""
HARDNESS_OF_CONVERSATIONS = 0.5
"""How much conversations differ, for all methods alike."""
TASTE = 0.3
"""How much a conversation suits one method better than another."""
RATE_CORRECTION = 1.25
"""Makes up for the spread of the questions, which draws the rates of right answers to a half."""


@dataclass(frozen=True)
class Case:
    """Methods, and the questions that they are asked."""

    name: str
    rates: tuple[float, ...]
    """The share of questions on which each method is right, about."""
    questions: int
    conversations: int
    whole_conversations: bool
    """Whether all questions about a conversation are asked in a row."""

    @property
    def title(self) -> str:
        """The name, the sizes and the order."""
        order = "whole" if self.whole_conversations else "spread"
        return f"{self.name}, {self.questions} in {self.conversations} {order}"


CLEAR_WINNER = (0.45, 0.58, 0.55, 0.75, 0.52, 0.5, 0.48, 0.4)
TWO_CLOSE = (0.5, 0.65, 0.45, 0.48, 0.63, 0.4)
ALL_EQUAL = (0.55,) * 6
FIVE_POINTS_APART = (0.65, 0.60)
CASES = (
    Case("clear winner of 8", CLEAR_WINNER, 600, 20, whole_conversations=False),
    Case("clear winner of 8", CLEAR_WINNER, 600, 20, whole_conversations=True),
    Case("clear winner of 8", CLEAR_WINNER, 200, 10, whole_conversations=False),
    Case("clear winner of 8", CLEAR_WINNER, 200, 10, whole_conversations=True),
    Case("two close of 6", TWO_CLOSE, 600, 20, whole_conversations=False),
    Case("two close of 6", TWO_CLOSE, 600, 20, whole_conversations=True),
    Case("two close of 6", TWO_CLOSE, 200, 10, whole_conversations=False),
    Case("two close of 6", TWO_CLOSE, 200, 10, whole_conversations=True),
    Case("equal, 6", ALL_EQUAL, 600, 20, whole_conversations=False),
    Case("equal, 6", ALL_EQUAL, 600, 20, whole_conversations=True),
    Case("equal, 6", ALL_EQUAL, 200, 10, whole_conversations=False),
    Case("equal, 6", ALL_EQUAL, 200, 10, whole_conversations=True),
    Case("five points, 2", FIVE_POINTS_APART, 1000, 20, whole_conversations=False),
    Case("five points, 2", FIVE_POINTS_APART, 2000, 20, whole_conversations=False),
    Case("five points, 2", FIVE_POINTS_APART, 6000, 20, whole_conversations=False),
    Case("five points, 2", FIVE_POINTS_APART, 2000, 100, whole_conversations=False),
    Case("five points, 2", FIVE_POINTS_APART, 6000, 100, whole_conversations=False),
)


@dataclass(frozen=True)
class DrawnScores:
    """Drawn scores of all methods on all questions."""

    scores: np.ndarray
    """One row for each method, one column for each question."""
    groups: tuple[str, ...]
    """The conversation of each question."""

    def score_questions(self, candidate: int, start: int, stop: int) -> Sequence[float]:
        """Return the scores of a method on some of the questions, as `halve` asks for them."""
        return self.scores[candidate, start:stop].tolist()

    @property
    def best(self) -> int:
        """The method with the best score on all questions."""
        return int(self.scores.mean(axis=1).argmax())


@dataclass(frozen=True)
class Outcome:
    """The scores of one draw, and what was chosen by them."""

    drawn: DrawnScores
    result: HalvingResult

    @property
    def best_is_found(self) -> bool:
        """Whether the leader is the best method on all questions."""
        return self.result.leader == self.drawn.best

    @property
    def best_is_in_final(self) -> bool:
        """Whether the best method on all questions is one of the last two."""
        return self.drawn.best in (self.result.leader, self.result.runner_up)

    @property
    def has_winner(self) -> bool:
        """Whether the leader is told apart from the next best method."""
        return self.result.difference.verdict == "better"

    @property
    def has_wrong_winner(self) -> bool:
        """Whether there is a winner that is not the best method on all questions."""
        return self.has_winner and not self.best_is_found

    @property
    def share(self) -> float:
        """The share of all answers that was asked for."""
        return self.result.answers / self.drawn.scores.size


def main() -> None:
    """Print a table: how often the best method of each case is found."""
    parser = argparse.ArgumentParser(description="Simulate choices; see the file's beginning.")
    parser.add_argument("--draws", type=int, default=DRAWS, help="draws of scores for each case")
    draws: int = parser.parse_args().draws

    heading = f"of {draws} draws"
    print(f"{heading:38}  best found  in final  winner  wrong winner  answers")
    for case in CASES:
        outcomes = simulate(case, draws)
        best_found = np.mean([outcome.best_is_found for outcome in outcomes])
        in_final = np.mean([outcome.best_is_in_final for outcome in outcomes])
        winner = np.mean([outcome.has_winner for outcome in outcomes])
        wrong_winner = np.mean([outcome.has_wrong_winner for outcome in outcomes])
        answers = np.mean([outcome.share for outcome in outcomes])
        print(
            f"{case.title:38}  {best_found:10.1%}  {in_final:8.1%}  {winner:6.1%}"
            f"  {wrong_winner:12.1%}  {answers:7.1%}",
            flush=True,
        )


def simulate(case: Case, draws: int, share: float = DEFAULT_SHARE) -> list[Outcome]:
    """Return what is chosen in each draw of a case."""
    outcomes: list[Outcome] = []
    for seed in range(draws):
        drawn = draw_scores(case, np.random.default_rng(seed))
        result = halve(drawn.score_questions, drawn.groups, len(case.rates), share)
        outcomes.append(Outcome(drawn, result))
    return outcomes


def draw_scores(case: Case, rng: np.random.Generator) -> DrawnScores:
    """Draw whether each method is right on each question: 1 or 0."""
    method_count = len(case.rates)
    conversations = _conversations(case)

    # Log odds of being right, which are added up: of the method, of the question and its
    # conversation, and of the conversation for this method alone.
    rates = np.array(case.rates)
    log_odds_of_methods = np.log(rates / (1 - rates))
    log_odds_of_methods *= RATE_CORRECTION
    ease = rng.normal(0, HARDNESS_OF_CONVERSATIONS, case.conversations)[conversations]
    ease += rng.normal(0, HARDNESS_OF_QUESTIONS, case.questions)
    tastes = rng.normal(0, TASTE, (method_count, case.conversations))[:, conversations]
    log_odds = log_odds_of_methods[:, None] + ease[None, :] + tastes

    is_right = rng.random((method_count, case.questions)) < 1 / (1 + np.exp(-log_odds))
    groups = tuple(f"conversation {number}" for number in conversations)
    return DrawnScores(is_right.astype(float), groups)


def _conversations(case: Case) -> np.ndarray:
    """Return the number of the conversation of each question, in the order of asking."""
    numbers = np.arange(case.questions) % case.conversations
    return np.sort(numbers) if case.whole_conversations else numbers


if __name__ == "__main__":
    main()
