"""Histories of behaviour and a scripted language model for practice on them."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest


def behavior(records: int = 30, profile: str = "Ann, 34, nurse", id: str = "ann") -> Any:
    """A history of a profile and behaviour records a1, a2, ... in batches of ten, each with words of its own."""
    from recollect import History
    from recollect.records import Action, Behavior, Profile, Turn

    start = datetime(2024, 1, 1, 8)
    actions = [
        Action(
            id=f"a{n}",
            time=start + timedelta(hours=n),
            scene="video",
            situation=f"situation-{n}-x",
            action=f"action-{n}-x",
        )
        for n in range(1, records + 1)
    ]
    batches = [Behavior.of(f"b{n}", actions[n : n + 10]) for n in range(0, records, 10)]
    first = [Profile(id="profile", turns=(Turn(id="profile:1", speaker="profile", text=profile),))] if profile else []
    return History(id=id, items=(*first, *batches))


@pytest.fixture
def behavior_history() -> Callable[..., Any]:
    """Makes histories of behaviour; see `behavior`."""
    return behavior


class PracticeScript:
    """Replies to all prompts of PraMem: three proposals a round, all pass, the first three of the pool are adopted.

    `change` replaces the reply of a kind (the first output field): a dict, a text, or a function (text, n) of these.
    """

    def __init__(self, **change: Any) -> None:
        self.change = change

    def __call__(self, kind: str, text: str, n: int) -> dict[str, Any] | str:
        changed = self.change.get(kind)
        if changed is not None:
            return changed(text, n) if callable(changed) else changed
        return getattr(self, f"_{kind}")(text)

    def _useful_patterns(self, text: str) -> dict[str, Any]:
        return {"useful_patterns": ["p"], "useful_alerts": [], "reasoning": "hm", "predicted_action": "watched"}

    def _predicted_action(self, text: str) -> dict[str, Any]:
        return {"predicted_action": "watched"}

    def _tasks(self, text: str) -> dict[str, Any]:
        return {"tasks": [{"task": "watch", "verdict": "Incorrect", "analysis": "-"}], **self._proposals(text)}

    def _proposals(self, text: str) -> dict[str, Any]:
        target = section(text, "practised_record").split("]")[0].strip("[")
        return {
            "proposals": [
                {"action": action, "trigger": "t", "content": f"{what} of {target}"}
                for action, what in (("Add Pattern", "one"), ("add alert", "two"), ("add_pattern", "three"))
            ]
        }

    def _plans(self, text: str) -> dict[str, Any]:
        return {"plans": [{"direction": "all reversed", "details": "likes become reports"}]}

    def _groundedness(self, text: str) -> dict[str, Any]:
        return {"groundedness": [{"proposal": id, "sensitive": True} for id in proposal_ids(text)]}

    def _rewritten(self, text: str) -> dict[str, Any]:
        ids = re.findall(r"^\[(a\d+)\]", section(text, "recent_records"), re.MULTILINE)
        return {"rewritten": [{"record": id, "action": f"reversed-{id}"} for id in ids]}

    def _holding(self, text: str) -> dict[str, Any]:
        return {"holding": [{"proposal": id, "overturned": True} for id in proposal_ids(text)]}

    def _virtual_scenes(self, text: str) -> dict[str, Any]:
        return {"virtual_scenes": [f"video; virtual {n}" for n in range(1, 8)]}

    def _generality(self, text: str) -> dict[str, Any]:
        return {"generality": [{"proposal": id, "general": True} for id in proposal_ids(text)]}

    def _picks(self, text: str) -> dict[str, Any]:
        return {"picks": [{"proposal": id, "letter": None} for id in proposal_ids(text)]}

    def _decisions(self, text: str) -> dict[str, Any]:
        ids = pool_ids(text)[:3]
        return {
            "decisions": "-",
            "changes": [{"action": "add pattern", "text": f"agreed {ids[0]}", "proposal_ids": ids}],
        }

    def _relevant_patterns(self, text: str) -> dict[str, Any]:
        return {"relevant_patterns": [], "relevant_alerts": [], "reasoning": "-", "answer": "Yes"}


def section(text: str, field: str) -> str:
    """The value of an input field in a prompt."""
    return text.rsplit(f"[[ ## {field} ## ]]", 1)[1].split("[[ ##")[0].strip()


def proposal_ids(text: str) -> list[str]:
    """Ids of the proposals that a review is shown."""
    return re.findall(r'"proposal": "(r\d+)"', section(text, "proposals"))


def pool_ids(text: str) -> list[str]:
    """Ids of the proposals that an adjustment is shown."""
    return re.findall(r'"proposal": "(p-\d+)"', section(text, "proposal_pool"))


@pytest.fixture
def practice_script() -> type[PracticeScript]:
    """Makes scripts of PraMem's model: `practice_script(plans="no")`."""
    return PracticeScript


@pytest.fixture
def prompt_section() -> Callable[[str, str], str]:
    """Cuts an input field out of a prompt."""
    return section
