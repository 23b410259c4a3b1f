"""A broken run: exit code 4, the commonest error with the line of the user's own code, and no program."""

from pathlib import Path
from typing import Any

import pytest
from mempiler.programs.catalog import build
from mempiler.runs.artifact import load, save
from mempiler.runs.manifest import is_intact

OWN = """
from mempiler import EntryReader, Memory, Method, Writer


class Notebook(Memory):
    def entries(self):
        return ()


class NoteWriter(Writer):
    Memory = Notebook

    def write(self, memory, item, prepared=None):
        return summary(item)


def summary(item):
    return item.summary.strip()


class Broken(Method):
    def __init__(self):
        super().__init__(NoteWriter(), EntryReader(5))


def agent(history, question):
    if "When" in question:
        raise KeyError(question)
    return "Lisbon"
"""
DATA = ("--on", "locomo", "--train", "6", "--dev", "8", "--test", "8")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any) -> Any:
    """Runs a command that may name the module `own_mistakes`; gives exit code, standard output and last error line."""
    (tmp_path / "own_mistakes.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        code, out, err = cli(*words)
        return code, out, err.splitlines()[-1] if err else ""

    return run


def commands(line: str) -> list[str]:
    """The words of the command that an error line names."""
    assert " --failed lists all" in line
    return line.split("; mempiler ")[1].split(" lists all")[0].split()


@pytest.mark.parametrize("command", ["evaluate", "compile"])
def test_a_method_that_raises_ends_with_4_names_its_own_line_and_saves_nothing(
    call: Any, tmp_path: Path, command: str
) -> None:
    words = ["--with", "labeled", "--out", tmp_path / "out"] if command == "compile" else []
    code, _, line = call(command, "own_mistakes:Broken", *words, *DATA)
    told = "'Session' object has no attribute 'summary' (own_mistakes.py:18)"
    assert code == 4
    assert f"broken run: 8 of 8 questions failed, --max-lost allows 10%; most often: AttributeError: {told}" in line
    assert not (tmp_path / "out").exists()
    code, out, _ = call(*commands(line))
    assert code == 0
    assert out.count("(own_mistakes.py:18)") == 8


def test_force_saves_a_broken_program_and_an_older_one_stays(call: Any, tmp_path: Path) -> None:
    words = ["compile", "own_mistakes:Broken", "--with", "labeled", *DATA, "--out", tmp_path / "out"]
    assert call(*words, "--force")[0] == 4
    assert is_intact(tmp_path / "out")
    save(build("turn-rag", k=3), tmp_path / "out")
    code, _, line = call(*words)
    assert (code, "no program was saved (--force saves one)" in line) == (4, True)
    assert load(tmp_path / "out").method.config["k"] == 3


def test_answers_that_cannot_be_read_end_with_4_before_anything_is_tuned(stub: Any, mempiler_cli: Any) -> None:
    server = stub(lambda n, text: None if "Ingrid" in text.rsplit("question ## ]]", 1)[-1] else "garbled")
    ran = mempiler_cli(server, "compile", "turn-rag", "--with", "labeled", dev=12)
    assert (ran.code, ran.out, "answer" in ran.line.split("most often: ")[1]) == (4, "", True)
    assert len(server.texts) <= 1 + 2 * 12  # the adapter's own question, and each dev question twice
