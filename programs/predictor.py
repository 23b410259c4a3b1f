"""Predictors: `dspy.Predict` that records its calls and may choose its demos per call.

Example:
    extract = predictor(ExtractFacts)
    extract.nearest = 4                     # a prompt shows the four demos nearest to its inputs
    extract(dialogue=...)
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import dspy

from ..async_bridge import run_bridged
from ..engines.async_models import ask_model
from ._context import current_program_context
from ._nearest_demos import nearest_demos
from .recording import record_call

DEMO_PREDICTOR_KEY = "dspy_meant_for"
"""Key of a demo under which it names the one predictor that may show it.

Optimizers give a labelled example to all predictors of a program.
"""


class Predictor(dspy.Predict):
    """A predictor that records its calls and may choose its demos per call.

    Args:
        signature: The signature, as `dspy.Predict` takes it.
    """

    nearest: int | None = None
    """How many demos a prompt shows, those nearest to its inputs; None shows all."""
    path: str = ""
    """Its name in the program that it is part of."""
    shows_demos: ClassVar[bool] = True
    """Whether its prompts can show demos; False if it only stands for a text of another system."""

    @property
    def label(self) -> str:
        """What tables call the predictor: its path in a program, or else its inputs and outputs."""
        if self.path:
            return self.path
        signature: Any = self.signature
        return f"{', '.join(signature.input_fields)} -> {', '.join(signature.output_fields)}"

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        with record_call(self, kwargs) as call:
            call.prediction = self._ask({"demos": self.select_demos(kwargs), **kwargs})
            return call.prediction

    async def aforward(self, **kwargs: Any) -> dspy.Prediction:
        # By the class: DSPy logs a warning whenever `forward` is read from a module itself.
        return await run_bridged(partial(type(self).forward, self, **kwargs))

    def _ask(self, inputs: dict[str, Any]) -> dspy.Prediction:
        """Ask the model as `dspy.Predict` does, without blocking code that runs under asyncio."""
        lm = inputs.get("lm") or self.lm or dspy.settings.lm
        forward = partial(super().forward, **inputs)
        aforward = partial(super().aforward, **inputs)
        return ask_model(lm, forward, aforward)

    def select_demos(self, inputs: dict[str, Any]) -> list[Any]:
        """Return the demos that a prompt shows: all, or the `nearest` ones to the inputs.

        They are in the order in which they stand in `self.demos`.
        """
        # Some demos are meant for another predictor of the program.
        demos = [demo for demo in self.demos if is_for(demo, self.path)]
        if self.nearest is None or len(demos) <= self.nearest:
            return demos

        signature: Any = self.signature
        input_names = list(signature.input_fields)
        embedder = current_program_context().demo_embedder
        return nearest_demos(demos, inputs, input_names, self.nearest, embedder)


def predictor(signature: type[dspy.Signature]) -> Predictor:
    """Return a predictor for a copy of a signature class.

    DSPy's InferRules edits the instructions of a signature class in place. Without the copy, the
    edit would reach every other program in the process.
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
        self._replacements: dict[int, Any] = {}
        """What replaces each visited object, by its Python id; mostly the object itself."""
        self._kept_alive: list[Any] = []
        """The visited objects, so that no other object gets the id of one of them."""

    def replace_in(self, value: Any) -> Any:
        """Replace the predictors inside a value in place, and return the value.

        A plain predictor, or a tuple with such predictors in it, cannot be changed in place. Then
        the object that takes its place is returned.
        """
        key = id(value)
        if key in self._replacements:
            return self._replacements[key]

        # Python may give the id of a dead object to another one, so the value is kept alive.
        self._kept_alive.append(value)
        # A part of the value may refer back to it. It then gets the value itself, and is not
        # followed for ever.
        self._replacements[key] = value

        # The exact class: subclasses do something of their own, as `Predictor` does.
        if type(value) is dspy.Predict:
            self._replacements[key] = _as_predictor(value)
        elif isinstance(value, tuple):
            self._replacements[key] = self._replace_in_tuple(value)
        elif isinstance(value, dspy.Module):
            self._replace_in_module(value)
        elif isinstance(value, dict):
            self._replace_in_dict(value)
        elif isinstance(value, list):
            self._replace_in_list(value)
        return self._replacements[key]

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
        """Return the tuple itself if it holds no plain predictor, else a copy with new ones."""
        new_parts = [self.replace_in(part) for part in parts]
        is_unchanged = all(new is old for new, old in zip(new_parts, parts, strict=True))
        if is_unchanged:
            return parts

        is_named_tuple = hasattr(parts, "_make")
        if is_named_tuple:
            # Its class takes the parts as single arguments.
            return type(parts)(*new_parts)
        return tuple(new_parts)


def _as_predictor(plain: dspy.Predict) -> Predictor:
    """Return a `Predictor` with the signature, demos and settings of a plain `dspy.Predict`."""
    plain_signature: Any = plain.signature
    new = predictor(plain_signature)
    for name, value in vars(plain).items():
        # The new predictor has a copy of the signature.
        if name != "signature":
            setattr(new, name, value)
    return new


def is_for(demo: Any, path: str) -> bool:
    """Return whether the predictor at a path may show a demo."""
    return demo.get(DEMO_PREDICTOR_KEY, path) == path


def predictors_of(module: dspy.Module) -> dict[str, dspy.Predict]:
    """Return every predictor at or below a module by its path, e.g. "extract.predict".

    Frozen and compiled predictors are included.
    """
    named_predictors: Any = module.named_sub_modules(dspy.Predict)
    return {path.removeprefix("self."): predictor for path, predictor in named_predictors}
