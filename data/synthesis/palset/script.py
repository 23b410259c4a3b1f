"""What a generated dialogue has to follow: the part of its framework that is talked about, and a plan of actions.

Drawn by chance, as in the released code. Of every topic one or two implicit needs are guessed, with equal chance. In
the history set one, two or three of its four solutions are proposed, with chances .2, .4 and .4; in the query set one
or two of the liked ones, with equal chance. Each proposal is discussed for one turn or not at all, with equal chance.

    topic inquiry ── requirement prediction           T1_Q  T1_N1
    requirement confirmation ── solution proposal     T1_N1 T1_S1
    solution discussion ── solution discussion        T1_S1 T1_S1
    solution feedback ── feedback response            T1_S1 T1_S1

Limits: the needs that are not guessed are the later ones, never the first.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ....signatures.pal import AssistantAction, UserAction
from ....signatures.synthesis_palset_records import DraftTurn
from .people import Topic
from .persona_checks import blank


@dataclass(frozen=True)
class PlannedTurn:
    """The actions and references of one turn."""

    user: UserAction
    user_reference: str
    assistant: AssistantAction
    assistant_reference: str


@dataclass(frozen=True)
class Script:
    """A framework and a plan."""

    framework: str
    """JSON, as prompts show it."""
    plan: tuple[PlannedTurn, ...]

    @property
    def lines(self) -> list[str]:
        """The plan in words, a line per turn."""
        return [
            f"turn {n}: user {one.user} ({one.user_reference}); assistant {one.assistant} ({one.assistant_reference})"
            for n, one in enumerate(self.plan, 1)
        ]


def script(topics: Sequence[Topic], part: Literal["history", "query"], seed: str) -> Script:
    """Draws what is talked about, and how.

    Args:
        topics: Those of the dialogue.
        part: Whether all four solutions may be proposed (history), or the liked ones alone (query).
        seed: The same seed gives the same script.
    """
    rng = random.Random(seed)
    framework: dict[str, Any] = {}
    plan: list[PlannedTurn] = []
    for n, topic in enumerate(topics, 1):
        needs = topic.draft.implicit_needs[: rng.choice((1, 2))]
        solutions = _solutions(topic, part, rng)
        framework[f"T{n}"] = {
            "topic": topic.draft.requirement,
            "requirements": {f"T{n}_Q": topic.draft.user_query}
            | {f"T{n}_N{m}": need.model_dump() for m, need in enumerate(needs, 1)},
            "solutions": {f"T{n}_S{m}": one for m, one in enumerate(solutions, 1)},
        }
        plan += _turns(f"T{n}", len(needs), len(solutions), rng)
    return Script(json.dumps(framework, ensure_ascii=False, indent=1), tuple(plan))


def _solutions(topic: Topic, part: str, rng: random.Random) -> list[dict[str, str]]:
    sides = {"pos": topic.choice.liked, "neg": topic.choice.disliked if part == "history" else []}
    known = [
        {"solution": one.solution, "feedback": side, "reason": one.feedback_reason}
        for side, chosen in sides.items()
        for one in chosen
    ]
    count = rng.choices((1, 2, 3), (0.2, 0.4, 0.4))[0] if part == "history" else rng.choice((1, 2))
    return rng.sample(known, count)


def _turns(topic: str, needs: int, solutions: int, rng: random.Random) -> list[PlannedTurn]:
    user: list[tuple[UserAction, str]] = [("topic inquiry", f"{topic}_Q")]
    assistant: list[tuple[AssistantAction, str]] = []
    for n in range(1, needs + 1):
        assistant.append(("requirement prediction", f"{topic}_N{n}"))
        user.append(("requirement confirmation", f"{topic}_N{n}"))
    for n in range(1, solutions + 1):
        assistant.append(("solution proposal", f"{topic}_S{n}"))
        if rng.random() < 0.5:
            user.append(("solution discussion", f"{topic}_S{n}"))
            assistant.append(("solution discussion", f"{topic}_S{n}"))
        user.append(("solution feedback", f"{topic}_S{n}"))
    assistant.append(("feedback response", f"{topic}_S{solutions}"))
    return [PlannedTurn(*one, *other) for one, other in zip(user, assistant, strict=True)]


def turn_problems(turns: Sequence[DraftTurn], plan: Sequence[PlannedTurn]) -> list[str]:
    """What is wrong with a dialogue that has to follow a plan: its turns, actions, references, and empty words."""
    found = [] if len(turns) == len(plan) else [f"{len(turns)} turns; the plan has {len(plan)}"]
    for n, (turn, planned) in enumerate(zip(turns, plan, strict=False), 1):
        for role, said, action, reference in (
            ("user", turn.user, planned.user, planned.user_reference),
            ("assistant", turn.assistant, planned.assistant, planned.assistant_reference),
        ):
            found += [] if said.action == action else [f"turn {n}, {role}: action is {said.action}, not {action}"]
            if said.reference.strip() != reference:
                found.append(f"turn {n}, {role}: reference is {said.reference!r}, not {reference}")
            found += [f"turn {n}, {role}: no words"] if blank(said.content) else []
    return found
