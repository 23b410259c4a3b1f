"""`mempiler check`: exit codes, files for CI systems, and what is refused before anything runs.

The command compares a program with another one on the same questions. It is for CI systems: the
exit code says whether the program is worse. The programs are functions of a file `programs.py`:
`knows_all` answers all 24 questions rightly, and `knows_half` every second one.
"""

from __future__ import annotations

import inspect
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import mempiler
import pytest
from mempiler.cli import app
from mempiler.runs.options import RunOptions

from ..command_line import RunCommand, output_of

PROGRAMS = """
def knows_all(history, question):
    return "city " + question.split()[3]

def knows_half(history, question):
    number = int(question.split()[3])
    return "who knows" if number % 2 else knows_all(history, question)

def fails(history, question):
    raise RuntimeError("out of order")
"""


@pytest.fixture(autouse=True)
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with `programs.py` and 24 questions: one about each of 24 users."""
    lines: list[str] = []
    for number in range(24):
        question = {
            "user": f"user {number}",
            "messages": [{"role": "user", "content": f"I live in city {number}."}],
            "question": f"Where does user {number} live?",
            "answer": f"city {number}",
        }
        lines.append(json.dumps(question))
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    (tmp_path / "programs.py").write_text(PROGRAMS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def check_command(program: str, *options: str) -> list[str]:
    """Return the words of a command that compares a program with `knows_all`."""
    return [
        *("check", f"programs:{program}"),
        *("--against", "programs:knows_all"),
        *("--data", "q.jsonl"),
        *("--metric", "exact"),
        *options,
    ]


def test_code_0_means_that_nothing_worse_was_found(cli: RunCommand) -> None:
    """The program `knows_all` is compared with itself."""
    output = output_of(cli, *check_command("knows_all"))

    assert output.startswith("check passed: programs:knows_all against programs:knows_all")
    assert "the smallest loss that these 24 questions detect in 90% of the cases" in output


def test_code_1_means_worse(cli: RunCommand) -> None:
    """`knows_half` gives half of the right answers that `knows_all` gives."""
    code, out, _ = cli(*check_command("knows_half"))

    assert code == 1
    assert "failed: programs:knows_half with offline: worse: -0.500 [" in out


def failure_counts(junit_file: Path) -> dict[str, str | None]:
    """Return the numbers of failures and errors in a JUnit file, which CI systems read."""
    suite = ElementTree.parse(junit_file).getroot()
    return {"failures": suite.get("failures"), "errors": suite.get("errors")}


def test_the_files_of_a_failed_check_say_why(cli: RunCommand, current_folder: Path) -> None:
    """`knows_half` is worse than the program that it is compared with.

    In Markdown an underscore has a backslash before it.
    """
    cli(*check_command("knows_half", "--markdown", "summary.md", "--junit", "junit.xml"))

    summary = (current_folder / "summary.md").read_text()
    assert "failed: programs:knows\\_half with offline" in summary
    assert failure_counts(current_folder / "junit.xml") == {"failures": "1", "errors": "0"}


def test_code_1_means_a_missed_floor(cli: RunCommand) -> None:
    """A floor is the least score that is allowed. The program has the score 1."""
    code, out, _ = cli(*check_command("knows_all", "--floor", "score=1.01"))

    assert code == 1
    assert "below the floor 1.01" in out


def test_code_4_means_a_broken_run(cli: RunCommand) -> None:
    """The program `fails` raises an error for each of the 24 questions."""
    code, out, err = cli(*check_command("fails"))

    assert code == 4
    assert out.startswith("check failed: ")
    assert "broken run: 24 of 24 questions failed" in err


def test_the_junit_file_of_a_broken_run_has_an_error(cli: RunCommand, current_folder: Path) -> None:
    """The program `fails` raises an error for each question, so nothing can be compared."""
    cli(*check_command("fails", "--junit", "junit.xml"))

    assert failure_counts(current_folder / "junit.xml")["errors"] == "1"


def test_json_is_one_object(cli: RunCommand) -> None:
    """It has a row for each program. The first is that with which the other one is compared."""
    code, out, _ = cli(*check_command("knows_half", "--json"))

    result = json.loads(out)
    assert code == 1
    assert result["passed"] is False
    assert [row["decisive"] for row in result["rows"]] == [False, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--floor", "score"], "give NAME=VALUE"),
        (["--floor", "scor=.5"], "unknown figure of --floor 'scor'; did you mean 'score'?"),
        (["--lm", "offline", "--lm", "offline"], "--lm offline: is given twice"),
        (["--workers", "2"], "No such option"),
        (["--data", "missing.jsonl"], "missing.jsonl"),
    ],
)
def test_a_mistake_is_refused_before_anything_runs(
    cli: RunCommand, options: list[str], message: str
) -> None:
    code, out, err = cli(*check_command("knows_all", *options))

    assert code == 2
    assert out == ""
    assert message in err


@pytest.mark.parametrize("option", ["--markdown", "--junit"])
def test_a_file_of_the_user_is_not_overwritten(
    cli: RunCommand, current_folder: Path, option: str
) -> None:
    (current_folder / "notes.txt").write_text("mine")

    code, _, err = cli(*check_command("knows_all", option, "notes.txt"))

    assert code == 2
    assert "was not written by Mempiler" in err
    assert (current_folder / "notes.txt").read_text() == "mine"


def test_a_program_to_compare_with_is_needed(cli: RunCommand) -> None:
    code, _, err = cli("check", "turn-rag", "--data", "q.jsonl")

    assert code == 2
    assert "--against" in err


def test_files_of_an_earlier_check_are_replaced(cli: RunCommand, current_folder: Path) -> None:
    """`knows_half` fails the check, and `knows_all` passes it."""
    files = ("--markdown", "summary.md", "--junit", "junit.xml")
    cli(*check_command("knows_half", *files))

    output_of(cli, *check_command("knows_all", *files))

    assert "check passed" in (current_folder / "summary.md").read_text()
    assert failure_counts(current_folder / "junit.xml") == {"failures": "0", "errors": "0"}


def test_a_file_of_settings_may_name_the_model(cli: RunCommand, current_folder: Path) -> None:
    """The provider does not exist. The error shows that the name was read."""
    (current_folder / "check.toml").write_text('[models.task]\nname = "no-such-provider/x"\n')

    code, _, err = cli(*check_command("knows_all", "--config", "check.toml"))

    assert code == 2
    assert "no-such-provider/x" in err


def test_every_option_is_an_argument_in_python() -> None:
    """Options that write files, or choose what the terminal shows, are methods of the result."""
    command = app.get_command(None, "check")  # type: ignore[arg-type]
    options: set[str] = set()
    for parameter in command.params:
        long_name = max(parameter.opts, key=len)
        options.add(long_name.lstrip("-").replace("-", "_"))
    options -= {"json", "config", "markdown", "junit", "force"}

    arguments = {*inspect.signature(mempiler.check).parameters, *RunOptions.__annotations__}

    # The command line repeats --floor; Python takes all floors in one mapping.
    assert options - arguments == {"floor"}
    assert "floors" in arguments
