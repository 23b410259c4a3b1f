"""The texts of a memory system that optimizers may change, such as its extraction rules.

A memory system is a class, or a function that makes objects. Each of its objects is a *store*,
which keeps the memory of one history. The class or function, called the *target* here, declares the
texts with their defaults in `TEXTS`. Each store is made with the present texts:

    class Notes:
        TEXTS = {"rules": "Keep what the user says about people."}

        def __init__(self, texts):
            self.rules = texts["rules"]

Each text is a predictor whose instructions are the text. The predictor itself asks no model. The
system's model calls are recorded as calls of this predictor, so that optimizers learn from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy

from ...errors import UserError
from ...text import one_line
from ..predictor import Predictor
from ..state import signature_of
from .target import declared_value

TEXTS = "TEXTS"
"""The attribute of a class or function that declares its texts, with their defaults."""

TEXTS_PARAMETER = "texts"
"""The parameter that gets the present texts by name."""

_EXAMPLE = '{"rules": "the default text"}'
"""A declaration, for error messages."""

EMPTY_TEXT = "(This text is empty: nothing is added to the system's own prompt.)"
"""The instructions that stand for an empty text. Without any, DSPy would invent some."""

_MAX_SHOWN_LENGTH = 60
"""Most characters of a wrong value in an error message."""


class TextPredictor(Predictor):
    """A predictor whose instructions are one text of a memory system.

    Args:
        name: The name of the text.
        default: The text before an optimizer changes it.
    """

    shows_demos = False

    def __init__(self, name: str, default: str) -> None:
        super().__init__(_signature_for(name, default))
        self._default_text = default
        self._original_instructions = signature_of(self).instructions

    @property
    def text(self) -> str:
        """The present text: the default, or what an optimizer made of it."""
        instructions = signature_of(self).instructions
        if instructions == self._original_instructions:
            # Instructions are not exactly the text that they were made from: DSPy strips spaces
            # around them, and `EMPTY_TEXT` stands for an empty text. The default itself is exact.
            return self._default_text
        return instructions


class TextPredictors(dspy.Module):
    """The predictors of all texts of a memory system; each is an attribute with the text's name.

    Args:
        defaults: The default texts by name.
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
    """Return the names of the texts that a prompt contains, however its lines are broken."""
    prompt_line = one_line(prompt)
    names: list[str] = []
    for name, text in texts.items():
        text_line = one_line(text)
        # An empty text is in every prompt, which says nothing.
        if text_line and text_line in prompt_line:
            names.append(name)
    return tuple(names)


def declared_texts(target: Any, name: str) -> dict[str, str]:
    """Return the default texts that a memory system declares in `TEXTS`, by name.

    The result is empty if the system has no texts that can be changed.

    Args:
        target: The class or function that makes the stores of the system.
        name: The name of the target in errors.

    Raises:
        UserError: `TEXTS` maps no names to texts, or is missing though the target needs texts.
    """
    default_texts = declared_value(target, TEXTS, TEXTS_PARAMETER, _EXAMPLE, name)
    if default_texts is None:
        return {}
    if not isinstance(default_texts, Mapping):
        raise UserError(
            f"{name}: {TEXTS} = {_short_repr(default_texts)}; "
            f"give a dict of names and texts, such as {_EXAMPLE}"
        )
    for text_name, text in default_texts.items():
        _check_text(text_name, text, name)
    return dict(default_texts)


def _check_text(text_name: Any, text: Any, target_name: str) -> None:
    """Check one name and its text in the `TEXTS` of a target.

    Raises:
        UserError: The name cannot be the name of a predictor, or the text is no `str`.
    """
    if not _is_usable_name(text_name):
        raise UserError(
            f"{target_name}: {TEXTS} has the name {_short_repr(text_name)}; "
            "take another Python name, such as 'rules'"
        )
    if not isinstance(text, str):
        raise UserError(
            f"{target_name}: {TEXTS}[{text_name!r}] = {_short_repr(text)}; give a text in quotes"
        )


def _is_usable_name(text_name: Any) -> bool:
    """Return whether a text may have this name: its predictor becomes an attribute."""
    if not isinstance(text_name, str) or not text_name.isidentifier():
        return False
    if text_name.startswith("_"):
        return False
    is_taken = hasattr(TextPredictors, text_name)
    return not is_taken


def _short_repr(value: object) -> str:
    """Return how Python shows a value, cut for a message of one line."""
    return repr(value)[:_MAX_SHOWN_LENGTH]


def _signature_for(name: str, default: str) -> type[dspy.Signature]:
    """Return a signature whose instructions are a text of a memory system.

    Its fields describe the system's own model calls, from which optimizers learn.
    """
    # GEPA tells predictors apart by their signatures. The name of the text in a description makes
    # the signatures of two equal texts different.

    class StoreText(dspy.Signature):
        added_turns: list[str] = dspy.InputField(
            desc="ids of the turns that the memory system was given"
        )
        prompt: str = dspy.InputField(
            desc=f"what the memory system then asked its model, with its text {name!r}"
        )
        completion: str = dspy.OutputField(desc="what the model answered")

    is_empty = not default.strip()
    return StoreText.with_instructions(EMPTY_TEXT if is_empty else default)
