"""Judges: a language model decides whether an answer is right, or which response is better.

A judge is a class with the prompt that it asks and the meaning of the reply:

    class CityJudge(PromptJudge):
        signature = JudgeCity

        def __call__(self, question: str, answer: str) -> Verdict:
            reply = self.ask(question=question, answer=answer)
            return Verdict(reply.verdict == "yes")

A scorer names the classes of its judges and does not know which model judges (see `scorer.py`);
without a model it refuses to score. A reply that stays unparseable, or an endpoint that fails,
raises: a judge that said nothing did not say "wrong".
"""

from __future__ import annotations

import contextvars
import threading
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

ItemT = TypeVar("ItemT")
ReplyT = TypeVar("ReplyT")

Side = Literal["first", "second", "tie"]
"""Which of two responses a judge prefers."""
_SIDES_BY_LABEL: Mapping[str, Side] = {
    "w3k8": "first",
    "t5n1": "second",
    "tie": "tie",
}
"""What `JudgePreference` chooses among: the labels of the first and second response, and a tie."""


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
    """How a judge compared two responses in both orders."""

    win_share: float
    """The share of the orders in which the first response is preferred: 0, .5 or 1."""
    loss_share: float
    """The share in which the second one is preferred. The rest are ties."""


class AnyJudge(Protocol):
    """A judge; it may be called from many threads at once.

    Each class has its own arguments and result, e.g. question, gold answer and answer for a
    `Verdict`. A scorer names the class of its judge, so it knows them.
    """

    def __init__(self, lm: dspy.BaseLM, adapter: dspy.Adapter | None = None) -> None: ...

    @classmethod
    def prompt_hash(cls) -> str:
        """Return the digest of the prompt of the class, before there is a model to ask."""
        ...

    @property
    def hash(self) -> str:
        """Return the digest of the judge's prompt, for tables and manifests."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


JudgeRoles = Mapping[str, type[AnyJudge]]
"""The classes of the judges that a scorer asks, by role, e.g. {"judge": Judge}."""


class JudgeFactory(Protocol):
    """Makes a judge of a class: a run binds each to its own model."""

    def __call__(self, judge_class: type[AnyJudge], /) -> AnyJudge: ...


class PromptJudge:
    """A judging prompt and the model that is asked.

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
        """Return `judge_hash` of the prompt, before there is a model to ask."""
        return judge_hash(cls.signature)

    @property
    def hash(self) -> str:
        """Return `judge_hash` of the prompt."""
        return self.prompt_hash()

    def ask(self, **inputs: Any) -> dspy.Prediction:
        """Call the judge's own model once, outside every trace.

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
        """Judge one answer; an empty one is wrong without a call. Raises what `ask` does."""
        if not answer.strip():
            return Verdict(False, "no answer was given")
        reply = self.ask(question=question, gold_answer=gold_answer, answer=answer)
        return self.parse_verdict(reply)

    def parse_verdict(self, reply: dspy.Prediction) -> Verdict:
        """Return the verdict that a reply of the model means."""
        return Verdict(reply.verdict == "CORRECT", one_line(reply.reasoning))


class GenerousJudge(Judge):
    """Judges answers by `signatures.judges.JudgeGenerously`, as the field judges LoCoMo."""

    signature = JudgeGenerously

    def parse_verdict(self, reply: dspy.Prediction) -> Verdict:
        return Verdict(reply.label == "CORRECT")


class AcknowledgementJudge(PromptJudge):
    """Judges which references a retrieved context acknowledges (PGR's retrieval evaluation).

    One call answers yes or no for all references of a query; there is no vote.
    """

    signature: ClassVar[type[dspy.Signature]] = JudgeAcknowledgement
    part: ClassVar[str] = "recall"
    """What the parts of a score call the share of references that are present."""

    def __call__(
        self, question: str, references: Sequence[str], context: str
    ) -> tuple[ReferenceVerdict, ...]:
        """Judge all references of a query in one call. An empty context needs no call.

        The judge's entries are matched by their numbers. Where these are not the numbers of the
        references, but there are as many entries, they are matched by their order.

        Raises:
            AdapterParseError: The reply stays unparseable, or has another number of entries.
            LMError: The judge's endpoint failed.
        """
        if not context.strip():
            return tuple(
                ReferenceVerdict(False, reason="nothing was retrieved") for _ in references
            )

        lines = [f"{number}. {one_line(text)}" for number, text in enumerate(references, 1)]
        reply = self.ask(question=question, references="\n".join(lines), context=context)
        entries: list[Acknowledgement | GradedAcknowledgement] = list(reply.acknowledgements)
        if len(entries) != len(references):
            problem = f"{len(references)} references, but the judge speaks of {len(entries)}"
            # DSPy calls the signature an instance where it means the class.
            signature = cast("dspy.Signature", self.signature)
            raise AdapterParseError("judge", signature, str(entries), problem)

        numbers = sorted(entry.number for entry in entries)
        if numbers == list(range(1, len(entries) + 1)):
            entries.sort(key=lambda entry: entry.number)
        return tuple(self.verdict(entry) for entry in entries)

    def verdict(self, entry: Acknowledgement | GradedAcknowledgement) -> ReferenceVerdict:
        """Return the verdict that the judge's entry on one reference means."""
        assert isinstance(entry, Acknowledgement), "the signature asks for such entries"
        return ReferenceVerdict(present=entry.verdict == "yes", reason=one_line(entry.reason))

    @classmethod
    def parts_of(cls, verdicts: Sequence[ReferenceVerdict]) -> dict[str, float]:
        """Return the parts of a query's score from the verdicts on its references, at least one.

        Source: PGR, section 5.2: recall is the share of the references that are judged present.
        """
        num_present = sum(verdict.present for verdict in verdicts)
        return {cls.part: num_present / len(verdicts)}


class StrictAcknowledgementJudge(AcknowledgementJudge):
    """Judges as `AcknowledgementJudge`, but leaves no benefit of the doubt.

    A context that would fit another fact just as well does not acknowledge a reference. Explicit
    and implied references are told apart, so that a lenient judge is seen. These rules beyond the
    paper's are ours.
    """

    signature = JudgeAcknowledgementStrictly
    part = "recall_strict"

    def verdict(self, entry: Acknowledgement | GradedAcknowledgement) -> ReferenceVerdict:
        assert isinstance(entry, GradedAcknowledgement), "the signature asks for such entries"
        return ReferenceVerdict(
            present=entry.found != "not",
            explicit=entry.found == "explicitly",
            reason=one_line(entry.reason),
        )

    @classmethod
    def parts_of(cls, verdicts: Sequence[ReferenceVerdict]) -> dict[str, float]:
        """Return `recall_strict`, and the share of references that are there in words."""
        parts = super().parts_of(verdicts)
        num_explicit = sum(verdict.explicit for verdict in verdicts)
        parts["recall_explicit"] = num_explicit / len(verdicts)
        return parts


class PreferenceJudge(PromptJudge):
    """Compares responses by `signatures.judges.JudgePreference`.

    The labels of the first and the second response are neutral and stay the same when the responses
    change places, so that a liking for either label cancels out.
    """

    signature: ClassVar[type[dspy.Signature]] = JudgePreference

    def __call__(self, example: dspy.Example, first: str, second: str) -> Side:
        """Return which of two responses serves the example's `question` better.

        The judge is shown the example's `reference`, or else its `answer` (of MemoryQuest the
        references), and its `profile`, `facts` and `date` where it has them. Raises what `ask`
        does.
        """
        reply = self.ask(
            profile=example.get("profile") or "",
            facts=example.get("facts") or "",
            date=example.get("date") or "",
            question=example.question,
            references=_references(example),
            response_w3k8=first,
            response_t5n1=second,
        )
        return _SIDES_BY_LABEL[reply.choice]


def preference(judge: AnyJudge, example: dspy.Example, answer_a: str, answer_b: str) -> Preference:
    """Return how often a judge prefers answer A, and how often answer B.

    The judge is asked twice, with the answers in either order, because a model may favour the
    answer that it reads first. Equal answers are a tie, and the judge is not asked. A tie is
    neither a win nor a loss. The win rate of A over B is the mean of `win_share` over all
    questions. Source: PGR, section 5.2.

    Raises what the judge raises.
    """
    if answer_a.strip() == answer_b.strip():
        return Preference(win_share=0.0, loss_share=0.0)

    choice_with_a_first: Side = judge(example, answer_a, answer_b)
    choice_with_b_first: Side = judge(example, answer_b, answer_a)
    wins_of_a = [choice_with_a_first == "first", choice_with_b_first == "second"]
    wins_of_b = [choice_with_a_first == "second", choice_with_b_first == "first"]
    return Preference(win_share=sum(wins_of_a) / 2, loss_share=sum(wins_of_b) / 2)


def with_user_facts(
    examples: Sequence[dspy.Example], group: Callable[[dspy.Example], str]
) -> list[dspy.Example]:
    """Return the examples with a field `facts`: everything that is known about their user.

    An example that has the field keeps it. Another one gets the references of all queries of its
    user, each once.

    Args:
        examples: The queries.
        group: Returns the user of an example.
    """
    facts_by_user: dict[str, list[str]] = {}
    for example in examples:
        facts = facts_by_user.setdefault(group(example), [])
        facts.extend(_references(example).splitlines())

    completed: list[dspy.Example] = []
    for example in examples:
        if "facts" in example:
            completed.append(example)
        else:
            unique_facts = dict.fromkeys(facts_by_user[group(example)])
            completed.append(example.copy(facts="\n".join(unique_facts)))
    return completed


def _references(example: dspy.Example) -> str:
    """Return what a good response to an example takes into account."""
    return str(example.get("reference") or example.get("answer") or "")


def evidence_parts(
    evidence: Sequence[Collection[str]], sources: Collection[str]
) -> dict[str, float]:
    """Return for how many references of a question a turn of their evidence was recalled.

    A reference is something that a good response rests on. Where the data names only the session
    of a reference, all its turns are evidence, and the share is an upper bound: the turn that was
    recalled may not be the one that mattered.

    Args:
        evidence: For each reference the ids of the turns that hold it, or of all turns of its
            session.
        sources: Ids of the turns that the recalled hits rest on.

    Returns:
        `evidence`, the share, and `evidence_exact`, 1 if all were recalled. References without
        evidence do not count; there are no parts if none has any.
    """
    recalled_ids = set(sources)
    is_recalled = [not recalled_ids.isdisjoint(turn_ids) for turn_ids in evidence if turn_ids]
    if not is_recalled:
        return {}
    return {
        "evidence": sum(is_recalled) / len(is_recalled),
        "evidence_exact": float(all(is_recalled)),
    }


def ask_all(
    ask: Callable[[ItemT], ReplyT],
    items: Sequence[ItemT],
    threads: int,
    interrupted: threading.Event | None = None,
) -> list[ReplyT]:
    """Ask about many items at once and return the replies in the order of the items.

    `ask` must not call this function: every call has its own pool, so threads would multiply. Each
    call runs in a copy of the caller's context. After a failure no further call begins, and
    the calls in flight end. The same holds if the user interrupts it.

    Args:
        ask: Returns the reply about an item.
        items: What is asked about.
        threads: Calls of `ask` at once.
        interrupted: Set if the user interrupts it, before it waits for the calls in flight. An
            `ask` that takes long can look at it and end early.

    Raises:
        KeyboardInterrupt: The user interrupted it.
        Exception: The failure that comes first in the order of the items, whichever thread failed
            first.
    """
    pool = ThreadPoolExecutor(max(1, threads))
    try:
        futures = [pool.submit(contextvars.copy_context().run, ask, item) for item in items]
        wait(futures, return_when=FIRST_EXCEPTION)
        pool.shutdown(cancel_futures=True)
    except BaseException:
        # Failures of calls are in the futures, so this is an interrupt, e.g. Ctrl-C.
        if interrupted is not None:
            interrupted.set()
        pool.shutdown(cancel_futures=True)
        raise

    # The first failure in this order is raised. No cancelled call comes before it: calls begin in
    # order, and only those that had not begun at a failure were cancelled.
    return [future.result() for future in futures]
