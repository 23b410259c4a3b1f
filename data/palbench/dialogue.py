"""Dialogues of a simulated user with an assistant, with fixed kinds of utterances and free words.

    topic inquiry ── requirement prediction ── requirement confirmation ── requirement prediction
    requirement confirmation ── SOLUTION PROPOSAL ── [solution discussion ── solution discussion]
    solution feedback ── SOLUTION PROPOSAL ── [solution discussion ── solution discussion]
    solution feedback ── feedback response

Each bracket is there or not with equal chance, drawn once per topic, so that all assistants have the same plan: 5, 6 or
7 turns of user and assistant. The user is a language model (`SimulatedUser`), the assistant any callable.

Source: Mem-PAL, appendix B: actions of Table 7, the transitions that Table 8 shows, and the released template (two
guesses, two proposals).

Limits: if a user says nothing, the topic's query is used in the first turn and "..." later, so that a dialogue always
runs to its end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

import dspy

from ...errors import one_line
from ...records import Record
from ...signatures.pal import USER_ACTIONS, AssistantAction, PlayUser, UserAction
from ..judge import PromptJudge
from .persona import Persona

GUESSES = 2
"""Times the assistant guesses the requirement."""
PROPOSALS = 2
"""Solutions that it proposes."""

Turn = tuple[UserAction, AssistantAction]


class Said(Record):
    """One utterance."""

    role: str
    """"user" or "assistant"."""
    action: str
    text: str


class Dialogue(Record):
    """A whole dialogue."""

    said: tuple[Said, ...] = ()

    @property
    def text(self) -> str:
        """One line per utterance: `role: words`."""
        return transcript(self.said)


class Reply(Protocol):
    """An assistant, as the simulator sees it."""

    def __call__(self, *, question: str, dialogue: str, action: AssistantAction) -> dspy.Prediction:
        """Replies with `answer` to what the user just said, after a dialogue that went before it."""
        ...


class SimulatedUser(PromptJudge):
    """Plays users by `signatures.pal.PlayUser`, under its own model and outside every trace."""

    signature = PlayUser

    def __call__(self, persona: Persona, said: Sequence[Said], action: UserAction) -> str:
        """The user's next words.

        While needs are talked about the user knows their needs, afterwards their preferences, as in the paper.

        Raises:
            AdapterParseError: The model's reply stays unparseable.
            LMError: Its endpoint failed.
        """
        needs = action in ("topic inquiry", "requirement confirmation")
        found = self.ask(
            profile=persona.profile,
            situation=persona.situation,
            wishes=persona.needs if needs else persona.preferences,
            dialogue=transcript(said),
            action=action,
            action_meaning=USER_ACTIONS[action],
            assistant_said=said[-1].text if said else "",
        )
        return one_line(found.utterance)


def plan(topic_id: str, seed: int = 0) -> tuple[Turn, ...]:
    """The kinds of utterances of a topic's dialogue, turn by turn; the same for every assistant."""
    rng = random.Random(f"{seed} {topic_id}")
    asked: list[UserAction] = ["topic inquiry"]
    asked.extend("requirement confirmation" for _ in range(GUESSES))
    replies: list[AssistantAction] = ["requirement prediction"] * GUESSES
    for _ in range(PROPOSALS):
        replies.append("solution proposal")
        if rng.random() < 0.5:
            asked.append("solution discussion")
            replies.append("solution discussion")
        asked.append("solution feedback")
    replies.append("feedback response")
    return tuple(zip(asked, replies, strict=True))


def converse(
    user: Callable[[Persona, Sequence[Said], UserAction], str],
    reply: Reply,
    persona: Persona,
    turns: Sequence[Turn],
    query: str,
) -> tuple[Dialogue, dspy.Prediction | None]:
    """Lets a user and an assistant talk to the end of a plan.

    Args:
        user: Says the user's next words.
        reply: The assistant.
        persona: Who the user is.
        turns: The plan.
        query: The first message if `user` returns none.

    Returns:
        The dialogue, and the assistant's last prediction.
    """
    said: list[Said] = []
    last: dspy.Prediction | None = None
    for asked, action in turns:
        words = user(persona, said, asked) or (query if not said else "...")
        last = reply(question=words, dialogue=transcript(said), action=action)
        said.append(Said(role="user", action=asked, text=words))
        said.append(Said(role="assistant", action=action, text=one_line(last.get("answer")) or "..."))
    return Dialogue(said=tuple(said)), last


def transcript(said: Sequence[Said]) -> str:
    """Utterances, one per line."""
    return "\n".join(f"{each.role}: {each.text}" for each in said)
