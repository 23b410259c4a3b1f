"""perf/settings.py: what tuned settings gain on conversations that they were not tuned on."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from mempiler import benchmark


def test_settings_are_tuned_and_tested_on_different_conversations(script: Any) -> None:
    settings = script("settings")

    split = settings._halves(benchmark("locomo"))

    tuned_on = {question.history.id for question in split.train}
    tested_on = {question.history.id for question in split.test}
    assert tuned_on
    assert tested_on
    assert tuned_on.isdisjoint(tested_on)


def test_the_difference_of_tuned_settings_is_printed_with_its_interval(script: Any) -> None:
    """All three questions gain one half, so whichever are drawn gain one half."""
    settings = script("settings")
    comparison = settings.Comparison(
        shipped=np.array([0.0, 0.5, 0.25]),
        tuned=np.array([0.5, 1.0, 0.75]),
        is_changed=True,
        note="",
    )

    assert comparison.difference() == "+0.500 [+0.500, +0.500]"


def test_the_script_prints_a_line_for_each_set_of_questions(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first trial is the start, so a single trial finds nothing better."""
    settings = script("settings")
    monkeypatch.setattr(settings, "SAMPLES", ("longmemeval",))
    monkeypatch.setattr(sys, "argv", ["settings", "--trials", "1"])

    settings.main()

    head, line, note = capsys.readouterr().out.splitlines()
    assert head.startswith("turn-rag, words alone, 1 trials")
    assert line.split() == ["longmemeval", "sample", "10", "0.850", "0.850", "no", "change"]
    assert note.strip() == "settings: nothing was better than the starting values (sets tried: 1)"
