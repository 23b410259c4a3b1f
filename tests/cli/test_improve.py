"""`mempiler improve`: what it prints, and its exit codes.

The command compiles a registered program anew, on questions that its users have rated since, and
promotes the result if it is better. The address of a program names it in a registry.
"""

from pathlib import Path

import pytest

from ..command_line import RunCommand, json_of, output_of
from ..runs.drifting_users import register_first_version, write_questions


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a registered program, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("registered") / "program"
    return register_first_version("improved-by-command", folder)


def test_too_few_questions_are_no_error(cli: RunCommand, address: str, tmp_path: Path) -> None:
    """Questions of two users are too few to compile on, so nothing is promoted."""
    questions = write_questions(tmp_path / "questions.jsonl", users=range(2))

    output = output_of(cli, "improve", address, "--data", questions, "--max-usd", "5")

    assert output.startswith(f"{address}: too few questions (version 1): missing: ")


def test_json_names_the_version_before_and_after(
    cli: RunCommand, address: str, tmp_path: Path
) -> None:
    """Questions of two users are too few to compile on, so the first version stays."""
    questions = write_questions(tmp_path / "questions.jsonl", users=range(2))

    result = json_of(cli, "improve", address, "--data", questions)

    assert result["promoted"] is False
    assert result["version_before"] == "1"
    assert result["version_after"] == "1"
    assert result["decided_questions"] == 0


def test_without_a_source_of_questions_the_command_is_refused(
    cli: RunCommand, address: str
) -> None:
    code, _, err = cli("improve", address)

    assert code == 2
    assert err == (
        "mempiler: improve takes its questions from a store or a file;"
        " give one of --store and --data\n"
    )
