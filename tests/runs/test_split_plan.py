"""Before anything is paid for, a run says whether its questions are enough for a verdict.

A verdict says if one program is better than another. By default it needs twenty questions, both in
dev, which decides, and in test. Questions about one user are never divided between the parts.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler.runs.split_plan import VerdictPlan, plan_split

from ..command_line import RunCommand, json_of, output_of
from ..run_inputs import run_inputs
from .evaluations import own_questions


def questions_of_ten_users(folder: Path) -> str:
    """Write a file of ten users with nine questions each, and return its path."""
    rows: list[dict[str, Any]] = []
    for user in range(10):
        for number in range(9):
            rows.append(
                {
                    "user": f"u{user}",
                    "id": f"{user}:{number}",
                    "messages": [{"role": "user", "content": "I moved to Lisbon."}],
                    "question": f"{number}?",
                    "answer": "Lisbon",
                }
            )
    path = folder / "questions.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def test_ninety_questions_are_split_so_that_dev_and_test_allow_a_verdict(tmp_path: Path) -> None:
    """Ten users have nine questions each. A verdict needs twenty questions of a part.

    From fewer than six users it speaks of other questions about them alone.
    """
    plan = plan_split(run_inputs("jsonl", data=questions_of_ten_users(tmp_path)))

    scope = "other questions about these conversations"
    assert plan.lines() == [
        "split: 36 train questions of 4 conversations or users, 27 dev of 3, 27 test of 3",
        f"dev: large enough for a verdict (27 questions); scope: {scope}",
        f"test: large enough for a verdict (27 questions); scope: {scope}",
    ]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        pytest.param(
            {"dev": 8},
            "dev: too small for a verdict: 8 questions count for the score, 20 are needed; "
            "--dev 20 is enough",
            id="dev",
        ),
        pytest.param(
            {"test": 19},
            "test: too small for a verdict: 19 questions count for the score, 20 are needed; "
            "--test 20 is enough",
            id="test",
        ),
        # Train can lend users to dev, but none to test.
        pytest.param(
            {"min_n": 55},
            "test: too small for a verdict: 27 questions count for the score, 55 are needed; "
            "no --test reaches that: add questions, or lower --min-n",
            id="no size is enough",
        ),
        pytest.param(
            {"dev": 5, "min_n": 5},
            "dev: too small for a verdict: 5 questions count for the score, 6 are needed; "
            "--dev 6 is enough",
            id="five questions are never significant, whatever min_n is",
        ),
    ],
)
def test_a_part_that_is_too_small_is_named_with_the_size_that_is_enough(
    tmp_path: Path, options: dict[str, int], line: str
) -> None:
    """There are 90 questions: nine about each of ten users."""
    plan = plan_split(run_inputs("jsonl", data=questions_of_ten_users(tmp_path), **options))

    assert line in plan.lines()


def test_questions_about_six_users_allow_a_verdict_on_other_users(tmp_path: Path) -> None:
    """Each user has nine questions."""
    plan = plan_split(run_inputs("jsonl", data=questions_of_ten_users(tmp_path), dev=6 * 9))

    assert plan.dev.line() == (
        "dev: large enough for a verdict (54 questions); scope: other conversations"
    )


@pytest.mark.parametrize(("part", "most"), [("train", 36), ("dev", 54), ("test", 27)])
def test_a_part_that_cannot_be_as_large_as_requested_is_named(
    tmp_path: Path, part: str, most: int
) -> None:
    """There are 90 questions, and the three parts share them."""
    plan = plan_split(run_inputs("jsonl", data=questions_of_ten_users(tmp_path), **{part: 60}))

    assert f"--{part} 60: the data allow {most} {part} questions, which are taken" in plan.lines()


@pytest.mark.parametrize("part", ["dev", "test"])
def test_the_size_that_is_called_enough_is_just_enough(part: str) -> None:
    """A verdict needs twenty questions that count for the score.

    LoCoMo's questions of category 5 do not count, so more than twenty are needed in all.
    """

    def plan_with(size: int) -> VerdictPlan:
        plan = plan_split(run_inputs("locomo", **{part: size}))
        return plan.dev if part == "dev" else plan.test

    size_for_verdict = plan_with(4).size_for_verdict

    assert size_for_verdict is not None
    assert size_for_verdict > 20
    assert plan_with(size_for_verdict).counted == 20
    assert not plan_with(size_for_verdict - 1).allows_verdict


COMPILE = ("compile", "turn-rag", "--benchmark", "jsonl", "--optimizer", "labeled")
EVALUATE = ("evaluate", "turn-rag", "--benchmark", "jsonl")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((*EVALUATE, "--check"), id="check"),
        pytest.param((*COMPILE, "--plan"), id="plan"),
    ],
)
def test_check_and_plan_say_how_the_questions_are_split(
    cli: RunCommand, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """`--check` and `--plan` say what a command would do, without doing it."""
    questions_file = questions_of_ten_users(tmp_path)
    split_lines = plan_split(run_inputs("jsonl", data=questions_file, dev=8)).lines()

    output = output_of(cli, *command, "--data", questions_file, "--dev", "8")

    assert set(split_lines) <= set(output.splitlines())


def test_a_plan_in_json_says_how_the_questions_are_split(cli: RunCommand, tmp_path: Path) -> None:
    questions_file = questions_of_ten_users(tmp_path)

    split = json_of(cli, *COMPILE, "--plan", "--data", questions_file, "--dev", "8")["split"]

    assert split["dev"]["allows_verdict"] is False
    assert split["dev"]["size_for_verdict"] == 20


def test_a_check_says_that_one_question_is_too_few_to_be_split(
    cli: RunCommand, tmp_path: Path
) -> None:
    row = {
        "messages": [{"role": "user", "content": "I moved."}],
        "question": "What?",
        "answer": "moved",
    }
    questions_file = tmp_path / "one-question.jsonl"
    questions_file.write_text(json.dumps(row))

    output = output_of(cli, *EVALUATE, "--check", "--data", questions_file)

    assert "none left for dev (questions: 1, conversations: 1)" in output


@pytest.mark.parametrize(
    ("command", "note"),
    [
        pytest.param(
            (*COMPILE, "--dev", "8"),
            "note: dev: too small for a verdict: 8 questions count for the score, 20 are needed; "
            "--dev 20 is enough",
            id="compile: dev is too small",
        ),
        pytest.param(
            (*COMPILE, "--dev", "60", "--test", "4"),
            "note: --dev 60: the data allow 32 dev questions, which are taken",
            id="compile: dev is smaller than requested",
        ),
        pytest.param(
            (*EVALUATE, "--split", "test", "--test", "9"),
            "note: --test 9: the data allow 8 test questions, which are taken",
            id="evaluate: test is smaller than requested",
        ),
    ],
)
def test_a_run_notes_which_part_is_smaller_than_needed_or_requested(
    cli: RunCommand, tmp_path: Path, command: tuple[str, ...], note: str
) -> None:
    """There are eight questions about each of six users.

    Train and test need one user each, so dev has four users, which is 32 questions, at most.
    """
    exit_code, _, stderr = cli(*command, "--data", own_questions(tmp_path), "--json")

    assert exit_code == 0
    assert note in stderr.splitlines()
