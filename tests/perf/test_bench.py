"""perf/bench.py: its rows are those of the page, and a row tells what it measured."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GIVEN = Namespace(only=None, data=None, conversation=None, mem0="nowhere")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "perf"))
    import bench

    return bench


def test_the_page_has_every_row(bench: Any) -> None:
    page = (ROOT / "docs/costs.md").read_text(encoding="utf-8")
    declared = {(row.work, row.at) for part in bench.PARTS for row in bench.PARTS[part](GIVEN)}
    cells = [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert declared == {(row[0].removeprefix(" "), row[1]) for row in cells if row[0] not in (" work", " ---")}


@pytest.mark.parametrize(
    ("ours", "above", "holds"), [(2.0, False, "yes"), (4.0, False, "NO"), (4.0, True, "yes"), (2.0, True, "NO")]
)
def test_a_row_tells_ours_beside_its_peer_and_what_bounds_it(bench: Any, ours: float, above: bool, holds: str) -> None:
    row = bench.Row(
        *("search", "query", "10", lambda: {"ours": ours, "faiss": 2.0, "n": 7.0}, "ours", 1.5),
        **{"peers": ["faiss", "bm25s"], "of": "faiss", "above": above, "bound": "{n:.0f} hits"},
    )
    *_, aim, unit, verdict, notes = row.cells()
    assert (aim, unit, verdict) == (">=3" if above else "<=3", "CPU ms", holds)
    assert notes.startswith(f"faiss 2 ({ours / 2:g} x); bm25s not here")
    assert notes.endswith("7 hits") is (holds == "NO")


@pytest.mark.slow
def test_counts_of_calls_are_those_of_the_page(bench: Any) -> None:
    page = (ROOT / "docs/costs.md").read_text(encoding="utf-8")
    rows = {
        row.work: row.cells() for row in bench.PARTS["calls"](GIVEN) if "way" not in row.work and "once" in row.value
    }
    found = rows["memory-r2, all questions of a conversation"]
    assert f"| {found[0]} | {found[1]} | {found[2]} |" in page
