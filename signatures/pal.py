"""Prompts of PAL-Bench: the four answering tasks, and the simulated user of the fourth.

Source: Mem-PAL, appendix E (tasks 1, 2-1, 2-2 and 3) with the actions of Table 7; rules and fields are the paper's, the
words ours. Field names follow the suite: the query is `question`, what is said is `answer`.

Limits: the prompts are English for both languages of the data; an answer keeps the language of the query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import dspy

from ..reading.ids import Shown

_ID = re.compile(r"(?<![A-Za-z0-9])[Ss]\s?(\d{1,2})(?!\d)")

CandidateId = Literal["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8"]
UserAction = Literal["topic inquiry", "requirement confirmation", "solution discussion", "solution feedback"]
AssistantAction = Literal["requirement prediction", "solution proposal", "solution discussion", "feedback response"]

USER_ACTIONS: Mapping[UserAction, str] = MappingProxyType(
    {
        "topic inquiry": "Open the topic with the query that the wishes give, fitted to the dialogue but with the same "
        "meaning: brief and vague, without the implicit needs and the background behind them.",
        "requirement confirmation": "React to what the assistant just guessed of your needs, judged by your implicit "
        "needs and their background. A right guess is simply confirmed. A wrong one is rejected, and only what was "
        "wrong is set right in a few words. Volunteer no need and no background that was not touched.",
        "solution discussion": "Neither accept nor reject the proposal as a whole: ask or remark about one of its "
        "details, without revealing what you prefer.",
        "solution feedback": "Say clearly whether you approve or disapprove of the proposal under discussion, as your "
        "preferences demand, and speak of this proposal only: do not lay out your preferences.",
    }
)
"""Table 7, the user's actions and what they mean."""

ASSISTANT_ACTIONS: Mapping[AssistantAction, str] = MappingProxyType(
    {
        "requirement prediction": "Guess one implicit need behind the user's query from their recent experiences or "
        "their background, and ask them to confirm it. One need per reply; no solutions yet.",
        "solution proposal": "Propose one way to meet the user's requirement that fits their preferences; a new one "
        "where others were discussed before. State the proposal itself, not how you understand the user.",
        "solution discussion": "Answer what the user asks or objects to, discuss the proposal further in the light of "
        "their background and experiences, and try to win them over to it.",
        "feedback response": "Answer the user's approval or disapproval in a few words. Offer no other solution; after "
        "disapproval only apologize or express regret.",
    }
)
"""Table 7, the assistant's actions and what they mean."""


class RestateRequirement(dspy.Signature):
    """You are a personal assistant. Work out what the user really needs behind a brief query.

    Use what is remembered of this user: find the background and the recent events that led to the query, and describe
    the actual need in one sentence, in the language of the query. The sentence is the whole answer, without remarks.
    """

    context: str = dspy.InputField(desc="what is remembered of the user, recent device logs included; may be empty")
    question: str = dspy.InputField(desc="the user's query as they put it")
    answer: str = dspy.OutputField(desc="the user's actual need in one sentence")


class ProposeSolution(dspy.Signature):
    """You are a personal assistant. Propose a solution for a requirement that suits this user's own preferences.

    Use what is remembered of this user, their recent logs included, to understand which kinds of solutions they like
    and which they reject. The answer is one solution in one sentence, in the language of the requirement, and nothing
    else.
    """

    context: str = dspy.InputField(desc="what is remembered of the user, recent device logs included; may be empty")
    question: str = dspy.InputField(desc="the user's requirement")
    answer: str = dspy.OutputField(desc="one solution, in one sentence")


class SelectSolutions(dspy.Signature):
    """You are a personal assistant. Choose the two of eight candidate solutions that suit this user best.

    All candidates are reasonable for the requirement as such. What decides are the preferences that the remembered
    history shows. Go through the candidates in the analysis first, with these preferences in mind; then name the two
    best, no more and no fewer.
    """

    context: str = dspy.InputField(desc="what is remembered of the user; may be empty")
    question: str = dspy.InputField(desc="the user's requirement")
    options: list[str] = dspy.InputField(desc="the candidate solutions, each begins with its id")
    analysis: str = dspy.OutputField(desc="what speaks for and against the candidates, for this user", default="")
    answer: Annotated[list[CandidateId], Shown("options")] = dspy.OutputField(desc="the ids of the two best candidates")


class ReplyInDialogue(dspy.Signature):
    """You are a personal assistant in a conversation with a user. Give your next reply, of the kind that is asked for.

    - Draw on what is remembered of this user, so that the reply fits their needs and preferences.
    - Keep to the kind of reply and to what it means. Words that lead over from what was said before are welcome: a
      proposal may first take up the user's feedback on the one before.
    - One to three sentences are enough. Reply in the user's language, with the words of the reply alone.
    """

    context: str = dspy.InputField(desc="what is remembered of the user; may be empty")
    dialogue: str = dspy.InputField(desc="what was said before, one line per utterance; may be empty")
    action: AssistantAction = dspy.InputField(desc="the kind of reply")
    action_meaning: str = dspy.InputField(desc="what a reply of this kind does")
    question: str = dspy.InputField(desc="what the user just said")
    answer: str = dspy.OutputField(desc="your reply to the user")


class PlayUser(dspy.Signature):
    """Play a user who talks with a personal assistant about something that concerns them, and say their next utterance.

    The user hopes that the assistant guesses their needs and offers solutions they like.
    - Stay with the person that is described, and with the kind of utterance that is asked for and its meaning.
    - Words that lead over from what was said before are welcome. The utterance is one rather brief sentence, in the
      language of the wishes.
    - The user is simple and direct, and does not give in to the assistant for the sake of peace. A guess that misses
      the need or a solution against their preferences gets open displeasure, even anger; no polite detours such as
      first praising what is then refused.
    - Nothing but the user's own words is given back.
    """

    profile: str = dspy.InputField(desc="who the user is: background and personality; may be empty")
    situation: str = dspy.InputField(desc="what the user went through lately; may be empty")
    wishes: str = dspy.InputField(desc="what the user needs now, or which solutions they like and dislike")
    dialogue: str = dspy.InputField(desc="what was said so far, one line per utterance; may be empty")
    action: UserAction = dspy.InputField(desc="the kind of utterance")
    action_meaning: str = dspy.InputField(desc="what an utterance of this kind does")
    assistant_said: str = dspy.InputField(desc="the assistant's last reply; empty at the beginning")
    utterance: str = dspy.OutputField(desc="what the user says next")


def selected(answer: str, count: int) -> tuple[str, ...]:
    """The candidates an answer names, each once, in its order; ids beyond `count` candidates are passed over.

    Example:
        >>> from mempiler.signatures.pal import selected
        >>> selected("I would take S7 and s2.", 8)
        ('S7', 'S2')
    """
    numbers = dict.fromkeys(int(found) for found in _ID.findall(answer))
    return tuple(f"S{number}" for number in numbers if 1 <= number <= count)
