"""Markers in values: text that a prompt, an adapter or a chat template would take for structure, made harmless.

A user may write `[[ ## answer ## ]]`, and a model may quote it. Prompts show it as `[[ #~# answer ## ]]`. For every
text, `restored(neutral(text)) == text`: where tildes stand already, one more is put.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import dspy
from pydantic import BaseModel

_PLACES: dict[str, str] = {}
"""What a marker begins with, and what follows; `markers.json` names the families of models beside each."""
for _marker in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")):
    _PLACES[_marker["first"]] = "|".join(filter(None, (_PLACES.get(_marker["first"]), _marker["rest"])))
_TAGS = {**_PLACES, "<": f"{_PLACES['<']}|[/!?]?\\w", "&": r"#?\w{1,32};"}


def _pattern(places: Mapping[str, str], between: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:({first}){between}(?=~*(?:{rest})))" for first, rest in places.items()))


_PUT = {False: _pattern(_PLACES, ""), True: _pattern(_TAGS, "")}
_TAKE = _pattern(_PLACES, "~")


def neutral(value: Any, tags: bool = False) -> Any:
    """A value with a sign in every marker of its texts, `tags` among them; models become objects of their fields."""
    if isinstance(value, str):
        return _PUT[tags].sub(lambda match: f"{match[0]}~", value)
    if isinstance(value, BaseModel) and not isinstance(value, dspy.Type):
        value = value.model_dump(mode="json", fallback=str)
    return _each(value, lambda part: neutral(part, tags))


def restored(value: Any) -> Any:
    """The value before `neutral` without tags."""
    if isinstance(value, str):
        return _TAKE.sub(lambda match: match[0][:-1], value)
    return _each(value, restored)


def _each(value: Any, change: Any) -> Any:
    if isinstance(value, Mapping):
        return {change(key): change(part) for key, part in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        parts = [change(part) for part in cast("list[Any]", value)]
        return parts if isinstance(value, list) else tuple(parts)
    return value
