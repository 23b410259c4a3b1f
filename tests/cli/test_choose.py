"""What `mempiler choose` prints and refuses, with the offline engine, which needs no network.

The command asks several methods the same questions, and names the best one.
"""

from __future__ import annotations

import json
from pathlib import Path

import mempiler
import pytest

from ..command_line import RunCommand
from ..runs.evaluations import own_questions


@pytest.fixture
def questions_48(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options for a data file of 48 questions; tables are printed on lines of 160 characters."""
    monkeypatch.setenv("COLUMNS", "160")
    return ["--benchmark", "jsonl", "--data", own_questions(tmp_path)]


def test_choose_prints_a_table_the_verdict_and_the_runs(
    cli: RunCommand, questions_48: list[str]
) -> None:
    """The offline engine finds the answers in what turn-rag recalls, and has nothing without it.

    `--share 1` lets both methods answer all questions.
    """
    code, out, err = cli("choose", "no-memory", "turn-rag", *questions_48, "--share", "1")

    assert code == 0, err
    assert "winner: turn-rag, better than no-memory: +" in out
    # Two methods with 48 questions each.
    assert "96 of 96 answers" in out
    assert "the best two, question by question: mempiler show " in out
    assert "turn-rag: mempiler show turn-rag-" in out


def test_choose_prints_what_the_function_returns(cli: RunCommand, questions_48: list[str]) -> None:
    code, out, err = cli("choose", "no-memory", "turn-rag", *questions_48, "--json")
    assert code == 0, err
    printed = json.loads(out)

    returned = mempiler.choose(
        ["no-memory", "turn-rag"], benchmark="jsonl", data=questions_48[-1], progress=False
    )

    assert printed["difference"] == json.loads(json.dumps(returned.difference.to_dict()))
    assert printed["answers"] == returned.answers
    assert [row["program"] for row in printed["programs"]] == [row.program for row in returned.rows]


def test_choose_ends_with_an_error_if_a_limit_left_no_answer(
    cli: RunCommand, questions_48: list[str]
) -> None:
    """The limit is no call at all."""
    code, _, err = cli("choose", "turn-rag", "session-rag", *questions_48, "--max-calls", "0")

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
    cli: RunCommand, questions_48: list[str], words: list[str], message: str
) -> None:
    code, out, err = cli("choose", *words, *questions_48)

    assert code == 2
    assert out == ""
    (line,) = err.splitlines()
    assert message in line
