"""The tasks of PAL-Bench: restating a requirement, proposing and selecting solutions, one reply of a dialogue.

    requirement-restatement   user query ──> the whole requirement           content "needs"
    solution-proposal         requirement ──> one solution                   content "solutions"
    solution-selection        requirement, S1..S8 ──> two ids                content "solutions"
    dialogue-reply            what was said, kind of reply ──> one reply     content by the kind of reply

Source: Mem-PAL, "Evaluation Tasks" and appendix B. `content` tells a method which half of a memory bears on the query:
needs alone while a requirement is being understood, solutions and preferences as well after that (appendix C).

Example:
    >>> program = build("turn-rag", task="requirement-restatement")
    >>> program(history=history, question="How do I get fitter?").answer
    'The user wants exercise that spares the knee that hurts since March and fits into lunch breaks.'

Honest limits: a selection that does not name two candidates is returned as it was written and scores nothing; the
released code asks for it up to ten times. Critical path of each: one LM call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from ...errors import UserError
from ...records import Context, Item
from ...signatures.pal import (
    ASSISTANT_ACTIONS,
    ProposeSolution,
    ReplyInDialogue,
    RestateRequirement,
    SelectSolutions,
)
from ..predictor import predictor
from .task import Task, with_recent


class RequirementRestatement(Task):
    """The whole requirement behind a brief query (task 1)."""

    name = "requirement-restatement"
    inputs = ("question",)
    content = "needs"

    def __init__(self) -> None:
        super().__init__()
        self.answer = predictor(RestateRequirement)

    def query(self, **fields: Any) -> str:
        return fields["question"]

    def forward(self, context: Context, recent: Sequence[Item] = (), **fields: Any) -> dspy.Prediction:
        return self.answer(context=with_recent(context.text(), recent), question=fields["question"])


class SolutionProposal(Task):
    """One solution that suits the user, for a requirement that is given in full (task 2-1)."""

    name = "solution-proposal"
    inputs = ("question",)
    content = "solutions"

    def __init__(self) -> None:
        super().__init__()
        self.answer = predictor(ProposeSolution)

    def query(self, **fields: Any) -> str:
        return fields["question"]

    def forward(self, context: Context, recent: Sequence[Item] = (), **fields: Any) -> dspy.Prediction:
        return self.answer(context=with_recent(context.text(), recent), question=fields["question"])


class SolutionSelection(Task):
    """The two candidates that suit the user best (task 2-2).

    The memory is searched with the requirement alone. The answer is a list of ids, ["S2", "S7"].
    """

    name = "solution-selection"
    inputs = ("question", "options")
    content = "solutions"

    def __init__(self) -> None:
        super().__init__()
        self.answer = predictor(SelectSolutions)

    def query(self, **fields: Any) -> str:
        return fields["question"]

    def forward(self, context: Context, recent: Sequence[Item] = (), **fields: Any) -> dspy.Prediction:
        options = [str(option) for option in fields.get("options") or ()]
        if not options:
            raise UserError("a solution-selection program needs options; pass options=['S1: ...', 'S2: ...', ...]")
        text = with_recent(context.text(), recent)
        return self.answer(context=text, question=fields["question"], options=options)


class DialogueReply(Task):
    """The assistant's next reply, of a given kind (task 3).

    Query fields: `question` is what the user just said, `dialogue` what was said before it, `action` the kind of reply.
    The memory is searched with the whole dialogue so far, of which a method may make a better query (its hint
    `dialogue`): an assent alone would find nothing.
    """

    name = "dialogue-reply"
    inputs = ("question",)
    content = "solutions"

    def __init__(self) -> None:
        super().__init__()
        self.answer = predictor(ReplyInDialogue)

    def query(self, **fields: Any) -> str:
        return "\n".join([*_lines(fields), f"user: {fields['question']}"])

    def hints(self, **fields: Any) -> dict[str, Any]:
        needs = _action(fields) == "requirement prediction"
        return {"content": "needs" if needs else self.content, "dialogue": True}

    def forward(self, context: Context, recent: Sequence[Item] = (), **fields: Any) -> dspy.Prediction:
        action = _action(fields)
        if action not in ASSISTANT_ACTIONS:
            raise UserError(f"{action!r} is no kind of reply; one of: {', '.join(ASSISTANT_ACTIONS)}")
        return self.answer(
            context=with_recent(context.text(), recent),
            dialogue="\n".join(_lines(fields)),
            action=action,
            action_meaning=ASSISTANT_ACTIONS[action],
            question=fields["question"],
        )


def _lines(fields: dict[str, Any]) -> list[str]:
    return [line for line in str(fields.get("dialogue") or "").split("\n") if line]


def _action(fields: dict[str, Any]) -> Any:
    """The kind of reply; where a caller does not say, the answer to a first query, or to what follows it."""
    return fields.get("action") or ("solution proposal" if _lines(fields) else "requirement prediction")
