"""Exported folders: what is in them, what they refuse, and that their rewards are those of training here.

The package for `verifiers` is only looked at; docs/training.md tells how it was run.
"""

import json
import re
import shutil
import tomllib
from pathlib import Path

import mempiler
import pytest
from mempiler.cli import main
from mempiler.runs.exports.environment import Environment

SAMPLE = next((Path(mempiler.__file__).parent / "data" / "samples").glob("locomo*.json"))
ENV = ["--on", "memory-env", "--option", "users=10", "--option", "sessions=2"]


def export(folder: Path, *options: str, method: str = "memory-r2") -> Path:
    main(["export", "verifiers", method, *(options or ENV), "--out", str(folder)])
    return folder


def test_the_package_for_verifiers_names_what_it_needs(tmp_path: Path) -> None:
    folder = export(tmp_path / "out")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "mempiler-memory-r2-memory-env"
    assert "mempiler" in project["dependencies"]
    package = folder / "mempiler_memory_r2_memory_env"
    assert {path.name for path in package.iterdir()} == {"__init__.py", "export.json"}
    compile((package / "__init__.py").read_text(), "__init__.py", "exec")
    environment = Environment.open(package / "export.json")
    assert len(environment.histories) == 6
    worth = environment.worth(next(iter(environment.histories)), [])
    assert worth.reward == worth.value - 0.5


def test_a_file_of_one_s_own_is_named_and_not_copied(tmp_path: Path) -> None:
    data = tmp_path / "mine.json"
    shutil.copy(SAMPLE, data)
    folder = export(tmp_path / "out", "--on", "locomo", "--data", str(data), "--sessions", "1")
    (exported,) = folder.glob("*/export.json")
    turn = next(iter(Environment.open(exported).histories.values())).items[0].turns[0]
    assert all(turn.content not in path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file())
    data.write_text(data.read_text().replace(turn.content, "Something else."))
    with pytest.raises(mempiler.DataError, match=r"mine.json: is not the data that was exported"):
        Environment.open(exported)


def test_another_prompt_than_the_exported_one_is_refused(tmp_path: Path) -> None:
    (exported,) = export(tmp_path / "out").glob("*/export.json")
    told = json.loads(exported.read_text())
    (tmp_path / "export.json").write_text(
        json.dumps({**told, "setup": {**told["setup"], "config": {"chunk_turns": 2}}})
    )
    with pytest.raises(mempiler.ProgramError, match="memory-r2 has other prompts or settings than were exported"):
        Environment.open(tmp_path / "export.json")
    (tmp_path / "export.json").write_text(json.dumps({**told, "more": 1}))
    with pytest.raises(mempiler.ProgramError, match="is no export"):
        Environment.open(tmp_path / "export.json")


@pytest.mark.parametrize(
    ("options", "method", "message"),
    [
        (["--on", "memoryquest"], "memory-r2", "memoryquest is scored by a judge"),
        (ENV, "turn-rag", "turn-rag writes without a language model"),
        (["--on", "palbench.dialogue"], "memory-r2", "palbench.dialogue is a simulated conversation"),
        ([*ENV, "--adapter", "auto"], "memory-r2", "--adapter auto asks an endpoint"),
        ([*ENV, "--plan"], "memory-r2", "No such option '--plan'"),
        ([*ENV, "--max-usd", "1"], "memory-r2", "No such option '--max-usd'"),
        ([*ENV, "--reward-set", "depth=1"], "memory-r2", "--reward-set: .*compression"),
        (
            [*ENV, "--reward-set", "compression=-1"],
            "memory-r2",
            "--reward-set: compression: Input should be greater than",
        ),
        (["--on", "nowhere"], "memory-r2", "unknown benchmark 'nowhere'"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    options: list[str], method: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        export(tmp_path / "out", *options, method=method)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
