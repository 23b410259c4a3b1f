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
# A script must not be run to find the class that the user means.
SCRIPT_WITH_AGENT = """
import dspy
raise SystemExit("imported")

class Helper:
    pass

class Agent(dspy.Module):
    pass
"""
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
    ("method", "file", "name_to_write"),
    [
        ("./agent.py", "./agent.py", "agent:Agent"),
        ("agent.py:Agent", "agent.py", "agent:Agent"),
        ("agents/mine.py", "agents/mine.py", "agents.mine:Agent"),
    ],
)
def test_a_path_of_a_python_file_is_answered_with_the_name_to_write(
    cli: RunCommand, command: str, method: str, file: str, name_to_write: str
) -> None:
    """The files `agent.py` and `agents/mine.py` have a class `Agent`, the program of a user."""
    line = error_line(cli, command, method, *OWN_DATA)

    assert line == f"mempiler: method '{file}' is a file; write {name_to_write}"


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
    ("setting", "unknown_name", "suggestion"),
    [
        ("step=1", "step", "steps"),
        ("learnin_rate=1", "learnin_rate", "learning_rate"),
    ],
)
def test_an_unknown_setting_of_a_training_is_refused_before_the_training_begins(
    cli: RunCommand,
    current_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    unknown_name: str,
    suggestion: str,
) -> None:
    """A training that had begun would have left a folder of its run."""
    home = current_folder / "home"
    monkeypatch.setenv("MEMPILER_HOME", str(home))
    train = ["train", "memory-r2", "--benchmark", "memory-env", "--lm", "local:tiny"]

    line = error_line(cli, *train, "--train-set", setting)

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


@pytest.mark.parametrize("name", ["rebuild", "search", "show", "edit"])
def test_commands_of_memories_that_take_a_program_take_it_first(name: str) -> None:
    """Otherwise users would have to look up the order of arguments for each command."""
    parameters = memories_group.commands[name].params
    arguments = [
        parameter.name for parameter in parameters if parameter.param_type_name == "argument"
    ]

    assert arguments[0] == "program"
    assert [parameter.name for parameter in parameters].count("program") == 1


def test_other_commands_of_memories_take_no_program() -> None:
    commands_with_program = {"rebuild", "search", "show", "edit"}
    other_commands = memories_group.commands.keys() - commands_with_program

    assert other_commands >= {"add", "list", "forget", "export", "import"}
    for name in other_commands:
        parameter_names = [parameter.name for parameter in memories_group.commands[name].params]
        assert "program" not in parameter_names, name
