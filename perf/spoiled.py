"""Malformed answers by kind, and an engine that gives them for one predictor in the place of well-formed ones.

    offline engine ── well-formed answer ──> values of its fields ── a kind ──> malformed text

A kind says what the text means (`Spoiled.meant`): the values that a patient human reader would take from it. So a run
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


@dataclass(frozen=True)
class Spoiled:
    """One malformed answer."""

    text: str
    meant: Values | None = None
    """What it says; None where nobody could tell."""
    reason: str = "stop"
    """Why it ended."""


@dataclass(frozen=True)
class Kind:
    """One kind of malformed answer.

    Args:
        name: What tables call it.
        spoil: Makes it from the values of a well-formed answer and their schemas; None where it cannot be.
        recoverable: Whether a reader can take everything from it but, at most, one broken element.
    """

    name: str
    spoil: Callable[[Values, Mapping[str, Any]], Spoiled | None]
    recoverable: bool = True


KINDS: dict[str, Kind] = {}


def kind(name: str, recoverable: bool = True) -> Callable[[Any], Any]:
    """Registers a kind."""

    def keep(spoil: Any) -> Any:
        KINDS[name] = Kind(name, spoil, recoverable)
        return spoil

    return keep


class SpoiledEngine:
    """Answers as the offline engine does, and spoils the answers of one predictor.

    Args:
        fields: Output fields of the predictor, as in its prompt; answers of others are left alone.
        change: What becomes of an answer's values; None leaves it alone.
        only: The prompt whose first answer alone is spoiled; None: all of them.
    """

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = True
    supported_params = ("temperature", "max_tokens", "response_format", "seed")

    def __init__(
        self,
        fields: tuple[str, ...] = (),
        change: Callable[[Values, Mapping[str, Any]], Spoiled | None] | None = None,
        only: str | None = None,
    ) -> None:
        from mempiler.engines.offline import OfflineEngine

        self.fields, self.change, self.only = fields, change, only
        self.spoiled = 0
        self.asked: list[tuple[tuple[str, ...], str, Values, Mapping[str, Any]]] = []
        """Output fields, prompt, answer and schemas of every call."""
        self._spent = False
        self._lock = threading.Lock()
        self._engine = OfflineEngine()

    def complete(self, request: Any) -> Any:
        """Answers one request; one that complains of an answer is answered like the request before it."""
        from dspy.lm15 import Message
        from mempiler.engines.offline.prompt import read_prompt

        first = replace(request, messages=_uncorrected(request.messages))
        texts = [str(request.system or ""), *(message.text or "" for message in first.messages)]
        key, text = "\0".join(texts), "\0".join(message.text or "" for message in request.messages)
        if key not in _known:
            _known[key] = (self._engine.complete(first), read_prompt(first).outputs)
        response, outputs = _known[key]
        names, values = tuple(outputs), _read(response.message.text, outputs)
        with self._lock:
            self.asked.append((names, text, values, outputs))
            due = names == self.fields and (self.only is None or (text == self.only and not self._spent))
            found = self.change(copy.deepcopy(values), outputs) if due and self.change else None
            if found is None:
                return response
            self._spent, self.spoiled = True, self.spoiled + 1
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


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _main(values: Values) -> str | None:
    """The list of objects of an answer; without any the first that is no text."""
    rows = [name for name, value in values.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    others = [name for name, value in values.items() if isinstance(value, list | dict) and value]
    return next(iter([*rows[::-1], *others[::-1]]), None)


def _rows(values: Values, least: int = 1) -> list[dict[str, Any]] | None:
    """The objects of the main list, if there are enough."""
    name = _main(values)
    rows = values[name] if name else None
    return rows if isinstance(rows, list) and len(rows) >= least and isinstance(rows[0], dict) else None


def _item(values: Values, schemas: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]] | None:
    """The first object of an answer and its schema."""
    name = _main(values)
    value = values[name] if name else None
    if isinstance(value, dict):
        return value, schemas[name]
    rows = _rows(values)
    return (rows[0], schemas[name].get("items", {})) if rows else None


def _marked(values: Values, **texts: str) -> str:
    """An answer with markers, in which some fields have other texts."""
    return well_formed({**values, **texts})


def _as(values: Values, spoiled: Values | None = None) -> Spoiled:
    return Spoiled(well_formed(values if spoiled is None else spoiled), values)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@kind("null among elements")
def _null_element(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    name = _main(values)
    if not name or not isinstance(values[name], list):
        return None
    return _as(values, {**values, name: [*values[name], None]})


@kind("bare text among elements")
def _bare_text(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    rows, name = _rows(values), _main(values)
    return _as(values, {**values, name: [*rows, "and so on"]}) if rows and name else None


@kind("odd enum value in one element")
def _odd_enum(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    found = _item(values, schemas)
    named = [n for n, part in _parts(found) if part.get("enum") and found and n in found[0]]
    if not found or not named or not _rows(values, 2):
        return None
    new = copy.deepcopy(values)
    _item(new, schemas)[0][named[0]] = "zzz unheard of"  # pyright: ignore[reportOptionalSubscript]
    return _as(values, new)


@kind("enum in other spelling")
def _other_case(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    found = _item(values, schemas)
    named = [n for n, part in _parts(found) if part.get("enum") and found and isinstance(found[0].get(n), str)]
    if not found or not named:
        return None
    new = copy.deepcopy(values)
    for row in _rows(new) or [_item(new, schemas)[0]]:  # pyright: ignore[reportOptionalSubscript]
        if isinstance(row.get(named[0]), str):
            row[named[0]] = f"**{row[named[0]].swapcase()}**."
    return _as(values, new)


@kind("ids as integers")
def _integer_ids(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    def plain(id: str) -> Any:
        numbers = re.findall(r"\d+", id)
        return int(numbers[-1]) if numbers else id

    return _with_ids(values, plain)


@kind("ids with decoration")
def _decorated_ids(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return _with_ids(values, lambda id: f"[{id}]")


@kind("unknown ids")
def _unknown_ids(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    rows = _rows(values)
    if not rows or not any(_ID.search(name) and value for name, value in rows[0].items()):
        return None
    new = copy.deepcopy(values)
    _replace_ids((_rows(new) or [{}])[0], lambda id: "X99:99")
    return _as(values, new) if new != values else None


@kind("lone object for a list")
def _lone(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    rows, name = _rows(values), _main(values)
    return _as({**values, name: rows[:1]}, {**values, name: rows[0]}) if rows and name else None


@kind("objects line by line")
def _lines(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    rows, name = _rows(values, 2), _main(values)
    return _as(values, {**values, name: "\n".join(map(_json, rows))}) if rows and name else None


@kind("dict keyed by id")
def _keyed(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    rows, name, found = _rows(values), _main(values), _item(values, schemas)
    id = next((n for n, part in _parts(found) if _ID.search(n) and part.get("type") != "array"), None)
    if not rows or not name or not id or len({str(row.get(id)) for row in rows}) < len(rows):
        return None
    rest = {str(row[id]): {key: value for key, value in row.items() if key != id} for row in rows}
    return _as(values, {**values, name: rest}) if all(rest.values()) and all(row.get(id) for row in rows) else None


@kind("list inside an object")
def _wrapped(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    name = _main(values)
    if not name or not isinstance(values[name], list):
        return None
    return _as(values, {**values, name: {"items": values[name]}})


@kind("bare JSON of all fields")
def _bare_json(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return Spoiled(_json(values), values)


@kind("fenced JSON")
def _fenced(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return Spoiled(f"```json\n{json.dumps(values, ensure_ascii=False, indent=2)}\n```", values)


@kind("prose around fenced JSON")
def _in_prose(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return Spoiled(f"Sure! Here it is (as asked):\n\n```json\n{_json(values)}\n```\n\nI hope that helps.", values)


@kind("prose around bare JSON")
def _in_plain_prose(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return Spoiled(f"Sure, here it is:\n\n{_json(values)}\n\nI hope that helps.", values)


@kind("prose around a value")
def _value_in_prose(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    name = _main(values)
    said = f"Here is what I found:\n{_json(values[name])}\nThese are all." if name else ""
    return Spoiled(_marked(values, **{name: said}), values) if name else None


@kind("single quotes")
def _quotes(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    name = _main(values)
    return Spoiled(_marked(values, **{name: repr(values[name])}), values) if name else None


@kind("typographic quotes")
def _typographic(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    name = _main(values)
    if not name or "\\" in _json(values[name]) or re.search("[“”]", _json(values[name])):
        return None
    return Spoiled(_marked(values, **{name: re.sub(r'"([^"]*)"', r"“\1”", _json(values[name]))}), values)


@kind("trailing commas")
def _trailing(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    name = _main(values)
    return Spoiled(_marked(values, **{name: _with_commas(values[name])}), values) if name else None


@kind("unquoted keys")
def _unquoted(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    name = _main(values)
    text = re.sub(r'([{,] ?)"(\w+)":', r"\1\2:", _json(values[name])) if name else ""
    return Spoiled(_marked(values, **{name: text}), values) if name and text != _json(values[name]) else None


@kind("extra fields in elements")
def _extra(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    name, new = _main(values), copy.deepcopy(values)
    if not name or _item(values, schemas) is None:
        return None
    for row in _rows(new) or [new[name]]:
        row.update(confidence=0.9, note="none")
    return _as(values, new)


@kind("optional field missing")
def _missing(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    new = _without_optional(values, schemas, absent=True)
    return _as(new) if new else None


@kind("null for an optional field")
def _null(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    meant, new = (_without_optional(values, schemas, absent) for absent in (True, False))
    return _as(meant, new) if meant and new else None


@kind("number for a text")
def _number(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    found = _item(values, schemas)
    texts = [n for n, part in _parts(found) if part == {**part, "type": "string"} and "enum" not in part]
    name = next((n for n in texts if not _ID.search(n)), None)
    if not name:
        return None
    meant, new = copy.deepcopy(values), copy.deepcopy(values)
    for one, value in ((meant, "7"), (new, 7)):
        _item(one, schemas)[0][name] = value  # pyright: ignore[reportOptionalSubscript]
    return _as(meant, new)


@kind("yes for true")
def _yes(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    name = _main(values)
    new = _words(values[name]) if name else None
    return _as(values, {**values, name: new}) if name and new != values[name] else None


@kind("headings for markers")
def _headings(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return Spoiled("\n\n".join(f"**{n.replace('_', ' ').title()}:**\n{_text(v)}" for n, v in values.items()), values)


@kind("Chinese punctuation in markers")
def _chinese(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return Spoiled("\n\n".join(f"【【 ＃＃ {name} ＃＃ 】】\n{_text(value)}" for name, value in values.items()), values)


@kind("headings with a Chinese colon")
def _colon(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return Spoiled("\n\n".join(f"{name}：{_text(value)}" for name, value in values.items()), values)


@kind("no end marker")
def _no_end(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return Spoiled(well_formed(values).replace("[[ ## completed ## ]]", ""), values)


@kind("thinking before the answer")
def _think(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    thought = "\n".join(f"[[ ## {name} ## ]]\nmaybe {{...}}?" for name in values)
    return Spoiled(f"<think>\nLet me see.\n{thought}\n</think>\n\n{well_formed(values)}", values)


@kind("refusal", recoverable=False)
def _refusal(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return Spoiled("I cannot help with that.")


@kind("empty answer", recoverable=False)
def _empty(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return Spoiled("")


@kind("cut, and said so", recoverable=False)
def _cut(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    return Spoiled(_half(values), reason="length")


@kind("cut without a word", recoverable=False)
def _cut_silently(values: Values, schemas: Mapping[str, Any]) -> Spoiled | None:
    # A text that is cut off cannot be told from one that ends there.
    return None if isinstance(list(values.values())[-1], str) else Spoiled(_half(values))


def _half(values: Values) -> str:
    """A well-formed answer up to the middle of its last field."""
    text = well_formed(values).partition("[[ ## completed")[0].rstrip()
    start = text.rindex("## ]]\n") + 6
    return text[: start + max(1, (len(text) - start) * 2 // 3)]


def _parts(found: tuple[dict[str, Any], Mapping[str, Any]] | None) -> list[tuple[str, Mapping[str, Any]]]:
    """The fields of an object's schema; of alternatives the first that is not null."""
    rows = found[1].get("properties", {}) if found else {}
    return [(n, next((p for p in part.get("anyOf", ()) if p.get("type") != "null"), part)) for n, part in rows.items()]


