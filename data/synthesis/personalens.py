"""Profiles of PersonaLens: the people that generated data sets are about.

    {"demographics": {"user_id": "user0", "age": ...}, "interactions": {domain: text},
     "affinities": {domain: {attribute: text or list}}, "interests": {domain: 0 or 1}}

A domain's summary is its text in `interactions`; without one, its affinities in a line. Read are `profile.json` in a
folder per user (`user0/profile.json`, at any depth) and files called `user0_profile.json`.

Limits: tasks are not read. PersonaLens is CC BY-NC 4.0: it is not in this repository, and what is made from it
is not for commercial use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...records import read_json
from ..rows import natural

_NOTHING = {"", "n/a", "none"}


@dataclass(frozen=True)
class Profile:
    """One user."""

    user_id: str
    demographics: dict[str, str]
    """Without the id, and without what the profile leaves open ("N/A")."""
    domain_summaries: dict[str, str]


def read_profiles(folder: str | Path) -> list[Profile]:
    """Reads all profiles below a folder, ordered by the numbers in their names.

    Raises:
        DataError: There is no such folder, no profile in it, a file is no profile, or two are of one user.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give the one that holds user0/profile.json or user0_profile.json")
    files = [*folder.rglob("profile.json"), *folder.rglob("*_profile.json")]
    if not files:
        raise DataError(f"{folder}: holds no user*/profile.json and no user*_profile.json; is it PersonaLens?")
    profiles: dict[str, Profile] = {}
    for path in sorted(files, key=lambda path: natural(str(path))):
        profile = read_profile(path)
        if profile.user_id in profiles:
            raise DataError(f"{path}: a second profile of {profile.user_id!r}; remove one")
        profiles[profile.user_id] = profile
    return list(profiles.values())


def read_profile(path: Path) -> Profile:
    """Reads one profile.

    Raises:
        DataError: The file is no profile of PersonaLens.
    """
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("demographics"), dict):
        raise DataError(f"{path}: not a profile: no object 'demographics'; give a profile.json of PersonaLens")
    demographics = {name: _text(value) for name, value in content["demographics"].items()}
    default = path.parent.name if path.name == "profile.json" else path.name.removesuffix("_profile.json")
    user_id = demographics.pop("user_id", "") or default
    if not re.fullmatch(r"[\w-]+", user_id):
        raise DataError(f"{path}: user_id {user_id!r} cannot name a file; use letters, digits, '-' and '_'")
    summaries = {}
    for part in ("affinities", "interactions"):
        found = content.get(part) or {}
        if not isinstance(found, dict):
            raise DataError(f"{path}: {part!r} is no object of domains; give a profile.json of PersonaLens")
        summaries |= {domain: text for domain, value in found.items() if (text := _text(value))}
    if not summaries:
        raise DataError(f"{path}: nothing in 'interactions' and 'affinities'; there is nothing to write about")
    known = {name: value for name, value in demographics.items() if value.lower() not in _NOTHING}
    return Profile(user_id, known, summaries)


def _text(value: Any) -> str:
    """A value of a profile in words: texts as they are, lists with commas, attributes as `name: value; ...`."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_text(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return "" if value is None else " ".join(str(value).split())
