"""Prompts of the tasks themselves, used with every method whose paper brings none of its own."""

from __future__ import annotations

from typing import Annotated

import dspy

from ..reading.choices import OneOf


class AnswerFromContext(dspy.Signature):
    """Answer the question from what is recalled of the conversation. Dates in brackets say when each line was said.

    - Use the exact words of the context where they answer the question. Where no line says it outright, infer the
      answer from what the lines do say.
    - A relative time in a line ("yesterday", "last week") counts from the date of that line: work it out, and answer
      with the day, the month or the year.
    """

    context: str = dspy.InputField(desc="recalled lines, each with its id, date and speaker; may be empty")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc="the answer alone, without a full sentence around it")


NOT_MENTIONED = "- If nothing there bears on the question, the answer is: Not mentioned in the conversation."
"""A rule for questions about what was never said."""


class ChooseFromContext(dspy.Signature):
    """Find the reply to the user's message that suits this user best, from what is recalled of earlier conversations.

    - Every option reads well by itself. What decides is whether it agrees with what the user has told: likes and
      dislikes, events, and the reasons behind them.
    - Where the user has changed their mind, the latest word holds; an option may also be right because it tells the
      whole way there.
    - An option that claims something the user never said is wrong, however friendly it is.
    - The answer is the letter of one option in parentheses, and nothing else.
    """

    context: str = dspy.InputField(desc="recalled lines, each with its id, date and speaker; may be empty")
    question: str = dspy.InputField(desc="the user's message or question")
    options: list[str] = dspy.InputField(desc="possible replies, each begins with its letter")
    answer: Annotated[str, OneOf("options")] = dspy.OutputField(desc="the letter of the best option, e.g. (b)")


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
