"""Simulate compiles, and count how often a program is promoted that should be, or should not.

Two programs answer the dev questions. What they score and take is drawn at random, and
`decide_promotion` decides as it does in a compile. In the cases "same" both are one program, and
every promotion is false: at most 5 % of them may be promoted, by both ways together.

Usage:
    $ python perf/promotions.py                     # minutes
    $ python perf/promotions.py --pairs 40

Sample output:
    of 200 pairs                              better  cheaper  either
    same, 30 in 8, margin 0.10                     2        0    1.0%

Every line is a case:
    same              the same program twice; its memories are written anew, and differ in length
    same answers      the same, but only the tokens differ
    cheaper           equal scores but for chance, and 30 % fewer tokens
    cheaper reader    the same, with the memories of the first program
    worse             30 % fewer tokens, and twice the margin worse on average
    rarely worse      30 % fewer tokens; fails on a share of the questions that is twice the margin,
                      and is equal on all others
    30 in 8           30 dev questions about 8 conversations

Columns:
    better            promoted because the scores are significantly better
    cheaper           promoted because it is cheaper, and not worse by more than the margin
    either            the share of all pairs that is promoted

How to read it:
    Of 200 pairs, 10 are 5 %. The draws have a seed, so the same version gives the same figures.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass

import numpy as np
from mempiler.runs.promotion import decide_promotion
from mempiler.runs.results import Evaluation
from mempiler.runs.rows import Row

PAIRS = 200
SAVING = 0.3
"""The share of tokens that a cheaper program saves."""
TOKENS = 1000
"""What a question takes on average."""
WRITING_TOKENS = 20_000
"""What writing the memory of a conversation takes on average."""
HARD = 0.4
"""The share of questions that both programs get wrong but for chance."""


@dataclass(frozen=True)
class Case:
    """Two programs and the questions that they answer."""

    name: str
    questions: int
    conversations: int
    margin: float
    noise: float = 0.1
    """The share of questions on which a program scores otherwise than it usually would."""
    saving: float = 0.0
    """The share of tokens that the second program saves."""
    loss: float = 0.0
    """The share of questions on which the second program fails though the first one does not."""
    memory_noise: float = 0.1
    """How far the tokens of a conversation differ because its memory was written anew."""

    @property
    def title(self) -> str:
        """The name and the sizes."""
        return f"{self.name}, {self.questions} in {self.conversations}, margin {self.margin:.2f}"


CASES = (
    Case("same", 30, 8, margin=0.1),
    Case("same", 100, 2, margin=0.1),
    # Equal scores: only the tokens speak against a promotion.
    Case("same answers", 100, 2, margin=0.1, noise=0.0),
    Case("same answers", 100, 8, margin=0.1, noise=0.0),
    Case("cheaper", 30, 8, margin=0.2, noise=0.0, saving=SAVING),
    Case("cheaper", 100, 2, margin=0.1, noise=0.01, saving=SAVING),
    Case("cheaper reader", 100, 2, margin=0.1, noise=0.01, saving=SAVING, memory_noise=0.0),
    Case("cheaper", 200, 8, margin=0.1, noise=0.05, saving=SAVING),
    Case("cheaper", 500, 10, margin=0.02, noise=0.0, saving=SAVING),
    Case("worse", 30, 8, margin=0.1, saving=SAVING, loss=0.2),
    Case("worse", 100, 2, margin=0.1, saving=SAVING, loss=0.2),
    Case("rarely worse", 30, 8, margin=0.1, noise=0.0, saving=SAVING, loss=0.2),
    Case("rarely worse", 30, 8, margin=0.02, noise=0.0, saving=SAVING, loss=0.04),
    Case("rarely worse", 100, 2, margin=0.02, noise=0.0, saving=SAVING, loss=0.04),
)


def main() -> None:
    """Print a table: how many compiled programs of each case are promoted, and for what."""
    parser = argparse.ArgumentParser(description="Simulate promotions; see the file's beginning.")
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help="pairs of an original and a compiled program"
    )
    pairs: int = parser.parse_args().pairs

    print(f"{f'of {pairs} pairs':40}  better  cheaper  either")
    for case in CASES:
        counts = count_promotions(case, pairs)
        promoted_share = counts.total() / pairs
        print(
            f"{case.title:40}  {counts['better']:6}  {counts['cheaper']:7}  {promoted_share:6.1%}"
        )


def count_promotions(case: Case, pairs: int = PAIRS) -> Counter[str]:
    """Return in how many pairs the compiled program is promoted, as "better" or as "cheaper"."""
    counts: Counter[str] = Counter()
    for seed in range(pairs):
        original, compiled = simulate_pair(case, np.random.default_rng(seed))
        promotion = decide_promotion(original, compiled, margin=case.margin)
        if promotion.basis is not None:
            counts[promotion.basis] += 1
    return counts


def simulate_pair(case: Case, rng: np.random.Generator) -> tuple[Evaluation, Evaluation]:
    """Draw what an original and a compiled program score and take on the same questions."""
    # Half of the questions are scored 0 or 1, the others by F1. Both programs find the same
    # questions hard, and those of some conversations harder.
    conversations = np.arange(case.questions) % case.conversations
    hardness = np.clip(rng.normal(HARD, 0.15, case.conversations), 0.05, 0.95)
    is_solved = rng.random(case.questions) > hardness[conversations]
    f1_scores = np.where(is_solved, rng.uniform(0.4, 1.0, case.questions), 0.0)
    is_binary = rng.random(case.questions) < 0.5
    scores = np.where(is_binary, is_solved.astype(float), f1_scores)
    lengths = TOKENS * rng.lognormal(0.0, 0.3, case.questions)

    original_scores = _with_noise(scores, is_binary, case.noise, rng)
    compiled_scores = _with_noise(scores, is_binary, case.noise, rng)
    compiled_scores = _with_losses(compiled_scores, case.loss, rng)

    original = _evaluation(original_scores, conversations, lengths, 0.0, case, rng)
    compiled = _evaluation(compiled_scores, conversations, lengths, case.saving, case, rng)
    return original, compiled


def _with_noise(
    scores: np.ndarray, is_binary: np.ndarray, noise: float, rng: np.random.Generator
) -> np.ndarray:
    """Return scores of which a share is drawn anew, as a model does that samples its answers."""
    is_other = rng.random(len(scores)) < noise
    drawn_anew = np.where(is_binary, 1 - scores, rng.random(len(scores)))
    return np.where(is_other, drawn_anew, scores)


def _with_losses(scores: np.ndarray, loss: float, rng: np.random.Generator) -> np.ndarray:
    """Return scores with 0 for some questions, so that the mean falls by about `loss`."""
    mean = max(float(scores.mean()), 1e-9)
    is_lost = rng.random(len(scores)) < min(1.0, loss / mean)
    return np.where(is_lost, 0.0, scores)


def _evaluation(
    scores: np.ndarray,
    conversations: np.ndarray,
    lengths: np.ndarray,
    saving: float,
    case: Case,
    rng: np.random.Generator,
) -> Evaluation:
    """Return the evaluation of one program, with tokens that vary by question and conversation."""
    # The memory of a conversation is long or short for all its questions, and so is its writing.
    memory_sizes = rng.lognormal(0.0, case.memory_noise, case.conversations)
    tokens = lengths * memory_sizes[conversations] * rng.lognormal(0.0, 0.1, len(lengths))
    tokens *= 1 - saving
    rows: list[Row] = []
    for number, score in enumerate(scores):
        rows.append(_row(number, float(score), int(conversations[number]), int(tokens[number])))

    writing = {
        f"conversation {conversation}": float(WRITING_TOKENS * size * (1 - saving))
        for conversation, size in enumerate(memory_sizes)
    }
    return Evaluation(
        program="simulated",
        benchmark="simulated",
        lm="simulated",
        comparable=False,
        rows=tuple(rows),
        writing_tokens=writing,
    )


def _row(number: int, score: float, conversation: int, tokens: int) -> Row:
    """Return the row of a question."""
    return Row(
        id=f"question {number}",
        group=f"conversation {conversation}",
        category="1",
        in_headline=True,
        question=f"question {number}",
        gold="",
        answer="",
        score=score,
        parts={},
        recall={},
        sources=(),
        seconds=0.0,
        prompt_tokens=tokens,
    )


if __name__ == "__main__":
    main()
