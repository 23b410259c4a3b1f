"""The judge of a benchmark: a language model that decides whether an answer is right, in one call.

A scorer names the classes of its judges and does not know which model judges; without one it refuses to score. A reply
that stays unparseable or an endpoint that fails raises: a judge that said nothing did not say "wrong".
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import dspy

from ..errors import one_line
from ..signatures.judges import JudgeAnswer, JudgeGenerously, judge_hash

Asked = TypeVar("Asked")
Said = TypeVar("Said")


@dataclass(frozen=True)
class Verdict:
    """A judge's verdict on one answer."""

    correct: bool
    reasoning: str = ""


class AnyJudge(Protocol):
    """Members that all judges share."""

    @property
    def hash(self) -> str:
        """Names the judge's prompt, for tables and manifests."""
        ...


class AnswerJudge(AnyJudge, Protocol):
    """What a benchmark needs of a judge of answers."""

    def __call__(self, question: str, gold_answer: str, answer: str) -> Verdict:
        """Judges one answer; may be called from many threads at once."""
        ...


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
        """Judges one answer. An empty one is wrong without a call.

        Raises:
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        if not answer.strip():
            return Verdict(False, "no answer was given")
        found = self.ask(question=question, gold_answer=gold_answer, answer=answer)
        return Verdict(found.verdict == "CORRECT", one_line(found.reasoning))


class GenerousJudge(PromptJudge):
    """Judges answers by `signatures.judges.JudgeGenerously`, as the field judges LoCoMo."""

    signature = JudgeGenerously

    def __call__(self, question: str, gold_answer: str, answer: str) -> Verdict:
        """Labels one answer; as `Judge`."""
        if not answer.strip():
            return Verdict(False, "no answer was given")
        found = self.ask(question=question, gold_answer=gold_answer, answer=answer)
        return Verdict(found.label == "CORRECT")


def ask_all(ask: Callable[[Asked], Said], asked: Sequence[Asked], threads: int) -> list[Said]:
    """Asks about many things at once, each in a copy of the caller's context.

    Raises:
        Exception: The first failure, in order; what has not begun by then is dropped.
    """
    with ThreadPoolExecutor(max(1, threads)) as pool:
        futures = [pool.submit(contextvars.copy_context().run, ask, each) for each in asked]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
