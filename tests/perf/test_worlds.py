"""The page of what was found in the worlds: a paper that is measured anew takes its own place, and no other's."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mempiler.runs.recipes.claims.catalog import CLAIMS

PERF = Path(__file__).parents[2] / "perf"


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(PERF))
    import worlds

    few = {
        "memory-r2": replace(CLAIMS["memory-r2"], claims=(CLAIMS["memory-r2"].named("1 part"),)),
        "rgmem": replace(CLAIMS["rgmem"], claims=(CLAIMS["rgmem"].named("silent: R_K3"),)),
    }
    monkeypatch.setattr(worlds, "CLAIMS", few)
    return worlds


def test_a_paper_that_is_measured_anew_takes_its_own_place(worlds, monkeypatch, tmp_path, capsys):
    page, results = tmp_path / "page.md", tmp_path / "results.jsonl"

    def written(*words):
        monkeypatch.setattr(sys, "argv", ["worlds.py", *words, "--page", str(page), "--results", str(results)])
        assert worlds.main() == 0
        return page.read_text(encoding="utf-8")

    whole = written("--users", "2")
    assert whole.count("\n## ") == 2
    assert "| 1 part | corrected | lower | 2 | -1.000 | [-1.000, -1.000] | as predicted |" in whole
    # As a run leaves it that is killed in the middle of a line: only that claim is measured again.
    results.write_text(results.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    assert written("rgmem", "--users", "2") == whole
    monkeypatch.setattr("world_bench.Bench.found", None)
    assert written("rgmem", "--users", "2") == whole
    assert "silent: R_K3" in capsys.readouterr().out
