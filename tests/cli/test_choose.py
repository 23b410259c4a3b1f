"""What `mempiler choose` prints and refuses, with the offline engine, which needs no network.

The command asks several methods the same questions, and names the best one.
"""

from __future__ import annotations

import json
from pathlib import Path

import mempiler
import pytest

from ..command_line import RunCommand, json_of, output_of
from ..runs.evaluations import own_questions


@pytest.fixture
def data_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options for a data file of 48 questions; tables are printed on lines of 160 characters."""
    monkeypatch.setenv("COLUMNS", "160")
    return ["--benchmark", "jsonl", "--data", own_questions(tmp_path)]


def test_choose_prints_the_winner_the_number_of_answers_and_how_to_see_more(
    cli: RunCommand, data_options: list[str]
) -> None:
    """Turn RAG recalls the turns that hold the answers, and `no-memory` recalls nothing.

    With `--share 1` both methods answer all 48 questions.
    """
    output = output_of(cli, "choose", "no-memory", "turn-rag", *data_options, "--share", "1")

    assert "winner: turn-rag, better than no-memory: +" in output
    all_answers = 2 * 48
    assert f"{all_answers} of {all_answers} answers" in output
    assert "the best two, question by question: mempiler show " in output


def test_choose_prints_what_the_function_returns(cli: RunCommand, data_options: list[str]) -> None:
    printed = json_of(cli, "choose", "no-memory", "turn-rag", *data_options)

    _, _, _, questions_file = data_options
    returned = mempiler.choose(
        ["no-memory", "turn-rag"], benchmark="jsonl", data=questions_file, progress=False
    )

    assert printed["difference"] == json.loads(json.dumps(returned.difference.to_dict()))
    assert printed["answers"] == returned.answers
    assert [row["program"] for row in printed["programs"]] == [row.program for row in returned.rows]


def test_choose_ends_with_an_error_if_a_limit_left_no_answer(
    cli: RunCommand, data_options: list[str]
) -> None:
    """The limit is no call at all."""
    code, _, err = cli("choose", "turn-rag", "session-rag", *data_options, "--max-calls", "0")

    assert code == 4
    assert "mempiler: nothing was evaluated: max-calls 0; resume with --resume " in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(
            ["turn-rag"],
            "there is nothing to choose from: turn-rag; name two methods or more",
            id="one method",
        ),
        pytest.param(["turn-rag", "turn-rga"], "turn-rga", id="unknown method"),
        pytest.param(["turn-rag", "no-memory", "--share", "0"], "--share", id="share of nothing"),
    ],
)
def test_a_mistake_is_one_line(
    cli: RunCommand, data_options: list[str], words: list[str], message: str
) -> None:
    code, out, err = cli("choose", *words, *data_options)

    assert code == 2
    assert out == ""
    (line,) = err.splitlines()
    assert message in line
