"""What PAL-Set holds on its users besides the records; judges and simulated users see it, assistants never do.

    background.json                {user: {gender, age, ..., personality: {trait: level}}}
    situation.json                 {user: {date: {situation, requirement_ids, ...}}}
    preference.json                {user: {aspect: {id: {requirement, preference: {pos, neg}}}}}
    requirement_framework.json     {user: {date: {topic: {implicit_needs: [{need, evidences}], ...}}}}
    solution_preference.json       {user: {date: {topic: {pos_list, neg_list: [{solution, feedback_reason}]}}}}

Each is next to `input.json` or in the folders of the released data, and ends in `_en` for the English data. A file
that is not there leaves its part of a persona empty; a topic's own needs and solutions are always in it.

Limits: the names of the English files are likely ones, not seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...records import Record, read_json

_NAMES = ("background", "situation", "preference", "requirement_framework", "solution_preference")
_FOLDERS = ("", "dialogue_framework/requirement", "dialogue_framework/solution_preference")


class Persona(Record):
    """One user at the time of one topic, as judges and the simulated user read it."""

    profile: str = ""
    """Background and personality."""
    situation: str = ""
    needs: str = ""
    """The query, the implicit needs with what they rest on, and the whole requirement."""
    preferences: str = ""
    """The requirement, general preferences, and the solutions the user likes and dislikes, with reasons."""
    evidences: tuple[str, ...] = ()
    """What the implicit needs rest on, in words."""


@dataclass(frozen=True)
class SideFiles:
    """The side files of one data file, those that there are."""

    found: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def beside(cls, path: Path) -> SideFiles:
        """Reads the files next to a data file.

        Raises:
            DataError: One of the files is no JSON.
        """
        endings = ("_en", "") if path.stem.endswith("_en") else ("",)
        found = {}
        for name in _NAMES:
            places = [path.parent / folder / f"{name}{end}.json" for end in endings for folder in (*_FOLDERS, name)]
            place = next((place for place in places if place.is_file()), None)
            if place is not None:
                found[name] = read_json(place)
                if not isinstance(found[name], dict):
                    raise DataError(f"{place}: expected an object with user ids, got {type(found[name]).__name__}")
        return cls(found)

    def persona(self, user: str, date: str, topic_id: str, number: int, topic: Mapping[str, Any]) -> Persona:
        """Puts a persona together.

        Args:
            user: Id of the user.
            date: Day of the dialogue, e.g. "2024-08-20".
            topic_id: The topic's key, e.g. "topic-1".
            number: Its place in the dialogue, from 0.
            topic: `user_query`, `needs`, `requirement`, `positives` and `negatives` from the data file itself.
        """
        situation = self._at("situation", user, date)
        framework = self._at("requirement_framework", user, date, topic_id)
        liked = self._at("solution_preference", user, date, topic_id)
        ids = situation.get("requirement_ids")
        id = str(ids[number]) if isinstance(ids, list) and number < len(ids) else ""
        general = self._at("preference", user, id.partition("-")[0], id).get("preference")
        needs = framework.get("implicit_needs")
        kept = [need for need in needs if isinstance(need, dict)] if isinstance(needs, list) else []
        return Persona(
            profile=_profile(self._at("background", user)),
            situation=str(situation.get("situation") or ""),
            needs=_json(
                {
                    "user_query": topic["user_query"],
                    "implicit_needs": kept or list(topic["needs"]),
                    "requirement": topic["requirement"],
                }
            ),
            preferences=_json(
                {
                    "requirement": topic["requirement"],
                    "general_preference": general if isinstance(general, dict) else {},
                    "likes": liked.get("pos_list") or list(topic["positives"]),
                    "dislikes": liked.get("neg_list") or list(topic["negatives"]),
                }
            ),
            evidences=tuple(evidence for need in kept for evidence in _texts(need.get("evidences"))),
        )

    def _at(self, name: str, *keys: str) -> Mapping[str, Any]:
        """What a file holds under some keys; {} where that is no object."""
        value = self.found.get(name)
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, dict) else {}


def _profile(background: Mapping[str, Any]) -> str:
    lines = []
    for key, value in background.items():
        text = ", ".join(f"{trait} {level}" for trait, level in value.items()) if isinstance(value, dict) else value
        lines.append(f"{key}: {text}")
    return "\n".join(lines)


def _texts(value: Any) -> Iterable[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
