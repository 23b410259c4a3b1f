"""What tests of engines share: a cache of their own, since vectors are kept there, and both ways to ask."""

import asyncio
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors are kept in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=["call", "acall"])
def ask(request: pytest.FixtureRequest) -> Any:
    """Asks a model, from a thread or from a loop."""

    def asked(lm: Any, text: str = "question: Where?") -> Any:
        return lm(text) if request.param == "call" else asyncio.run(lm.acall(text))

    return asked
