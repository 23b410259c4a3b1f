"""What a split allows is said before anything is paid for."""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler.runs.split_plan import plan_split

from .evaluations import own_questions
from ..run_inputs import run_inputs

FEW = "other questions about these conversations"


def ninety_questions(folder: Path) -> str:
    """A file of ten users with nine questions each."""
    said = {"role": "user", "content": "I moved to Lisbon."}
    rows = [
        {
            "user": f"u{user}",
            "messages": [said],
            "question": f"{n}?",
            "answer": "Lisbon",
            "id": f"{user}:{n}",
        }
        for user in range(10)
        for n in range(9)
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(folder / "questions.jsonl")


def test_ninety_questions_are_split_so_that_dev_and_test_allow_a_verdict(tmp_path: Path) -> None:
    plan = plan_split(run_inputs("jsonl", data=ninety_questions(tmp_path)))
    assert plan.lines() == [
        "split: 36 train questions of 4 conversations or users, 27 dev of 3, 27 test of 3",
        f"dev: large enough for a verdict (27 questions); scope: {FEW}",
        f"test: large enough for a verdict (27 questions); scope: {FEW}",
    ]
    assert plan.summary()["dev"] == {
        "questions": 27,
        "groups": 3,
        "counted": 27,
        "needed": 20,
        "allows_verdict": True,
        "size_for_verdict": 20,
        "scope": FEW,
    }


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        (
            {"dev": 8},
            "dev: too small for a verdict: 8 questions count for the score, 20 are needed; --dev 20 is enough",
        ),
        (
            {"test": 19},
            "test: too small for a verdict: 19 questions count for the score, 20 are needed; --test 20 is enough",
        ),
        # Train lends dev all but one of its four conversations, and test none.
        (
            {"min_n": 55},
            "test: too small for a verdict: 27 questions count for the score, 55 are needed; no --test reaches that: "
            "add questions, or lower --min-n",
        ),
        # A sign-flip test of five questions cannot be significant, whatever a run asks for.
        (
            {"dev": 5, "min_n": 5},
            "dev: too small for a verdict: 5 questions count for the score, 6 are needed; --dev 6 is enough",
        ),
        # 54 questions of six users: whole users are resampled.
        ({"dev": 54}, "dev: large enough for a verdict (54 questions); scope: other conversations"),
        ({"dev": 60}, "--dev 60: the data allow 54 dev questions, which are taken"),
        ({"train": 60}, "--train 60: the data allow 36 train questions, which are taken"),
        ({"test": 60}, "--test 60: the data allow 27 test questions, which are taken"),
    ],
)
def test_a_part_that_is_too_small_is_named_with_the_size_that_would_do(
    tmp_path: Path, sizes: dict[str, int], line: str
) -> None:
    plan = plan_split(run_inputs("jsonl", data=ninety_questions(tmp_path), **sizes))
    assert line in plan.lines()


def test_a_size_that_is_said_to_be_enough_is_enough(tmp_path: Path) -> None:
    """Of LoCoMo's questions those of category 5 do not count, so more than twenty are needed."""
    small = plan_split(run_inputs("locomo", dev=4, test=4))
    assert small.dev.size_for_verdict is not None
    assert small.test.size_for_verdict is not None
    enough = {"dev": small.dev.size_for_verdict, "test": small.test.size_for_verdict}
    assert min(enough.values()) > 20
    larger = plan_split(run_inputs("locomo", **enough))
    assert larger.dev.counted == 20
    assert larger.test.counted == 20
    one_less = plan_split(run_inputs("locomo", dev=enough["dev"] - 1, test=enough["test"] - 1))
    assert one_less.dev.allows_verdict is False
    assert one_less.test.allows_verdict is False


COMPILE = ("compile", "turn-rag", "--benchmark", "jsonl", "--optimizer", "labeled")


def test_check_and_plan_say_how_the_questions_are_split(cli: Any, tmp_path: Path) -> None:
    data = ("--data", ninety_questions(tmp_path))
    lines = plan_split(run_inputs("jsonl", data=data[1], dev=8)).lines()
    for command in (
        ("evaluate", "turn-rag", "--benchmark", "jsonl", "--check"),
        (*COMPILE, "--plan"),
    ):
        code, out, _ = cli(*command, *data, "--dev", "8")
        assert code == 0
        assert [line for line in lines if line not in out.splitlines()] == []
        split = json.loads(cli(*command, *data, "--dev", "8", "--json")[1])["split"]
        assert split["dev"]["allows_verdict"] is False
        assert split["dev"]["size_for_verdict"] == 20


def test_a_check_says_that_questions_are_too_few_to_be_split(cli: Any, tmp_path: Path) -> None:
    row = {
        "messages": [{"role": "user", "content": "I moved."}],
        "question": "What?",
        "answer": "moved",
    }
    (tmp_path / "one.jsonl").write_text(json.dumps(row))
    code, out, _ = cli(
        "evaluate", "turn-rag", "--benchmark", "jsonl", "--check", "--data", tmp_path / "one.jsonl"
    )
    assert code == 0
    assert "split: " in out
    assert "none left for dev (questions: 1, conversations: 1)" in out


def test_a_compile_says_in_one_line_what_cannot_be_promoted_and_what_is_cut(
    cli: Any, tmp_path: Path
) -> None:
    data = ("--data", own_questions(tmp_path))
    for sizes, note in (
        (
            ("--dev", "8"),
            "note: dev: too small for a verdict: 8 questions count for the score, 20 are needed; --dev 20 is enough",
        ),
        (
            ("--dev", "60", "--test", "4"),
            "note: --dev 60: the data allow 32 dev questions, which are taken",
        ),
    ):
        code, _, err = cli(*COMPILE, *data, *sizes, "--json")
        assert code == 0
        assert err.splitlines()[1:] == [note]
    code, _, err = cli(
        "evaluate",
        "turn-rag",
        "--benchmark",
        "jsonl",
        *data,
        "--split",
        "test",
        "--test",
        "9",
        "--json",
    )
    assert code == 0
    assert err.splitlines()[1:] == [
        "note: --test 9: the data allow 8 test questions, which are taken"
    ]
