"""The prompts of PAL-Bench: the four tasks of an assistant, and the simulated user of the last one.

Source: Mem-PAL, appendix E (tasks 1, 2-1, 2-2 and 3) with the actions of Table 7. Rules and fields
are the paper's, the words are ours. Field names follow the other tasks: the query is `question`,
and what the assistant says is `answer`.

- Task 1: `RestateRequirement`. Task 2-1: `ProposeSolution`. Task 2-2: `SelectSolutions`.
- Task 3: `PlayUser` and `ReplyInDialogue` take turns. The user opens the dialogue.

The prompts are English for both languages of the data, and answers keep the language of the query;
`chinese.py` has the tasks' prompts in Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import dspy

from ..reading.ids import IdFrom

CandidateId = Literal["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8"]

UserAction = Literal[
    "topic inquiry", "requirement confirmation", "solution discussion", "solution feedback"
]

AssistantAction = Literal[
    "requirement prediction", "solution proposal", "solution discussion", "feedback response"
]

USER_ACTIONS: Mapping[UserAction, str] = MappingProxyType(
    {
        "topic inquiry": (
            "Open the topic with the query from the wishes. You may adapt it to the dialogue, but "
            "keep its meaning. Be brief and vague. Do not mention the implicit needs or the "
            "background behind them."
        ),
        "requirement confirmation": (
            "React to the need that the assistant just guessed. Compare the guess with your "
            "implicit needs and their background. If it is right, simply confirm it. If it is "
            "wrong, reject it and correct only the wrong part in a few words. Do not reveal needs "
            "or background that the guess did not touch."
        ),
        "solution discussion": (
            "Ask or say something about one detail of the proposal. Do not accept or reject the "
            "proposal as a whole, and do not reveal your preferences."
        ),
        "solution feedback": (
            "Say clearly whether you approve of the current proposal, according to your "
            "preferences. Talk about this proposal only, and do not explain your preferences in "
            "general."
        ),
    }
)
"""The kinds of utterances, and what each one means (Table 7)."""

ASSISTANT_ACTIONS: Mapping[AssistantAction, str] = MappingProxyType(
    {
        "requirement prediction": (
            "Guess one implicit need behind the user's query from the user's recent experiences "
            "or background, and ask the user to confirm it. Guess only one need per reply. Do not "
            "propose solutions yet."
        ),
        "solution proposal": (
            "Propose one solution that meets the user's requirement and fits the user's "
            "preferences. If solutions were discussed before, propose a new one. State the "
            "proposal itself. Do not recite what you know about the user."
        ),
        "solution discussion": (
            "Answer the user's question or objection. Discuss the proposal further with regard to "
            "the user's background and experiences, and try to convince the user of it."
        ),
        "feedback response": (
            "Respond briefly to the user's approval or disapproval. Do not offer another "
            "solution. After disapproval, only apologise or express regret."
        ),
    }
)
"""The kinds of replies, and what each one means (Table 7)."""


class RestateRequirement(dspy.Signature):
    """You are a personal assistant. Work out what a user really needs when they ask a brief question.

    You are given what is remembered about the user and the question. Use the memory to find the background and the
    recent events behind the question. Then describe the user's actual need in one sentence, in the language of the
    question. Give only this sentence.
    """

    context: str = dspy.InputField(
        desc="what is remembered about the user, including recent device logs; may be empty"
    )
    question: str = dspy.InputField(desc="the user's brief question")
    answer: str = dspy.OutputField(desc="the user's actual need in one sentence")


class ProposeSolution(dspy.Signature):
    """You are a personal assistant. Propose a solution that meets a user's requirement and suits their preferences.

    You are given what is remembered about the user, which may include recent device logs, and the requirement. Use the
    memory to find out which kinds of solutions the user likes and which they reject. Then propose one solution in one
    sentence, in the language of the requirement. Give only this sentence.
    """

    context: str = dspy.InputField(
        desc="what is remembered about the user, including recent device logs; may be empty"
    )
    question: str = dspy.InputField(desc="the user's requirement")
    answer: str = dspy.OutputField(desc="one solution, in one sentence")


class SelectSolutions(dspy.Signature):
    """You are a personal assistant. Choose the two of eight candidate solutions that suit a user best.

    You are given what is remembered about the user, the requirement and the candidates. All candidates are reasonable
    solutions for the requirement. Base your choice on the preferences that the memory shows. First analyse all
    candidates with regard to these preferences. Then give the ids of exactly two, the best ones.
    """

    context: str = dspy.InputField(desc="what is remembered about the user; may be empty")
    question: str = dspy.InputField(desc="the user's requirement")
    options: list[str] = dspy.InputField(desc="the candidate solutions; each begins with its id")
    analysis: str = dspy.OutputField(desc="analysis of all candidates for this user", default="")
    answer: Annotated[list[CandidateId], IdFrom("options")] = dspy.OutputField(
        desc="the ids of exactly two candidates, the best ones"
    )


class ReplyInDialogue(dspy.Signature):
    """You are a personal assistant in a dialogue with a user. Write your next reply. It must be of the requested kind.

    You are given what is remembered about the user, the dialogue so far, the user's latest utterance, which follows the
    dialogue so far, and the requested kind of reply and what it means.
    - Use the memory, so that the reply fits the user's needs and preferences.
    - Follow the requested kind of reply and its meaning. You may connect the reply to what was said before: for
      example, a proposal may first respond to the user's feedback on the previous one.
    - Write one to three sentences in the user's language. Give only the reply itself.
    """

    context: str = dspy.InputField(desc="what is remembered about the user; may be empty")
    dialogue: str = dspy.InputField(
        desc="the dialogue so far, one utterance per line; may be empty"
    )
    action: AssistantAction = dspy.InputField(desc="the requested kind of reply")
    action_meaning: str = dspy.InputField(desc="what this kind of reply means")
    question: str = dspy.InputField(
        desc="the user's latest utterance, which follows the dialogue so far"
    )
    answer: str = dspy.OutputField(desc="your reply to the user")


class PlayUser(dspy.Signature):
    """Play a user who talks to a personal assistant about a personal matter, and write the user's next utterance.

    You are given a description of the user, the dialogue so far, and the kind of utterance to write and what it means.
    The user hopes that the assistant guesses the user's needs correctly and offers solutions that the user likes.
    - Stay true to the description. Follow the requested kind of utterance and its meaning.
    - You may connect the utterance to what was said before. Write one fairly short sentence, in the language in which
      `wishes` is written.
    - The user is simple and direct and does not give in to the assistant out of politeness. If the assistant guesses
      the need wrongly or proposes something against the user's preferences, the user shows displeasure openly, even
      anger. The user does not soften a refusal by praising the proposal first.
    - Give only the user's words.
    """

    profile: str = dspy.InputField(desc="background and personality of the user; may be empty")
    situation: str = dspy.InputField(desc="what the user recently experienced; may be empty")
    wishes: str = dspy.InputField(
        desc="what the user needs now, or which solutions the user likes and dislikes"
    )
    dialogue: str = dspy.InputField(
        desc="the dialogue so far, one utterance per line; may be empty"
    )
    action: UserAction = dspy.InputField(desc="the kind of utterance")
    action_meaning: str = dspy.InputField(desc="what this kind of utterance means")
    assistant_said: str = dspy.InputField(desc="the assistant's last reply; empty at the beginning")
    utterance: str = dspy.OutputField(desc="what the user says next")


_CANDIDATE_ID = re.compile(r"(?<![A-Za-z0-9])[Ss]\s?(\d{1,2})(?!\d)")


def parse_candidate_ids(answer: str, count: int) -> tuple[str, ...]:
    """Return the ids of the candidates that an answer names, each once and in its order.

    Ids beyond `count`, the number of candidates, are left out.

    Example:
        >>> from mempiler.signatures.pal import parse_candidate_ids
        >>> parse_candidate_ids("I would take S7 and s2.", 8)
        ('S7', 'S2')
    """
    candidate_ids: list[str] = []
    for digits in _CANDIDATE_ID.findall(answer):
        number = int(digits)
        candidate_id = f"S{number}"
        if 1 <= number <= count and candidate_id not in candidate_ids:
            candidate_ids.append(candidate_id)
    return tuple(candidate_ids)
