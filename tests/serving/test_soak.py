"""A hostile tenant for a short while; `perf/kill.py --soak` does so for longer, with the bounds of an idle machine."""

from pathlib import Path
from typing import Any

import pytest

from .soak import good, soak

SLOW = {"chat": 5.0, "search": 5.0, "remembered": 60.0}
"""Seconds: some five times those of a machine of one's own, for one that others work on as well."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_hostile_tenant_holds_up_no_other_and_nothing_is_lost_doubled_or_told(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue("postgres").emptied() if kind == "postgres" else None
    found: dict[str, Any] = soak(tmp_path, 2.0, store)
    assert good(found, **SLOW), found
    assert min(found[count] for count in ("kills", "sessions", "chats")) >= 1
