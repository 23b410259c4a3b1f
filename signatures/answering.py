"""Prompts of the tasks themselves, used with every method whose paper brings none of its own."""

from __future__ import annotations

from typing import Annotated

import dspy

from ..reading.choices import OneOf


class AnswerFromContext(dspy.Signature):
    """Answer a question about a conversation.

    You are given the question and what a memory of the conversation recalls: lines that were said, or notes about them.
    A date in parentheses is the day on which a line was said.

    - If the memory states the answer, give it in the same words. If it does not, infer the answer from what it states.
    - Words such as "yesterday" or "last week" are relative to the date of their line. Work out the date that is meant,
      and answer with the day, the month or the year. If that date stands behind the words in square brackets, use it.
    - The answer is a few words, not a full sentence.
    """

    context: str = dspy.InputField(desc="what the memory recalls: lines with ids, dates and speakers; may be empty")
    question: str = dspy.InputField(desc="the question, with the date on which it is asked if that is known")
    answer: str = dspy.OutputField(desc="the answer in a few words")


NOT_MENTIONED = (
    "- If nothing that is recalled helps to answer, write exactly this answer: Not mentioned in the conversation."
)
"""A rule for questions about what was never said."""


class ChooseFromContext(dspy.Signature):
    """Choose the reply that suits this user best.

    You are given the user's message, several possible replies, and what a memory recalls of earlier conversations with
    the user. Every reply sounds reasonable. The right one agrees with what the user has said: likes and dislikes,
    events, and the reasons for them.

    - If the user has changed their mind, what they said last counts. A reply that describes how they changed their mind
      may be right, too.
    - A reply that claims something about the user that they never said is wrong, however friendly it sounds.
    - Answer with the letter of one reply in parentheses, and nothing else.
    """

    context: str = dspy.InputField(desc="what the memory recalls: lines with ids, dates and speakers; may be empty")
    question: str = dspy.InputField(desc="the user's message or question")
    options: list[str] = dspy.InputField(desc="the possible replies; each begins with its letter")
    answer: Annotated[str, OneOf("options")] = dspy.OutputField(desc="the letter of the best reply, e.g. (b)")


class RespondPersonally(dspy.Signature):
    """Answer the user's request briefly and personally, with the help of what is remembered about this user.

    First write the reasoning, a list of short lines:
    - Note every remembered thing that bears on the request because of its content, its date or the circumstances. Keep
      the names. Several things may share a line, but add nothing that is not remembered.
    - Then note what follows from them for planning, timing, trade-offs, or for whether the request can be carried out
      at all. Earlier experiences, limits and things under way change what this user is likely to do next.
    - Many usable lines are better than few. Each line says one thing.
    Then write the answer:
    - Name the remembered things that it rests on and say what they change, without being asked.
    - Keep it crisp and easy to read, and format it in Markdown.
    - Make nothing up about the user. If nothing that is remembered bears on the request, just answer the request.
    """

    context: str = dspy.InputField(desc="remembered lines with ids and dates, and notes on them; may be empty")
    date: str = dspy.InputField(desc="when the user asks; empty if that is not known")
    question: str = dspy.InputField(desc="the user's request")
    reasoning: str = dspy.OutputField(desc="the lines that matter, one per line", default="")
    answer: str = dspy.OutputField(desc="the response to the user")
