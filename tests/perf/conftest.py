"""Import the scripts of perf/, which is no package."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a script of perf/ by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "perf"))
    return importlib.import_module
