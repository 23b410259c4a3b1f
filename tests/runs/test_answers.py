"""Answers that were made elsewhere: what does not fit is refused in one line, what does gets metrics and its usage."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.errors import DataError
from mempiler.programs.external.program import program_of
from mempiler.runs.evaluate import evaluate
from mempiler.runs.external import Answers

from .evaluations import asked, locomo


def lines(*rows: Any) -> str:
    return "\n".join(json.dumps(row) for row in rows)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (lines({"id": "a:4:0", "answer": "x"}, {"id": "a:4:0", "answer": "y"}), "line 2: id 'a:4:0' was there already"),
        (lines({"id": "a:4:0", "answer": "x"}), r"id 'a:4:1' is missing \(1 such\); every question needs a line"),
        (
            lines({"id": "zz", "answer": "x"}),
            r"id 'zz' is of no question \(1 such\); those of the benchmark are like 'a:4:0'",
        ),
        (lines({"answer": "x"}), "line 1, field 'id': is missing"),
        (lines({"id": "a:4:0"}), "line 1: has no answer; give `answer`, or `error`"),
        (lines({"id": "a:4:0", "answer": "x", "cost": -1}), "line 1, field 'cost'"),
        ('{"id": "a:4:0", ', "line 1, column 17: not valid JSON"),
    ],
)
def test_recorded_answers_that_do_not_fit_are_one_line(
    text: str, problem: str, make_history: Any, tmp_path: Path
) -> None:
    (tmp_path / "answers.jsonl").write_text(text, encoding="utf-8")
    benchmark = locomo(asked(make_history(1, id="a"), 2))
    with pytest.raises(DataError, match=problem) as raised:
        Answers(tmp_path / "answers.jsonl").given(benchmark, benchmark.examples)
    assert "\n" not in str(raised.value)


def test_recorded_answers_get_metrics_and_what_they_took(make_history: Any, tmp_path: Path) -> None:
    rows = [
        {"id": "a:4:0", "answer": "Bob", "recalled": [{"id": "D1:1", "text": "x"}], "calls": 2, "input_tokens": 9},
        {"id": "a:4:1", "error": "timed out"},
        {"id": "a:4:2", "answer": "Ann", "seconds": 100, "calls": 1, "cost": 0.5},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text(lines(*rows), encoding="utf-8")
    benchmark, thing, meter = locomo(asked(make_history(1, id="a"), 3)), Answers(path), Meter()
    program = program_of(thing, path.name, "question-answering")
    with dspy.context(lm=language_model(meter=meter)):
        found = evaluate(program, benchmark, thing.given(benchmark, benchmark.examples), meter, 2)
    assert program.method.config["sha256"]
    assert [row.score for row in found.rows] == [1.0, 0.0, 0.0]
    assert found.failures == 1
    assert "timed out" in found.rows[1].failure.message
    assert found.retrieval() == {"shown": pytest.approx(1 / 3)}
    assert (found.answering.calls, found.answering.input_tokens) == (3, 9)
    assert found.rows[2].cost == 0.5
    assert found.answering.seconds > 100
