"""The bases of all values that never change: `Frozen` of memories, `Record` of histories and all they hold.

Example:
    >>> from mempiler.records import Turn
    >>> turn = Turn(id="D1:1", speaker="Ann", text="I moved to Lisbon.")
    >>> turn.model_copy(update={"text": "I moved to Porto."}).text, turn.text
    ('I moved to Porto.', 'I moved to Lisbon.')
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NoReturn, Self, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict

K = TypeVar("K")
V = TypeVar("V")


class Frozen(BaseModel):
    """A value that never changes.

    A copy is always another object, whoever makes it. It has the fields of the original and nothing else: what was
    computed from them (`functools.cached_property`) stays with the object that computed it. So the digest of a changed
    copy is that of its own content.
    """

    model_config = ConfigDict(frozen=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values of some fields, which are not validated.

        Raises:
            TypeError: `update` names something that is no field.
        """
        fields = type(self).model_fields
        unknown = (update or {}).keys() - fields.keys()
        if unknown and self.model_config.get("extra") != "allow":
            names, known = ", ".join(sorted(unknown)), ", ".join(fields)
            raise TypeError(f"{type(self).__name__} has no field {names}; it has: {known}")
        return super().model_copy(update=update, deep=deep)

    def copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return what `model_copy` returns."""
        # Pydantic's deprecated method would take computed values along.
        return self.model_copy(update=update, deep=deep)

    def __copy__(self) -> Self:
        copied = super().__copy__()
        fields = type(self).model_fields
        computed = [name for name in vars(copied) if name not in fields]
        for name in computed:
            del vars(copied)[name]
        return copied

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        memo = {} if memo is None else memo
        # From a shallow copy, which has no computed values: they need not be copied, and some cannot be.
        copied = copy.copy(self)
        memo[id(self)] = copied
        for name, value in vars(copied).items():
            vars(copied)[name] = copy.deepcopy(value, memo)
        for name in ("__pydantic_extra__", "__pydantic_private__"):
            object.__setattr__(copied, name, copy.deepcopy(getattr(copied, name), memo))
        return copied

    def __getstate__(self) -> dict[Any, Any]:
        return super(Frozen, copy.copy(self)).__getstate__()


class FrozenDict(dict[K, V]):
    """A dictionary that cannot be changed; `{**old, "name": value}` makes a new one."""

    def _refuse_change(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("the dictionary of a frozen value cannot be changed; make a new one: {**old, ...}")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = _refuse_change
    setdefault = update = _refuse_change  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> tuple[type[FrozenDict[K, V]], tuple[dict[K, V]]]:
        # By default copies and pickles would set the items one by one.
        return FrozenDict, (dict(self),)


FrozenMapping = Annotated[Mapping[K, V], AfterValidator(FrozenDict)]
"""The type of a field: any mapping is taken, and kept as a `FrozenDict`."""


class Record(Frozen):
    """Base of records: unknown fields are refused, so that a typing slip in a data file is seen.

    Fields hold what cannot be changed: texts, numbers, moments, records, tuples of these, and `FrozenMapping`.
    """

    model_config = ConfigDict(extra="forbid")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values of some fields, which are not validated; lists and dictionaries are frozen.

        Raises:
            TypeError: `update` names something that is no field.
        """
        changes = {name: _as_unchangeable(value) for name, value in (update or {}).items()}
        return super().model_copy(update=changes, deep=deep)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        # Optimizers copy examples with whole histories: sharing what cannot change makes that cheap.
        copied = copy.copy(self)
        for name, value in vars(copied).items():
            if not isinstance(value, _UNCHANGEABLE):
                vars(copied)[name] = copy.deepcopy(value, memo)
        return copied


_UNCHANGEABLE = (str, int, float, datetime, tuple, Record, type(None))
"""What a record and its deep copy share; a tuple in a record holds unchangeable values only."""


def _as_unchangeable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(cast("list[Any]", value))
    if isinstance(value, dict):
        return FrozenDict(cast("dict[Any, Any]", value))
    return value
