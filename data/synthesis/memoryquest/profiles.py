"""The profiles of PersonaLens, from which MemoryQuest is written (PGR, section 4.2).

PersonaLens is CC BY-NC 4.0: what is made from its profiles is not for commercial use.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from ....errors import DataError
from ....records import read_json
from ...dataset import raise_on_fatal
from ...field_types import natural_sort_key
from ...rows import Location, Row

_LEFT_OPEN = {"", "n/a", "none"}
"""Values of what a profile leaves open, in lower case."""


def _in_words(value: object) -> str:
    """Return a value of a profile as a text.

    Texts stay as they are, the entries of a list are joined by commas, and the fields of an object
    are written as `name: value; name: value`.
    """
    if value is None:
        return ""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return "; ".join(f"{name}: {_in_words(field)}" for name, field in fields.items())
    if isinstance(value, list):
        return ", ".join(_in_words(entry) for entry in cast("list[object]", value))
    return " ".join(str(value).split())


def _texts_of_object(value: Any) -> Any:
    """Return an object with its values as texts, and {} for null; pydantic refuses the rest."""
    if not isinstance(value, dict):
        return value or {}
    fields = cast("dict[str, object]", value)
    return {name: _in_words(field) for name, field in fields.items()}


Texts = Annotated[dict[str, str], BeforeValidator(_texts_of_object)]


class Profile(Row):
    """A profile of PersonaLens."""

    about: Texts = Field(validation_alias="demographics")
    interactions: Texts = {}  # noqa: RUF012
    affinities: Texts = {}  # noqa: RUF012

    @model_validator(mode="after")
    def _check_usable(self) -> Self:
        """Refuse a profile without a user id, or without anything to write about."""
        if not re.fullmatch(r"[\w-]+", self.user_id):
            raise ValueError(
                f"user_id {self.user_id!r} cannot name a file; use letters, digits, '-' and '_'"
            )
        if not self.domain_summaries:
            raise ValueError(
                "nothing in 'interactions' and 'affinities'; there is nothing to write about"
            )
        return self

    @property
    def user_id(self) -> str:
        """The user's id, which names files."""
        return self.about.get("user_id", "")

    @property
    def demographics(self) -> dict[str, str]:
        """Who the user is, without the id and without what the profile leaves open ("N/A")."""
        demographics: dict[str, str] = {}
        for name, text in self.about.items():
            if name != "user_id" and text.lower() not in _LEFT_OPEN:
                demographics[name] = text
        return demographics

    @property
    def domain_summaries(self) -> dict[str, str]:
        """What is known of the user, by domain; interactions replace affinities."""
        summaries: dict[str, str] = {}
        for part in (self.affinities, self.interactions):
            for domain, text in part.items():
                if text:
                    summaries[domain] = text
        return summaries

    @property
    def inputs(self) -> dict[str, Any]:
        """The profile as the prompts show it."""
        return {"demographics": self.demographics, "domain_summaries": self.domain_summaries}

    @property
    def digest(self) -> str:
        """The digest of what the prompts show."""
        content = json.dumps(self.inputs, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


def read_profiles(folder: str | Path) -> list[Profile]:
    """Read all files below a folder whose names end in `profile.json`.

    They are ordered by their paths, in which numbers count as numbers: `user2` before `user10`.

    Raises:
        DataError: There is no such folder or no profile in it, a file is no profile, or two are of
            one user.
    """
    files = list(Path(folder).rglob("*profile.json"))
    if not files:
        raise DataError(
            f"{folder}: no such folder, or none with a user's profile.json in it; "
            "is it PersonaLens?"
        )
    files.sort(key=lambda path: natural_sort_key(str(path)))

    profiles: dict[str, Profile] = {}
    for path in files:
        profile = _read_profile(path)
        if profile.user_id in profiles:
            raise DataError(f"{path}: a second profile of {profile.user_id!r}; remove one")
        profiles[profile.user_id] = profile
    return list(profiles.values())


def _read_profile(path: Path) -> Profile:
    """Read a profile; raise DataError if the file is none."""
    location = Location(raise_on_fatal(path), "profile")
    profile = location.validate(Profile, read_json(path))
    assert profile is not None, "a profile that does not fit is fatal, and the listener raises"
    return profile
