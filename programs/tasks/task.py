"""Tasks: what is done with a recalled context. One task class per kind of benchmark.

A task names the inputs of its examples that form the query, says which text the memory is searched with, and answers.
There are free answers to a question, the choice of one option, and responses to a user's request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Literal

import dspy

from ...errors import UnknownNameError, UserError
from ...records import Context, History, Item
from ...signatures.answering import AnswerFromContext, ChooseFromContext, RespondPersonally
from ..predictor import predictor


class Task(dspy.Module):
    """Base class: answers a query from a context."""

    name: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]
    """The query fields an example must have."""
    content: ClassVar[Literal["needs", "solutions"] | None] = None
    """What the task is about, for methods that recall otherwise for it: what a user needs, or what to propose them."""

    def query(self, **fields: Any) -> str:
        """The text that the memory is searched with."""
        raise NotImplementedError

    def hints(self, **fields: Any) -> dict[str, Any]:
        """What a method may know of a query besides its text: `content`, and `dialogue`.

        A task whose queries are dialogues so far, rather than questions, says so with `dialogue=True`: a method may
        then gather from the dialogue what to search with.

        Args:
            **fields: The query fields; some may be missing.
        """
        return {"content": self.content, "dialogue": False}

    def suffix(self, history: History, recent: Sequence[Item]) -> Sequence[Item]:
        """The raw items that are shown beside the recalled context. Default: `recent`, and nothing of the history."""
        return recent

    def forward(self, context: Context, recent: Sequence[Item] = (), **fields: Any) -> dspy.Prediction:
        """Answers.

        Args:
            context: What the memory recalled.
            recent: Items that the task sees as they are: those of `suffix`.
            **fields: The query fields.
        """
        raise NotImplementedError


class QuestionAnswering(Task):
    """A short answer to a question about the history.

    `date` (when it is asked) may be among the query fields; it stands behind the question, and is not searched with.
    """

    name = "question-answering"
    inputs = ("question",)

    def __init__(self) -> None:
        super().__init__()
        self.answer = predictor(AnswerFromContext)

    def query(self, **fields: Any) -> str:
        return fields["question"]

    def forward(self, context: Context, recent: Sequence[Item] = (), **fields: Any) -> dspy.Prediction:
        return self.answer(context=with_recent(context.text(), recent), question=asked(fields))


class MultipleChoice(Task):
    """The letter of the option that suits the history best.

    The memory is searched with the question alone: the wrong options would find what they claim.
    """

    name = "multiple-choice"
    inputs = ("question", "options")

    def __init__(self) -> None:
        super().__init__()
        self.answer = predictor(ChooseFromContext)

    def query(self, **fields: Any) -> str:
        return fields["question"]

    def forward(self, context: Context, recent: Sequence[Item] = (), **fields: Any) -> dspy.Prediction:
        if not fields.get("options"):
            raise UserError("a multiple-choice program needs options; pass options=['(a) ...', ...]")
        text = with_recent(context.text(), recent)
        return self.answer(context=text, question=fields["question"], options=list(fields["options"]))


class PersonalResponse(Task):
    """A response to a user's request that takes into account what is remembered of the user.

    Source: PGR, appendix, answer generation. `date` (when the user asks) may be among the query fields; it is not
    searched with. The notes of the context, e.g. a prospection summary, follow its hits.
    """

    name = "personal-response"
    inputs = ("question",)

    def __init__(self) -> None:
        super().__init__()
        self.answer = predictor(RespondPersonally)

    def query(self, **fields: Any) -> str:
        return fields["question"]

    def forward(self, context: Context, recent: Sequence[Item] = (), **fields: Any) -> dspy.Prediction:
        text = with_recent(context.text(), recent)
        return self.answer(context=text, date=fields.get("date") or "", question=fields["question"])


def asked(fields: Mapping[str, Any]) -> str:
    """The question, and the day it is asked on where `date` is among the fields: "last week" hangs on it."""
    date = fields.get("date")
    return f"{fields['question']} (asked on {date})" if date else fields["question"]


def with_recent(text: str, recent: Sequence[Item]) -> str:
    """A context's text followed by the lines of raw items."""
    lines = [line for item in recent for line in item.lines()]
    return "\n".join([text, *lines]) if text else "\n".join(lines)


TASKS: dict[str, type[Task] | str] = {
    **{task.name: task for task in (QuestionAnswering, MultipleChoice, PersonalResponse)},
    "memory-lookup": "lookup:MemoryLookup",
    "behavior-prediction": "behavior:BehaviorPrediction",
    "requirement-restatement": "pal:RequirementRestatement",
    "solution-proposal": "pal:SolutionProposal",
    "solution-selection": "pal:SolutionSelection",
    "dialogue-reply": "pal:DialogueReply",
}
"""Tasks by name; those with a file of their own as "module:Class" within this folder, imported when asked for."""


def task(name: str) -> type[Task]:
    """The task class of a name.

    Raises:
        UnknownNameError: There is no such task.
    """
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    found = TASKS[name]
    if isinstance(found, str):
        module, _, kind = found.partition(":")
        return getattr(import_module(f".{module}", __package__), kind)
    return found
