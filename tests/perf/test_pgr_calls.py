"""The script counts the calls of a query, and prints the paper's beside them."""

import sys
from pathlib import Path

import pytest

PERF = Path(__file__).parents[2] / "perf"


def test_calls_are_counted_by_predictor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(PERF))
    import pgr_calls

    monkeypatch.setattr(sys, "argv", ["pgr_calls", "--questions", "1"])
    monkeypatch.setattr(pgr_calls, "OPTIONS", {"memoryquest": {"metric": "evidence"}})
    pgr_calls.main()
    _, _, head, row, *paper = capsys.readouterr().out.splitlines()
    found = dict(zip(head.split()[:7], map(float, row.split()[1:8]), strict=True))
    assert found == {"n": 1, "imagine": 1, "refine": 1, "rewrite": 0, "summarize": 1, "answer": 1, "calls": 4}
    assert [line.split()[:2] for line in paper[2:]] == [
        ["MemoryQuest", "4.79"],
        ["ImplexConv", "4.32"],
        ["PersonaMem", "4.41"],
    ]
