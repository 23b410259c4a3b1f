"""The recipes by name.

Example:
    >>> recipe("pgr").benchmark
    'memoryquest'
"""

from __future__ import annotations

from ...errors import UnknownNameError
from .pgr import PGR
from .recipe import Recipe

RECIPES: dict[str, Recipe] = {"pgr": PGR}


def recipe(name: str) -> Recipe:
    """The recipe of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in RECIPES:
        raise UnknownNameError("recipe", name, RECIPES)
    return RECIPES[name]
