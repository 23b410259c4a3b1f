"""Before anything is paid for, a run says whether its questions are enough for a verdict.

A verdict says if one program is better than another. By default it needs twenty questions, both in
dev, which decides, and in test. Questions about one user are never divided between the parts.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler.runs.split_plan import plan_split

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
    assert plan.summary()["dev"] == {
        "questions": 27,
        "groups": 3,
        # How many count for the score: some benchmarks leave a category out.
        "counted": 27,
        "needed": 20,
        "allows_verdict": True,
        "size_for_verdict": 20,
        "scope": scope,
    }


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"dev": 8},
            "dev: too small for a verdict: 8 questions count for the score, 20 are needed; "
            "--dev 20 is enough",
        ),
        (
            {"test": 19},
            "test: too small for a verdict: 19 questions count for the score, 20 are needed; "
            "--test 20 is enough",
        ),
        # Train can lend conversations to dev, but none to test.
        (
            {"min_n": 55},
            "test: too small for a verdict: 27 questions count for the score, 55 are needed; "
            "no --test reaches that: add questions, or lower --min-n",
        ),
        # A sign-flip test of five questions cannot be significant, whatever `--min-n` is.
        (
            {"dev": 5, "min_n": 5},
            "dev: too small for a verdict: 5 questions count for the score, 6 are needed; "
            "--dev 6 is enough",
        ),
        # 54 questions of six users: whole users are resampled.
        ({"dev": 54}, "dev: large enough for a verdict (54 questions); scope: other conversations"),
        ({"dev": 60}, "--dev 60: the data allow 54 dev questions, which are taken"),
        ({"train": 60}, "--train 60: the data allow 36 train questions, which are taken"),
        ({"test": 60}, "--test 60: the data allow 27 test questions, which are taken"),
    ],
)
def test_a_part_that_is_too_small_is_named_with_the_size_that_is_enough(
    tmp_path: Path, options: dict[str, int], line: str
) -> None:
    plan = plan_split(run_inputs("jsonl", data=questions_of_ten_users(tmp_path), **options))

    assert line in plan.lines()


def test_a_size_that_is_called_enough_is_just_enough(tmp_path: Path) -> None:
    """If a part is too small for a verdict, its plan names the smallest size that is enough.

    Questions of LoCoMo's category 5 do not count, so more than twenty are needed.
    """
    small_plan = plan_split(run_inputs("locomo", dev=4, test=4))
    dev_size = small_plan.dev.size_for_verdict
    test_size = small_plan.test.size_for_verdict
    assert dev_size is not None
    assert dev_size > 20
    assert test_size is not None
    assert test_size > 20

    plan = plan_split(run_inputs("locomo", dev=dev_size, test=test_size))
    smaller_plan = plan_split(run_inputs("locomo", dev=dev_size - 1, test=test_size - 1))

    assert plan.dev.counted == 20
    assert plan.test.counted == 20
    assert smaller_plan.dev.allows_verdict is False
    assert smaller_plan.test.allows_verdict is False


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
    cli: Any, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """`--check` and `--plan` say what a command would do, without doing it."""
    questions_file = questions_of_ten_users(tmp_path)
    lines = plan_split(run_inputs("jsonl", data=questions_file, dev=8)).lines()
    options = ["--data", questions_file, "--dev", "8"]

    exit_code, text_output, _ = cli(*command, *options)
    _, json_output, _ = cli(*command, *options, "--json")

    assert exit_code == 0
    assert set(lines) <= set(text_output.splitlines())
    split = json.loads(json_output)["split"]
    assert split["dev"]["allows_verdict"] is False
    assert split["dev"]["size_for_verdict"] == 20


def test_a_check_says_that_questions_are_too_few_to_be_split(cli: Any, tmp_path: Path) -> None:
    row = {
        "messages": [{"role": "user", "content": "I moved."}],
        "question": "What?",
        "answer": "moved",
    }
    questions_file = tmp_path / "one-question.jsonl"
    questions_file.write_text(json.dumps(row))

    exit_code, stdout, _ = cli(*EVALUATE, "--check", "--data", questions_file)

    assert exit_code == 0
    assert "split: " in stdout
    assert "none left for dev (questions: 1, conversations: 1)" in stdout


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
            id="compile: dev is cut",
        ),
        pytest.param(
            (*EVALUATE, "--split", "test", "--test", "9"),
            "note: --test 9: the data allow 8 test questions, which are taken",
            id="evaluate: test is cut",
        ),
    ],
)
def test_a_run_notes_which_part_is_too_small_or_cut(
    cli: Any, tmp_path: Path, command: tuple[str, ...], note: str
) -> None:
    """`own_questions` writes eight questions about each of six users.

    Train and test need one user each, so dev has four users, which is 32 questions, at most.
    """
    exit_code, _, stderr = cli(*command, "--data", own_questions(tmp_path), "--json")

    assert exit_code == 0
    # The first line names the data and the models.
    assert stderr.splitlines()[1:] == [note]
