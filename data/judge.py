"""Judges: a language model that decides whether an answer is right, what a context holds, or which response is better.

A scorer names the classes of its judges and does not know which model judges; without one it refuses to score. A reply
that stays unparseable or an endpoint that fails raises: a judge that said nothing did not say "wrong".
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast

import dspy
from dspy.utils.exceptions import AdapterParseError

from ..errors import one_line
from ..signatures.judges import (
    Acknowledgement,
    JudgeAcknowledgement,
    JudgeAnswer,
    JudgeGenerously,
    JudgePreference,
    judge_hash,
)

Asked = TypeVar("Asked")
Reply = TypeVar("Reply")
Level = Literal["not", "implicitly", "explicitly"]
Side = Literal["first", "second", "tie"]
_SIDES: dict[str, Side] = {"w3k8": "first", "t5n1": "second", "tie": "tie"}


@dataclass(frozen=True)
class Verdict:
    """A judge's verdict on one answer."""

    correct: bool
    reasoning: str = ""


@dataclass(frozen=True)
class Preference:
    """What came of judging a pair in both orders."""

    ahead: float
    """In how much of the orders the one response is preferred: 0, .5 or 1."""
    behind: float
    """In how much the other one is; what is left are ties."""


class AnyJudge(Protocol):
    """What all judges are; they may be called from many threads at once."""

    @property
    def hash(self) -> str:
        """Names the judge's prompt, for tables and manifests."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class PromptJudge:
    """A judging prompt with the model that is asked: what every judge is made of.

    Args:
        lm: The model that judges.
        adapter: How it is asked; DSPy's default if None.
    """

    signature: ClassVar[type[dspy.Signature]]
    """The prompt, of `signatures.judges`."""

    def __init__(self, lm: Any, adapter: dspy.Adapter | None = None) -> None:
        self.lm = lm
        self._adapter = adapter
        self._predict = dspy.Predict(self.signature)

    @classmethod
    def prompt_hash(cls) -> str:
        """`judge_hash` of the prompt, before there is a model to ask."""
        return judge_hash(cls.signature)

    @property
    def hash(self) -> str:
        """`judge_hash` of the prompt."""
        return self.prompt_hash()

    def ask(self, **inputs: Any) -> dspy.Prediction:
        """One call under the judge's own model, outside every trace.

        Raises:
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        with dspy.context(lm=self.lm, adapter=self._adapter, trace=None, usage_tracker=None):
            return self._predict(**inputs)


class Judge(PromptJudge):
    """Judges answers by `signatures.judges.JudgeAnswer`."""

    signature = JudgeAnswer

    def __call__(self, question: str, gold_answer: str, answer: str) -> Verdict:
        """Judges one answer, raising what `ask` does. An empty one is wrong without a call."""
        if not answer.strip():
            return Verdict(False, "no answer was given")
        return self.verdict(self.ask(question=question, gold_answer=gold_answer, answer=answer))

    def verdict(self, said: dspy.Prediction) -> Verdict:
        """What the judge's reply means."""
        return Verdict(said.verdict == "CORRECT", one_line(said.reasoning))


class GenerousJudge(Judge):
    """Judges answers by `signatures.judges.JudgeGenerously`, as the field judges LoCoMo."""

    signature = JudgeGenerously

    def verdict(self, said: dspy.Prediction) -> Verdict:
        return Verdict(said.label == "CORRECT")


class AcknowledgementJudge(PromptJudge):
    """Judges by `signatures.judges.JudgeAcknowledgement` what of the references is in a retrieved context.

    PGR's judge says yes ("explicitly or implicitly") or no; this one tells the two kinds of yes apart, so that a
    lenient judge is seen. One call for all references of a query, no vote.
    """

    signature = JudgeAcknowledgement

    def __call__(self, question: str, references: Sequence[str], context: str) -> tuple[Acknowledgement, ...]:
        """Judges all references of a query in one call, raising what `ask` does. An empty context needs no call.

        Entries are taken by their numbers; where the numbers are not those of the references but there are as many
        entries, by their order. A reply of another number of entries is unparseable.
        """
        if not context.strip():
            return (Acknowledgement(number=1, found="not", reason="nothing was retrieved"),) * len(references)
        numbered = "\n".join(f"{n}. {one_line(text)}" for n, text in enumerate(references, 1))
        said: list[Acknowledgement] = self.ask(question=question, references=numbered, context=context).acknowledgements
        if len(said) != len(references):
            message = f"{len(references)} references, but the judge speaks of {len(said)}"
            raise AdapterParseError("judge", cast("Any", self.signature), str(said), message)
        if sorted(each.number for each in said) == list(range(1, len(said) + 1)):
            said = sorted(said, key=lambda each: each.number)
        return tuple(each.model_copy(update={"reason": one_line(each.reason)}) for each in said)


