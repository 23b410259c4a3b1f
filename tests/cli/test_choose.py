"""What `mempiler choose` prints and refuses, with the offline engine, which needs no network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import mempiler
import pytest

from ..runs.evaluations import own_questions

RunCommand = Callable[..., tuple[int, str, str]]
"""Words of a command -> its exit code, standard output and standard error."""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Options for a data file of 48 questions; tables are printed on lines of 160 characters."""
    monkeypatch.setenv("COLUMNS", "160")
    return ("--benchmark", "jsonl", "--data", own_questions(tmp_path))


def test_choose_prints_a_table_the_verdict_and_the_runs(
    cli: RunCommand, data: tuple[str, ...]
) -> None:
    """The offline engine finds the answers in what turn-rag recalls, and has nothing without it."""
    code, out, err = cli("choose", "no-memory", "turn-rag", *data, "--share", "1")

    assert code == 0, err
    assert "winner: turn-rag, better than no-memory: +" in out
    assert "96 of 96 answers" in out
    assert "the best two, question by question: mempiler show " in out
    assert "turn-rag: mempiler show turn-rag-" in out


def test_choose_prints_what_the_function_returns(cli: RunCommand, data: tuple[str, ...]) -> None:
    code, out, err = cli("choose", "no-memory", "turn-rag", *data, "--json")
    assert code == 0, err
    printed = json.loads(out)

    returned = mempiler.choose(
        ["no-memory", "turn-rag"], benchmark="jsonl", data=data[-1], progress=False
    )

    assert printed["difference"] == json.loads(json.dumps(returned.difference.to_dict()))
    assert printed["answers"] == returned.answers
    assert [row["program"] for row in printed["programs"]] == [row.program for row in returned.rows]


def test_choose_ends_with_an_error_if_a_limit_left_no_answer(
    cli: RunCommand, data: tuple[str, ...]
) -> None:
    code, _, err = cli("choose", "turn-rag", "session-rag", *data, "--max-calls", "0")

    assert code == 4
    assert "mempiler: nothing was evaluated: max-calls 0; resume with --resume " in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["turn-rag"], "there is nothing to choose from: turn-rag; name two methods or more"),
        (["turn-rag", "turn-rga"], "turn-rga"),
        (["turn-rag", "no-memory", "--share", "0"], "--share"),
    ],
)
def test_a_mistake_is_one_line(
    cli: RunCommand, data: tuple[str, ...], words: list[str], message: str
) -> None:
    code, out, err = cli("choose", *words, *data)

    assert code == 2
    assert out == ""
    (line,) = err.splitlines()
    assert message in line
