"""Prompts of the tasks themselves, used with every method whose paper brings none of its own."""

from __future__ import annotations

import dspy


class AnswerFromContext(dspy.Signature):
    """Answer the question from what is recalled of the conversation. Dates in brackets say when each line was said.

    Use the exact words of the context where they answer the question, and nothing that it does not support.
    If nothing in it bears on the question, the answer is: Not mentioned in the conversation.
    """

    context: str = dspy.InputField(desc="recalled lines, each with its id, date and speaker; may be empty")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc="the answer alone, without a full sentence around it")
