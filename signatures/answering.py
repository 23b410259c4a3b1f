"""The answering prompts of the tasks, for methods whose paper has none of its own.

`AnswerFromContext` answers a question, `ChooseFromContext` chooses one of several replies
(PersonaMem), and `RespondPersonally` answers a request (PGR's answer generation). A question is
asked with one of them, after the memory has recalled its context.
"""

from __future__ import annotations

from typing import Annotated

import dspy

from ..reading.choices import OneOf


class AnswerFromContext(dspy.Signature):
    """Answer the question using what is recalled from the conversation.

    You are given the question and what a memory of the conversation recalls: lines that were said, or notes about them.
    The date in round brackets says when a line was said or noted.

    - If a line states the answer, give it in the same words. If no line states it directly, infer it from the lines.
    - A word such as "yesterday" or "last week" is relative to the date of its line. If the date that it means stands
      after it in square brackets, use that date. Otherwise work it out.
    - If the question asks when, answer with a date as precise as the line allows.
    - Give only the answer itself: a word or a phrase, not a full sentence.
    """

    context: str = dspy.InputField(
        desc="what the memory recalls: dialogue lines, notes or summaries, some with an id and a "
        "date; may be empty"
    )
    question: str = dspy.InputField(
        desc="the question to answer, with the date on which it is asked if that is known"
    )
    answer: str = dspy.OutputField(desc="only the answer itself: a word or a phrase")


NOT_MENTIONED = (
    "- If nothing that is recalled helps to answer, write exactly this answer: Not mentioned in "
    "the conversation."
)
"""A rule that is added to the instructions where some questions have no answer in the history."""


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

    context: str = dspy.InputField(
        desc="what the memory recalls: dialogue lines, notes or summaries, some with an id and a "
        "date; may be empty"
    )
    question: str = dspy.InputField(desc="the user's message or question")
    options: list[str] = dspy.InputField(desc="the possible replies; each begins with its letter")
    answer: Annotated[str, OneOf("options")] = dspy.OutputField(
        desc="the letter of the best reply, e.g. (b)"
    )


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

    context: str = dspy.InputField(
        desc="what is remembered: dialogue lines, facts, notes or summaries, some with an id and a "
        "date; may be empty"
    )
    date: str = dspy.InputField(desc="when the user asks; empty if that is not known")
    question: str = dspy.InputField(desc="the user's request")
    reasoning: str = dspy.OutputField(desc="the lines that matter, one per line", default="")
    answer: str = dspy.OutputField(desc="the response to the user")
