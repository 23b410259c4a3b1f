"""Parts of a program that know what they were made with: the base of methods, writers and readers.

The constructor arguments of a part are its settings, taken down when it is made: they are saved with a program, and
those of a writer name the memories that it writes.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable
from typing import Any, Self

import dspy
from pydantic import BaseModel

from ..errors import UserError
from ..memory.indexes import Indexes
from ..records.scope import holding
from .adapter import adapter as make_adapter
from .adapter import longest_text
from .recording import concerns_prompt, failure_of, record_failure

Ask = Callable[..., dspy.Prediction | None]
"""Calls a predictor by its name, with its inputs; None where its output stays unreadable."""


class Part(dspy.Module):
    """A module whose settings are its constructor arguments, or the fields of one that is a pydantic model.

    Raises:
        UserError: A setting is no plain value (a number, text, truth value, or a list or dict of these). Embedders,
            indexes and other modules are no settings: they are what the part is made of.
    """

    longest_text: int | None = None
    """Most characters of a text that the part takes from a model; a longer one is no answer."""
    _settings: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        parameters = inspect.signature(cls.__init__).parameters.values()
        loose = [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if loose and "__init__" in vars(cls):
            raise UserError(f"{cls.__name__}: the constructor takes *{loose[0]}; name every setting")

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self._settings = _settings(cls, args, kwargs)
        return self

    @property
    def config(self) -> dict[str, Any]:
        """The settings by name, without embedders and modules."""
        return dict(self._settings)

    def predictors_below(self) -> dict[str, dspy.Predict]:
        """Every predictor at or below the part by its path, e.g. "extract" or "extract.predict"."""
        found: Any = self.named_sub_modules(dspy.Predict)
        return {path.removeprefix("self."): module for path, module in found}

    def attempt(self, predictor: dspy.Module, **inputs: Any) -> dspy.Prediction | None:
        """Calls a predictor, or a module made of them.

        Returns:
            The prediction; None where the answer stays unreadable, or the endpoint refuses the prompt for its content
            or length. The failure is recorded.
        """
        adapter = dspy.settings.adapter or make_adapter()
        try:
            with holding(longest_text, self.longest_text), dspy.context(adapter=adapter):
                return predictor(**inputs)
        except Exception as error:
            if not concerns_prompt(error):
                raise
            paths = (path for path, found in self.named_sub_modules() if found is predictor)
            record_failure(failure_of(next(paths, type(predictor).__name__).removeprefix("self."), error))
            return None

    def ask(self, name: str, **inputs: Any) -> dspy.Prediction | None:
        """Calls the predictor of a name, as `attempt` does."""
        return self.attempt(getattr(self, name), **inputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        new = self.__class__.__new__(self.__class__)
        memo[id(self)] = new
        for name, value in self.__dict__.items():
            setattr(new, name, value if hasattr(value, "embed") else copy.deepcopy(value, memo))
        return new


_PIECES = ("embedder", "indexes", "stores", "thing")
"""Arguments that are what a part is made of, and no settings; so are modules, indexes and whatever embeds."""


def _settings(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The plain arguments with their defaults; copies are made without any, and get theirs afterwards."""
    if cls.__init__ is dspy.Module.__init__:
        return {}
    try:
        bound = inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs)
    except TypeError:
        return {}  # the constructor itself reports the error
    bound.apply_defaults()
    found: dict[str, Any] = {}
    for name, value in list(bound.arguments.items())[1:]:
        if isinstance(value, BaseModel):
            found |= value.model_dump(mode="json")
        elif not (name in _PIECES or isinstance(value, dspy.Module | Indexes) or hasattr(value, "embed")):
            try:
                json.dumps(value)
            except (TypeError, ValueError):
                plain = "use numbers, texts, lists or dicts"
                raise UserError(f"{cls.__name__}: the setting {name} = {value!r} cannot be saved; {plain}") from None
            found[name] = value
    return found
