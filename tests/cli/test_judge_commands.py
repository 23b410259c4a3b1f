"""`evaluate --on judge-check` and `compare --preference`: judges as numbers, and mistakes in one line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from mempiler.signatures.judges import JudgeAnswer, JudgePreference, judge_hash

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
    assert {kind: each["rate"] for kind, each in found["kinds"].items()} == {
        "right": 1.0,
        "paraphrased-right": 0.0,
        "vague-wrong": 1.0,
        "specific-wrong": None,
    }
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
        (["--plan"], "has no --plan"),
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


@pytest.fixture
def two_runs(run: Any) -> list[str]:
    """Runs of two methods that answer the same four queries otherwise."""
    on = ["--on", "memoryquest", "--metric", "evidence", "--test", "4", "--seed", "1"]
    home, made = Path(os.environ["MEMPILER_HOME"]), []
    for method in ("no-memory", "full-context"):
        # Not the newest folder: that of an earlier run changes when its database is closed.
        before = set(home.glob("*-memoryquest-*"))
        assert run("evaluate", method, *on)[0] == 0
        made += set(home.glob("*-memoryquest-*")) - before
    assert len(made) == 2
    return [str(path) for path in made]


@pytest.mark.parametrize(
    ("says", "rate", "tied", "counts"),
    [
        ("the second run's", 1.0, 0.0, (4, 0, 0)),
        ("the first run's", 0.0, 0.0, (0, 0, 4)),
        ("what stands first", 0.5, 0.0, (0, 4, 0)),
        ("tie", 0.0, 1.0, (0, 4, 0)),
    ],
)
def test_the_win_rate_counts_whose_responses_are_preferred(
    run: Any, stub: Any, two_runs: list[str], says: str, rate: float, tied: float, counts: tuple[int, ...]
) -> None:
    (floor, rival) = (_answers(Path(path)) for path in two_runs)
    assert not floor & rival

    def answer(body: dict[str, Any]) -> str:
        text = (
            body["messages"][-1]["content"].split("[[ ## response_w3k8 ## ]]")[1].split("[[ ## response_t5n1 ## ]]")[0]
        )
        first = text.strip() in rival
        choices = {
            "the second run's": "w3k8" if first else "t5n1",
            "the first run's": "t5n1" if first else "w3k8",
            "what stands first": "w3k8",
            "tie": "tie",
        }
        return f"[[ ## reasoning ## ]]\nSo.\n\n[[ ## choice ## ]]\n{choices[says]}\n\n[[ ## completed ## ]]"

    server = stub(answer=answer)
    model = ["--judge-lm", server.model, "--judge-api-base", server.url]
    code, out, _ = run("compare", *two_runs, "--preference", *model, "--json")
    (found,) = json.loads(out)["preferences"]
    assert (code, found["n"], found["rate"], found["tied"]) == (0, 4, rate, tied)
    assert (found["wins"], found["ties"], found["losses"]) == counts
    assert found["judge_hash"] == judge_hash(JudgePreference)


def _answers(folder: Path) -> set[str]:
    rows = (folder / "evaluation_rows.jsonl").read_text().splitlines()
    return {json.loads(row)["answer"].strip() for row in rows}
