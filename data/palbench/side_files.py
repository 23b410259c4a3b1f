"""The side files of PAL-Set: what is known of each user, which judges and simulated users see.

    background.json                {user: {gender, age, ..., personality: {trait: level}}}
    situation.json                 {user: {date: {situation, requirement_ids, ...}}}
    preference.json                {user: {aspect: {id: {requirement, preference: {pos, neg}}}}}
    requirement_framework.json     {user: {date: {topic: {implicit_needs: [{need, evidences}]}}}}
    solution_preference.json       {user: {date: {topic: {pos_list, neg_list:
                                       [{solution, feedback_reason}]}}}}

They lie beside the data or in folders there; those of English data may end in `_en`. Assistants
never see them.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...records import read_json
from .topics import Persona, Topic

_NAMES = (
    "background",
    "situation",
    "preference",
    "requirement_framework",
    "solution_preference",
)


@dataclass(frozen=True)
class TopicKey:
    """Where the side files speak of one topic."""

    user: str
    day: str
    """The day of the dialogue, e.g. "2024-01-12"; "" if it is unknown."""
    topic: str
    """E.g. "topic-1"."""
    position: int
    """The position of the topic in the dialogue, from 0."""


class SideFiles:
    """The side files of one data file; those that are missing count as empty.

    Args:
        data_file: The file that they lie beside or below.

    Raises:
        DataError: One of them cannot be read, or holds no object.
    """

    def __init__(self, data_file: Path) -> None:
        self._contents: dict[str, dict[str, Any]] = {}
        for name in _NAMES:
            file = _find_side_file(data_file, name)
            if file is None:
                continue
            content = read_json(file)
            if not isinstance(content, dict):
                raise DataError(
                    f"{file}: expected an object with user ids, got {reprlib.repr(content)}"
                )
            self._contents[name] = content

    def persona(self, key: TopicKey, topic: Topic) -> Persona:
        """Return what the files say of a user at the time of a topic."""
        background = self._object("background", key.user)
        situation = self._object("situation", key.user, key.day)
        framework = self._object("requirement_framework", key.user, key.day, key.topic)
        needs = _objects(framework.get("implicit_needs"))

        shown_needs = {
            "user_query": topic.user_query,
            "implicit_needs": needs or list(topic.needs),
            "requirement": topic.requirement,
        }
        return Persona(
            profile=_profile_text(background),
            situation=str(situation.get("situation") or ""),
            needs=_json_text(shown_needs),
            preferences=_json_text(self._preferences(key, topic, situation)),
            evidences=_evidence_texts(needs),
        )

    def _preferences(
        self, key: TopicKey, topic: Topic, situation: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return what a user generally prefers, and which solutions to a topic they like or not."""
        requirement_id = _requirement_id(situation, key.position)
        # An id begins with its aspect, e.g. "work-1".
        aspect = requirement_id.partition("-")[0]
        # In the file preference.json the field with the preference is called "preference", too.
        general_preference = self._object(
            "preference", key.user, aspect, requirement_id, "preference"
        )
        solutions = self._object("solution_preference", key.user, key.day, key.topic)
        return {
            "requirement": topic.requirement,
            "general_preference": general_preference,
            "likes": solutions.get("pos_list") or list(topic.positives),
            "dislikes": solutions.get("neg_list") or list(topic.negatives),
        }

    def _object(self, name: str, *keys: str) -> Mapping[str, Any]:
        """Return an object inside a side file; an empty one if there is none.

        Args:
            name: The name of the file, without its suffix.
            *keys: The keys that lead to the object, from the outermost.
        """
        value: Any = self._contents.get(name)
        for key in keys:
            if not isinstance(value, dict):
                return {}
            value = value.get(key)
        return value if isinstance(value, dict) else {}


def _find_side_file(data_file: Path, name: str) -> Path | None:
    """Return the side file of a name beside or below a data file; None if there is none."""
    file_names = [f"{name}.json"]
    if data_file.stem.endswith("_en"):
        file_names.insert(0, f"{name}_en.json")
    for file_name in file_names:
        for file in sorted(data_file.parent.rglob(file_name)):
            return file
    return None


def _requirement_id(situation: Mapping[str, Any], position: int) -> str:
    """Return the id of the requirement behind a topic of a dialogue; "" if unknown."""
    ids = situation.get("requirement_ids")
    if not isinstance(ids, list) or position >= len(ids):
        return ""
    return str(ids[position])


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; none if the value is no list."""
    if not isinstance(value, list):
        return []
    return [entry for entry in value if isinstance(entry, dict)]


def _evidence_texts(needs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the texts of the log entries from which a user's implicit needs can be inferred.

    Args:
        needs: Implicit needs of `requirement_framework.json`. Each has a list "evidences".
    """
    texts: list[str] = []
    for need in needs:
        evidences = need.get("evidences")
        if isinstance(evidences, list):
            texts.extend(str(evidence) for evidence in evidences)
    return tuple(texts)


def _profile_text(background: Mapping[str, Any]) -> str:
    """Return a user's background, one line for each field."""
    lines: list[str] = []
    for name, value in background.items():
        text = value
        if isinstance(value, dict):
            text = ", ".join(f"{trait} {level}" for trait, level in value.items())
        lines.append(f"{name}: {text}")
    return "\n".join(lines)


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
