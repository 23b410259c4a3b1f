"""Ids that a prompt shows, and what a model makes of them.

A field of an output that names something of an input is typed with the input that shows it:

    turn_ids: list[Annotated[str, Shown("dialogue")]]

Models write `[D1:3]`, `"d1:3"`, `turn D1:3` or 3. An id is matched where exactly one shown id can be meant; for
pydantic and in prompts it is a plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

_BRACKETED = re.compile(r"\[([^\[\]\n]{1,200})\]")
_DIGITS = re.compile(r"\d+")
_DECORATION = " \t\n[](){}<>\"'`*#.,;:"


@dataclass(frozen=True)
class Shown:
    """Marks a text as an id that an input shows.

    Args:
        *fields: The inputs that show it: texts with ids in brackets, or lists of objects or texts that begin with one;
            `field.key` where it is not the first field of the objects whose name ends with "id".
        new: Whether other ids are allowed, for things that are not there yet.
    """

    fields: tuple[str, ...]
    new: bool = False

    def __init__(self, *fields: str, new: bool = False) -> None:
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "new", new)

    def ids(self, inputs: Mapping[str, Any]) -> tuple[str, ...]:
        """The ids that the inputs show, each once, in order."""
        named = [field.partition(".") for field in self.fields]
        return tuple(dict.fromkeys(id for field, _, key in named for id in _ids(inputs.get(field), key)))


def match_id(said: Any, shown: Sequence[str]) -> str | None:
    """The shown id that is meant, or None where none is or several may be.

    Args:
        said: What the model wrote: a text or a number.
        shown: The ids of the input.
    """
    text = str(int(said)) if isinstance(said, float) and said.is_integer() else str(said)
    if text in shown:
        return text
    bare = text.strip(_DECORATION)
    for found in (
        [id for id in shown if id.casefold() == bare.casefold()],
        [id for id in shown if re.search(rf"(?<!\w){re.escape(id)}(?!\w)", text, re.IGNORECASE)],
        _by_number(bare, shown),
    ):
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _by_number(bare: str, shown: Sequence[str]) -> list[str]:
    """Ids with the same numbers, for an answer that is not much more than numbers."""
    if len(_DIGITS.sub("", bare)) > 2:
        return []
    numbers = [int(part) for part in _DIGITS.findall(bare)]
    return [id for id in shown if numbers and [int(part) for part in _DIGITS.findall(id)][-len(numbers) :] == numbers]


def _ids(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, str):
        for inside in _BRACKETED.findall(value):
            yield from (part.strip() for part in inside.split(",") if part.strip())
    elif isinstance(value, BaseModel | Mapping):
        fields = dict(value)
        id = key or next((name for name in fields if name.endswith("id")), next(iter(fields), None))
        if id is not None:
            yield str(fields.get(id) or "")
    elif isinstance(value, Sequence):
        for part in value:
            if isinstance(part, str):
                # Plain texts: each begins with its id, in brackets or before a colon.
                yield from _ids(part) if part.startswith("[") else (part.partition(":")[0].strip(),)
            else:
                yield from _ids(part, key)
