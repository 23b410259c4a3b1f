"""Parts of a program that know what they were made with: the base of methods, writers and readers.

The constructor arguments of a part are its settings. They are taken down when it is made, so nothing has to be kept by
hand: they are saved with a program, and those of a writer name the memories that it writes.

A prompt that is longer than the model's window is asked in two halves, where its longest list can be cut, and where the
answers can be put together: every output that must be there is a list.

    update(existing_facts=[f1 ... f900], dialogue=...)      too long
    update(existing_facts=[f1 ... f450], dialogue=...)  +  update(existing_facts=[f451 ... f900], dialogue=...)

Example:
    >>> from mempiler.programs.part import Part
    >>> class Shouting(Part):
    ...     def __init__(self, loud: bool = True) -> None:
    ...         super().__init__()
    >>> Shouting().config
    {'loud': True}
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar, cast, get_origin

import dspy
from dspy.primitives.base_module import BaseModule
from pydantic import BaseModel

from ..errors import UserError
from ..memory.indexes import Indexes
from .adapter import adapter as make_adapter
from .correcting import longest_text
from .failing import LOST, concerns_prompt, failure_of, kind_of
from .recording import record_failure

M = TypeVar("M", bound=dspy.Module)
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
        loose = [p.name for p in _parameters(cls) if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
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
        return {path.removeprefix("self."): module for path, module in modules_below(self, dspy.Predict)}

    def attempt(self, predictor: dspy.Module, **inputs: Any) -> dspy.Prediction | None:
        """Calls a predictor, or a module made of them; a prompt that is too long is asked in halves, where it can be.

        Returns:
            The prediction; None where the answer stays unreadable, or the endpoint refuses the prompt for its content
            or length. The failure is recorded.
        """
        token = longest_text.set(self.longest_text)
        try:
            with dspy.context(adapter=dspy.settings.adapter or make_adapter()):
                return predictor(**inputs)
        except LOST as error:
            if not concerns_prompt(error):
                raise
            parts = halves(predictor, inputs) if kind_of(error) == "too-long" else []
            if parts:
                found = [self.attempt(predictor, **part) for part in parts]
                read = [each for each in found if each is not None]
                return together(read) if len(read) == len(parts) else None
            record_failure(failure_of(self._name(predictor), error))
            return None
        finally:
            longest_text.reset(token)

    def ask(self, name: str, **inputs: Any) -> dspy.Prediction | None:
        """Calls the predictor of a name, as `attempt` does."""
        return self.attempt(getattr(self, name), **inputs)

    def _name(self, module: dspy.Module) -> str:
        paths = (path for path, found in modules_below(self, dspy.Module) if found is module)
        return next(paths, type(module).__name__).removeprefix("self.")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        new = self.__class__.__new__(self.__class__)
        memo[id(self)] = new
        for name, value in self.__dict__.items():
            setattr(new, name, value if hasattr(value, "embed") else copy.deepcopy(value, memo))
        return new


def modules_below(module: dspy.Module, kind: type[M]) -> list[tuple[str, M]]:
    """The modules of a kind at or below one, each with its path, as `named_sub_modules` of DSPy's gives them.

    Every question asks for them, so settings, which can hold no module, are not looked at.
    """
    found: list[tuple[str, M]] = []
    queue: list[tuple[str, Any]] = [("self", module)]
    seen = {id(module)}
    for path, at in queue:
        is_module = isinstance(at, BaseModule)
        if is_module and isinstance(at, kind):
            found.append((path, at))
        form = ".{}" if is_module else "[{}]"
        for key, each in _pairs(vars(at) if is_module else at):
            made_of = cast(type[Any], type(each))
            if made_of in _PLAIN or id(each) in seen:
                continue
            if issubclass(made_of, BaseModule) or (issubclass(made_of, (list, dict, tuple)) and each):
                seen.add(id(each))
                queue.append((path + form.format(key), each))
    return found


def _pairs(values: Any) -> Iterable[tuple[Any, Any]]:
    return values.items() if hasattr(values, "items") else enumerate(cast(Iterable[Any], values))


_PLAIN = frozenset({str, int, float, bool, type(None)})
_PIECES = ("embedder", "indexes", "stores", "thing")
"""Arguments that are never settings."""


def _parameters(cls: type) -> list[inspect.Parameter]:
    return list(inspect.signature(cls.__init__).parameters.values())[1:]


def _settings(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The plain arguments with their defaults; copies are made without any, and get theirs afterwards."""
    if cls.__init__ is dspy.Module.__init__:
        return {}
    try:
        bound = inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs)
    except TypeError:
        return {}  # the constructor itself reports the error
    bound.apply_defaults()
    values: dict[str, Any] = {}
    for name, value in list(bound.arguments.items())[1:]:
        values |= value.model_dump(mode="json") if isinstance(value, BaseModel) else {name: value}
    found = {name: value for name, value in values.items() if name not in _PIECES and not _is_made_of(value)}
    for name, value in found.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise UserError(
                f"{cls.__name__}: the setting {name} = {value!r} cannot be saved; use numbers, texts, lists or dicts"
            ) from None
    return found


def _is_made_of(value: Any) -> bool:
    """Whether an argument is a piece of the part rather than a setting."""
    return isinstance(value, dspy.Module | Indexes) or hasattr(value, "embed")


def is_context(name: str) -> bool:
    """Whether an input is shown to understand the others by, and nothing is to be done about it: by its name."""
    return name.startswith("earlier")


def halves(predictor: Any, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """The inputs with their longest list cut in two; [] where nothing can be cut, or answers not be put together."""
    lists = {name: cast("list[Any]", value) for name, value in inputs.items() if isinstance(value, list)}
    # What is context alone belongs to both halves: cut, it would have the same work done twice.
    lists = {name: value for name, value in lists.items() if len(value) > 1 and not is_context(name)}
    if not isinstance(predictor, dspy.Predict) or not lists:
        return []
    signature: Any = predictor.signature
    needed = [field for field in signature.output_fields.values() if field.is_required()]
    if not needed or any(get_origin(field.annotation) is not list for field in needed):
        return []
    name = max(lists, key=lambda each: len(str(lists[each])))
    value, middle = lists[name], (len(lists[name]) + 1) // 2
    return [{**inputs, name: part} for part in (value[:middle], value[middle:])]


def together(found: Sequence[dspy.Prediction]) -> dspy.Prediction:
    """The answers to the halves as one: lists one after the other, texts likewise."""
    fields: dict[str, Any] = {}
    for prediction in found:
        for name in prediction.keys():  # noqa: SIM118
            value = prediction[name]
            if isinstance(value, list):
                fields[name] = [*fields.get(name, []), *cast("list[Any]", value)]
            else:
                fields[name] = "\n".join(part for part in (str(fields.get(name) or ""), str(value or "")) if part)
    return dspy.Prediction(**fields)