def recall_parts(levels: Sequence[Level]) -> dict[str, float]:
    """PGR's metrics of one query from what was said of its references, of which there is at least one.

    Source: PGR, section 5.2: Recall is the fraction of the references that are judged present, Recall_Exact is 1 if
    all are.
    """
    present = [level != "not" for level in levels]
    return {
        "recall": sum(present) / len(levels),
        "recall_exact": float(all(present)),
        "recall_explicit": sum(level == "explicitly" for level in levels) / len(levels),
    }


def evidence_parts(evidence: Sequence[Collection[str]], sources: Collection[str]) -> dict[str, float]:
    """The share of the references with a turn of their evidence among the turns that were recalled.

    A session that was recalled need not have shown the line that mattered, so evidence by sessions is an upper bound.

    Args:
        evidence: For each reference the ids of the turns that hold it, or of all turns of its session.
        sources: Ids of the turns that the recalled hits rest on.

    Returns:
        `evidence` and `evidence_exact` over the references with evidence; nothing where none has any.
    """
    recalled = set(sources)
    found = [not recalled.isdisjoint(turns) for turns in evidence if turns]
    return {"evidence": sum(found) / len(found), "evidence_exact": float(all(found))} if found else {}


class PreferenceJudge(PromptJudge):
    """Compares responses by `signatures.judges.JudgePreference`.

    The labels of the responses are neutral and belong to the place, so that a liking for either cancels out.
    """

    signature: ClassVar[type[dspy.Signature]] = JudgePreference

    def __call__(self, example: dspy.Example, first: str, second: str) -> Side:
        """Which of two responses to the example's `question` serves better, raising what `ask` does.

        The judge is shown the example's `reference`, or else its `answer` (of MemoryQuest the references), and its
        `profile`, `facts` and `date` where it has them.
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
        return _SIDES[found.choice]


def informed(examples: Sequence[dspy.Example], group: Callable[[dspy.Example], str]) -> list[dspy.Example]:
    """The examples with all facts about their user: those stated, else the references of all queries of the user."""
    facts: dict[str, dict[str, None]] = {}
    for example in examples:
        facts.setdefault(group(example), {}).update(dict.fromkeys(_references(example).splitlines()))
    return [
        example if "facts" in example else example.copy(facts="\n".join(facts[group(example)])) for example in examples
    ]


def preference(judge: AnyJudge, example: dspy.Example, answer_a: str, answer_b: str) -> Preference:
    """How far a response is preferred over another one, judged in both orders, raising what the judge does.

    The win rate of A over B is the mean over the queries of `ahead`; a tie counts for neither. Equal responses are a
    tie without a call. Source: PGR, section 5.2.
    """
    if answer_a.strip() == answer_b.strip():
        return Preference(0.0, 0.0)
    forward, backward = judge(example, answer_a, answer_b), judge(example, answer_b, answer_a)
    ahead = ((forward == "first") + (backward == "second")) / 2
    return Preference(ahead, ((forward == "second") + (backward == "first")) / 2)


def _references(example: dspy.Example) -> str:
    return str(example.get("reference") or example.get("answer") or "")


def ask_all(ask: Callable[[Asked], Reply], asked: Sequence[Asked], threads: int) -> list[Reply]:
    """Ask about many things at once, each in a copy of the caller's context; not to be nested.

    After a failure no further call begins, and the calls in flight end.

    Raises:
        Exception: The failure that comes first in the order of `asked`, whichever thread failed first.
    """
    pool = ThreadPoolExecutor(max(1, threads))
    futures = [pool.submit(contextvars.copy_context().run, ask, each) for each in asked]

    try:
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        pool.shutdown(cancel_futures=True)

    # Calls begin in order, so a cancelled one stands behind every failure and is never reached.
    return [future.result() for future in futures]
