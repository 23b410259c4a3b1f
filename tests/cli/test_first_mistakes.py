"""What a new user gets wrong first: each mistake is one line that says what to write instead."""

import json
import socket
from pathlib import Path

import pytest
from mempiler import build, save

ROW = {"messages": [{"role": "user", "content": "I moved to Lisbon."}], "question": "Where?", "answer": "Lisbon"}
AGENT = """
import dspy
raise SystemExit("imported")

class Helper:
    pass

class Agent(dspy.Module):
    pass
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file of questions, a history and a program of one's own."""
    rows = [json.dumps({**ROW, "user": f"user {number}"}) for number in range(60)]
    (tmp_path / "own.jsonl").write_text("\n".join(rows))
    (tmp_path / "history.json").write_text(json.dumps(ROW["messages"]))
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/mine.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def error_line(found: tuple[int, str, str], code: int = 2) -> str:
    """The last line of standard error, of a command that failed with this code and printed no result."""
    assert found[0] == code, found
    assert found[1] == "", found
    return found[2].splitlines()[-1]


@pytest.mark.parametrize("command", ["compile", "evaluate"])
@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("./agent.py", "agent:Agent"),
        ("agent.py:Agent", "agent:Agent"),
        ("agents/mine.py", "agents.mine:Agent"),
    ],
)
def test_a_path_of_a_python_file_is_answered_with_the_name_to_write(cli, command, path, target):
    line = error_line(cli(command, path, "--benchmark", "jsonl", "--data", "own.jsonl"))
    assert line == f"mempiler: method {path.removesuffix(':Agent')!r} is a file; write {target}"


def test_a_missing_python_file_is_named(cli):
    line = error_line(cli("compile", "./agnt.py", "--benchmark", "jsonl", "--data", "own.jsonl"))
    assert line == "mempiler: method './agnt.py': there is no such file; write module:Class, e.g. agent:Agent"


def test_for_a_missing_program_folder_one_of_a_similar_name_is_suggested(cli):
    ask = ["Where?", "--history", "history.json"]
    assert error_line(cli("ask", "my-programm", *ask)) == "mempiler: my-programm: there is no such folder"
    save(build("turn-rag"), "my-program")
    assert error_line(cli("ask", "my-programm", *ask)).endswith("no such folder; did you mean 'my-program'?")


def test_a_taken_port_ends_ui_with_one_line_and_code_one(cli):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = error_line(cli("ui", "--port", port), code=1)
    assert line == f"mempiler: cannot listen at 127.0.0.1, port {port}: Address already in use; give another --port"


def test_an_unknown_setting_of_a_training_is_refused_at_once(cli, monkeypatch):
    def refuse(*arguments: object) -> None:
        raise AssertionError("the training began")

    monkeypatch.setattr("mempiler.runs.api.run_train", refuse)
    train = ["train", "memory-r2", "--benchmark", "memory-env", "--lm", "local:tiny", "--train-set"]
    assert (
        error_line(cli(*train, "step=1")) == "mempiler: unknown setting of the training 'step'; did you mean 'steps'?"
    )
    assert "did you mean 'learning_rate'?" in error_line(cli(*train, "learnin_rate=1"))


@pytest.mark.parametrize("command", ["evaluate", "ask"])
def test_a_wrong_address_of_a_server_names_its_option(cli, command):
    save(build("turn-rag"), "program")
    model = ["--lm", "openai/x", "--api-base", "http://127.0.0.1:9/v1"]
    given = {
        "evaluate": ["turn-rag", "--benchmark", "jsonl", "--data", "own.jsonl", "--test", "1"],
        "ask": ["program", "Where?", "--history", "history.json"],
    }[command]
    line = error_line(cli(command, *given, *model), code=3)
    assert line.endswith("Connection refused: 127.0.0.1:9; check the address (--api-base)")


def test_an_address_without_a_model_names_its_option(cli, stub):
    save(build("turn-rag"), "program")
    server = stub(lambda n, text: "404")
    model = ["--lm", "openai/x", "--api-base", server.url]
    line = error_line(cli("ask", "program", "Where?", "--history", "history.json", *model), code=3)
    assert "(status 404); check the address (--api-base), which mostly ends in /v1, and the model's name" in line


def test_commands_of_memories_take_the_program_first_or_not_at_all():
    from mempiler.cli.memories import command

    places = {}
    for name, subcommand in command.commands.items():
        names = [parameter.name for parameter in subcommand.params]
        arguments = [each.name for each in subcommand.params if each.param_type_name == "argument"]
        places[name] = (names.count("program"), arguments[:1] == ["program"])
    with_program = {name for name, (count, is_first) in places.items() if count == 1 and is_first}
    assert with_program == {"rebuild", "search", "show", "edit"}
    assert all(count == 0 for name, (count, _) in places.items() if name not in with_program)
