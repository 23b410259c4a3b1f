"""Settings of systems that are no methods of ours.

All have a `timeout`; what else there is depends on how a system is asked. A `dspy.Module` of the
user's keeps no contract of ours: its settings are the arguments of its constructor.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

from pydantic import ConfigDict, Field, create_model

from .._component import constructor_parameters
from ..settings import EntryCount, Settings

SettingsT = TypeVar("SettingsT", bound=Settings)

_EMBEDDER = "embedder"
"""A constructor argument that is no setting: it cannot be written as a text."""


class AnsweringSettings(Settings):
    """What can be set of a system that answers questions."""

    timeout: float = Field(
        default=600.0, gt=0, lt=1e9, description="seconds that one call may take"
    )


class SearchingSettings(AnsweringSettings):
    """What can be set of a system that is searched."""

    k: EntryCount = Field(default=10, description="entries recalled")


class EndpointSettings(AnsweringSettings):
    """What can be set of a system behind an URL."""

    model: str = Field(
        default="",
        min_length=1,
        validate_default=True,
        description="which of its models answers (`--model`)",
    )


class ExternalSettings(AnsweringSettings):
    """All that a program has to save of a function or module.

    Beside the timeout these are the module's own settings, and the version of what is called.
    """

    model_config = ConfigDict(extra="allow")


def with_constructor_arguments(base: type[SettingsT], owner: type) -> type[SettingsT]:
    """Return a class of settings: those of `base`, and the constructor arguments of a class.

    `*args` and `**kwargs` are left out, and so is an argument `embedder`: a setting can be written
    as a text, an embedder cannot.

    Args:
        base: The class of settings to derive from.
        owner: The user's class.
    """
    annotated_types = _annotated_arguments(owner)
    fields: dict[str, Any] = {}
    for name, parameter in constructor_parameters(owner).items():
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if is_variadic or name == _EMBEDDER or name in base.model_fields:
            continue

        default = parameter.default
        if default is inspect.Parameter.empty:
            # For pydantic, `...` as default means that a value is required.
            default = ...

        # The user's type hints may say anything, so values are not checked by them, except by an
        # `Annotated` type, which states a range. Without one, the type of the default is taken, if
        # that is a number or a text.
        if name in annotated_types:
            setting_type = annotated_types[name]
        elif isinstance(default, bool | int | float | str):
            setting_type = type(default)
        else:
            setting_type = Any
        fields[name] = (setting_type, default)
    return create_model(owner.__name__, __base__=base, **fields)


def _annotated_arguments(owner: type) -> dict[str, Any]:
    """Return the types of the constructor arguments that have an `Annotated` type, by name."""
    try:
        hints = get_type_hints(owner.__init__, include_extras=True)
    except NameError:
        # The user's module may import names in its hints for type checkers alone.
        return {}
    return {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}
