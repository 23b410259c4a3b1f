"""PAL-Bench's judges: implicit needs that a restatement meets, and which of two dialogues serves a user better.

    NeedsJudge                       0, .5, 1, 1.5 or 2 points for one restatement (GPT-4 Score)
    compare(judge, persona, A, B)    3 judgements with A first, 3 with B first; the higher mean wins, equal is a tie

Source: Mem-PAL, appendix B, after FairEval (Wang et al. 2024): positions balanced, several judgements of each.

Limits: the paper does not say how judgements are sampled; here the judge is asked at temperature 1 with another
rollout each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from dspy.utils.exceptions import AdapterParseError

from ...errors import one_line
from ...signatures.judges_pal import JudgeImplicitNeeds, JudgeNeedUnderstanding, JudgePreferenceUnderstanding
from ..judge import AnyJudge, PromptJudge, ask_all
from .persona import Persona
from .topics import Topic

Outcome = Literal["win", "tie", "lose"]
PER_ORDER = 3
"""Judgements of a pair in each order; six in all."""
VALUES: dict[Outcome, float] = {"win": 1.0, "tie": 0.5, "lose": 0.0}
"""What an outcome counts in a mean."""

_TRIES = 3
_TEMPERATURE = 1.0


@dataclass(frozen=True)
class Points:
    """What a judge gives a restatement."""

    points: float
    """0, .5, 1, 1.5 or 2."""
    analysis: str = ""


@dataclass(frozen=True)
class Compared:
    """Mean scores of two dialogues over all judgements, 1 to 10."""

    own: float
    other: float
    judgements: int
    margin: float = 0.0
    """Means that are not further apart are a tie."""

    @property
    def outcome(self) -> Outcome:
        """Win, tie or lose of the first dialogue."""
        if abs(self.own - self.other) <= self.margin:
            return "tie"
        return "win" if self.own > self.other else "lose"


class DialogueJudge(AnyJudge, Protocol):
    """What compares two dialogues in one dimension."""

    def __call__(self, persona: Persona, first: str, second: str, rollout: int) -> tuple[float, float]:
        """Scores both dialogues, 1 to 10; `rollout` numbers the judgements of one pair in one order."""
        ...


class NeedsJudge(PromptJudge):
    """Scores restatements by `signatures.judges_pal.JudgeImplicitNeeds`."""

    signature = JudgeImplicitNeeds

    def __call__(self, topic: Topic, answer: str) -> Points:
        """Scores a restatement. An empty one scores 0 without a call.

        Raises:
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        if not answer.strip():
            return Points(0.0, "no answer was given")
        found = self.ask(
            user_query=topic.user_query,
            requirement=topic.requirement,
            implicit_needs=list(topic.needs),
            prediction=answer,
        )
        return Points(found.score.points, one_line(found.analysis))


class _PairPrompt(PromptJudge):
    """Asks for the scores of two dialogues; a reply that cannot be read is asked for again, twice at most."""

    def __call__(self, persona: Persona, first: str, second: str, rollout: int) -> tuple[float, float]:
        for attempt in range(_TRIES):
            # A first try at another number than any second one: none may be answered from the other's cache.
            config = {"rollout_id": rollout + attempt * 1000, "temperature": _TEMPERATURE}
            try:
                found = self.ask(
                    config=config,
                    profile=persona.profile,
                    situation=persona.situation,
                    wishes=self.wishes(persona),
                    dialogue_1=first,
                    dialogue_2=second,
                )
                return found.scores.assistant_1, found.scores.assistant_2
            except AdapterParseError:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def wishes(self, persona: Persona) -> str:
        """What of a persona is the measure."""
        raise NotImplementedError


class NeedUnderstandingJudge(_PairPrompt):
    """Compares by `signatures.judges_pal.JudgeNeedUnderstanding`."""

    signature = JudgeNeedUnderstanding

    def wishes(self, persona: Persona) -> str:
        return persona.needs


class PreferenceUnderstandingJudge(_PairPrompt):
    """Compares by `signatures.judges_pal.JudgePreferenceUnderstanding`."""

    signature = JudgePreferenceUnderstanding

    def wishes(self, persona: Persona) -> str:
        return persona.preferences


def compare(judge: DialogueJudge, persona: Persona, own: str, other: str, margin: float = 0.0) -> Compared:
    """Has two dialogues judged six times, three in each order, and takes the mean scores.

    The judgements do not wait for one another. Equal dialogues are a tie without a call.

    Args:
        judge: Scores in one dimension.
        persona: The user of both.
        own: The dialogue whose outcome it is.
        other: What it is compared with.
        margin: Means that are not further apart are a tie; 0 in the paper.

    Raises:
        AdapterParseError: A reply of the judge stays unparseable after three tries.
        LMError: The judge's endpoint failed.
    """
    if own == other:
        return Compared(0.0, 0.0, 0, margin)
    jobs = [(own, other, rollout) for rollout in range(1, PER_ORDER + 1)]
    jobs += [(other, own, rollout) for rollout in range(1, PER_ORDER + 1)]
    found = ask_all(lambda job: judge(persona, *job), jobs, len(jobs))
    scores = found[:PER_ORDER] + [(second, first) for first, second in found[PER_ORDER:]]
    return Compared(_mean([a for a, _ in scores]), _mean([b for _, b in scores]), len(scores), margin)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
