"""Write down the changes between two versions of a memory as JSON, and replay them.

Example:
    >>> from mempiler.memory.changes import apply_changes, diff
    >>> from pydantic import BaseModel
    >>> class Memory(BaseModel):
    ...     facts: tuple[str, ...] = ()
    >>> before = Memory(facts=("likes tea",))
    >>> changes = diff(before, Memory(facts=("likes tea", "has a cat")))
    >>> changes
    {'facts': {'items': [[1, 0, ['has a cat']]]}}
    >>> apply_changes(before, changes)
    Memory(facts=('likes tea', 'has a cat'))

A change is a JSON object with a single key, which names the kind of the change:

    {"value": new_value}
        Replace the value.
    {"fields": {name: change, ...}}
        Change some fields of a record.
    {"items": [[start, removed_count, [new_item, ...]], ...]}
        Replace parts of a sequence. `start` counts in the sequence as it was before all changes.
    {"keys": {"gone": [key, ...], "put": {key: new_value, ...}, "in": {key: change, ...}}}
        Remove keys from a mapping, add keys, and change the values of other keys.

Memories are frozen: the next version reuses every object that did not change. That is why this
module may compare objects by identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeGuard, TypeVar, overload

from pydantic import BaseModel, JsonValue
from pydantic_core import to_jsonable_python

RecordT = TypeVar("RecordT", bound=BaseModel)

Change = dict[str, Any]
"""One change as JSON; the module's docstring lists the kinds."""

BLOCK_SIZE = 256
"""Number of items that `common_prefix_length` compares at once."""

_SCALAR_TYPES = (str, int, float, bool, date, type(None))


@dataclass(frozen=True)
class _Splice:
    """A change of a sequence: some items in a row are removed, others take their place."""

    start: int
    """Position of the first removed item, counted before any change."""
    removed_count: int
    new_items: Sequence[object]

    def to_json(self) -> list[JsonValue]:
        """Return it as `[start, removed_count, new_items]`, with the new items as JSON."""
        return [self.start, self.removed_count, to_jsonable_python(list(self.new_items))]


def diff(before: BaseModel, after: BaseModel) -> dict[str, Change]:
    """Return what changed between two versions of a record, as JSON by the name of the field.

    `apply_changes` makes the later version of the earlier one again. Equal fields are left out.
    """
    changes: dict[str, Change] = {}
    for name in type(after).model_fields:
        change = _diff_values(getattr(before, name), getattr(after, name))
        if change is not None:
            changes[name] = change
    return changes


@overload
def apply_changes(before: RecordT, changes: Mapping[str, Change]) -> RecordT: ...
@overload
def apply_changes(
    before: dict[str, JsonValue], changes: Mapping[str, Change]
) -> dict[str, JsonValue]: ...
def apply_changes(
    before: BaseModel | dict[str, JsonValue], changes: Mapping[str, Change]
) -> BaseModel | dict[str, JsonValue]:
    """Return the next version of a record: the version `before` with what `diff` returned.

    The record is an object or its JSON, and the result is of the same kind. What did not change is
    not copied: both versions share it.

    Args:
        before: The version before the changes. It stays as it is.
        changes: What `diff` returned, by field name. If `before` is an object, it must have been
            written as JSON text and read again.

    Raises:
        KeyError, IndexError, TypeError, ValueError: The changes do not fit this version.
    """
    if isinstance(before, dict):
        return _patch_document(before, changes)
    return _patch_record(before, changes)


