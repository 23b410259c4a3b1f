"""The turn plans of PAL-Bench's simulated dialogues: which kind of utterance follows which.

The release has a plan for each topic in `dialogue_template.json`, so that everybody simulates the
same dialogues:

    {"0000_sample30_topic-1": {"turn_1": {"user": "<话题询问>", "assistant": "<需求推测>"},
                               "turn_2": ...}, ...}

A topic without a plan, as in data of one's own, gets one that is drawn by `drawn_plan`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from ...errors import DataError
from ...records import read_json
from ...signatures.pal import AssistantAction, UserAction
from ...signatures.synthesis_palset_records import CHINESE
from ..field_types import natural_sort_key

PLANS_FILE = "dialogue_template.json"
"""The name of the released file."""
GUESSES = 2
"""How many times the assistant guesses a need."""
PROPOSALS = 2
"""How many solutions it proposes."""


class PlannedTurn(NamedTuple):
    """What kind of utterance the user gives in a turn, and the assistant in reply."""

    user: UserAction
    assistant: AssistantAction


Plan = tuple[PlannedTurn, ...]


class UserStep(NamedTuple):
    """What kind of utterance the user gives, and what it is about."""

    action: UserAction
    subject: str
    """The query "Q", a need such as "N1", or a solution such as "S1"."""


class AssistantStep(NamedTuple):
    """What kind of utterance the assistant gives, and what it is about."""

    action: AssistantAction
    subject: str
    """A need such as "N1", or a solution such as "S1"."""


class PlannedExchange(NamedTuple):
    """What both sides say in a turn, and what it is about."""

    user: UserStep
    assistant: AssistantStep


def find_plans(path: Path) -> Path | None:
    """Return the plans below a folder, or below the folder of a file; None if there are none."""
    folder = path if path.is_dir() else path.parent
    files = sorted(folder.rglob(PLANS_FILE))
    return files[0] if files else None


def read_plans(file: Path) -> dict[str, Plan]:
    """Read the plans of a file, by the id of their topic.

    Raises:
        DataError: The file is missing or has another form, or an action is unknown.
    """
    topics = read_json(file)
    if not isinstance(topics, dict):
        raise DataError(f"{file}: expected an object with topic ids such as 0000_sample30_topic-1")

    plans: dict[str, Plan] = {}
    for topic_id, turns in topics.items():
        if not isinstance(turns, dict) or not turns:
            raise DataError(f"{file}: {topic_id}: expected turns, turn_1 and so on")
        plan: list[PlannedTurn] = []
        for key in sorted(turns, key=natural_sort_key):
            plan.append(_read_planned_turn(turns[key], f"{file}: {topic_id}, {key}"))
        plans[topic_id] = tuple(plan)
    return plans


def _read_planned_turn(turn: Any, where: str) -> PlannedTurn:
    """Return a turn of a plan; raise DataError if it has another form."""
    if not isinstance(turn, Mapping):
        raise DataError(f"{where}: expected the actions of user and assistant")
    user = _read_action(turn.get("user"), get_args(UserAction), f"{where}: user")
    assistant = _read_action(
        turn.get("assistant"), get_args(AssistantAction), f"{where}: assistant"
    )
    return PlannedTurn(cast("UserAction", user), cast("AssistantAction", assistant))


def _read_action(text: Any, actions: tuple[str, ...], where: str) -> str:
    """Return the action that a text such as `<话题询问>` or `topic inquiry` names."""
    name = str(text).strip("<> ")
    action = CHINESE.get(name, name)
    if action not in actions:
        raise DataError(
            f"{where}: {text!r} is no action; one of: {', '.join(actions)}, or their Chinese names"
        )
    return action


def drawn_plan(topic_id: str, seed: int = 0) -> Plan:
    """Return a plan of the released form for a topic, the same for every assistant.

    Two guesses come first, then two proposals. A coin decides for each proposal whether it is
    discussed for a turn.
    """
    rng = random.Random(f"{seed} {topic_id}")
    plan: list[PlannedTurn] = []
    for exchange in action_plan(GUESSES, PROPOSALS, rng):
        plan.append(PlannedTurn(exchange.user.action, exchange.assistant.action))
    return tuple(plan)


def action_plan(num_needs: int, num_solutions: int, rng: random.Random) -> list[PlannedExchange]:
    """Return what both sides say turn by turn, and what it is about.

    In an exchange the user speaks first. What the user says about a guess or a solution is
    therefore in the exchange after the one in which the assistant made it.

    Args:
        num_needs: How many needs the assistant guesses.
        num_solutions: How many solutions it proposes after that.
        rng: Draws which solutions are discussed.
    """
    user_steps = [UserStep("topic inquiry", "Q")]
    assistant_steps: list[AssistantStep] = []
    for number in range(1, num_needs + 1):
        assistant_steps.append(AssistantStep("requirement prediction", f"N{number}"))
        user_steps.append(UserStep("requirement confirmation", f"N{number}"))

    for number in range(1, num_solutions + 1):
        assistant_steps.append(AssistantStep("solution proposal", f"S{number}"))
        if rng.random() < 0.5:
            user_steps.append(UserStep("solution discussion", f"S{number}"))
            assistant_steps.append(AssistantStep("solution discussion", f"S{number}"))
        user_steps.append(UserStep("solution feedback", f"S{number}"))
    assistant_steps.append(AssistantStep("feedback response", f"S{num_solutions}"))

    exchanges: list[PlannedExchange] = []
    for user_step, assistant_step in zip(user_steps, assistant_steps, strict=True):
        exchanges.append(PlannedExchange(user_step, assistant_step))
    return exchanges
