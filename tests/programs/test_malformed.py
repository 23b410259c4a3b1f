"""Malformed answers, each kind once: no crash, nothing lost silently, no session lost; `perf/malformed.py` has more."""

from __future__ import annotations

import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "perf"))

import malformed
from spoiled import KINDS

PREDICTORS = {
    "pramem": ("groundedness",),
    "pgr": ("facts",),
    "memory-r2": ("operations",),
    "h2memory": ("outlines",),
    "rgmem": ("fact", "conclusions"),
}
ITEMS = {"pramem": 2, "h2memory": 2}
"""Items with which the prompt is asked; one of the others."""


@pytest.mark.parametrize("method", PREDICTORS)
def test_no_kind_of_malformed_answer_loses_anything_silently(method: str) -> None:
    conversation = malformed.Conversation(method, ITEMS.get(method, 1))
    modes = cycle(malformed.MODES)
    cells: list[Any] = []
    for kind in KINDS.values():
        cells += conversation.cells(PREDICTORS[method], [kind], [next(modes)])
    assert len(cells) > 12
    assert [cell.line for cell in cells if cell.verdict in ("silent", "crashed") or cell.sessions] == []
