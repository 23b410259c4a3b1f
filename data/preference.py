"""Which of two responses serves a user better: PGR's pairwise comparison, and the win rate over many.

    preference(judge, example, A, B)   the judge sees A first, then B first; mean of the two, ties count half

The win rate of A over B is the mean over the queries. The labels of the responses are neutral and belong to the place,
so that a liking for a place or for a label cancels out.

Limits: the paper reports the fraction of queries on which a response is preferred, and does not say what a tie
counts; here it counts half, so A's rate and B's add up to 1. Two calls a query, no vote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import dspy

from ..signatures.judges import JudgePreference
from .judge import AnyJudge, PromptJudge, one_line

Side = Literal["first", "second", "tie"]

_SIDES: dict[str, Side] = {"w3k8": "first", "t5n1": "second", "tie": "tie"}
_VALUES: dict[Side, float] = {"first": 1.0, "tie": 0.5, "second": 0.0}


@dataclass(frozen=True)
class Preferred:
    """A judge's verdict on two responses."""

    side: Side
    reasoning: str = ""


class PairJudge(AnyJudge, Protocol):
    """What `preference` needs of a judge."""

    def __call__(self, example: dspy.Example, first: str, second: str) -> Preferred:
        """Compares two responses; may be called from many threads at once."""
        ...


class PreferenceJudge(PromptJudge):
    """Compares responses by `signatures.judges.JudgePreference`."""

    signature = JudgePreference

    def __call__(self, example: dspy.Example, first: str, second: str) -> Preferred:
        """Compares two responses to the example's `question`.

        The judge is shown the example's `answer` (for MemoryQuest the references), `profile` and `date` where it has
        them.

        Raises:
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        found = self.ask(
            profile=example.get("profile") or "",
            facts=str(example.get("answer") or ""),
            date=example.get("date") or "",
            question=example.question,
            response_w3k8=first,
            response_t5n1=second,
        )
        return Preferred(_SIDES[found.choice], one_line(found.reasoning))


def preference(judge: PairJudge, example: dspy.Example, answer_a: str, answer_b: str) -> float:
    """How far a response is preferred over another one: 1 in both orders, 0 in neither, a tie is half.

    Equal responses are a tie without a call. Source: PGR, section 5.2.

    Raises:
        AdapterParseError: The judge's reply stays unparseable.
        LMError: The judge's endpoint failed.
    """
    if answer_a.strip() == answer_b.strip():
        return 0.5
    ahead, behind = judge(example, answer_a, answer_b), judge(example, answer_b, answer_a)
    return (_VALUES[ahead.side] + 1 - _VALUES[behind.side]) / 2