def _without_optional(values: Values, schemas: Mapping[str, Any], absent: bool) -> Values | None:
    """The answer with one optional field of its first object left out, or null."""
    new = copy.deepcopy(values)
    found = _item(new, schemas)
    if not found:
        return None
    row, schema = found
    optional = [name for name in row if name in schema.get("properties", {}) and name not in schema.get("required", ())]
    if not optional:
        return None
    row[optional[-1]] = None
    if absent:
        del row[optional[-1]]
    return new if row else None


def _with_ids(values: Values, change: Callable[[str], Any]) -> Spoiled | None:
    new = copy.deepcopy(values)
    for row in _rows(new) or []:
        _replace_ids(row, change)
    return _as(values, new) if new != values else None


def _replace_ids(row: Any, change: Callable[[str], Any]) -> None:
    """Changes the ids of an object; ids of things that are not there yet stay."""
    for name, value in row.items() if isinstance(row, dict) else ():
        if _ID.search(name) and isinstance(value, str) and value and not _NEW.search(value):
            row[name] = change(value)
        elif _ID.search(name) and isinstance(value, list):
            row[name] = [change(id) if isinstance(id, str) and not _NEW.search(id) else id for id in value]


def _with_commas(value: Any) -> str:
    if isinstance(value, list):
        return "[" + "".join(f"{_with_commas(part)}, " for part in value) + "]"
    if isinstance(value, dict):
        return "{" + "".join(f"{_json(key)}: {_with_commas(part)}, " for key, part in value.items()) + "}"
    return _json(value)


def _words(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return [_words(part) for part in value]
    return {key: _words(part) for key, part in value.items()} if isinstance(value, dict) else value
