"""What a comparison says of runs beside their scores, and how it leaves out questions with wrong golds."""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli import main
from mempiler.errors import DataError
from mempiler.runs.compare import keep_rows, recorded
from mempiler.runs.folder import RunFolder
from mempiler.runs.leniency import leniency
from mempiler.runs.report import usage_line
from mempiler.runs.results import Evaluation, Expense
from mempiler.runs.rows import Row
from mempiler.runs.wrong_golds import read_wrong_golds

from .evaluations import evaluation as an_evaluation
from .evaluations import row as a_row

EVIL = "<script>alert(1)</script>"


def row(n: int, **changed: Any) -> Row:
    """A question that is right where its number is odd, and what it took."""
    asked = {"question": f"Who saw Oslo, {n}?", "gold": "Bob", "answer": EVIL, "recalled": (f"e{n}", "e0")}
    stored = {"hits": 2, "stored": 10, "disk": 1000}
    taken = {"calls": 1, "prompt_tokens": 90, "output_tokens": 10, "cost": 0.25, "answering": 0.5}
    return a_row(**{"id": f"a:{n}", "score": float(n % 2), **asked, **stored, **taken, **changed})


def evaluation(rows: list[Row], **changed: Any) -> Evaluation:
    """Four calls here, of which three wrote the memory."""
    writing = Expense(units=1, calls=3, input_tokens=600, output_tokens=0, cost=1.0, seconds=2.0)
    about = {"program": "mine:Store", "lm": "some/model", "cost": None, "calls": {"task": 4}}
    return an_evaluation(rows, **{**about, "construction": writing, **changed})


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Keeps evaluations as runs in a results folder of their own."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))

    def make(found: Evaluation, **settings: Any) -> Path:
        about = {"command": "evaluate", "program": found.program, "benchmark": found.benchmark, "lm": found.lm}
        folder = RunFolder.create("x", {**about, "data": "/home/ada/locomo10.json", "options": {}, **settings})
        keep_rows(folder, "evaluation", found)
        folder.update(status="finished", result=found.summary(), versions={"mempiler": "0.1.0"}, parameters={})
        return folder.path

    return make


def test_usage_says_what_a_run_took_and_what_its_memory_is_worth(record):
    found = recorded(str(record(evaluation([row(n) for n in range(4)])))).usage()
    assert (found["n"], found["score"], found["right"], found["disk"]) == (4, 0.5, 2, 1000)
    # Of 10 entries, e0, e1 and e3 were recalled for a right answer.
    assert found["junk"] == pytest.approx(0.7)


def test_a_comparison_leaves_out_wrong_golds(record, tmp_path, capsys):
    runs = [str(record(evaluation([row(n, score=float(n % 2 == right)) for n in range(4)]))) for right in (0, 1)]
    lines, audit = tmp_path / "a.jsonl", tmp_path / "b.json"
    lines.write_text('{"id": "a:0", "answer": "Ann"}\n', encoding="utf-8")
    findings = [("who saw  Oslo, 2?", "TEMPORAL_ERROR"), ("Who saw Oslo, 3?", "WRONG_CITATION")]
    audit.write_text(json.dumps([{"question": text, "error_type": kind} for text, kind in findings]), encoding="utf-8")
    main(["compare", *runs, "--wrong-golds", str(lines), "--wrong-golds", str(audit), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [(run["n"], run["score"]) for run in found["runs"]] == [(2, 0.0), (2, 1.0)]
    main(["compare", *runs, "--json"])
    assert [run["n"] for run in json.loads(capsys.readouterr().out)["runs"]] == [4, 4]


@pytest.mark.parametrize(
    ("text", "problem"), [("[3]", "no object"), ("{", "neither a JSON"), ('{"a": 1}', "neither a te")]
)
def test_files_that_name_no_question_are_refused(text, problem, tmp_path):
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=problem):
        read_wrong_golds([tmp_path / "x.json"])


def test_checking_the_judge_of_a_benchmark_is_remembered(record, capsys):
    main(["evaluate", "locomo", "--on", "judge-check", "--json"])
    found = json.loads(capsys.readouterr().out)
    wrong = found["wrong"]
    from mempiler.engines.models import language_model

    name = f"{language_model('offline').model} (prompt {found['judge_hash'][:12]})"
    assert leniency(name) == wrong["rate"]
    with pytest.raises(SystemExit):
        main(["evaluate", "movielens", "--on", "judge-check"])
    assert "asks a judge of short answers" in capsys.readouterr().err


def test_calls_that_were_made_elsewhere_are_told_as_such(record):
    here = evaluation([row(1)])
    assert here.spent["calls"] == {"task": 4}
    away = evaluation([row(1)], calls={"task": 0}, tokens={"input": 0, "output": 0})
    assert away.spent["calls"] == {"elsewhere": 4}
    assert usage_line(away).startswith("LM calls: 4 elsewhere; 690 + 10 tokens; $1.2500")
    assert recorded(str(record(away))).usage()["tokens"] == {"input": 690, "output": 10}
