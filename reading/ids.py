"""Ids that a prompt shows, and what a model makes of them: `[D1:3]`, `"d1:3"`, `turn D1:3` or 3.

A field of an output that names something of an input is typed with the input that shows it, as in
`list[Annotated[str, Shown("dialogue")]]`. An id is matched where exactly one shown id can be meant.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

_BRACKETED = re.compile(r"\[([^\[\]\n]{1,200})\]")
_DIGITS = re.compile(r"\d{1,100}")
"""Bounded: Python refuses to read a number of thousands of digits. No id has so many that two of them would be one."""
_BEGINS, _ENDS = re.compile(r"(?<!\w)"), re.compile(r"(?!\w)")
_LAST = 8
"""Most numbers at the end of an id that may stand for it."""
_DECORATION = " \t\n[](){}<>\"'`*#.,;:"


@dataclass(frozen=True)
class Shown:
    """Marks a text as an id that some inputs show; other ids are allowed too if it is `new`.

    Inputs are texts with ids in brackets, or lists of objects or texts that begin with one; they are named `field.key`
    where it is not the first field of the objects whose name ends with "id".
    """

    fields: tuple[str, ...]
    new: bool = False

    def __init__(self, *fields: str, new: bool = False) -> None:
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "new", new)

    def ids(self, inputs: Mapping[str, Any]) -> ShownIds:
        """The ids that the inputs show, each once."""
        named = [field.partition(".") for field in self.fields]
        return ShownIds(id for field, _, key in named for id in _ids(inputs.get(field), key))


class ShownIds:
    """Ids that inputs show, looked up by what may stand for them."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._meant: dict[str | tuple[int, ...], list[str]] = defaultdict(list)
        for id in dict.fromkeys(filter(None, ids)):
            numbers = _numbers(id)[-_LAST:]
            for key in (id.casefold(), *(numbers[start:] for start in range(len(numbers)))):
                self._meant[key].append(id)
        self._lengths = sorted({len(key) for key in self._meant if isinstance(key, str)})

    def match(self, said: Any) -> str | None:
        """The shown id that is meant by a text or a number, or None where none is or several may be."""
        text = str(int(said)) if isinstance(said, float) and said.is_integer() else str(said)
        folded = text.casefold()
        if text in self._meant.get(folded, ()):
            return text
        bare = folded.strip(_DECORATION)
        found = self._meant.get(bare) or self._inside(folded)
        if not found and len(_DIGITS.sub("", bare)) <= 2:  # not much more than numbers
            found = self._meant.get(_numbers(bare), [])
        return found[0] if len(found) == 1 else None

    def _inside(self, text: str) -> list[str]:
        """Ids that stand as words in a text."""
        ends = {match.start() for match in _ENDS.finditer(text)}
        starts = (match.start() for match in _BEGINS.finditer(text))
        spans = {text[start : start + size] for start in starts for size in self._lengths if start + size in ends}
        return [id for span in spans for id in self._meant.get(span, ())]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, _DIGITS.findall(text)))


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
