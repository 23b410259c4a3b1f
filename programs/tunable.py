"""Which settings of a method can be tuned, and which values each of them may have.

    for setting in tunable_settings(build("turn-rag")).values():
        print(setting.name, setting.values)     # k TuningRange(low=1, high=50, log=True), ...

A number can be tuned if its type is annotated with a `TuningRange`. For a truth value or a
`Literal`, all values are tried. A setting that decides what a prompt says cannot be tuned: an
optimizer may have rewritten that prompt, and its text would then not fit the new value.

A setting is *of the writer* if another value changes how memories are written. Then all memories
have to be written again, which may cost calls.

No list says what a setting changes. It is tried out: the method is made with another value, and the
digests of its writer and of its prompts are compared with those before.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ..errors import UserError
from ..memory.tuning_range import TuningRange
from .identity import prompt_digest, writer_digest
from .method import Method
from .settings import DOT

PlainValue = bool | int | float | str | None
"""The value of a setting that can be tuned."""


@dataclass(frozen=True)
class TunableSetting:
    """One setting of a method that can be tuned."""

    name: str
    """The name as in `--set`, such as "k", "search.month" or "inner_k"."""
    value: PlainValue
    """The present value."""
    values: TuningRange | tuple[PlainValue, ...]
    """The values to try: a range of numbers, or choices. They include the present value."""
    is_whole: bool
    """Whether it is a whole number."""
    is_of_writer: bool
    """Whether another value changes how memories are written."""


def tunable_settings(method: Method) -> dict[str, TunableSetting]:
    """Return the settings that can be tuned, by name: of a method, and of the methods inside it."""
    # Below, each setting is changed, and the prompts before and after are compared. If an optimizer
    # has rewritten the prompts of `method`, that would look like an effect of the setting. So the
    # comparison starts from a copy with the original prompts.
    original = method.with_settings({})
    tunable: dict[str, TunableSetting] = {}
    for prefix, settings in original.all_settings().items():
        for field in _fields_with_choice(settings):
            name = f"{prefix}{field.name}"
            changed_methods = _methods_with_other_values(original, name, field)
            if not changed_methods:
                # The other settings allow no other value.
                continue
            if _any_has_other_prompts(changed_methods, original):
                # A prompt that an optimizer rewrote for this value would not fit another one.
                continue
            tunable[name] = TunableSetting(
                name=name,
                value=field.value,
                values=field.values,
                is_whole=field.is_whole,
                is_of_writer=_any_writes_otherwise(changed_methods, original),
            )
    return tunable


@dataclass(frozen=True)
class _FieldWithChoice:
    """A field of a settings class that has several values to choose from."""

    name: str
    """The name within the settings class; with its group in nested settings: "search.month"."""
    value: PlainValue
    values: TuningRange | tuple[PlainValue, ...]
    is_whole: bool

    def other_values(self) -> Sequence[PlainValue]:
        """Return other values than the present one: the ends of a range, or all other choices."""
        candidates: Sequence[PlainValue]
        if isinstance(self.values, TuningRange):
            candidates = (self.values.low, self.values.high)
            if self.is_whole:
                candidates = (int(self.values.low), int(self.values.high))
        else:
            candidates = self.values
        return [value for value in candidates if value != self.value]


def _fields_with_choice(settings: BaseModel) -> list[_FieldWithChoice]:
    """Return the fields that have several values to choose from, and those in nested settings.

    Fields of nested settings have the name of their group in front, such as "search.month".
    """
    fields: list[_FieldWithChoice] = []
    nested_fields: list[_FieldWithChoice] = []
    for name, info in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            for nested_field in _fields_with_choice(value):
                full_name = f"{name}{DOT}{nested_field.name}"
                nested_fields.append(replace(nested_field, name=full_name))
            continue

        field = _field_with_choice(name, info, value)
        if field is not None:
            fields.append(field)

    # Keep the order: a search with a seed draws the values of the settings in it.
    return [*fields, *nested_fields]


def _field_with_choice(name: str, info: FieldInfo, value: PlainValue) -> _FieldWithChoice | None:
    """Return a field with the values to try; None if its type names no range and no choices."""
    value_types = _types_in(info.annotation)
    tuning_range = TuningRange.among(info.metadata)
    choices = _choices_among(value_types)

    values: TuningRange | tuple[PlainValue, ...]
    if tuning_range is not None:
        values = _range_with(tuning_range, value)
    elif choices:
        values = choices if value in choices else (value, *choices)
    else:
        return None
    return _FieldWithChoice(name, value, values, is_whole=int in value_types)


def _types_in(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union type, or the type itself."""
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def _choices_among(value_types: Sequence[Any]) -> tuple[PlainValue, ...]:
    """Return the values of the first type that is `bool` or a `Literal`; () if there is none."""
    for value_type in value_types:
        if value_type is bool:
            return (False, True)
        if get_origin(value_type) is Literal:
            return get_args(value_type)
    return ()


def _range_with(tuning_range: TuningRange, value: PlainValue) -> TuningRange:
    """Return a range that includes a value: the given range, made wider if necessary."""
    if value is None or isinstance(value, str):
        return tuning_range
    low = min(tuning_range.low, value)
    high = max(tuning_range.high, value)
    # 0 has no logarithm.
    return TuningRange(low, high, log=tuning_range.log and low > 0)


def _methods_with_other_values(
    original: Method, name: str, field: _FieldWithChoice
) -> list[Method]:
    """Return a method like the original one for each other value that one setting may have."""
    changed_methods: list[Method] = []
    for value in field.other_values():
        try:
            changed_methods.append(original.with_settings({name: value}))
        except UserError:
            # The other settings forbid this value: for instance, one of two switches must be on.
            continue
    return changed_methods


def _any_has_other_prompts(changed_methods: Sequence[Method], original: Method) -> bool:
    """Return whether any of some methods has other prompts than the original one."""
    original_prompts = _prompt_digests(original)
    return any(_prompt_digests(changed) != original_prompts for changed in changed_methods)


def _any_writes_otherwise(changed_methods: Sequence[Method], original: Method) -> bool:
    """Return whether any of some methods writes other memories than the original one."""
    original_writer = writer_digest(original.writer)
    return any(writer_digest(changed.writer) != original_writer for changed in changed_methods)


def _prompt_digests(method: Method) -> Mapping[str, str]:
    """Return a digest of every prompt of a method, by the name of its predictor."""
    predictors = method.predictors_below()
    return {name: prompt_digest(predictor) for name, predictor in predictors.items()}
