"""The turn plans of PAL-Bench's simulated dialogues: which kind of utterance follows which.

The release has a plan for each topic, so that everybody simulates the same dialogues, in `dialogue_template.json`:

    {"0000_sample30_topic-1": {"turn_1": {"user": "<话题询问>", "assistant": "<需求推测>"}, "turn_2": ...}, ...}

Topics without a plan, as those of data of one's own, get one that is drawn by `drawn_plan`.
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
"""Times the assistant guesses the requirement."""
PROPOSALS = 2
"""Solutions that it proposes."""


class PlannedTurn(NamedTuple):
    """What kind of utterance the user gives in a turn, and the assistant in reply."""

    user: UserAction
    assistant: AssistantAction


Plan = tuple[PlannedTurn, ...]


def find_plans(path: Path) -> Path | None:
    """Return the plans below a folder, or below the folder of a file; None if there are none."""
    folder = path if path.is_dir() else path.parent
    return next(iter(sorted(folder.rglob(PLANS_FILE))), None)


def read_plans(file: Path) -> dict[str, Plan]:
    """Read the plans of a file, by the id of their topic.

    Raises:
        DataError: The file is missing or has another form, or names an action that there is not.
    """
    topics = read_json(file)
    if not isinstance(topics, dict):
        raise DataError(f"{file}: expected an object with topic ids such as 0000_sample30_topic-1")

    plans: dict[str, Plan] = {}
    for topic_id, turns in topics.items():
        if not isinstance(turns, dict) or not turns:
            raise DataError(f"{file}: {topic_id}: expected turns, turn_1 and so on")
        in_order = sorted(turns, key=natural_sort_key)
        plans[topic_id] = tuple(_planned_turn(turns[key], f"{file}: {topic_id}, {key}") for key in in_order)
    return plans


def _planned_turn(turn: Any, where: str) -> PlannedTurn:
    if not isinstance(turn, Mapping):
        raise DataError(f"{where}: expected the actions of user and assistant")
    user = _action(turn.get("user"), get_args(UserAction), f"{where}: user")
    assistant = _action(turn.get("assistant"), get_args(AssistantAction), f"{where}: assistant")
    return PlannedTurn(cast("UserAction", user), cast("AssistantAction", assistant))


def _action(text: Any, actions: tuple[str, ...], where: str) -> str:
    """Return the action that a text such as `<话题询问>` or `topic inquiry` names."""
    name = str(text).strip("<> ")
    action = CHINESE.get(name, name)
    if action not in actions:
        raise DataError(f"{where}: {text!r} is no action; one of: {', '.join(actions)}, or their Chinese names")
    return action


def drawn_plan(topic_id: str, seed: int = 0) -> Plan:
    """Return a plan of the released form for a topic, the same for every assistant.

    Two guesses come first, then two proposals. Each proposal is discussed for a turn or not, by chance.
    """
    turns = action_plan(GUESSES, PROPOSALS, random.Random(f"{seed} {topic_id}"))
    return tuple(PlannedTurn(user, assistant) for (user, _), (assistant, _) in turns)


def action_plan(
    needs: int, solutions: int, rng: random.Random
) -> list[tuple[tuple[UserAction, str], tuple[AssistantAction, str]]]:
    """The actions of both sides, turn by turn, each with what it is about: the query Q, a need N1 or a solution S1."""
    user: list[tuple[UserAction, str]] = [("topic inquiry", "Q")]
    assistant: list[tuple[AssistantAction, str]] = []
    for n in range(1, needs + 1):
        assistant.append(("requirement prediction", f"N{n}"))
        user.append(("requirement confirmation", f"N{n}"))
    for n in range(1, solutions + 1):
        assistant.append(("solution proposal", f"S{n}"))
        if rng.random() < 0.5:
            user.append(("solution discussion", f"S{n}"))
            assistant.append(("solution discussion", f"S{n}"))
        user.append(("solution feedback", f"S{n}"))
    assistant.append(("feedback response", f"S{solutions}"))
    return list(zip(user, assistant, strict=True))
