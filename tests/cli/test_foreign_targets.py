"""Where something of somebody else's stands, nothing is written; what Mempiler wrote itself is written anew."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from mempiler.cli import main

Run = Callable[..., tuple[int, str, str]]
CHAT = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]
FILES = {"export": ("memories", "export"), "compare": ("compare", "one", "two", "--page")}
"""The commands that write a file, up to its name."""
FOLDERS = {
    "compile": ("compile", "turn-rag", "--on", "locomo", "--with", "labeled", "--out"),
    "export": ("export", "verifiers", "memory-r2", "--on", "locomo", "--out"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with a memory of Ada's and two runs."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "chat.json").write_text(json.dumps(CHAT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMPILER_HOME", str(folder))
        main(["memories", "add", str(folder / "chat.json"), "--user", "ada"])
        for name in ("one", "two"):
            main(["evaluate", "turn-rag", "--on", "locomo", "--test", "2", "--part", "test"])
            (run,) = (path.parent for path in folder.glob("2*/run.json"))
            run.rename(folder / name)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Run) -> Run:
    monkeypatch.setenv("MEMPILER_HOME", str(made))
    monkeypatch.chdir(tmp_path)
    return cli


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_ours_is_overwritten_by_force_alone(run: Run, name: str) -> None:
    notes, command = Path("notes"), FILES[name]
    notes.write_text("my notes on mempiler")
    code, _, err = run(*command, "notes")
    assert (code, notes.read_text()) == (2, "my notes on mempiler")
    assert "notes: is there already and was not written by Mempiler; choose another name, or give --force\n" in err
    assert run(*command, "notes", "--force")[0] == 0
    first = notes.read_text()
    assert run(*command, "notes")[0] == 0, "ours by now"
    assert notes.read_text() == first != "my notes on mempiler"
    other = next(command for each, command in FILES.items() if each != name)
    assert run(*other, "notes")[0] == 2, "ours, and of another kind"
    assert [path.name for path in Path().iterdir()] == ["notes"], "nothing is left beside it"


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_never_replaced(run: Run, name: str, tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    code, _, err = run(*FILES[name], "null", "--force")
    assert (code, "was not written by Mempiler; choose another name" in err) == (2, True)
    assert (tmp_path / "null").is_symlink()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_not_ours_is_left_alone(run: Run, name: str) -> None:
    mine = {"index.html": "my page", "manifest.json": "{}", "state.json": "{}"}
    Path("site").mkdir()
    for file, text in mine.items():
        Path("site", file).write_text(text)
    code, _, err = run(*FOLDERS[name], "site")
    assert (code, err.splitlines()[-1].partition(" ")[0]) == (2, "mempiler:")
    assert {path.name: path.read_text() for path in Path("site").iterdir()} == mine
