"""Predictors: `dspy.Predict` that records its calls and may choose its demos per call.

Example:
    extract = predictor(ExtractFacts)
    extract.nearest = 4                     # a prompt shows the four demos nearest to its inputs
    extract(dialogue=...)
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import dspy
from pydantic import BaseModel

from ..async_bridge import is_bridged, off_loop, run_bridged, wait_for
from ..engines.async_models import can_be_awaited
from ..engines.embedders import embedder as offline_embedder
from ..errors import UserError
from ..memory.search.embedder import Embedder
from ..memory.search.index_cache import IndexCache
from ..reading.failures import concerns_prompt
from ._context import current_program_context, program_context
from .adapter import adapter as make_adapter
from .nearest_demos import nearest_demos
from .recording import failure_of, record_call, record_failure

DEMO_PREDICTOR_KEY = "dspy_meant_for"
"""Key of a demo under which it names the one predictor that may show it.

Optimizers give a labelled example to all predictors of a program.
"""
CallPredictor = Callable[..., dspy.Prediction | None]
"""Calls a predictor by its name, with its inputs; None where its output stays unreadable."""
_PIECES = ("embedder", "indexes", "stores", "thing")
"""Arguments that are what a part is made of, and no settings; so are modules, indexes and whatever embeds."""


class Predictor(dspy.Predict):
    """A predictor that records its calls and may choose its demos per call.

    Args:
        signature: The signature, as `dspy.Predict` takes it.
    """

    nearest: int | None = None
    """How many demos a prompt shows, those nearest to its inputs; None shows all."""
    path: str = ""
    """Its name in the program that it is part of."""

    @property
    def label(self) -> str:
        """What tables call it: its name in its program, or else what it does."""
        if self.path:
            return self.path
        signature: Any = self.signature
        return f"{', '.join(signature.input_fields)} -> {', '.join(signature.output_fields)}"

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        with record_call(self, kwargs) as call:
            call.prediction = self._ask({"demos": self.select_demos(kwargs), **kwargs})
            return call.prediction

    async def aforward(self, **kwargs: Any) -> dspy.Prediction:
        return await run_bridged(partial(Predictor.forward, self, **kwargs))

    def _ask(self, inputs: dict[str, Any]) -> dspy.Prediction:
        """Ask as `dspy.Predict` does; in bridged code no thread waits for a model that can be awaited."""
        if not is_bridged():
            return super().forward(**inputs)
        lm = inputs.get("lm") or self.lm or dspy.settings.lm
        if can_be_awaited(lm):
            return wait_for(super().aforward(**inputs))
        with dspy.context(send_stream=None):  # a thread has no way to the stream of a loop
            return off_loop(partial(super().forward, **inputs))

    def select_demos(self, inputs: dict[str, Any]) -> list[Any]:
        """Return the demos that a prompt for these inputs shows, in the order of the pool."""
        demos = [demo for demo in self.demos if is_for(demo, self.path)]
        if self.nearest is None or len(demos) <= self.nearest:
            return demos
        signature: Any = self.signature
        input_names = list(signature.input_fields)
        embedder = current_program_context().demo_embedder
        return nearest_demos(demos, inputs, input_names, self.nearest, embedder)


def predictor(signature: type[dspy.Signature]) -> Predictor:
    """Return a predictor with a signature class of its own.

    DSPy's InferRules edits the instructions of a signature class in place. Without the copy, that
    would reach every other program of the process.
    """
    return Predictor(signature.with_instructions(signature.instructions))


def replace_predictors(module: dspy.Module) -> None:
    """Replace every plain `dspy.Predict` below a module by a `Predictor`, which does more.

    So the steps of a method may be made of `dspy.ChainOfThought` or any other module of DSPy.
    """
    _PredictorReplacement().replace_in(module)


class _PredictorReplacement:
    """Replaces plain predictors wherever DSPy finds predictors in a module.

    That is in attributes of modules, and in the lists, tuples and dictionaries that stand there. A
    `dspy.Predict` that stands at several places is replaced by one `Predictor`.
    """

    def __init__(self) -> None:
        self._results: dict[int, Any] = {}
        """What stands now in the place of a visited object, by the Python id of that object."""
        self._visited: list[Any] = []
        """Keeps visited objects alive, since Python gives the id of a dead one to another."""

    def replace_in(self, value: Any) -> Any:
        """Replace predictors in a value, and return what stands in its place: mostly itself."""
        if id(value) in self._results:
            return self._results[id(value)]
        self._visited.append(value)
        self._results[id(value)] = value

        if type(value) is dspy.Predict:
            self._results[id(value)] = _as_predictor(value)
        elif isinstance(value, dspy.Module):
            self._replace_in_module(value)
        elif isinstance(value, dict):
            self._replace_in_dict(value)
        elif isinstance(value, list):
            self._replace_in_list(value)
        elif isinstance(value, tuple):
            self._results[id(value)] = self._replace_in_tuple(value)
        return self._results[id(value)]

    def _replace_in_module(self, module: dspy.Module) -> None:
        for name, part in list(vars(module).items()):
            new_part = self.replace_in(part)
            if new_part is not part:
                setattr(module, name, new_part)

    def _replace_in_dict(self, parts: dict[Any, Any]) -> None:
        for key, part in list(parts.items()):
            new_part = self.replace_in(part)
            if new_part is not part:
                parts[key] = new_part

    def _replace_in_list(self, parts: list[Any]) -> None:
        for position, part in enumerate(parts):
            new_part = self.replace_in(part)
            if new_part is not part:
                parts[position] = new_part

    def _replace_in_tuple(self, parts: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the same tuple if nothing in it is replaced, else a new one of its type."""
        new_parts = [self.replace_in(part) for part in parts]
        is_unchanged = all(new is old for new, old in zip(new_parts, parts, strict=True))
        if is_unchanged:
            return parts
        if hasattr(parts, "_make"):
            # A named tuple takes its parts one by one.
            return type(parts)(*new_parts)
        return tuple(new_parts)


