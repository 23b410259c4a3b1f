"""Judges: a language model that decides whether an answer is right, what a context holds, or which response is better.

A scorer names the classes of its judges and does not know which model judges; without one it refuses to score. A reply
that stays unparseable or an endpoint that fails raises: a judge that said nothing did not say "wrong".
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast

import dspy
from dspy.utils.exceptions import AdapterParseError

from ..signatures.judges import (
    Acknowledgement,
    GradedAcknowledgement,
    JudgeAcknowledgement,
    JudgeAcknowledgementStrictly,
    JudgeAnswer,
    JudgeGenerously,
    JudgePreference,
    judge_hash,
)
from ..text import one_line

Asked = TypeVar("Asked")
Reply = TypeVar("Reply")
Side = Literal["first", "second", "tie"]
_SIDES: dict[str, Side] = {"w3k8": "first", "t5n1": "second", "tie": "tie"}


@dataclass(frozen=True)
class Verdict:
    """A judge's verdict on one answer."""

    correct: bool
    reasoning: str = ""


@dataclass(frozen=True)
class ReferenceVerdict:
    """A judge's verdict on one reference: whether a retrieved context acknowledges it."""

    present: bool
    explicit: bool = False
    """Whether the context says it in words; only the strict judge tells."""
    reason: str = ""


@dataclass(frozen=True)
class Preference:
    """What came of judging a pair in both orders."""

    win_share: float
    """In how much of the orders the one response is preferred: 0, .5 or 1."""
    loss_share: float
    """In how much the other one is; what is left are ties."""


class AnyJudge(Protocol):
    """A judge; it may be called from many threads at once.

    What it is given and what it returns is each judge's own, e.g. question, gold answer and answer
    for a `Verdict`; a scorer names the class of its judge, so it knows.
    """

    def __init__(self, lm: dspy.BaseLM, adapter: dspy.Adapter | None = None) -> None: ...

    @classmethod
    def prompt_hash(cls) -> str:
        """Names the prompt of the class, before there is a model to ask."""
        ...

    @property
    def hash(self) -> str:
        """Names the judge's prompt, for tables and manifests."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


JudgeRoles = Mapping[str, type[AnyJudge]]
"""The classes of the judges that a scorer asks, by role, e.g. {"judge": Judge}."""


class JudgeFactory(Protocol):
    """Makes a judge of a class: a run binds each to its own model."""

    def __call__(self, judge_class: type[AnyJudge], /) -> AnyJudge: ...


class PromptJudge:
    """A judging prompt with the model that is asked: what every judge is made of.

    Args:
        lm: The model that judges.
        adapter: How it is asked; DSPy's default if None.
    """

    signature: ClassVar[type[dspy.Signature]]
    """The prompt, of `signatures.judges`."""

    def __init__(self, lm: dspy.BaseLM, adapter: dspy.Adapter | None = None) -> None:
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
        return self.parse_verdict(self.ask(question=question, gold_answer=gold_answer, answer=answer))

    def parse_verdict(self, reply: dspy.Prediction) -> Verdict:
        """What the judge's reply means."""
        return Verdict(reply.verdict == "CORRECT", one_line(reply.reasoning))


class GenerousJudge(Judge):
    """Judges answers by `signatures.judges.JudgeGenerously`, as the field judges LoCoMo."""

    signature = JudgeGenerously

    def parse_verdict(self, reply: dspy.Prediction) -> Verdict:
        return Verdict(reply.label == "CORRECT")


