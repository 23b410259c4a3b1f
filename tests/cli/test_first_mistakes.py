"""What a new user gets wrong first: each mistake is one line that says what to write instead."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mempiler import build, save
from mempiler.cli.memories import command as memories_group

from ..command_line import RunCommand
from ..stub_server import every

MESSAGES = [{"role": "user", "content": "I moved to Lisbon."}]
SCRIPT_WITH_AGENT = """
import dspy
raise SystemExit("imported")

class Helper:
    pass

class Agent(dspy.Module):
    pass
"""
"""A script of a user. It must not be run to find the class that the user means."""
OWN_DATA = ("--benchmark", "jsonl", "--data", "own.jsonl")


@pytest.fixture(autouse=True)
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file of questions, a history and two scripts of a user."""
    lines: list[str] = []
    for number in range(60):
        question = {
            "user": f"user {number}",
            "messages": MESSAGES,
            "question": "Where?",
            "answer": "Lisbon",
        }
        lines.append(json.dumps(question))
    (tmp_path / "own.jsonl").write_text("\n".join(lines))

    (tmp_path / "history.json").write_text(json.dumps(MESSAGES))
    (tmp_path / "agent.py").write_text(SCRIPT_WITH_AGENT)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/mine.py").write_text(SCRIPT_WITH_AGENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def error_line(cli: RunCommand, *words: object, code: int = 2) -> str:
    """Run a command that fails with this code, and prints no result; return its error message."""
    exit_code, out, err = cli(*words)
    assert exit_code == code, err
    assert out == ""
    return err.splitlines()[-1]


@pytest.mark.parametrize("command", ["compile", "evaluate"])
@pytest.mark.parametrize(
    ("path", "name_to_write"),
    [
        ("./agent.py", "agent:Agent"),
        ("agents/mine.py", "agents.mine:Agent"),
    ],
)
def test_a_path_of_a_python_file_is_answered_with_the_name_to_write(
    cli: RunCommand, command: str, path: str, name_to_write: str
) -> None:
    """Both files have a class `Agent`, the program of a user."""
    line = error_line(cli, command, path, *OWN_DATA)

    assert line == f"mempiler: method '{path}' is a file; write {name_to_write}"


def test_a_path_with_a_class_is_answered_with_the_name_to_write(cli: RunCommand) -> None:
    line = error_line(cli, "evaluate", "agent.py:Agent", *OWN_DATA)

    assert line == "mempiler: method 'agent.py' is a file; write agent:Agent"


def test_a_missing_python_file_is_named(cli: RunCommand) -> None:
    """There is a file agent.py, but none with the name agnt.py."""
    line = error_line(cli, "compile", "./agnt.py", *OWN_DATA)

    assert "'./agnt.py': there is no such file" in line
    assert "write module:Class" in line


def test_a_missing_program_folder_is_named(cli: RunCommand) -> None:
    line = error_line(cli, "ask", "my-programm", "Where?", "--history", "history.json")

    assert line == "mempiler: my-programm: there is no such folder"


def test_for_a_missing_program_folder_one_of_a_similar_name_is_suggested(cli: RunCommand) -> None:
    save(build("turn-rag"), "my-program")

    line = error_line(cli, "ask", "my-programm", "Where?", "--history", "history.json")

    assert line.endswith("no such folder; did you mean 'my-program'?")


def test_a_taken_port_ends_ui_with_one_line_and_code_one(cli: RunCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = error_line(cli, "ui", "--port", port, code=1)

    assert f"cannot listen at 127.0.0.1, port {port}: Address already in use" in line
    assert "give another --port" in line


@pytest.mark.parametrize(
    ("unknown_name", "suggestion"),
    [("step", "steps"), ("learnin_rate", "learning_rate")],
)
def test_an_unknown_setting_of_a_training_is_refused_before_the_training_begins(
    cli: RunCommand,
    current_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    unknown_name: str,
    suggestion: str,
) -> None:
    """A training that had begun would have left a folder of its run."""
    home = current_folder / "home"
    monkeypatch.setenv("MEMPILER_HOME", str(home))
    train = ["train", "memory-r2", "--benchmark", "memory-env", "--lm", "local:tiny"]

    line = error_line(cli, *train, "--train-set", f"{unknown_name}=1")

    assert f"unknown setting of the training '{unknown_name}'" in line
    assert f"did you mean '{suggestion}'?" in line
    assert list(home.glob("*-train-*")) == []


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["evaluate", "turn-rag", *OWN_DATA, "--test", "1"], id="evaluate"),
        pytest.param(["ask", "program", "Where?", "--history", "history.json"], id="ask"),
    ],
)
def test_a_wrong_address_of_a_server_names_its_option(cli: RunCommand, command: list[str]) -> None:
    """Nothing listens at the port 9."""
    save(build("turn-rag"), "program")
    dead_server = ["--lm", "openai/x", "--api-base", "http://127.0.0.1:9/v1"]

    line = error_line(cli, *command, *dead_server, code=3)

    assert line.endswith("Connection refused: 127.0.0.1:9; check the address (--api-base)")


def test_an_address_that_answers_404_names_its_option(
    cli: RunCommand, stub: Callable[..., Any]
) -> None:
    """The server answers every request with 404, as one does that is asked at a wrong path."""
    save(build("turn-rag"), "program")
    server = stub(every("404"))
    model = ["--lm", "openai/x", "--api-base", server.url]

    line = error_line(cli, "ask", "program", "Where?", "--history", "history.json", *model, code=3)

    assert "(status 404)" in line
    assert "check the address (--api-base), which mostly ends in /v1" in line
    assert "the model's name" in line


def arguments_of(command: str) -> list[str]:
    """Return the arguments, without options, of a command such as `mempiler memories show`."""
    return [
        str(parameter.name)
        for parameter in memories_group.commands[command].params
        if parameter.param_type_name == "argument"
    ]


@pytest.mark.parametrize("command", ["rebuild", "search", "show", "edit"])
def test_commands_of_memories_that_take_a_program_take_it_first(command: str) -> None:
    """Otherwise users would have to look up the order of arguments for each command."""
    first_argument, *_ = arguments_of(command)

    assert first_argument == "program"


@pytest.mark.parametrize(
    "command", [("evaluate", "turn-rga"), ("compile", "turn-rga", "--optimizer", "labeled")]
)
def test_a_misspelled_method_leaves_no_folder_of_a_run(
    cli: RunCommand,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    results_folder = tmp_path / "results"
    monkeypatch.setenv("MEMPILER_HOME", str(results_folder))

    line = error_line(cli, *command, *OWN_DATA)

    assert "did you mean 'turn-rag'?" in line
    assert not results_folder.exists()
