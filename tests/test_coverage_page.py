"""`docs/coverage.md` keeps its word: its symbols exist, and every signature and every method is named."""

import importlib
import re
from pathlib import Path
from typing import Any

from mempiler.programs.catalog import method_class
from mempiler.programs.names import METHODS

from tests.suite import suite

PAGE = (Path(__file__).parents[1] / "docs" / "coverage.md").read_text(encoding="utf-8")
_SYMBOL = re.compile(r"`(mempiler(?:\.\w+)+)`")


def remarks(page: str) -> list[str]:
    """What a coverage page names wrongly, and what it leaves out."""
    named = dict.fromkeys(_SYMBOL.findall(page))
    missing = [f"{symbol} does not exist" for symbol in named if not _exists(symbol)]
    kinds = (*suite(), *map(method_class, METHODS))
    symbols = (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
    return missing + [f"{symbol} is not named" for symbol in symbols if symbol not in named]


def _exists(symbol: str) -> bool:
    """Whether a dotted name is a module, or an attribute or field that is reached through one."""
    parts = symbol.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            fields = getattr(found, "model_fields", {})
            if part not in fields and not hasattr(found, part):
                return False
            found = fields[part] if part in fields else getattr(found, part)
        return True
    return False


def test_the_page_is_right_and_complete() -> None:
    assert remarks(PAGE) == []
