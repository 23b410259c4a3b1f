"""Runs over shipped systems, killed in the middle of their writing and resumed.

A killed run has the same rows once it was resumed. Of two conversations one is short, written, kept and asked about;
the endpoint stops answering when three quarters of what writing the other asks for were answered. An answer that the
killed run has recorded is not asked for again. Vectors are no answers: they are computed anew.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli import main
from mempiler.runs.folder import RunFolder

from .endpoint import Endpoint
from .test_systems import TOLD, WORDS, name

__all__ = ["name"]

QUESTIONS = (
    ("Where did Ann move?", "Lisbon", "D1:1"),
    ("Which greyhound did Ann adopt?", "Pixel", "D1:3"),
    ("What did Bob sell?", "his motorcycle", "D1:4"),
)
"""Of both conversations."""


def _conversation(number: int) -> dict[str, Any]:
    """One of LoCoMo's form: the first is short; the second long, for systems that write when a short memory is full."""
    words = WORDS.split()[:9]
    weeks = [(who, f"In week {number} I wrote about the {word}.") for word in words for who in ("Ann", "Bob")]
    sessions = {1: TOLD, 2: tuple(weeks)} if number > 1 else {1: TOLD}
    turns = {
        f"session_{n}": [{"speaker": who, "dia_id": f"D{n}:{m}", "text": text} for m, (who, text) in enumerate(told, 1)]
        for n, told in sessions.items()
    }
    times = {f"session_{n}_date_time": f"1:56 pm on {n + number} May, 2023" for n in sessions}
    asked = [{"question": q, "answer": a, "evidence": [e], "category": 4} for q, a, e in QUESTIONS]
    return {
        "sample_id": f"conv-{number}",
        "conversation": {"speaker_a": "Ann", "speaker_b": "Bob", **turns, **times},
        "qa": asked,
    }


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with closing(Endpoint()) as found:
        monkeypatch.setenv("OPENAI_API_KEY", found.key)
        yield found


@pytest.fixture
def words(name: str, endpoint: Endpoint, tmp_path: Path) -> list[str]:
    """The command, but for its models."""
    data = tmp_path / "data.json"
    data.write_text(json.dumps([_conversation(1), _conversation(2)]), encoding="utf-8")
    at = ["--api-base", endpoint.url, "--embedder-api-base", endpoint.url, "--adapter", "chat", "--threads", "1"]
    return ["evaluate", f"system:{name}", "--on", "locomo", "--data", str(data), *at, "--json"]


def _models(of: str) -> list[str]:
    """Models of a name of their own, whose answers and vectors no cache knows."""
    return ["--lm", f"openai/{of}", "--embedder", f"openai/vectors-{of}"]


def _rows(run: Path) -> list[dict[str, Any]]:
    """Every question of a run, in order, but for clocks."""
    lines = (run / "evaluation_rows.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    varying = {"seconds", "answering", "search", "search_cpu"}
    kept = [{key: value for key, value in row.items() if key not in varying} for row in rows]
    return sorted(kept, key=lambda row: row["id"])


def _recorded(run: Path) -> int:
    """Answers that a killed run has kept."""
    with closing(sqlite3.connect(run / "run.sqlite")) as database:
        return int(database.execute("SELECT COUNT(*) FROM answers").fetchone()[0])


def test_a_killed_run_goes_on_to_the_same_table(
    name: str, words: list[str], endpoint: Endpoint, forks: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*words, *_models(f"whole-{name}")])
    whole = json.loads(capsys.readouterr().out)
    asked, at = len(endpoint.prompts), endpoint.in_the_middle
    endpoint.hold_after(at)
    models = _models(f"broken-{name}")
    forks.start([*words, *models], tmp_path / "home", OPENAI_API_KEY=endpoint.key)
    assert endpoint.wait(at)
    broken = Path(forks.kill(endpoint, at))
    recorded = _recorded(broken)
    endpoint.go_on()
    main([*words, *models, "--resume", str(broken)])
    resumed = json.loads(capsys.readouterr().out)
    assert (resumed["score"], resumed["failures"], resumed["n"]) == (whole["score"], 0, whole["n"])
    assert _rows(broken) == _rows(RunFolder.open(whole["run_id"]).path)
    assert len(endpoint.prompts) == asked - recorded
