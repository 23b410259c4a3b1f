"""`mempiler improve`: what it prints, and its exit codes."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import mempiler
import pytest
from mempiler.cli import app
from mempiler.runs.options import RunOptions

from ..runs.drifting_users import register_first_version, write_questions

RunCommand = Callable[..., tuple[int, str, str]]
"""Words of a command -> its exit code, standard output and standard error."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a registered program, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("registered") / "program"
    return register_first_version("improved-by-command", folder)


@pytest.fixture
def few_questions(tmp_path: Path) -> Path:
    """Questions of two users: too few for a round."""
    return write_questions(tmp_path / "few.jsonl", users=range(2))


def test_the_exit_code_is_zero_if_nothing_is_promoted(
    cli: RunCommand, address: str, few_questions: Path
) -> None:
    code, out, _ = cli("improve", address, "--data", few_questions, "--max-usd", "5")

    assert code == 0
    assert out.startswith(f"{address}: too few questions (version 1): missing: ")


def test_json_is_one_object(cli: RunCommand, address: str, few_questions: Path) -> None:
    code, out, _ = cli("improve", address, "--data", few_questions, "--json")

    printed = json.loads(out)
    assert code == 0
    assert printed["promoted"] is False
    assert printed["version_before"] == printed["version_after"] == "1"
    assert printed["decided_questions"] == 0


def test_without_questions_the_exit_code_is_two(cli: RunCommand, address: str) -> None:
    code, _, err = cli("improve", address)

    assert code == 2
    assert err == (
        "mempiler: improve takes its questions from a store or a file;"
        " give one of --store and --data\n"
    )


def test_every_option_is_an_argument_of_the_function() -> None:
    command = app.get_command(None, "improve")  # type: ignore[arg-type]
    options: set[str] = set()
    for parameter in command.params:
        long_name = max(parameter.opts, key=len)
        options.add(long_name.lstrip("-").replace("-", "_"))

    arguments = set(inspect.signature(mempiler.improve).parameters)
    arguments.update(RunOptions.__annotations__)

    assert options >= {"store", "data", "lm", "max_usd", "min_users"}
    assert options - {"json", "config"} <= arguments
