"""Deltas: the change from one version of a memory to the next, as JSON.

Memories are frozen and share what did not change: only what is another object is looked into. A change is one of

    {"value": v}                                                    another value
    {"fields": {name: change}}                                      of a record
    {"items": [[place, gone, [new, ...]], ...]}                     of a sequence; places are those before the change
    {"keys": {"gone": [...], "put": {key: v}, "in": {key: change}}} of a mapping
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, TypeVar, cast

from pydantic import BaseModel, JsonValue
from pydantic_core import to_jsonable_python

Made = TypeVar("Made", bound=BaseModel | dict[str, JsonValue])
Change = dict[str, Any]
BLOCK = 256
"""Objects that are compared at once: what is the same one costs next to nothing then."""
_SEQUENCE = (tuple, list)
_PLAIN = (str, int, float, bool, date, type(None))


def diff(before: BaseModel, after: BaseModel) -> dict[str, Change]:
    """What changed between two records of one type, by field; {} if nothing did."""
    fields = {name: _change(getattr(before, name), getattr(after, name)) for name in type(after).model_fields}
    return {name: change for name, change in fields.items() if change is not None}


def apply_changes(before: Made, changes: Mapping[str, Change]) -> Made:
    """The next version; it shares with the one before what did not change.

    Args:
        before: The version before, or its JSON.
        changes: What `delta` gave; of a version, after a way through JSON.

    Raises:
        KeyError, IndexError, TypeError, ValueError: They are no changes of this version.
    """
    if isinstance(before, dict):
        return cast("Made", before | {name: _applied(before.get(name), change) for name, change in changes.items()})
    found = {name: getattr(before, name) for name in type(before).model_fields}
    found |= {name: _applied(found[name], change) for name, change in changes.items()}
    # What came is JSON and is read by its type; records that stayed are passed through as the objects they are.
    made = type(before).model_validate(found)
    return before.model_copy(update={name: getattr(made, name) for name in changes})


def common_prefix_length(first: Sequence[Any], second: Sequence[Any]) -> int:
    """How many objects two sequences share at their beginning; equal ones are one."""
    first, second, start, end = tuple(first), tuple(second), 0, min(len(first), len(second))
    while start < end and first[start : start + BLOCK] == second[start : start + BLOCK]:
        start += BLOCK
    return next((n for n in range(start, end) if first[n] is not second[n] and first[n] != second[n]), end)


def _change(before: Any, after: Any) -> Change | None:
    if before is after or (isinstance(after, _PLAIN) and type(after) is type(before) and after == before):
        return None
    if isinstance(after, BaseModel) and type(after) is type(before):
        fields = diff(before, after)
        return {"fields": fields} if fields else None
    if isinstance(before, _SEQUENCE) and isinstance(after, _SEQUENCE):
        items = _items(cast(Sequence[Any], before), cast(Sequence[Any], after))
        return {"items": items} if items else None
    if isinstance(before, dict) and isinstance(after, dict):
        return _keys(cast(dict[Any, Any], before), cast(dict[Any, Any], after))
    return {"value": to_jsonable_python(after)}


def _items(before: Sequence[Any], after: Sequence[Any]) -> list[list[Any]]:
    """The places at which items went and came; one large one where those that stayed have another order."""
    start = common_prefix_length(before, after)
    end = min(common_prefix_length(before[::-1], after[::-1]), len(before) - start, len(after) - start)
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    stay, found, o, n = set(map(id, old)) & set(map(id, new)), list[list[Any]](), 0, 0
    while o < len(old) or n < len(new):
        if o < len(old) and n < len(new) and old[o] is new[n]:
            o, n = o + 1, n + 1
            continue
        gone, came = _until(old, o, stay), _until(new, n, stay)
        if (gone, came) == (o, n):
            return [[start, len(old), to_jsonable_python(list(new))]]
        found.append([start + o, gone - o, to_jsonable_python(list(new[n:came]))])
        o, n = gone, came
    return found


def _until(items: Sequence[Any], place: int, stay: set[int]) -> int:
    return next((n for n in range(place, len(items)) if id(items[n]) in stay), len(items))


def _keys(before: dict[Any, Any], after: dict[Any, Any]) -> Change | None:
    gone = [key for key in before if key not in after]
    put = {key: value for key, value in after.items() if key not in before}
    kept = [key for key in before if key in after] if gone else before
    if not all(isinstance(key, str) for key in (*before, *after)) or [*kept, *put] != list(after):
        return {"value": to_jsonable_python(after)}
    within = {key: _change(before[key], value) for key, value in after.items() if key in before}
    within = {key: change for key, change in within.items() if change is not None}
    found = {"keys": {"gone": gone, "put": to_jsonable_python(put), "in": within}}
    return found if gone or put or within else None


def _applied(value: Any, change: Change) -> Any:
    ((kind, how),) = change.items()
    if kind == "value":
        return how
    if kind == "fields":
        return apply_changes(value, how)
    if kind == "items":
        found = list(value)
        # From behind, so that places stay those before the change.
        for place, gone, came in reversed(how):
            found[place : place + gone] = came
        return found
    if kind == "keys":
        left = dict(value)
        for key in how["gone"]:
            del left[key]
        return {**left, **how["put"], **{key: _applied(left[key], inner) for key, inner in how["in"].items()}}
    raise ValueError(f"a change of the unknown kind {kind!r:.40}")
