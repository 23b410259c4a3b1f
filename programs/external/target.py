"""What can be scored beside our methods, and how it is asked.

| target                                               | how it is asked                        |
|------------------------------------------------------|----------------------------------------|
| a class or object with `add` and `search`            | "search": our task answers from hits   |
| a class or object with `add` and `ask`               | "ask": it answers by itself            |
| a function `make(folder)`                            | the same, for the store that it makes  |
| the URL of a chat endpoint                           | "ask"                                  |
| a function of (history, question), or a dspy.Module  | "answer": it is shown the history      |
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Literal

import dspy

from ...errors import ProgramError, UserError
from ...records.import_object import import_object
from ..method import Method
from ._endpoint import Endpoint

TargetKind = Literal["search", "ask", "answer"]
"""How a target is asked.

"search" and "ask" are for stores, which are given the sessions of a history one by one. "answer" is
for what takes the whole history with every question.
"""

URL_PREFIXES = ("http://", "https://")

CANNOT_BE_SCORED = "has neither add and search nor the parameters (history, question)"
"""What errors say of a target that has no kind."""

POSITIONAL_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
"""The kinds of parameters that can be passed by position."""

KINDS_PASSED_BY_NAME = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)
"""The kinds of parameters that can be passed by name."""


def load_target(name: str) -> Any | None:
    """Return the user's system or agent that a name stands for; None for a method of Mempiler.

    Args:
        name: What the user wrote where a method is expected: the URL of an endpoint, the
            `module:attribute` of an object to import, or the name of a method.

    Returns:
        The class `Endpoint` for a URL, else the imported object. None for the name of a method, and
        for an imported subclass of `Method`.

    Raises:
        UserError: The object cannot be imported.
        ProgramError: The imported object is no method, and cannot be scored as a system either.
    """
    if name.startswith(URL_PREFIXES):
        # The caller still has the URL, and passes it to `Endpoint`.
        return Endpoint
    # An object to import is named with a colon, e.g. "notes:Notes". Only methods are combined by
    # "+", so a name such as "logs+notes:Notes" stands for a method too.
    if ":" not in name or "+" in name:
        return None

    target = import_object("method", name)
    if inspect.isclass(target) and issubclass(target, Method):
        return None
    if target_kind(target) is None:
        raise ProgramError(
            f"method {name!r} is not a subclass of mempiler.Method, and {CANNOT_BE_SCORED}"
        )
    return target


def target_kind(target: Any) -> TargetKind | None:
    """Return how a user's system is asked: "search", "ask" or "answer"; None if in no such way.

    A store keeps a history, and has a method `search` or `ask` for questions. The result is the
    name of this method for a store, a class of stores, or a function that makes stores.

    The result is "answer" for a `dspy.Module`, a class of modules, or a function that can be called
    with the whole history and a question.
    """
    store_kind = _store_kind(target)
    if store_kind is not None:
        return store_kind

    if isinstance(target, type):
        return "answer" if issubclass(target, dspy.Module) else None
    if isinstance(target, dspy.Module):
        return "answer"

    # A function is called with two arguments by position: a history and a question.
    positional_names: list[str] = []
    for name, parameter in parameters(target).items():
        if parameter.kind in POSITIONAL_KINDS:
            positional_names.append(name)
    takes_history_and_question = len(positional_names) >= 2
    return "answer" if takes_history_and_question else None


def _store_kind(target: Any) -> Literal["search", "ask"] | None:
    """Return whether a store of the user's is searched or asked; None if the target is no store.

    A store has the methods `add`, and `search` or `ask`. The target may also be a class of stores,
    or a function with a parameter `folder` that makes stores.
    """
    # The constructor of a class may have a parameter `folder` too. But a class is recognized by the
    # methods of its stores, below.
    is_class = isinstance(target, type)
    is_function_for_stores = not is_class and "folder" in parameters(target)
    is_searchable = hasattr(target, "add") and hasattr(target, "search")
    if is_function_for_stores or is_searchable:
        # A function does not show which methods its stores have, and a searchable store may have
        # `ask` as well. An attribute `asks` that is True says that they are to be asked.
        is_asked = getattr(target, "asks", False) is True
        return "ask" if is_asked else "search"

    if hasattr(target, "add") and hasattr(target, "ask"):
        return "ask"
    return None


def declared_value(target: Any, attribute: str, parameter: str, example: str, name: str) -> Any:
    """Return what a memory system declares in an attribute, and takes as an argument.

        class Notes:
            TEXTS = {"rules": "Keep what people like."}         # the attribute

            def __init__(self, texts): ...                      # the argument

    Args:
        target: The class or function that makes the stores of the system.
        attribute: The name of the attribute.
        parameter: The name of the parameter that takes the present values.
        example: A value of the attribute, for the error.
        name: The name of the target in errors.

    Returns:
        The value of the attribute; None if the target has no such parameter, or declares nothing
        and can be called without it.

    Raises:
        UserError: The target needs the argument but declares nothing.
    """
    taken = parameters(target).get(parameter)
    if taken is None:
        # The present values could not be given to it.
        return None

    declared = getattr(target, attribute, None)
    if declared is not None:
        return declared
    has_default = taken.default is not taken.empty
    if has_default:
        # It can be called without, so the parameter may have this name by chance.
        return None
    raise UserError(
        f"{name}: takes {parameter} but declares none; set {attribute} = {example} in it"
    )


def takes_embedder(target: Any) -> bool:
    """Return whether a store is to be given the embedder of the run."""
    return target_kind(target) in ("search", "ask") and "embedder" in parameters(target)


def parameters(target: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function, class or other callable by name.

    The result is empty if the target cannot be called, or is built-in and tells no parameters.
    """
    try:
        return inspect.signature(target).parameters
    except (TypeError, ValueError):
        return {}
