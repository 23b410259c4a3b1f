"""Every method as a real model ran it: the recordings of tests/recordings, replayed without the model."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from mempiler.programs.names import METHODS

FOLDER = Path(__file__).parents[1] / "recordings"
_SPEC = importlib.util.spec_from_file_location("recordings_make", FOLDER / "make.py")
assert _SPEC
assert _SPEC.loader
make: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(make)


def test_every_command_has_its_recording_and_its_table() -> None:
    for suffix in (".rec", ".json"):
        found = {path.stem for path in FOLDER.glob(f"*{suffix}")} - {"palset_en"}
        assert found == set(make.RECORDINGS), "run: python tests/recordings/make.py"


def test_every_method_of_a_paper_is_recorded() -> None:
    folders = {entry.path.split(".programs.")[1].split(".")[0] for entry in METHODS.values()}
    recorded = {METHODS[words[1]].path for words in make.RECORDINGS.values() if words[1] in METHODS}
    assert {path.split(".programs.")[1].split(".")[0] for path in recorded} == folders


@pytest.mark.parametrize("name", make.RECORDINGS)
def test_a_replay_gives_the_recorded_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = FOLDER / f"{name}.rec"
    again = f"if its prompts were changed on purpose: python tests/recordings/make.py {name!r}"
    assert path.stat().st_size < 300_000
    try:
        found = make.run([*make.command(name), "--threads", "2", "--replay", str(path)])
    except SystemExit:
        pytest.fail(f"{capsys.readouterr().err.splitlines()[-1]}; {again}")
    assert found == json.loads(path.with_suffix(".json").read_text(encoding="utf-8")), again
