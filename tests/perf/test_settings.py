"""perf/settings.py: what tuned settings gain on conversations that they were not tuned on."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from mempiler import benchmark


def test_the_halves_of_a_sample_share_no_conversation(script: Any) -> None:
    """Settings are tuned on the questions of one half, and tested on those of the other."""
    settings = script("settings")

    split = settings._halves(benchmark("locomo"))

    tuned_on = {question.history.id for question in split.train}
    tested_on = {question.history.id for question in split.test}
    assert tuned_on
    assert tested_on
    assert tuned_on.isdisjoint(tested_on)


def test_the_difference_has_the_interval_of_the_questions(script: Any) -> None:
    """All questions gain one half, so any questions that are drawn gain one half."""
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
