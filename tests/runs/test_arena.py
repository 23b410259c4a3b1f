"""The arena: one page of whatever was scored; what runs say is other people's text."""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli import main
from mempiler.errors import DataError, UserError
from mempiler.records import Failure
from mempiler.runs.arena import entries, read_wrong_golds, write
from mempiler.runs.arena_page import page, unbeaten
from mempiler.runs.compare import keep_rows, recorded
from mempiler.runs.folder import RunFolder
from mempiler.runs.leniency import keep, leniency
from mempiler.runs.report import usage_line
from mempiler.runs.results import Evaluation, Expense, Row

EVIL = "<script>alert(1)</script>"


def row(n: int, **changed: Any) -> Row:
    fields: dict[str, Any] = {
        "id": f"a:{n}",
        "group": "a",
        "category": "4",
        "counts": True,
        "question": f"Who saw Oslo, {n}?",
        "gold": "Bob",
        "answer": EVIL,
        "score": float(n % 2),
        "parts": {},
        "recall": {},
        "sources": (),
        "seconds": 0.1,
        "hits": 2,
        "recalled": (f"e{n}", "e0"),
        "stored": 10,
        "disk": 1000,
        "calls": 1,
        "prompt_tokens": 90,
        "output_tokens": 10,
        "cost": 0.25,
        "answering": 0.5,
    }
    return Row(**{**fields, **changed})


def evaluation(rows: list[Row], **changed: Any) -> Evaluation:
    fields: dict[str, Any] = {
        "program": "mine:Store",
        "benchmark": "locomo",
        "lm": "some/model",
        "embedder": None,
        "comparable": True,
        "rows": tuple(rows),
        "calls": {"task": 4},
        "tokens": {"input": 1, "output": 1},
        "cost": None,
        "write_failures": 0,
        "seconds": 1.0,
        "construction": Expense(units=1, calls=3, input_tokens=600, output_tokens=0, cost=1.0, seconds=2.0),
    }
    return Evaluation(**{**fields, **changed})


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


def test_a_row_says_what_it_rests_on_and_what_it_took(record):
    folder = record(evaluation([row(n) for n in range(4)]), config={"k": 3})
    (found,) = entries([str(folder)])
    assert found.command == "mempiler evaluate mine:Store --on locomo --data locomo10.json --lm some/model --set k=3"
    assert found.versions == {"mempiler": "0.1.0"}
    assert (found.official.n, found.official.score) == (4, 0.5)
    assert (found.right, found.taken.calls, found.tokens) == (2, 7, 1000)
    assert found.cost_per_right == pytest.approx((4 * 0.25 + 1.0) / 2)
    assert found.tokens_per_right == 500
    # Of 10 entries, e0, e1 and e3 were recalled for a right answer.
    assert found.junk == pytest.approx(0.7)
    assert found.disk == 1000
    assert entries([str(folder)])[0].hash == found.hash
    other = record(evaluation([row(n, answer="x") for n in range(4)]), config={"k": 3})
    assert entries([str(other)])[0].hash != found.hash


def test_junk_is_unknown_where_a_store_does_not_tell(record):
    assert evaluation([row(0), row(1, stored=None)]).junk is None


def test_what_runs_say_is_escaped_on_the_page(record, tmp_path):
    failure = Failure(kind="error", where="a:0", message=EVIL)
    rows = [row(0, failure=failure), row(1, question=EVIL)]
    folder = record(evaluation(rows, program=f"mine:{EVIL}", judge=f"{EVIL} (prompt 1)"), config={"k": EVIL})
    html, data = write(entries([str(folder)]), tmp_path / "out")
    text = html.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "http" not in text.replace("https", "http").split("base64,")[0].split("<body>")[1]
    assert "/home/ada" not in text + data.read_text(encoding="utf-8")
    assert json.loads(data.read_text(encoding="utf-8"))["entries"][0]["reason"] == f"1 of 2 questions: {EVIL}"


def test_a_run_that_broke_is_a_row_with_its_reason(record):
    whole = record(evaluation([row(1)]))
    broken = RunFolder.create("y", {"command": "evaluate", "program": "mine:Bomb", "benchmark": "locomo"})
    broken.update(status="failed", error="took all of the disk")
    found = entries([str(whole.parent)])
    assert [(each.program, each.reason) for each in found if each.reason] == [("mine:Bomb", "took all of the disk")]
    assert "took all of the disk" in page(found)


