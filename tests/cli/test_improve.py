"""`mempiler improve`: what it prints, and its exit codes.

The command compiles a registered program anew, on questions that its users have rated since, and
promotes the result if it is better. The address of a program names it in a registry.
"""

import json
from pathlib import Path

import pytest

from ..command_line import RunCommand
from ..runs.drifting_users import register_first_version, write_questions


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a registered program, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("registered") / "program"
    return register_first_version("improved-by-command", folder)


def test_the_exit_code_is_zero_if_nothing_is_promoted(
    cli: RunCommand, address: str, tmp_path: Path
) -> None:
    """Questions of two users are too few to compile on."""
    questions = write_questions(tmp_path / "questions.jsonl", users=range(2))

    code, out, _ = cli("improve", address, "--data", questions, "--max-usd", "5")

    assert code == 0
    assert out.startswith(f"{address}: too few questions (version 1): missing: ")


def test_json_is_one_object(cli: RunCommand, address: str, tmp_path: Path) -> None:
    """Questions of two users are too few, so the first version stays."""
    questions = write_questions(tmp_path / "questions.jsonl", users=range(2))

    code, out, _ = cli("improve", address, "--data", questions, "--json")

    printed = json.loads(out)
    assert code == 0
    assert printed["promoted"] is False
    assert printed["version_before"] == "1"
    assert printed["version_after"] == "1"
    assert printed["decided_questions"] == 0


def test_without_questions_the_exit_code_is_two(cli: RunCommand, address: str) -> None:
    code, _, err = cli("improve", address)

    assert code == 2
    assert err == (
        "mempiler: improve takes its questions from a store or a file;"
        " give one of --store and --data\n"
    )