def _as_predictor(plain: dspy.Predict) -> Predictor:
    """Return a `Predictor` that asks what a plain `dspy.Predict` asks."""
    plain_signature: Any = plain.signature
    new = predictor(plain_signature)
    for name, value in vars(plain).items():
        if name != "signature":
            setattr(new, name, value)
    return new


def semantic_embedder(embedder: Embedder | None) -> Embedder | None:
    """The embedder, if it adds to a search by words: the offline one compares spelling, and finds less than BM25."""
    return None if embedder is None or embedder.name == offline_embedder().name else embedder


def is_for(demo: Any, path: str) -> bool:
    """Return whether the predictor at a path may show a demo."""
    return demo.get(DEMO_PREDICTOR_KEY, path) == path


def predictors_of(module: dspy.Module) -> dict[str, dspy.Predict]:
    """Every predictor at or below a module by its path, e.g. "extract.predict"; frozen and compiled ones included."""
    found: Any = module.named_sub_modules(dspy.Predict)
    return {path.removeprefix("self."): one for path, one in found}


class Component(dspy.Module):
    """A module whose settings are its constructor arguments, or the fields of one that is a pydantic model.

    Raises:
        UserError: A setting is no plain value (a number, text, truth value, or a list or dict of these). Embedders,
            indexes and other modules are no settings: they are what the part is made of.
    """

    longest_text: int | None = None
    """Most characters of a text that the part takes from a model; a longer one is no answer."""
    resolve_dates: bool = False
    """Whether models are shown the date beside each relative date; its program sets it, by its `task.dates`."""
    _settings: dict[str, Any]
    predictors_below = predictors_of

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

    def try_call(self, predictor: dspy.Module, **inputs: Any) -> dspy.Prediction | None:
        """Calls a predictor, or a module made of them.

        Returns:
            The prediction; None where the answer stays unreadable, or the endpoint refuses the prompt for its content
            or length. The failure is recorded.
        """
        adapter = dspy.settings.adapter or make_adapter()
        try:
            with program_context(max_text_length=self.longest_text), dspy.context(adapter=adapter):
                return predictor(**inputs)
        except Exception as error:
            if not concerns_prompt(error):
                raise
            paths = (path for path, found in self.named_sub_modules() if found is predictor)
            record_failure(failure_of(next(paths, type(predictor).__name__).removeprefix("self."), error))
            return None

    def call_predictor(self, name: str, **inputs: Any) -> dspy.Prediction | None:
        """Calls the predictor of a name, as `attempt` does."""
        return self.try_call(getattr(self, name), **inputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        new = self.__class__.__new__(self.__class__)
        memo[id(self)] = new
        for name, value in self.__dict__.items():
            setattr(new, name, value if hasattr(value, "embed") else copy.deepcopy(value, memo))
        return new


def _settings(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
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
        elif not (name in _PIECES or isinstance(value, dspy.Module | IndexCache) or hasattr(value, "embed")):
            try:
                json.dumps(value)
            except (TypeError, ValueError):
                plain = "use numbers, texts, lists or dicts"
                raise UserError(f"{cls.__name__}: the setting {name} = {value!r} cannot be saved; {plain}") from None
            found[name] = value
    return found
