"""Which of two responses serves a user better: PGR's pairwise comparison, each pair judged in both orders.

The win rate of A over B is the mean over the queries of how often A is preferred; a tie counts for neither. The labels
of the responses are neutral and belong to the place, so that a liking for a place or for a label cancels out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import dspy

from ..errors import one_line
from ..signatures.judges import JudgePreference
from .benchmark import Benchmark
from .judge import AnyJudge, PromptJudge

Side = Literal["first", "second", "tie"]

_SIDES: dict[str, Side] = {"w3k8": "first", "t5n1": "second", "tie": "tie"}


@dataclass(frozen=True)
class Preferred:
    """A judge's verdict on two responses."""

    side: Side
    reasoning: str = ""


@dataclass(frozen=True)
class Preference:
    """What came of judging a pair in both orders."""

    ahead: float
    """In how much of the orders the one response is preferred: 0, .5 or 1."""
    behind: float
    """In how much the other one is; what is left are ties."""


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

        The judge is shown the example's `reference`, or else its `answer` (of MemoryQuest the references), and its
        `profile`, `facts` and `date` where it has them.

        Raises:
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        found = self.ask(
            profile=example.get("profile") or "",
            facts=example.get("facts") or "",
            date=example.get("date") or "",
            question=example.question,
            references=_references(example),
            response_w3k8=first,
            response_t5n1=second,
        )
        return Preferred(_SIDES[found.choice], one_line(found.reasoning))


def informed(benchmark: Benchmark) -> list[dspy.Example]:
    """The examples with all facts about their user: those stated, else the references of all queries of the user."""
    facts: dict[str, dict[str, None]] = {}
    for example in benchmark.examples:
        facts.setdefault(benchmark.group(example), {}).update(dict.fromkeys(_references(example).splitlines()))
    return [
        example if "facts" in example else example.copy(facts="\n".join(facts[benchmark.group(example)]))
        for example in benchmark.examples
    ]


def preference(judge: PairJudge, example: dspy.Example, answer_a: str, answer_b: str) -> Preference:
    """How far a response is preferred over another one, judged in both orders.

    Equal responses are a tie without a call. Source: PGR, section 5.2.

    Raises:
        AdapterParseError: The judge's reply stays unparseable.
        LMError: The judge's endpoint failed.
    """
    if answer_a.strip() == answer_b.strip():
        return Preference(0.0, 0.0)
    forward, backward = judge(example, answer_a, answer_b).side, judge(example, answer_b, answer_a).side
    ahead = ((forward == "first") + (backward == "second")) / 2
    return Preference(ahead, ((forward == "second") + (backward == "first")) / 2)


def _references(example: dspy.Example) -> str:
    return str(example.get("reference") or example.get("answer") or "")
