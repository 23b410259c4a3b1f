"""Base classes of values that never change: `Frozen` for memories, `Record` for histories.

Example:
    >>> from mempiler.records import Turn
    >>> turn = Turn(id="D1:1", speaker="Ann", text="I moved to Lisbon.")
    >>> turn.replace(text="I moved to Porto.").text, turn.text
    ('I moved to Porto.', 'I moved to Lisbon.')
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, NoReturn, Self, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict

K = TypeVar("K")
V = TypeVar("V")


class Frozen(BaseModel):
    """A value that never changes.

    A copy has the fields of the original and nothing else. What was computed from the fields
    (`functools.cached_property`) stays behind, so that the digest of a changed copy is computed
    from its own content.
    """

    model_config = ConfigDict(frozen=True)

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values of some fields, which are not validated.

        Raises:
            TypeError: `update` names something that is no field.
        """
        known_names = type(self).model_fields.keys()
        unknown_names = (update or {}).keys() - known_names
        if unknown_names and self.model_config.get("extra") != "allow":
            raise TypeError(
                f"{type(self).__name__} has no field {', '.join(sorted(unknown_names))}; "
                f"it has: {', '.join(known_names)}"
            )
        return super().model_copy(update=update, deep=deep)

    def replace(self, **fields: object) -> Self:
        """Return a copy with other values of some fields, which are not validated.

        Raises:
            TypeError: There is no such field.
        """
        return self.model_copy(update=fields)

    def copy(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *, update: Mapping[str, object] | None = None, deep: bool = False
    ) -> Self:
        """Return what `model_copy` returns."""
        # Pydantic's deprecated method would also copy computed values.
        return self.model_copy(update=update, deep=deep)

    def __copy__(self) -> Self:
        duplicate = super().__copy__()
        attributes = vars(duplicate)
        computed_names = attributes.keys() - type(self).model_fields.keys()
        for name in computed_names:
            del attributes[name]
        return duplicate

    def __deepcopy__(self, memo: dict[int, object] | None = None) -> Self:
        if memo is None:
            memo = {}

        # Start from a shallow copy, which has no computed values: some of them cannot be copied.
        duplicate = copy.copy(self)
        memo[id(self)] = duplicate
        attributes = vars(duplicate)
        for name, value in attributes.items():
            attributes[name] = copy.deepcopy(value, memo)

        # Pydantic keeps extra fields and private attributes beside the others.
        for name in ("__pydantic_extra__", "__pydantic_private__"):
            value = copy.deepcopy(getattr(duplicate, name), memo)
            object.__setattr__(duplicate, name, value)
        return duplicate

    def __getstate__(self) -> dict[object, object]:
        without_computed_values = copy.copy(self)
        return super(Frozen, without_computed_values).__getstate__()


class FrozenDict(dict[K, V]):
    """A dictionary that cannot be changed; `{**old, "name": value}` makes a new one."""

    def _refuse_change(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(
            "the dictionary of a frozen value cannot be changed; make a new one: {**old, ...}"
        )

    __setitem__ = _refuse_change
    __delitem__ = _refuse_change
    __ior__ = _refuse_change
    clear = _refuse_change
    pop = _refuse_change
    popitem = _refuse_change
    setdefault = _refuse_change  # pyright: ignore[reportAssignmentType]
    update = _refuse_change  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> tuple[type[FrozenDict[K, V]], tuple[dict[K, V]]]:
        # Copies and pickles call the class with a plain dict. By default they would set the items
        # one by one, which is refused.
        return FrozenDict, (dict(self),)


FrozenMapping = Annotated[Mapping[K, V], AfterValidator(FrozenDict)]
"""The type of a field: it accepts any mapping and holds a `FrozenDict`."""


class Record(Frozen):
    """Base of records. Unknown fields are refused, so that a typing error in a data file is seen.

    The values of fields cannot change either: texts, numbers, times, records, tuples of these, and
    `FrozenMapping`.
    """

    model_config = ConfigDict(extra="forbid")

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values of some fields, which are not validated.

        Lists become tuples, and dictionaries become frozen ones.

        Raises:
            TypeError: `update` names something that is no field.
        """
        frozen_update = {name: _freeze(value) for name, value in (update or {}).items()}
        return super().model_copy(update=frozen_update, deep=deep)

    def __deepcopy__(self, memo: dict[int, object] | None = None) -> Self:
        # Optimizers deep-copy examples with whole histories. Copies share what cannot change,
        # which makes that cheap.
        duplicate = copy.copy(self)
        attributes = vars(duplicate)
        for name, value in attributes.items():
            if not isinstance(value, _SHAREABLE_TYPES):
                attributes[name] = copy.deepcopy(value, memo)
        return duplicate


_SHAREABLE_TYPES = (str, int, float, datetime, tuple, Record, type(None))
"""Values that a record and its deep copy share. A tuple in a record holds only such values."""


def _freeze(value: object) -> object:
    """Return a list as a tuple, a dictionary as a FrozenDict, and anything else as it is."""
    if isinstance(value, list):
        return tuple(cast("list[object]", value))
    if isinstance(value, dict):
        return FrozenDict(cast("dict[object, object]", value))
    return value
