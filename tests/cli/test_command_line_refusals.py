"""A user's mistake is one line on standard error and exit code 2, whatever the mistake."""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli import main
from mempiler.programs.catalog import build
from mempiler.runs.artifact import save

ROW = {"user": "ann", "messages": [{"role": "user", "content": "I moved."}], "question": "What?", "answer": "moved"}
LOCOMO = {
    "sample_id": "conv-1",
    "conversation": {"speaker_a": "Ann", "speaker_b": "Bob"},
    "qa": [{"question": "Where?"}],
}


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all sorts of wrong files, which is the current one."""
    files: dict[str, Any] = {
        "truncated.json": json.dumps([LOCOMO])[:60],
        "empty.json": "",
        "list.json": "[1, 2]",
        "other.json": json.dumps({"some": "thing"}),
        "no_answer.json": json.dumps([LOCOMO]),
        "no_question.jsonl": json.dumps({key: value for key, value in ROW.items() if key != "question"}),
        "half.jsonl": json.dumps(ROW)[:30],
        "ok.jsonl": json.dumps(ROW),
        "history.json": json.dumps([{"role": "user", "content": "I moved to Lisbon."}]),
        "no_role.json": json.dumps([{"content": "I moved."}]),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    return tmp_path


LOCOMO_ON = ["evaluate", "turn-rag", "--on", "locomo"]
COMPILE = ["compile", "turn-rag", "--on", "locomo"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*LOCOMO_ON, "--data", "truncated.json"], "truncated.json: not valid JSON at line 1"),
        ([*LOCOMO_ON, "--data", "empty.json"], "empty.json: the file is empty"),
        ([*LOCOMO_ON, "--data", "list.json"], "list.json"),
        ([*LOCOMO_ON, "--data", "other.json"], "other.json"),
        ([*LOCOMO_ON, "--data", "no_answer.json"], "no_answer.json"),
        ([*LOCOMO_ON, "--data", "missing.json"], "missing.json: no such file"),
        ([*LOCOMO_ON, "--data", "folder"], "folder: cannot be read"),
        ([*COMPILE, "--data", "truncated.json"], "truncated.json: not valid JSON"),
        (["evaluate", "turn-rag", "--on", "jsonl"], "no sample; give the path"),
        (["evaluate", "turn-rag", "--on", "jsonl", "--data", "no_question.jsonl"], "line 1, column 'question'"),
        (["evaluate", "turn-rag", "--on", "jsonl", "--data", "half.jsonl"], "half.jsonl: line 1"),
        (["evaluate", "turn-rag", "--on", "jsonl", "--data", "ok.jsonl", "--metric", "f2"], "unknown metric 'f2'"),
        ([*LOCOMO_ON, "--categories", "9"], "unknown LoCoMo category '9'"),
        (["evaluate", "turn-rga", "--on", "locomo"], "did you mean 'turn-rag'"),
        (["evaluate", "turn-rag", "--on", "lokomo"], "did you mean 'locomo'"),
        (["evaluate", "turn-rag"], "--on"),
        (["evaluate", "folder", "--on", "locomo"], "no saved program here (manifest.json is missing)"),
        (["evaluate", "no.such.module:Thing", "--on", "locomo"], "cannot be imported"),
        ([*LOCOMO_ON, "--set", "kk=3"], "kk"),
        ([*LOCOMO_ON, "--set", "k"], "'k' is not NAME=VALUE"),
        ([*LOCOMO_ON, "--adapter", "yaml"], "unknown adapter 'yaml'"),
        ([*LOCOMO_ON, "--part", "most"], "--part"),
        ([*LOCOMO_ON, "--threads", "0"], "--threads"),
        ([*LOCOMO_ON, "--lm", ""], "language model ''"),
        ([*COMPILE, "--with", "bootstrp"], "did you mean 'bootstrap'"),
        ([*COMPILE, "--stage", "half"], "--stage"),
        ([*COMPILE, "--stage", "write"], "no prompt to tune in stage 'write'"),
        ([*COMPILE, "--optimizer-set", "rounds=2"], "no setting 'rounds'"),
        ([*COMPILE, "--optimizer-set", "max_rounds=two"], "max_rounds = 'two' is no int"),
        ([*COMPILE, "--optimizer-set", "max_rounds"], "'max_rounds' is not NAME=VALUE"),
        ([*COMPILE, "--out", "folder"], "folder: exists and is no saved program"),
        ([*COMPILE, "--out", "ok.jsonl"], "ok.jsonl: exists and is no saved program"),
        ([*COMPILE, "--out", "ok.jsonl/program"], "cannot be written"),
        (["ask", "folder", "Where?"], "--history"),
        (["ask", "folder", "Where?", "--history", "missing.json"], "missing.json: no such file"),
        (["ask", "folder", "Where?", "--history", "truncated.json"], "truncated.json: not valid JSON"),
        (["ask", "folder", "Where?", "--history", "no_role.json"], "has no role"),
        (["ask", "folder", "Where?", "--history", "history.json"], "no saved program here"),
        (["data", "check", "lokomo", "ok.jsonl"], "did you mean 'locomo'"),
        (["list", "things"], "things"),
        (["compil"], "compil"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_that_names_it(here, capsys, arguments, words):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("mempiler: ")
    assert words in err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("method", ["turn-rag", "memory-r2"])
@pytest.mark.parametrize("command", ["evaluate", "compile"])
def test_a_missing_key_is_named(here, capsys, monkeypatch, command, method):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, _, err = run(capsys, command, method, "--on", "locomo", "--lm", "openai/gpt-x", "--test", "3")
    assert (code, err.count("\n")) == (2, 1)
    assert "OPENAI_API_KEY" in err


@pytest.mark.parametrize("command", ["evaluate", "compile", "ask"])
def test_a_dead_port_is_one_line(here, capsys, monkeypatch, command):
    naps: list[float] = []
    monkeypatch.setattr("dspy.clients.execution.time.sleep", naps.append)
    model = ["--lm", "openai/x", "--api-base", "http://127.0.0.1:9/v1"]
    if command == "ask":
        save(build("turn-rag"), "program")
        arguments = ["ask", "program", "Where?", "--history", "history.json", *model]
    else:
        arguments = [command, "turn-rag", "--on", "locomo", *model]
    code, _, err = run(capsys, *arguments)
    assert (code, err.removeprefix("program program: unsigned\n").count("\n")) == (3, 1)
    assert "127.0.0.1:9" in err
    # Whoever waits for a server that is not there waits for a few seconds only.
    assert sum(naps) / max(1, min(8, len(naps) // 2)) < 10