def common_prefix_length(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the number of items at the start that are equal in both sequences."""
    # A list never equals a tuple, so make both tuples.
    first_items = tuple(first)
    second_items = tuple(second)
    shorter_length = min(len(first_items), len(second_items))

    # Skip equal blocks. Comparing two tuples is much faster than a loop, because Python does not
    # look into items that are the same object.
    start = 0
    while start < shorter_length:
        end = start + BLOCK_SIZE
        if first_items[start:end] != second_items[start:end]:
            break
        start = end

    # The first difference is in the block at `start`.
    for position in range(start, shorter_length):
        first_item = first_items[position]
        second_item = second_items[position]
        if first_item is not second_item and first_item != second_item:
            return position
    return shorter_length


def _diff_values(before: object, after: object) -> Change | None:
    """Return the change from one value to another as JSON, or None if there is none.

    The smallest change is found: some fields of a record, some items of a sequence, some keys of a
    mapping. All other values are replaced.
    """
    if before is after:
        return None

    # Equal values of different types are changes, too: 1 == True == 1.0, but their JSON differs.
    if type(before) is type(after):
        if isinstance(after, _SCALAR_TYPES) and before == after:
            return None
        if isinstance(before, BaseModel) and isinstance(after, BaseModel):
            fields = diff(before, after)
            return {"fields": fields} if fields else None

    if _is_sequence(before) and _is_sequence(after):
        splices = _diff_sequences(before, after)
        return {"items": [splice.to_json() for splice in splices]} if splices else None

    if _is_mapping(before) and _is_mapping(after):
        return _diff_mappings(before, after)

    return {"value": to_jsonable_python(after)}


def _is_sequence(value: object) -> TypeGuard[tuple[Any, ...] | list[Any]]:
    """Return whether a value is a tuple or a list; a text does not count as a sequence."""
    return isinstance(value, (tuple, list))


def _is_mapping(value: object) -> TypeGuard[dict[Any, Any]]:
    """Return whether a value is a dict, e.g. a mapping or a record within a JSON document."""
    return isinstance(value, dict)


def _diff_sequences(before: Sequence[object], after: Sequence[object]) -> list[_Splice]:
    """Return the splices that turn one sequence into another.

    A splice replaces some items in a row. Items that did not change are the same objects in both
    sequences, so they are recognized by `id`.
    """
    # Set aside what both have in common at the start and at the end.
    prefix_length = common_prefix_length(before, after)
    old_items = before[prefix_length:]
    new_items = after[prefix_length:]
    suffix_length = common_prefix_length(old_items[::-1], new_items[::-1])
    old_items = old_items[: len(old_items) - suffix_length]
    new_items = new_items[: len(new_items) - suffix_length]

    # Find the objects that stayed. If their order changed, replace all that was not set aside.
    kept_ids = set(map(id, old_items)) & set(map(id, new_items))
    kept_in_old = [id(item) for item in old_items if id(item) in kept_ids]
    kept_in_new = [id(item) for item in new_items if id(item) in kept_ids]
    if kept_in_old != kept_in_new:
        return [_Splice(prefix_length, len(old_items), new_items)]

    # Both sequences hold the same kept objects in the same order, with other items in the gaps
    # between these. Where a gap holds items, in either sequence, it needs a splice.
    old_gaps = _split_at_ids(old_items, kept_ids)
    new_gaps = _split_at_ids(new_items, kept_ids)
    splices: list[_Splice] = []
    position = prefix_length
    for old_gap, new_gap in zip(old_gaps, new_gaps, strict=True):
        if old_gap or new_gap:
            splices.append(_Splice(position, len(old_gap), new_gap))
        # Step over the gap and the kept object that follows.
        position += len(old_gap) + 1
    return splices


def _split_at_ids(items: Sequence[object], separator_ids: set[int]) -> list[list[object]]:
    """Split a sequence at the objects with these ids, as `str.split` does at a separator.

    If b is a separator, [a, b, c] becomes [[a], [c]], and [b] becomes [[], []].
    """
    parts: list[list[object]] = [[]]
    for item in items:
        if id(item) in separator_ids:
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


def _diff_mappings(before: dict[Any, Any], after: dict[Any, Any]) -> Change | None:
    """Return the change from one mapping to another as JSON, or None if there is none.

    It says which keys are gone, which are new, and how the values of other keys changed. If this
    could not be replayed exactly, the change replaces the whole mapping.
    """
    # JSON turns every key into text, so a key that is no text would come back as another one.
    has_only_text_keys = all(isinstance(key, str) for key in (*before, *after))

    # `_patch_mapping` keeps the order of the old keys and adds the new ones at the end.
    common_keys = [key for key in before if key in after]
    added_keys = [key for key in after if key not in before]
    keeps_order = [*common_keys, *added_keys] == list(after)
    if not (has_only_text_keys and keeps_order):
        return {"value": to_jsonable_python(after)}

    removed_keys = [key for key in before if key not in after]
    new_entries = {key: after[key] for key in added_keys}
    changes: dict[str, Change] = {}
    for key in common_keys:
        change = _diff_values(before[key], after[key])
        if change is not None:
            changes[key] = change

    if not (removed_keys or new_entries or changes):
        return None
    return {
        "keys": {
            "gone": removed_keys,
            "put": to_jsonable_python(new_entries),
            "in": changes,
        }
    }


def _patch_record(record: RecordT, changes: Mapping[str, Change]) -> RecordT:
    """Return a copy of a record with changes to some of its fields, which `diff` returned."""
    fields = {name: getattr(record, name) for name in type(record).model_fields}
    for name, change in changes.items():
        fields[name] = _patch_value(fields[name], change)

    # New values are plain JSON: validation turns them into objects of the declared types.
    validated = type(record).model_validate(fields)

    # Validation also copies tuples and dicts. Take only the changed fields from its result, so
    # that the new record shares all others with the old one.
    return record.model_copy(update={name: getattr(validated, name) for name in changes})


def _patch_document(
    document: dict[str, JsonValue], changes: Mapping[str, Change]
) -> dict[str, JsonValue]:
    """Return a copy of a record's JSON with changes to some of its fields, as from `diff`."""
    patched = dict(document)
    for name, change in changes.items():
        # A field that the document lacks counts as None.
        patched[name] = _patch_value(document.get(name), change)
    return patched


def _patch_value(value: Any, change: Change) -> Any:
    """Return the value after a change.

    Raises:
        ValueError: The change has not exactly one key, or one of an unknown kind.
    """
    # The only key of a change names its kind, e.g. {"value": 5} replaces the value.
    [(kind, details)] = change.items()

    if kind == "value":
        return details
    # The value of a record is an object or, within a JSON document, a dict.
    if kind == "fields" and _is_mapping(value):
        return _patch_document(value, details)
    if kind == "fields":
        return _patch_record(value, details)
    if kind == "items":
        return _patch_sequence(value, details)
    if kind == "keys":
        return _patch_mapping(value, details)
    raise ValueError(f"a change of the unknown kind {kind!r:.40}")


def _patch_sequence(sequence: Sequence[Any], splices: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the sequence after some changes of the form `[start, removed_count, new_items]`.

    Each replaces `removed_count` items. `start` is counted in the sequence before all changes.
    """
    patched = list(sequence)
    # Start at the end: a splice moves all items behind it, but not those before it.
    for start, removed_count, new_items in reversed(splices):
        patched[start : start + removed_count] = new_items
    return patched


def _patch_mapping(mapping: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping after a change of the form `{"gone": ..., "put": ..., "in": ...}`.

    "gone" lists the removed keys, "put" holds new keys with their values, "in" changes of values.
    """
    remaining = dict(mapping)
    for key in change["gone"]:
        del remaining[key]

    patched = {**remaining, **change["put"]}
    for key, value_change in change["in"].items():
        patched[key] = _patch_value(remaining[key], value_change)
    return patched
