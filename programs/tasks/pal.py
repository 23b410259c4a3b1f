"""The tasks of PAL-Bench: restating a requirement, proposing and selecting solutions, one reply of a dialogue.

Source: Mem-PAL, "Evaluation Tasks" and appendix B. `Query.about` gives a method which half of a memory bears on the
query: needs while a requirement is being understood, solutions and preferences after that (appendix C). A selection
that does not name two candidates scores 0; the released code asks for it up to ten times.
"""

from __future__ import annotations

from typing import Any

from ...errors import UserError
from ...records import Context, Query
from ...signatures.pal import (
    ASSISTANT_ACTIONS,
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
    """The two candidates that suit the user best (task 2-2). The answer is a list of ids, ["S2", "S7"]."""

    name = "solution-selection"
    prompt = SelectSolutions
    inputs = ("question", "options")
    about = "solutions"


class DialogueReply(Task):
    """The assistant's next reply, of a given kind (task 3).

    Query fields: `question` is what the user just said, `dialogue` what was said before it, `action` the kind of reply.
    The memory is searched with the whole dialogue so far, of which a method may make a better query: an assent alone
    would find nothing.
    """

    name = "dialogue-reply"
    prompt = ReplyInDialogue
    modality = "dialogue"
    about = "solutions"

    def query(self, *given: Any, **named: Any) -> Query:
        query = super().query(*given, **named)
        about = "needs" if _action(query) == "requirement prediction" else self.about
        return query.model_copy(update={"about": about})

    def asked(self, context: Context, query: Query) -> dict[str, Any]:
        action = _action(query)
        if action not in ASSISTANT_ACTIONS:
            raise UserError(f"{action!r} is no kind of reply; one of: {', '.join(ASSISTANT_ACTIONS)}")
        return {
            "context": with_items(context.text(), query.shown),
            "dialogue": "\n".join(line for line in query.dialogue.split("\n") if line),
            "action": action,
            "action_meaning": ASSISTANT_ACTIONS[action],
            "question": query.text,
        }


def _action(query: Query) -> Any:
    return query.more.get("action") or ("solution proposal" if query.dialogue.strip() else "requirement prediction")
