"""`compare` and `show`: what they print, refuse, and end with, and which questions a run got wrong, and why."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from mempiler import build, save
from mempiler.records import Failure
from mempiler.runs.folder import RunFolder
from mempiler.runs.pages.html import save_page
from mempiler.runs.pages.page import run_page
from mempiler.runs.question_trace import Entry, QuestionTrace
from mempiler.runs.results import Evaluation

from ..runs.evaluations import evaluation as made
from ..runs.evaluations import row
from ..runs.pages.test_document import evaluation as seen_evaluation
from ..runs.pages.test_document import row as seen_row

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(cli: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command, on lines of 160 characters."""
    monkeypatch.setenv("COLUMNS", "160")
    return cli


def evaluation(scores: Sequence[float | None], prefix: str = "q", writes: int = 0) -> Evaluation:
    """One question per score; None failed, by turns at the endpoint and in parsing."""
    rows = [
        row(
            f"{prefix}{n}",
            score or 0.0,
            category=str(1 + n % 2),
            question=f"What of [{n}]?",
            failure=Failure(kind=("endpoint", "parse")[n % 2], where="", message=f"no {n}") if score is None else None,
        )
        for n, score in enumerate(scores)
    ]
    failed = tuple(Failure(kind="parse", where=f"ann, item D{n}, extract", message="garbled") for n in range(writes))
    return made(rows, write_failures=writes, failed_writes=failed, names={"1": "[multi]", "2": "temporal"})


def evaluated(*args: Any, lm: str = "openai/x", **options: Any) -> str:
    """The name of a finished evaluation in the results folder."""
    folder, found = RunFolder.create("evaluate-x", {"command": "evaluate"}), evaluation(*args, **options)
    save_page(folder.path, run_page("evaluate", folder.path.name, {"score": found}))
    folder.update(status="finished", parameters={"lm": lm})
    return folder.path.name


def compiled(start: Evaluation, result: Evaluation) -> str:
    folder = RunFolder.create("compile-x", {"command": "compile"})
    phases = {"before": start, "after": result} if start != result else {"before": start}
    save_page(folder.path, run_page("compile", folder.path.name, phases))
    return folder.path.name


@pytest.fixture(scope="session")
def runs() -> dict[str, str]:
    """Finished runs on the same 24 questions, and one on others."""
    return {
        "half": evaluated([1.0, 0.0] * 12),
        "better": evaluated([1.0, 0.0] * 6 + [1.0] * 12),
        "worse": evaluated([1.0, 0.0] * 4 + [0.0] * 16),
        "short": evaluated([0.0, 0.0]),
        "other": evaluated([1.0] * 24, prefix="p"),
    }


def test_differences_are_printed_by_category_with_interval_p_verdict_and_usage(call, runs):
    # Six of 24 gained: +0.25, and 2 * 1 / 2^6 = 0.03125; all six in the second category.
    code, out, _ = call("compare", runs["half"], runs["better"])
    assert code == 0
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert lines["[multi]"][1:3] == ["12", "1.000"]
    assert lines["temporal"][1:3] == ["12", "0.000"]
    scope = "(scope: other questions about these conversations)"
    assert f"B against A: +0.250 [+0.083, +0.417], p = .031, n = 24: better {scope}\n" in out
    assert out.count("$0.5000") == 2


def test_every_further_run_is_compared_with_the_first(call, runs):
    found = json.loads(call("compare", runs["half"], runs["better"], runs["worse"], "--json")[1])
    assert [each["run"] for each in found["runs"]] == [runs["half"], runs["better"], runs["worse"]]
    differences = [each["overall"]["difference"] for each in found["comparisons"]]
    assert [each["mean"] for each in differences] == pytest.approx([0.25, -8 / 24])
    assert [each["verdict"] for each in differences] == ["better", "worse"]
    assert {each["scope"] for each in differences} == {"other questions about these conversations"}
    assert found["runs"][0]["cost"] == 0.5
    assert found["gate"] is None


def test_too_few_questions_are_said_to_be_too_few(call, runs):
    out = call("compare", runs["half"], runs["short"])[1]
    assert "p = 1, n = 2: too few to tell (scope: other questions about these conversations)\n" in out
    assert ": not told apart (scope: " in call("compare", runs["half"], runs["short"], "--min-n", "2")[1]
    assert "compared on the 2 questions that all were asked, of 24 and 2" in out


