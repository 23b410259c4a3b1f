"""`evaluate --on judge-check`: judges as numbers, and mistakes in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler.signatures.judges import JudgeAnswer, judge_hash

CHECK = ("evaluate", "judge", "--on", "judge-check")
FIELDS = "[[ ## reasoning ## ]]\nSo.\n\n[[ ## verdict ## ]]\n{}\n\n[[ ## completed ## ]]"


@pytest.fixture
def run(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return cli


def test_a_judge_that_accepts_short_answers_only_is_counted_by_kind(run: Any, stub: Any, tmp_path: Path) -> None:
    rows = [("Rome", "right"), ("It was Rome.", "paraphrased-right"), ("A city.", "vague-wrong"), ("Oslo", "right")]
    rows.append(("What?", "vague-wrong"))
    lines = [{"question": "Where?", "gold_answer": "Rome", "answer": text, "kind": kind} for text, kind in rows]
    (tmp_path / "labelled.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def answer(body: dict[str, Any]) -> str:
        asked = str(body["messages"])
        said = FIELDS.format("WRONG" if "It was Rome." in asked else "CORRECT")
        return "no fields" if "What?" in asked else said

    server = stub(answer=answer)
    model = ["--judge-lm", server.model, "--judge-api-base", server.url]
    code, out, _ = run(*CHECK, *model, "--data", "labelled.jsonl", "--json")
    found = json.loads(out)
    assert (code, found["judge_lm"], found["judge_hash"]) == (0, server.model, judge_hash(JudgeAnswer))
    rates = {"right": 1.0, "paraphrased-right": 0.0, "vague-wrong": 1.0, "specific-wrong": None}
    assert {kind: each["rate"] for kind, each in found["kinds"].items()} == rates
    assert (found["right"]["accepted"], found["right"]["n"], found["wrong"]["rate"]) == (2, 3, 1.0)
    assert (found["kinds"]["vague-wrong"]["n"], found["kinds"]["vague-wrong"]["unreadable"]) == (2, 1)


def test_the_table_names_the_prompt_and_every_kind(run: Any) -> None:
    code, out, _ = run(*CHECK)
    assert code == 0
    assert f"prompt {judge_hash(JudgeAnswer)[:12]}" in out
    assert "wiring check" in out
    assert all(kind in out for kind in ("right", "paraphrased-right", "vague-wrong", "specific-wrong", "all wrong"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--data", "half.csv"], "half.csv: line 1"),
        (["--adapter", "morse"], "morse"),
        (["--plan"], "--plan, --resume and --replay are for runs"),
        (["--resume", "x"], "--resume and --replay are for runs"),
        (["--max-calls", "3"], "budget reached: max-calls 3"),
    ],
)
def test_a_mistake_is_one_line(run: Any, tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "half.csv").write_text("human,judge\nA,A\nB,\n")
    code, out, err = run(*CHECK, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1
