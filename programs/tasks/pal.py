"""The tasks of PAL-Bench: a personal assistant understands a need, and proposes solutions to it.

`Query.about` tells a method which half of a memory bears on the query: needs while a requirement is
being understood, solutions and preferences after that (appendix C).

Source: Mem-PAL, "Evaluation Tasks" and appendix B.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import UserError
from ...records import Context, Item, Query
from ...signatures.chinese import action_meaning
from ...signatures.pal import (
    ASSISTANT_ACTIONS,
    AssistantAction,
    ProposeSolution,
    ReplyInDialogue,
    RestateRequirement,
    SelectSolutions,
)
from .task import Task, with_items


class RequirementRestatement(Task):
    """The whole requirement behind a brief query (task 1)."""

    name = "requirement-restatement"
    prompt = RestateRequirement
    about = "needs"


class SolutionProposal(Task):
    """One solution that suits the user, for a requirement that is given in full (task 2-1)."""

    name = "solution-proposal"
    prompt = ProposeSolution
    about = "solutions"


class SolutionSelection(Task):
    """The two candidates that suit the user best (task 2-2). The answer is a list: ["S2", "S7"].

    A selection that does not name two candidates scores 0; the released code asks for it up to ten
    times.
    """

    name = "solution-selection"
    prompt = SelectSolutions
    inputs = ("question", "options")
    about = "solutions"


class DialogueReply(Task):
    """The assistant's next reply, of a given kind (task 3).

    Fields of the query are `question`, which the user just said, `dialogue`, which was said before
    it, and `action`, the kind of reply.

    The memory is searched with the whole dialogue so far, from which a method may make a better
    query: "Yes, please." alone would find nothing.
    """

    name = "dialogue-reply"
    prompt = ReplyInDialogue
    modality = "dialogue"
    about = "solutions"

    def query(
        self,
        fields: Mapping[str, Any],
        history: Sequence[Item] = (),
        new_items: Sequence[Item] = (),
        speakers: Sequence[str] = (),
    ) -> Query:
        """Return the query of an example's fields, with the half of the memory that it is about.

        While the assistant still guesses what the user requires, the query is about the needs of
        the user. After that it is about solutions.
        """
        # As the class attribute `about` says, this query is about solutions.
        query = super().query(fields, history, new_items, speakers)
        if _action_of(query) == "requirement prediction":
            return query.model_copy(update={"about": "needs"})
        return query

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        """Return the inputs of the prompt: the context, the dialogue, and the kind of reply.

        The prompt calls the kind of reply an action, and explains what it means.

        Raises:
            UserError: There is no such kind of reply.
        """
        action = _known_action(_action_of(query))
        dialogue_lines = [line for line in query.dialogue.split("\n") if line]
        return {
            "context": with_items(context.text(), query.shown_items),
            "dialogue": "\n".join(dialogue_lines),
            "action": action,
            "action_meaning": action_meaning(action, self.settings.language),
            "question": query.text,
        }


def _known_action(action: str) -> AssistantAction:
    """Return the name of a kind of reply, if it is one of `ASSISTANT_ACTIONS`.

    Raises:
        UserError: There is no such kind of reply.
    """
    for known_action in ASSISTANT_ACTIONS:
        if action == known_action:
            return known_action
    kinds = ", ".join(ASSISTANT_ACTIONS)
    raise UserError(f"{action!r} is no kind of reply; one of: {kinds}")


def _action_of(query: Query) -> str:
    """Return the kind of reply that a query asks for, in its field `action`.

    Without that field, the first reply guesses the requirement, and later ones propose a solution.
    """
    action = query.extra.get("action")
    if action:
        return action

    is_first_reply = not query.dialogue.strip()
    if is_first_reply:
        return "requirement prediction"
    return "solution proposal"
