"""Which settings of a method can be tuned, and which values each of them may have.

    for setting in tunable_settings(build("turn-rag")).values():
        print(setting.name, setting.values)     # k TuningRange(low=1, high=50, log=True), ...

A number can be tuned if its type is annotated with a `TuningRange`. For a truth value or a
`Literal`, all values are tried. A setting that changes a prompt cannot be tuned, since an optimizer
may have rewritten this prompt.

A setting is *of the writer* if another value changes how memories are written. Then all memories
have to be written again, which may cost calls. No list says which settings these are: the method is
made with another value, and the digests of its writer and of its prompts are compared.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

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
    # Compare with a method that has the original prompts, since those of `method` may be compiled.
    original = method.with_settings({})
    tunable: dict[str, TunableSetting] = {}
    for prefix, settings in original.all_settings().items():
        for field in _tunable_fields(settings):
            name = f"{prefix}{field.name}"
            effect = _effect_of_change(original, name, field)
            if effect is None or effect.on_prompts:
                continue
            tunable[name] = TunableSetting(
                name, field.value, field.values, field.is_whole, is_of_writer=effect.on_memories
            )
    return tunable


@dataclass(frozen=True)
class _TunableField:
    """A field of a settings class that has several values to try."""

    name: str
    value: PlainValue
    values: TuningRange | tuple[PlainValue, ...]
    is_whole: bool

    def other_values(self) -> Sequence[PlainValue]:
        """Return some values to try that differ from the present one."""
        candidates: Sequence[PlainValue]
        if isinstance(self.values, TuningRange):
            candidates = (self.values.low, self.values.high)
            if self.is_whole:
                candidates = (int(self.values.low), int(self.values.high))
        else:
            candidates = self.values
        return [value for value in candidates if value != self.value]


def _tunable_fields(settings: BaseModel, group: str = "") -> list[_TunableField]:
    """Return the fields that have values to try.

    Args:
        settings: The settings.
        group: What the names begin with, such as "search." for the fields of a nested model.
    """
    fields: list[_TunableField] = []
    fields_in_groups: list[_TunableField] = []
    for name, info in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            fields_in_groups.extend(_tunable_fields(value, f"{name}{DOT}"))
            continue

        value_types = _types_in(info.annotation)
        tuning_range = TuningRange.among(info.metadata)
        choices = _choices_among(value_types)
        if tuning_range is not None:
            values = _range_with(tuning_range, value)
        elif choices:
            values = choices if value in choices else (value, *choices)
        else:
            continue
        fields.append(_TunableField(f"{group}{name}", value, values, is_whole=int in value_types))
    return [*fields, *fields_in_groups]


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


@dataclass(frozen=True)
class _Effect:
    """What the other values of a setting change."""

    on_memories: bool
    on_prompts: bool


def _effect_of_change(method: Method, name: str, field: _TunableField) -> _Effect | None:
    """Return what the other values of a setting change; None if no other value is allowed."""
    changed_methods: list[Method] = []
    for value in field.other_values():
        try:
            changed_methods.append(method.with_settings({name: value}))
        except UserError:
            # The other settings forbid this value: for instance, one of two switches must be on.
            continue
    if not changed_methods:
        return None

    writer = writer_digest(method.writer)
    prompts = _prompt_digests(method)
    return _Effect(
        on_memories=any(writer_digest(changed.writer) != writer for changed in changed_methods),
        on_prompts=any(_prompt_digests(changed) != prompts for changed in changed_methods),
    )


def _prompt_digests(method: Method) -> Mapping[str, str]:
    """Return a digest of every prompt of a method, by the name of its predictor."""
    predictors = method.predictors_below()
    return {name: prompt_digest(predictor) for name, predictor in predictors.items()}
