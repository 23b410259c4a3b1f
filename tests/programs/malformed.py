"""Malformed answers by kind, and an engine that gives them for one predictor in the place of well-formed ones.

A kind says what its text means (`Spoiled.meant`): the values that a patient human reader would take from it. So a run
under malformed answers can be compared with one whose answers say the same in the form that was asked for.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

Values = dict[str, Any]
_known: dict[str, Any] = {}
"""Well-formed answers by prompt: most prompts of a run are those of other runs."""
_ID = re.compile(r"(?:^|_)(?:ids?|span)$|^(?:proposal|record|parent|children|log)$")
_NEW = re.compile(r"NEW_|^A\d+$")
"""Ids of things that are not there yet."""


@dataclass(frozen=True)
class Spoiled:
    """One malformed answer."""

    text: str
    meant: Values | None = None
    """What it says; None where nobody could tell."""
    reason: str = "stop"
    """Why it ended."""


class Answer:
    """A well-formed answer, and where in it the objects are.

    Args:
        values: Its fields.
        schemas: Their schemas.
    """

    def __init__(self, values: Values, schemas: Mapping[str, Any]) -> None:
        lists = [name for name, value in values.items() if isinstance(value, list) and value]
        rows = [name for name in lists if isinstance(values[name][0], dict)]
        others = [name for name, value in values.items() if isinstance(value, list | dict) and value]
        self.values = values
        self.main = next(iter([*rows[::-1], *others[::-1]]), "")
        """The list of objects; without any the last field that is no text."""
        self.value = values.get(self.main)
        self.rows: list[dict[str, Any]] = self.value if self.main in rows else []  # pyright: ignore
        schema = schemas.get(self.main, {})
        self.schema: Mapping[str, Any] = schema.get("items", {}) if self.rows else schema
        """Of one object."""
        self.item = self.rows[0] if self.rows else self.value if isinstance(self.value, dict) else None

    def said(self, value: Any, meant: Any = None) -> Spoiled | None:
        """The answer with another value in the place of the main one; None where there is none, or it is the same."""
        if not self.main or value == self.value:
            return None
        text = well_formed({**self.values, self.main: value})
        return Spoiled(text, self.values if meant is None else {**self.values, self.main: meant})

    def whole(self, text: str) -> Spoiled:
        """The answer in other words."""
        return Spoiled(text, self.values)

    def changed(self, change: Callable[[dict[str, Any]], object], first: bool = False) -> Any:
        """The main value, every object of which, or the first, is changed in place."""
        new: Any = copy.deepcopy(self.value)
        for row in (new[:1] if first else new) if self.rows else [new] if self.item is not None else ():
            change(row)
        return new

    def fields(self, fits: Callable[[str, Mapping[str, Any]], object]) -> list[str]:
        """Fields of the first object whose schema fits; of alternatives the first that is not null."""
        rows = self.schema.get("properties", {}).items() if self.item else ()
        named = ((n, next((p for p in part.get("anyOf", ()) if p.get("type") != "null"), part)) for n, part in rows)
        return [name for name, part in named if fits(name, part)]

    def in_words(self) -> str:
        """The main value as JSON."""
        return _json(self.value)


class SpoiledEngine:
    """Answers as the offline engine does, and spoils the answers of one predictor.

    Args:
        fields: Output fields of the predictor, as in its prompt; answers of others are left alone.
        change: What becomes of an answer; None leaves it alone.
        only: The prompt whose first answer alone is spoiled; None: all of them.
    """

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = True
    supported_params = ("temperature", "max_tokens", "response_format", "seed")

    def __init__(
        self,
        fields: tuple[str, ...] = (),
        change: Callable[[Answer], Spoiled | None] = lambda answer: None,
        only: str | None = None,
    ) -> None:
        from mempiler.engines.offline import OfflineEngine

        self.fields, self.change, self.only = fields, change, only
        self.asked: list[tuple[tuple[str, ...], str, Answer]] = []
        """Output fields, prompt and answer of every call."""
        self._spent = False
        self._lock = threading.Lock()
        self._engine = OfflineEngine()

    def complete(self, request: Any) -> Any:
        """Answers one request; one that complains of an answer is answered like the request before it."""
        from dspy.lm15 import Message
        from mempiler.engines.offline.prompt import read_prompt

        first = replace(request, messages=_uncorrected(request.messages))
        key = "\0".join([str(request.system or ""), *(message.text or "" for message in first.messages)])
        text = "\0".join(message.text or "" for message in request.messages)
        if key not in _known:
            _known[key] = (self._engine.complete(first), read_prompt(first).outputs)
        response, outputs = _known[key]
        names, answer = tuple(outputs), Answer(_read(response.message.text, outputs), outputs)
        with self._lock:
            self.asked.append((names, text, answer))
            due = names == self.fields and (self.only is None or (text == self.only and not self._spent))
            found = self.change(answer) if due else None
            if found is None:
                return response
            self._spent = True
        return replace(response, message=Message.assistant(found.text or " "), finish_reason=found.reason)

    def __deepcopy__(self, memo: object) -> SpoiledEngine:
        return self


def well_formed(values: Values) -> str:
    """An answer as it is asked for."""
    parts = [f"[[ ## {name} ## ]]\n{_text(value)}" for name, value in values.items()]
    return "\n\n".join([*parts, "[[ ## completed ## ]]\n"])


def _uncorrected(messages: Any) -> Any:
    while len(messages) > 2 and (messages[-1].text or "").startswith("That could not be read:"):
        messages = messages[:-2]
    return messages


def _read(text: str, schemas: Mapping[str, Any]) -> Values:
    parts = re.split(r"^\[\[ ## (\w+) ## \]\]\n", text, flags=re.MULTILINE)
    found = {name: value.strip() for name, value in zip(parts[1::2], parts[2::2], strict=True) if name in schemas}
    return {name: text if schemas[name].get("type") == "string" else json.loads(text) for name, text in found.items()}


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _with(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    """Changes a text of an object."""
    return lambda row: row.update({name: change(row[name])} if isinstance(row.get(name), str) else {})


def _enum(answer: Answer, change: Callable[[str], str], first: bool) -> Spoiled | None:
    named = answer.fields(lambda name, part: part.get("enum") and answer.item and name in answer.item)
    return answer.said(answer.changed(_with(named[0], change), first), None) if named else None


def _ids(answer: Answer, change: Callable[[str], Any], first: bool = False) -> Spoiled | None:
    """Other ids, but of things that are not there yet."""

    def other(id: Any) -> Any:
        return change(id) if isinstance(id, str) and id and not _NEW.search(id) else id

    def replaced(row: dict[str, Any]) -> None:
        for name, value in row.items():
            if _ID.search(name):
                row[name] = [other(id) for id in value] if isinstance(value, list) else other(value)

    return answer.said(answer.changed(replaced, first)) if answer.rows else None


def _number_of(id: str) -> Any:
    numbers = re.findall(r"\d+", id)
    return int(numbers[-1]) if numbers else id


def _keyed(answer: Answer) -> Spoiled | None:
    id = next(iter(answer.fields(lambda name, part: _ID.search(name) and part.get("type") != "array")), "")
    rest = {str(row.get(id) or ""): {key: v for key, v in row.items() if key != id} for row in answer.rows}
    return answer.said(rest) if id and rest and len(rest) == len(answer.rows) and all(rest) else None


def _optional(answer: Answer, absent: bool) -> Spoiled | None:
    """One optional field of the first object left out, or null."""
    known, required = answer.schema.get("properties", {}), answer.schema.get("required", ())
    name = next((name for name in reversed(answer.item or {}) if name in known and name not in required), None)
    if name is None or len(answer.item or {}) < 2:
        return None
    without = answer.changed(lambda row: row.pop(name), first=True)
    return answer.said(without if absent else answer.changed(lambda row: row.update({name: None}), True), without)


def _number(answer: Answer) -> Spoiled | None:
    texts = answer.fields(lambda n, part: part.get("type") == "string" and "enum" not in part and not _ID.search(n))
    if not texts:
        return None
    as_number, as_text = (
        answer.changed(lambda row, said=said: row.update({texts[0]: said}), first=True) for said in (7, "7")
    )
    return answer.said(as_number, as_text)


def _yes(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return [_yes(part) for part in value]
    return {key: _yes(part) for key, part in value.items()} if isinstance(value, dict) else value


def _with_commas(value: Any) -> str:
    if isinstance(value, list):
        return "[" + "".join(f"{_with_commas(part)}, " for part in value) + "]"
    if isinstance(value, dict):
        return "{" + "".join(f"{_json(key)}: {_with_commas(part)}, " for key, part in value.items()) + "}"
    return _json(value)


def _typographic(answer: Answer) -> Spoiled | None:
    text = answer.in_words()
    return None if "\\" in text or re.search("[“”]", text) else answer.said(re.sub(r'"([^"]*)"', r"“\1”", text))


def _each(answer: Answer, part: str, between: str = "\n\n") -> Spoiled:
    """Every field in a form of its own: {name}, {title} and {value}."""
    named = ((name, name.replace("_", " ").title(), _text(value)) for name, value in answer.values.items())
    return answer.whole(between.join(part.format(name=n, title=title, value=value) for n, title, value in named))


def _thinking(answer: Answer) -> Spoiled:
    thought = "\n".join(f"[[ ## {name} ## ]]\nmaybe {{...}}?" for name in answer.values)
    return answer.whole(f"<think>\nLet me see.\n{thought}\n</think>\n\n{well_formed(answer.values)}")


def _half(answer: Answer) -> str:
    """A well-formed answer up to the middle of its last field."""
    text = well_formed(answer.values).partition("[[ ## completed")[0].rstrip()
    start = text.rindex("## ]]\n") + 6
    return text[: start + max(1, (len(text) - start) * 2 // 3)]


def _ends_in_text(answer: Answer) -> bool:
    """Whether it cannot be told that the answer is cut."""
    return isinstance(list(answer.values.values())[-1], str)


RECOVERABLE: Mapping[str, Callable[[Answer], Spoiled | None]] = {
    "null among elements": lambda a: a.said([*a.value, None]) if isinstance(a.value, list) else None,
    "bare text among elements": lambda a: a.said([*a.rows, "and so on"]) if a.rows else None,
    "odd enum value in one element": lambda a: _enum(a, lambda _: "zzz unheard of", True) if len(a.rows) > 1 else None,
    "enum in other spelling": lambda a: _enum(a, lambda said: f"**{said.swapcase()}**.", False),
    "ids as integers": lambda a: _ids(a, _number_of),
    "ids with decoration": lambda a: _ids(a, lambda id: f"[{id}]"),
    "unknown ids": lambda a: _ids(a, lambda id: "X99:99", first=True),
    "lone object for a list": lambda a: a.said(a.rows[0], a.rows[:1]) if a.rows else None,
    "objects line by line": lambda a: a.said("\n".join(map(_json, a.rows))) if len(a.rows) > 1 else None,
    "dict keyed by id": _keyed,
    "list inside an object": lambda a: a.said({"items": a.value}) if isinstance(a.value, list) else None,
    "bare JSON of all fields": lambda a: a.whole(_json(a.values)),
    "fenced JSON": lambda a: a.whole(f"```json\n{_json(a.values, indent=2)}\n```"),
    "prose around fenced JSON": lambda a: a.whole(f"Sure! (As asked):\n\n```json\n{_json(a.values)}\n```\n\nDone."),
    "prose around bare JSON": lambda a: a.whole(f"Sure, here it is:\n\n{_json(a.values)}\n\nI hope that helps."),
    "prose around a value": lambda a: a.said(f"Here is what I found:\n{a.in_words()}\nThese are all."),
    "single quotes": lambda a: a.said(repr(a.value)),
    "typographic quotes": _typographic,
    "trailing commas": lambda a: a.said(_with_commas(a.value)),
    "unquoted keys": lambda a: a.said(re.sub(r'([{,] ?)"(\w+)":', r"\1\2:", a.in_words())),
    "extra fields in elements": lambda a: a.said(a.changed(lambda row: row.update(confidence=0.9, note="none"))),
    "optional field missing": lambda a: _optional(a, absent=True),
    "null for an optional field": lambda a: _optional(a, absent=False),
    "number for a text": _number,
    "yes for true": lambda a: a.said(_yes(a.value)),
    "headings for markers": lambda a: _each(a, "**{title}:**\n{value}"),
    "Chinese punctuation in markers": lambda a: _each(a, "【【 ＃＃ {name} ＃＃ 】】\n{value}"),
    "headings with a Chinese colon": lambda a: _each(a, "{name}：{value}"),
    "no end marker": lambda a: a.whole(well_formed(a.values).replace("[[ ## completed ## ]]", "")),
    "thinking before the answer": _thinking,
}
"""Kinds from which a reader can take everything but, at most, one broken element; None where one cannot be."""
LOST: Mapping[str, Callable[[Answer], Spoiled | None]] = {
    "refusal": lambda a: Spoiled("I cannot help with that."),
    "empty answer": lambda a: Spoiled(""),
    "cut, and said so": lambda a: Spoiled(_half(a), reason="length"),
    "cut without a word": lambda a: None if _ends_in_text(a) else Spoiled(_half(a)),
}
"""Kinds of which nobody could recover the content."""