def test_wrong_golds_are_left_out_beside_the_official_score(record, tmp_path):
    folder = record(evaluation([row(n) for n in range(4)]))
    lines, audit = tmp_path / "a.jsonl", tmp_path / "b.json"
    lines.write_text('{"id": "a:0", "answer": "Ann"}\n', encoding="utf-8")
    audit.write_text(
        json.dumps(
            [
                {"question": "who saw  Oslo, 2?", "error_type": "TEMPORAL_ERROR"},
                {"question": "Who saw Oslo, 3?", "error_type": "WRONG_CITATION"},
            ]
        ),
        encoding="utf-8",
    )
    (found,) = entries([str(folder)], read_wrong_golds([lines, audit]))
    assert (found.official.n, found.official.score) == (4, 0.5)
    assert (found.corrected.n, found.corrected.score) == (2, 1.0)


def test_the_published_audit_of_locomo_is_taken_in_its_form(record, tmp_path):
    """The fields of `errors.json` of dial481/locomo-audit; what is in them is made up."""

    def finding(number, kind):
        return {
            "question_id": f"locomo_0_qa{number}",
            "question": f"Who saw Oslo, {number}?",
            "golden_answer": number,
            "category": 4,
            "error_type": kind,
            "cited_evidence": ["D1:1"],
            "correct_evidence": ["D1:2"],
            "reasoning": "D1:1 says that it was Bob.",
            "correct_answer": "Bob",
        }

    kinds = ["HALLUCINATION", "TEMPORAL_ERROR", "ATTRIBUTION_ERROR", "AMBIGUOUS", "INCOMPLETE", "WRONG_CITATION"]
    audit = tmp_path / "errors.json"
    audit.write_text(json.dumps([finding(n, kind) for n, kind in enumerate(kinds)], indent=2), encoding="utf-8")
    folder = record(evaluation([row(n) for n in range(8)]))
    (found,) = entries([str(folder)], read_wrong_golds([audit]))
    assert (found.official.n, found.corrected.n) == (8, 3)


@pytest.mark.parametrize(
    ("text", "problem"), [("[3]", "no object"), ("{", "neither a JSON"), ('{"a": 1}', "neither a te")]
)
def test_files_that_name_no_question_are_refused(text, problem, tmp_path):
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=problem):
        read_wrong_golds([tmp_path / "x.json"])


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        entries([str(tmp_path)])


def test_the_leniency_of_a_checked_judge_stands_beside_its_scores(record, capsys):
    judged = evaluation([row(1)], judge="offline/x (prompt 0123456789ab)")
    folder = record(judged)
    assert entries([str(folder)])[0].leniency is None
    keep("offline/x (prompt 0123456789ab)", 0.25)
    assert entries([str(folder)])[0].leniency == 0.25
    assert "accepts 25% of wrong answers" in page(entries([str(folder)]))


def test_checking_the_judge_of_a_benchmark_is_remembered(record, capsys):
    main(["judge", "check", "--on", "locomo", "--json"])
    found = json.loads(capsys.readouterr().out)
    wrong = found["wrong"]
    from mempiler.engines.models import language_model

    name = f"{language_model('offline').model} (prompt {found['judge_hash'][:12]})"
    assert leniency(name) == wrong["rate"]
    with pytest.raises(SystemExit):
        main(["judge", "check", "--on", "movielens"])
    assert "asks a judge of short answers" in capsys.readouterr().err


def test_the_command_writes_both_files(record, tmp_path, capsys):
    folder = record(evaluation([row(1)]))
    main(["arena", "report", str(folder), "--out", str(tmp_path / "out")])
    assert "1.000  mine:Store on locomo" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"index.html", "arena.json"}


def test_nothing_unbeaten_is_both_dearer_and_worse():
    points = [(3.0, 0.4), (1.0, 0.2), (2.0, 0.1), (4.0, 0.9), (4.0, 0.3)]
    assert unbeaten(points) == [(1.0, 0.2), (3.0, 0.4), (4.0, 0.9)]


def test_calls_that_were_made_elsewhere_are_told_as_such(record):
    here = evaluation([row(1)])
    assert here.spent["calls"] == {"task": 4}
    away = evaluation([row(1)], calls={"task": 0}, tokens={"input": 0, "output": 0})
    assert away.spent["calls"] == {"elsewhere": 4}
    assert usage_line(away).startswith("LM calls: 4 elsewhere; 690 + 10 tokens; $1.2500")
    assert recorded(str(record(away))).usage()["tokens"] == {"input": 690, "output": 10}
