"""The texts of a memory system that optimizers may change, such as its extraction rules.

A class or function that makes stores declares them, and is given the present ones:

    class Notes:
        TEXTS = {"rules": "Keep what the user says about people."}

        def __init__(self, texts):
            self.rules = texts["rules"]

Each text is a predictor whose instructions are the text. It asks no model: the system does. So the
calls of the system are recorded as calls of this predictor, and optimizers learn from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy

from ...errors import UserError
from ...text import one_line
from ..predictor import Predictor
from ..state import signature_of
from .target import parameters

TEXTS = "TEXTS"
"""The attribute with the names of the texts and their defaults."""

TEXTS_PARAMETER = "texts"
"""The argument with the present texts by name."""

EMPTY_TEXT = "(This text is empty: nothing is added to the system's own prompt.)"
"""The instructions that stand for an empty text; DSPy would make up other ones."""


class TextPredictor(Predictor):
    """Stands for one text of a memory system; its instructions are the text.

    Args:
        name: The name of the text.
        default: What the text is at first.
    """

    shows_demos = False

    def __init__(self, name: str, default: str) -> None:
        super().__init__(_signature_for(name, default))
        self._default = default
        self._first_instructions = signature_of(self).instructions

    @property
    def text(self) -> str:
        """The present text."""
        instructions = signature_of(self).instructions
        # DSPy strips the spaces around instructions. As long as nobody has changed the text, the
        # system is given its default to the letter.
        if instructions == self._first_instructions:
            return self._default
        return instructions


class TextPredictors(dspy.Module):
    """The predictors of all texts of a memory system, each as the attribute of its name.

    Args:
        defaults: The texts by name, as they are at first.
    """

    def __init__(self, defaults: Mapping[str, str]) -> None:
        super().__init__()
        self._names = tuple(defaults)
        for name, default in defaults.items():
            setattr(self, name, TextPredictor(name, default))

    def by_name(self) -> dict[str, TextPredictor]:
        """Return the predictors by the names of their texts."""
        return {name: getattr(self, name) for name in self._names}

    def present_texts(self) -> dict[str, str]:
        """Return the present texts by name."""
        return {name: predictor.text for name, predictor in self.by_name().items()}


def texts_in_prompt(texts: Mapping[str, str], prompt: str) -> tuple[str, ...]:
    """Return the names of the texts that a prompt holds; spaces and line breaks do not count."""
    words_of_prompt = one_line(prompt)
    names: list[str] = []
    for name, text in texts.items():
        words = one_line(text)
        if words and words in words_of_prompt:
            names.append(name)
    return tuple(names)


def declared_texts(target: Any, name: str) -> dict[str, str]:
    """Return the texts that a class or function lets one set, with their defaults.

    The result is empty if it declares none, or takes none.

    Args:
        target: What makes stores.
        name: What errors call it.

    Raises:
        UserError: The texts are no mapping of names to texts, or the class takes texts without
            declaring them.
    """
    parameter = parameters(target).get(TEXTS_PARAMETER)
    if parameter is None:
        return {}

    declared = getattr(target, TEXTS, None)
    if declared is None:
        # A parameter that has a default may be called so by chance.
        if parameter.default is not parameter.empty:
            return {}
        raise UserError(
            f"{name}: takes texts but declares none; "
            f'set {TEXTS} = {{"rules": "the default text"}} in it'
        )
    _check_texts(declared, name)
    return dict(declared)


def _check_texts(declared: Any, name: str) -> None:
    """Raise a UserError if declared texts are no mapping of names to texts."""
    if not isinstance(declared, Mapping):
        raise UserError(f"{name}: {TEXTS} = {declared!r:.60}; give a mapping of names to texts")
    for text_name, text in declared.items():
        if not _can_be_name(text_name) or not isinstance(text, str):
            raise UserError(
                f"{name}: {TEXTS} has {text_name!r:.40}: {text!r:.40}; "
                "a name is a Python name such as 'rules', and its value a text"
            )


def _can_be_name(text_name: Any) -> bool:
    """Return whether a text can be called so: its predictor becomes an attribute of a module."""
    if not isinstance(text_name, str) or not text_name.isidentifier():
        return False
    return not text_name.startswith("_") and not hasattr(TextPredictors, text_name)


def _signature_for(name: str, default: str) -> type[dspy.Signature]:
    """Return the signature of a text: its instructions are the text.

    The name is in the description of a field, so that two texts with equal words have different
    signatures: GEPA tells predictors apart by them.
    """

    class StoreText(dspy.Signature):
        added_turns: list[str] = dspy.InputField(
            desc="ids of the turns that the memory system was given"
        )
        prompt: str = dspy.InputField(
            desc=f"what the memory system then asked its model, with its text {name!r}"
        )
        completion: str = dspy.OutputField(desc="what the model answered")

    has_words = bool(default.strip())
    return StoreText.with_instructions(default if has_words else EMPTY_TEXT)