class AcknowledgementJudge(PromptJudge):
    """Judges which references a retrieved context acknowledges, yes or no for each (PGR's retrieval evaluation).

    One call for all references of a query, no vote.
    """

    signature: ClassVar[type[dspy.Signature]] = JudgeAcknowledgement
    part: ClassVar[str] = "recall"
    """What the parts of a score call the share of references that it finds."""

    def __call__(self, question: str, references: Sequence[str], context: str) -> tuple[ReferenceVerdict, ...]:
        """Judges all references of a query in one call, raising what `ask` does. An empty context needs no call.

        Entries are taken by their numbers; where the numbers are not those of the references but there are as many
        entries, by their order. A reply of another number of entries is unparseable.
        """
        if not context.strip():
            return (ReferenceVerdict(present=False, reason="nothing was retrieved"),) * len(references)

        numbered = "\n".join(f"{n}. {one_line(text)}" for n, text in enumerate(references, 1))
        reply = self.ask(question=question, references=numbered, context=context)
        entries = list(reply.acknowledgements)
        if len(entries) != len(references):
            message = f"{len(references)} references, but the judge speaks of {len(entries)}"
            raise AdapterParseError("judge", cast("Any", self.signature), str(entries), message)

        numbers = sorted(entry.number for entry in entries)
        if numbers == list(range(1, len(entries) + 1)):
            entries.sort(key=lambda entry: entry.number)
        return tuple(map(self.verdict, entries))

    def verdict(self, entry: Any) -> ReferenceVerdict:
        """Return what the judge's entry on one reference means."""
        acknowledgement: Acknowledgement = entry
        return ReferenceVerdict(present=acknowledgement.verdict == "yes", reason=one_line(acknowledgement.reason))

    @classmethod
    def parts_of(cls, verdicts: Sequence[ReferenceVerdict]) -> dict[str, float]:
        """Return the parts of a query's score from the verdicts on its references, of which there is at least one.

        Source: PGR, section 5.2: Recall is the fraction of the references that are judged present.
        """
        return {cls.part: sum(verdict.present for verdict in verdicts) / len(verdicts)}


class StrictAcknowledgementJudge(AcknowledgementJudge):
    """Judges as `AcknowledgementJudge`, but leaves no benefit of the doubt; the rules beyond the paper's are ours.

    A context that would fit another fact just as well does not acknowledge a reference. Explicit and implied references
    are told apart, so that a lenient judge is seen.
    """

    signature = JudgeAcknowledgementStrictly
    part = "recall_strict"

    def verdict(self, entry: Any) -> ReferenceVerdict:
        graded: GradedAcknowledgement = entry
        return ReferenceVerdict(
            present=graded.found != "not",
            explicit=graded.found == "explicitly",
            reason=one_line(graded.reason),
        )

    @classmethod
    def parts_of(cls, verdicts: Sequence[ReferenceVerdict]) -> dict[str, float]:
        """Return `recall_strict`, and `recall_explicit` for the references that are there in words."""
        explicit = sum(verdict.explicit for verdict in verdicts) / len(verdicts)
        return {**super().parts_of(verdicts), "recall_explicit": explicit}


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


def with_user_facts(examples: Sequence[dspy.Example], group: Callable[[dspy.Example], str]) -> list[dspy.Example]:
    """The examples with all facts about their user: those stated, else the references of all queries of the user."""
    facts: dict[str, dict[str, None]] = {}
    for example in examples:
        facts.setdefault(group(example), {}).update(dict.fromkeys(_references(example).splitlines()))
    return [
        example if "facts" in example else example.copy(facts="\n".join(facts[group(example)])) for example in examples
    ]


def preference(judge: AnyJudge, example: dspy.Example, answer_a: str, answer_b: str) -> Preference:
    """How far a response is preferred over another one, judged in both orders, raising what the judge does.

    The win rate of A over B is the mean of `win_share` over the queries; a tie counts for neither. Equal responses
    are a tie without a call. Source: PGR, section 5.2.
    """
    if answer_a.strip() == answer_b.strip():
        return Preference(0.0, 0.0)
    forward, backward = judge(example, answer_a, answer_b), judge(example, answer_b, answer_a)
    win_share = ((forward == "first") + (backward == "second")) / 2
    loss_share = ((forward == "second") + (backward == "first")) / 2
    return Preference(win_share, loss_share)


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