@pytest.mark.parametrize(
    ("names", "options", "code", "words"),
    [
        (["half", "better"], [], 0, "gate: nothing worse than"),
        (["half", "worse"], [], 1, "worse (-0.333 [-0.542, -0.167], p = "),
        (["half", "better", "worse"], [], 1, "worse ("),
        (["half", "short"], [], 1, "too few to tell (-0.500 ["),
        (["half", "short"], ["--min-n", "2"], 0, "gate: nothing worse than"),
    ],
)
def test_the_gate_ends_with_1_if_another_is_worse(call, runs, names, options, code, words):
    chosen = [runs[name] for name in names]
    ended, out, _ = call("compare", *chosen, "--gate", *options)
    assert ended == code
    assert out.splitlines()[-1].startswith("gate: ")
    assert words in out.splitlines()[-1]
    ended, out, _ = call("compare", *chosen, "--gate", *options, "--json")
    gate = json.loads(out)["gate"]
    scope = "other questions about these conversations"
    assert ended == code
    assert gate["passed"] == (code == 0)
    assert gate["scope"] == scope
    assert f"; scope: {scope})" in gate["message"]


def test_runs_on_other_questions_cannot_be_compared(call, runs):
    code, _, err = call("compare", runs["half"], runs["other"])
    assert code == 2
    assert "have no question in common" in err.splitlines()[-1]


def test_a_compile_is_compared_with_its_start_on_the_same_questions_in_a_page_too(call, tmp_path):
    options = ["--benchmark", "locomo", "--test", 6, "--json"]
    made = json.loads(call("compile", "turn-rag", "--optimizer", "labeled", "--dev", 2, "--force", *options)[1])
    start = json.loads(call("evaluate", "turn-rag", "--split", "test", *options)[1])
    files = ["--page", tmp_path / "both.html", "--export", "amb", tmp_path / "amb.json"]
    found = json.loads(call("compare", start["run_id"], made["run"], *files, "--json")[1])
    assert len(json.loads((tmp_path / "amb.json").read_text())["results"]) == start["n"]
    compared = found["comparisons"][0]
    assert compared["shared"] == 6
    assert compared["warnings"] == []
    assert compared["overall"]["difference"] == made["difference"]
    html = (tmp_path / "both.html").read_text(encoding="utf-8")
    data = json.loads(html.split('<script type="application/json" id="data">')[1].split("</script>")[0])
    assert data["phases"] == ["A", "B"]
    assert len(data["questions"]) == 6
    assert all(shown["calls"] and shown["entries"] for each in data["questions"] for shown in each["shown"])


def test_failures_are_listed_with_question_and_message(call):
    name = evaluated([1.0, None, None, None], writes=2)
    code, out, _ = call("show", name, "--failed")
    assert code == 0
    assert out.splitlines()[:2] == [f"score, writing ann, item D{n}, extract: parse: garbled" for n in range(2)]
    assert "3 of 4 questions\n" in out
    assert "  question: What of [1]?\n" in out
    assert "  answer: parse: no 1\n" in out
    assert "  answer: endpoint: no 2\n" in out
    found = json.loads(call("show", name, "--failed", "--json")[1])
    assert [each["id"] for each in found["questions"]] == ["q1", "q2", "q3"]
    assert found["questions"][0]["phases"]["score"]["failure"] == "parse: no 1"
    assert [each["where"] for each in found["writes"]] == ["ann, item D0, extract", "ann, item D1, extract"]


def test_failures_of_a_compile_are_listed_by_phase(call):
    lost = evaluation([None, 1.0])
    promoted = call("show", compiled(lost, evaluation([1.0, None])), "--failed")[1]
    assert "  answer before: endpoint: no 0\n" in promoted
    assert "  answer after: parse: no 1\n" in promoted
    # The start was kept: it was asked once, so its failure counts once.
    assert "1 of 2 questions\n" in call("show", compiled(lost, lost), "--failed")[1]


