"""Every method as a real model ran it: the runs of tests/recordings, replayed without the model."""

import json
import shutil
from pathlib import Path

import pytest
from mempiler.programs.names import METHODS

from ..recordings import make

FOLDER = Path(__file__).parents[1] / "recordings"


def test_every_command_has_its_run_and_its_table() -> None:
    runs = {path.parent.name for path in FOLDER.glob("*/run.sqlite")}
    assert runs == {path.stem for path in FOLDER.glob("*.json")} - {"palset_en"} == set(make.RECORDINGS)


def test_every_method_of_a_paper_is_recorded() -> None:
    folders = {entry.path.split(".programs.")[1].split(".")[0] for entry in METHODS.values()}
    recorded = {METHODS[words[1]].path for words in make.RECORDINGS.values() if words[1] in METHODS}
    assert {path.split(".programs.")[1].split(".")[0] for path in recorded} == folders


@pytest.mark.parametrize("name", make.RECORDINGS)
def test_a_replay_gives_the_table_of_the_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = f"if its prompts were changed on purpose: python tests/recordings/make.py {name!r}"
    ran = shutil.copytree(FOLDER / name, tmp_path / "run")
    try:
        found = make.run([*make.command(name), "--threads", "2", "--replay", str(ran)])
    except SystemExit:
        pytest.fail(f"{capsys.readouterr().err.splitlines()[-1]}; {again}")
    assert found == json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")), again
