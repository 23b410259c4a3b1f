"""Tasks that answer a question or a request: a short answer, an option, or a response."""

from __future__ import annotations

from typing import Any

from ...records import Context, Query
from ...signatures.answering import AnswerFromContext, ChooseFromContext, RespondPersonally
from .task import Task, with_items


class QuestionAnswering(Task):
    """A short answer to a question about the history."""

    name = "question-answering"
    prompt = AnswerFromContext


class MultipleChoice(Task):
    """The letter of the option that suits the history best."""

    name = "multiple-choice"
    prompt = ChooseFromContext
    inputs = ("question", "options")


class PersonalResponse(Task):
    """A response to a user's request that takes into account what is remembered of the user.

    The notes of the context, such as a prospection summary, follow its hits.

    Source: PGR, appendix, answer generation.
    """

    name = "personal-response"
    prompt = RespondPersonally

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        """Return the inputs of the prompt: what is remembered, today's date, and the request."""
        return {
            "context": with_items(context.text(), query.shown_items),
            "date": query.when,
            "question": query.text,
        }
