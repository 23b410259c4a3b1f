"""Step 6-2 of PAL-Set: how a dialogue goes, and its words.

    topics ── drawn ──> what is talked about, and a plan of actions ──> the turns

Chances are those of the released code. Of every topic one or two implicit needs are guessed, with
equal chance. In the history set one, two or three of its four solutions are proposed, with chances
.2, .4 and .4; in the query set one or two of the liked ones, with equal chance. Each proposal is
discussed for one turn or not at all, with equal chance.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import dspy

from ....signatures.synthesis_palset import DraftChoice, DraftNeed
from ....signatures.synthesis_palset_records import (
    DraftAssistantUtterance,
    DraftTurn,
    DraftUserUtterance,
    WriteAdviceDialogue,
)
from ...palbench.plans import action_plan
from ..runner import CheckResult, Step, accept_if_valid
from .records import Part, Session, Topic
from .setting import Setting
from .texts import blank

DIALOGUE = Step("dialogue", WriteAdviceDialogue)
KNOWS: Mapping[str, str] = {
    "history": "The assistant has seen the user's recent experiences. It knows neither the user's "
    "background as a whole nor their preferences.",
    "query": "The assistant knows background, personality, situation and preferences of the user "
    "well, and may use them when it discusses a proposal or responds to feedback.",
}
"""What the assistant knows, by part of the data."""

NUM_PROPOSALS = (1, 2, 3)
PROPOSAL_CHANCES = (0.2, 0.4, 0.4)
"""How many solutions of a topic a dialogue of the history set proposes, and with which chances."""
NUM_QUERY_PROPOSALS = (1, 2)
"""How many a dialogue of the query set proposes, with equal chances."""
NUM_GUESSES = (1, 2)
"""How many implicit needs of a topic are guessed, with equal chances."""


class PlannedUtterance(NamedTuple):
    """What somebody does in a turn, and the part of the framework that it is about."""

    action: str
    reference: str
    """A label of the framework: "T1_Q" is the query of topic 1, "T1_N2" its second implicit need,
    "T1_S1" its first solution.
    """


class PlannedTurn(NamedTuple):
    """What the user says in a turn, and the assistant in reply."""

    user: PlannedUtterance
    assistant: PlannedUtterance

    def line(self) -> str:
        """Return the turn in words, as prompts show it."""
        user = f"user {self.user.action} ({self.user.reference})"
        assistant = f"assistant {self.assistant.action} ({self.assistant.reference})"
        return f"{user}; {assistant}"


@dataclass(frozen=True)
class Script:
    """What a dialogue talks about, and in which order."""

    framework: str
    """What it talks about: topics with their queries, needs and solutions, as JSON for prompts."""
    plan: Sequence[PlannedTurn]
    """The order: what each turn does with which part of the framework."""

    @property
    def lines(self) -> list[str]:
        """The plan in words, a line per turn."""
        return [f"turn {number}: {turn.line()}" for number, turn in enumerate(self.plan, 1)]


def draw_script(topics: Sequence[Topic], part: Part, seed: str) -> Script:
    """Draw by a seed what a dialogue talks about, and in which order.

    Args:
        topics: The topics of the dialogue; all of them are talked about, in their order.
        part: The part of the data, which decides the solutions that may be proposed.
        seed: Determines the script, together with the topics.
    """
    rng = random.Random(seed)
    framework: dict[str, Any] = {}
    plan: list[PlannedTurn] = []
    for number, topic in enumerate(topics, 1):
        label = f"T{number}"
        # The assistant guesses the first of the user's implicit needs; the others do not come up.
        num_guesses = rng.choice(NUM_GUESSES)
        needs = topic.draft.implicit_needs[:num_guesses]
        solutions = _draw_solutions(topic, part, rng)
        framework[label] = _framework_of(topic, label, needs, solutions)
        plan += _draw_plan(label, len(needs), len(solutions), rng)
    return Script(json.dumps(framework, ensure_ascii=False, indent=1), plan)


def _draw_solutions(topic: Topic, part: Part, rng: random.Random) -> list[dict[str, str]]:
    """Draw the solutions that the assistant proposes, with the user's feedback.

    In the query set the assistant knows the user well, and proposes only what the user likes. In
    the history set it may propose what the user dislikes, too.
    """
    liked = [_with_feedback(choice, "pos") for choice in topic.liked]
    if part == "query":
        count = rng.choice(NUM_QUERY_PROPOSALS)
        return rng.sample(liked, count)

    disliked = [_with_feedback(choice, "neg") for choice in topic.disliked]
    # `choices` returns a list, here of one number.
    count = rng.choices(NUM_PROPOSALS, PROPOSAL_CHANCES)[0]
    return rng.sample(liked + disliked, count)


def _with_feedback(choice: DraftChoice, feedback: str) -> dict[str, str]:
    """Return a solution of the framework, with the feedback of the user, "pos" or "neg"."""
    return {
        "solution": choice.solution,
        "feedback": feedback,
        "reason": choice.feedback_reason,
    }


def _framework_of(
    topic: Topic, label: str, needs: Sequence[DraftNeed], solutions: Sequence[dict[str, str]]
) -> dict[str, Any]:
    """Return what the framework says about a topic.

    Query, needs and solutions have labels to which the plan refers, here for the topic "T1":

        {"topic": "a quiet evening",
         "requirements": {"T1_Q": "Any ideas for tonight?", "T1_N1": {"need": ...}},
         "solutions": {"T1_S1": {"solution": ..., "feedback": "pos", "reason": ...}}}

    Args:
        topic: The topic.
        label: Its label.
        needs: The implicit needs that are guessed.
        solutions: The solutions that are proposed.
    """
    requirements: dict[str, Any] = {f"{label}_Q": topic.draft.user_query}
    for number, need in enumerate(needs, 1):
        requirements[f"{label}_N{number}"] = need.model_dump()
    labelled_solutions: dict[str, Any] = {}
    for number, solution in enumerate(solutions, 1):
        labelled_solutions[f"{label}_S{number}"] = solution
    return {
        "topic": topic.draft.requirement,
        "requirements": requirements,
        "solutions": labelled_solutions,
    }


def _draw_plan(
    label: str, num_needs: int, num_solutions: int, rng: random.Random
) -> list[PlannedTurn]:
    """Draw the turns about a topic.

    Args:
        label: The label of the topic, e.g. "T1". References begin with it: "N2" becomes "T1_N2".
        num_needs: How many needs are guessed.
        num_solutions: How many solutions are proposed.
        rng: Draws which proposals are discussed.
    """
    turns: list[PlannedTurn] = []
    for exchange in action_plan(num_needs, num_solutions, rng):
        user = exchange.user
        assistant = exchange.assistant
        turn = PlannedTurn(
            user=PlannedUtterance(user.action, f"{label}_{user.subject}"),
            assistant=PlannedUtterance(assistant.action, f"{label}_{assistant.subject}"),
        )
        turns.append(turn)
    return turns


def write_dialogue(session: Session, script: Script, setting: Setting) -> list[DraftTurn] | None:
    """Write the turns of a session's dialogue; None if they were given up."""
    inputs = {
        "profile": session.persona.profile,
        "personality": session.persona.personality,
        "situation": session.situation,
        "assistant_knows": KNOWS[session.part],
        "framework": script.framework,
        "plan": script.lines,
    }

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftTurn]]:
        return accept_if_valid(answer.turns, turn_problems(answer.turns, script.plan))

    return setting.ask(DIALOGUE, session.id, inputs, check)


def turn_problems(turns: Sequence[DraftTurn], plan: Sequence[PlannedTurn]) -> list[str]:
    """Return what is wrong with a dialogue that has to follow a plan."""
    problems: list[str] = []
    if len(turns) != len(plan):
        problems.append(f"{len(turns)} turns; the plan has {len(plan)}")
    for number, (turn, planned) in enumerate(zip(turns, plan, strict=False), 1):
        problems += _utterance_problems(f"turn {number}, user", turn.user, planned.user)
        problems += _utterance_problems(
            f"turn {number}, assistant", turn.assistant, planned.assistant
        )
    return problems


def _utterance_problems(
    where: str,
    utterance: DraftUserUtterance | DraftAssistantUtterance,
    planned: PlannedUtterance,
) -> list[str]:
    """Return where an utterance departs from the plan, or has no words."""
    problems: list[str] = []
    if utterance.action != planned.action:
        problems.append(f"{where}: action is {utterance.action}, not {planned.action}")
    if utterance.reference.strip() != planned.reference:
        problems.append(f"{where}: reference is {utterance.reference!r}, not {planned.reference}")
    if blank(utterance.content):
        problems.append(f"{where}: no words")
    return problems
