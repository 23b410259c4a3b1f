"""Settings of DSPy's own optimizers that are no fields of ours, but can be given as `extra`.

    Gepa(max_metric_calls=300, extra={"reflection_minibatch_size": 5})

An optimizer lists the names of such settings for each function of DSPy that takes them. Their
defaults and types are read from the function's signature:

    def _constructor() -> type:
        import dspy

        return dspy.COPRO

    _CONSTRUCTOR_SETTINGS = ExtraSettings(_constructor, ("init_temperature",))

DSPy is imported in that function, because the optimizers are also listed where nothing is run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ExtraSettings:
    """Parameters of one function of DSPy that a user may set."""

    load_function: Callable[[], Callable[..., Any]]
    """Imports the function, or the class, and returns it."""
    names: tuple[str, ...]

    def select(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of `settings` that belong to this function."""
        return {name: value for name, value in settings.items() if name in self.names}

    def defaults(self) -> dict[str, Any]:
        """Return the default of each setting, by name."""
        parameters = self._parameters()
        return {name: parameters[name].default for name in self.names}

    def type_of(self, name: str) -> Any:
        """Return the type of a setting: its annotation, or else the type of its default."""
        parameter = self._parameters()[name]
        annotation = parameter.annotation
        # Modules with `from __future__ import annotations` have text in place of types.
        if annotation is not inspect.Parameter.empty and not isinstance(annotation, str):
            return annotation
        if parameter.default is None:
            return Any
        return type(parameter.default)

    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        """Return the parameters of the function by name."""
        return inspect.signature(self.load_function()).parameters