@pytest.fixture
def run(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of three questions in a results folder of its own, one of them wrong for want of evidence."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    folder = RunFolder.create("evaluate-x", {"command": "evaluate"})
    missed = seen_row(1, "What \x1b[31mcolour?", 0.0, category="2", recall={"shown": 0.0}, answer="red", gold="blue")
    scores = {"score": seen_evaluation(seen_row(), missed, seen_row(2))}
    save_page(folder.path, run_page("evaluate", folder.path.name, scores))
    return folder.path.name


def test_a_run_says_how_many_are_wrong_and_how_to_see_them(call: Call, run: str) -> None:
    code, out, _ = call("show")
    assert code == 0
    assert "turn-rag on locomo" in out
    assert f"mempiler show {run} --wrong: the wrong answers (1)" in out
    assert "wrong: no gold evidence recalled" in out
    assert "task.answer, score: 2 lost, 0 retried" in out
    assert f"{run}/report.html" in out


def test_wrong_questions_are_listed_with_what_went_wrong(call: Call, run: str) -> None:
    out = call("show", run, "--wrong")[1]
    assert out.splitlines() == [
        "q1 (2) 0.000: wrong: no gold evidence recalled",
        "  question: What \\u001b[31mcolour?",
        "  gold: blue",
        "  answer: red",
        "1 of 3 questions",
        f"mempiler show {run} --question q1: one in full, with its prompts",
    ]


def test_a_question_shows_its_evidence_and_its_prompt(call: Call, run: str) -> None:
    out = call("show", run, "--question", "q1")[1]
    assert "gold evidence that was not recalled:\n  [D4:2] Ann: Elsewhere." in out
    assert "* [D1:1] Ann: What \\u001b[31mcolour?" in out
    assert "prompt of task.answer (ok):\n--- user\nWhat?\n[D1:2] Bob: Yes.\n--- answer\nA" in out
    assert "\x1b[31m" not in out


def test_only_prompts_are_shown_of_a_program_that_reports_no_recall(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    folder = RunFolder.create("evaluate-x", {"command": "evaluate"})
    evidence = {"D1:1": "[D1:1] Ann: Here.", "D4:2": "[D4:2] Ann: Elsewhere."}
    seen = QuestionTrace(evidence=evidence, in_prompts=("D1:1",))
    row = seen_row(1, score=0.0, recall={"shown": 0.0}, sources=(), trace=seen)
    save_page(folder.path, run_page("evaluate", folder.path.name, {"score": seen_evaluation(row)}))
    assert "wrong; the program does not report which evidence it recalled" in call("show", "last", "--wrong")[1]
    out = call("show", "last", "--question", "q1")[1]
    assert "gold evidence that stood in the prompts:\n  [D1:1] Ann: Here.\n" in out
    assert "does not report whether it recalled it:\n  [D4:2] Ann: Elsewhere.\n" in out
    assert "not recalled" not in out


def test_entries_that_were_not_found_are_marked(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    folder = RunFolder.create("evaluate-x", {"command": "evaluate"})
    found = seen_row(1)
    assert found.trace is not None
    newest = Entry(line="[D9:9] Ann: Good night.", kind="turn", sources=(), fallback=True)
    missed = found.model_copy(update={"trace": found.trace.model_copy(update={"entries": (newest,)})})
    save_page(folder.path, run_page("evaluate", folder.path.name, {"score": seen_evaluation(seen_row(), missed)}))
    out = call("show", folder.path.name, "--question", "q1")[1]
    assert "recalled, 1 entries (* gold evidence, ~ shown because nothing was found):\n~ [D9:9] Ann: Good night." in out
    assert "~" not in call("show", folder.path.name, "--question", "q0")[1]
    shown = json.loads(call("show", folder.path.name, "--question", "q1", "--json")[1])["phases"]["score"]
    assert [entry["fallback"] for entry in shown["entries"]] == [True]


def test_a_run_that_does_not_exist_is_refused(call: Call, run: str) -> None:
    missing = {"q9": "has no question 'q9'", "q": "has 3 questions 'q'"}
    asked = [(["--question", question_id], told) for question_id, told in missing.items()] + [(["--category", "nine"], "category of")]
    for options, told in asked:
        code, out, err = call("show", run, *options)
        assert code == 2
        assert out == ""
        assert err.count("\n") == 1
        assert told in err


def test_the_prompts_of_a_program_are_plain_text(cli: Call, tmp_path: Path) -> None:
    save(build("turn-rag"), tmp_path / "program")
    code, out, _ = cli("show", tmp_path / "program", "--prompts")
    assert code == 0
    assert out.splitlines()[:2] == ["task.answer", "==========="]
    assert cli("show", tmp_path, "--prompts")[0] == 2


def test_an_evaluation_made_no_program_whose_prompts_could_be_shown(cli: Call) -> None:
    words = ("--benchmark", "locomo", "--split", "test", "--test", "1", "--json")
    run = json.loads(cli("evaluate", "turn-rag", *words)[1])["run_id"]
    code, _, err = cli("show", run, "--prompts")
    assert code == 2
    assert "the run made no program whose prompts could be shown" in err
    assert err.count("\n") == 1


def test_the_prompts_of_a_run_are_those_of_its_program(cli: Call, tmp_path: Path) -> None:
    folder = RunFolder.create("compile", {})
    save(build("turn-rag"), folder.program)
    for name in (folder.path, folder.path.name):
        code, out, _ = cli("show", name, "--prompts")
        assert code == 0
        assert out.splitlines()[:1] == ["task.answer"]
    folder.program.rename(tmp_path / "named")
    folder.update(result={"program": str(tmp_path / "named")})
    code, shown, _ = cli("show", folder.path, "--prompts")
    assert code == 0
    assert shown == out
    folder.update(result={"program": "turn-rag"})
    assert cli("show", folder.path, "--prompts")[0] == 2
