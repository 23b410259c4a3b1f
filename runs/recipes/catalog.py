"""The recipes by name."""

from __future__ import annotations

from ...errors import UnknownNameError
from .h2memory import H2MEMORY
from .memory_r2 import MEMORY_R2
from .pgr import PGR
from .pramem import PRAMEM
from .recipe import Recipe
from .rgmem import RGMEM

RECIPES: dict[str, Recipe] = {
    "h2memory": H2MEMORY,
    "memory-r2": MEMORY_R2,
    "pgr": PGR,
    "pramem": PRAMEM,
    "rgmem": RGMEM,
}


def recipe(name: str) -> Recipe:
    """The recipe of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in RECIPES:
        raise UnknownNameError("recipe", name, RECIPES)
    return RECIPES[name]
