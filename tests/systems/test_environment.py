"""Environments are made whole or not at all, hold what is pinned, and are removed; commands say so in one line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mempiler.errors import EndpointError, UserError
from mempiler.systems import environment
from mempiler.systems.catalog import SYSTEMS, factory
from mempiler.systems.environment import STAMP, Environment

ROOT = Path(environment.__file__).parent
PAGE = (ROOT.parent / "docs" / "systems.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """An environment of no packages, whose first installation was broken off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMPILER_SYSTEMS", str(tmp_path_factory.mktemp("systems")))
        pins = tmp_path_factory.mktemp("pins") / "none.txt"
        pins.write_text("")
        found = Environment("none", pins)
        found.path.mkdir(parents=True)
        (found.path / "half").touch()
        found.install()
        yield found


@pytest.mark.slow
def test_what_was_broken_off_is_made_anew_and_what_is_whole_is_not(made: Environment, tmp_path: Path) -> None:
    assert made.here
    assert made.python().exists()
    assert not (made.path / "half").exists()
    before = (made.path / STAMP).stat().st_mtime_ns
    made.install()
    assert (made.path / STAMP).stat().st_mtime_ns == before
    other = tmp_path / "other.txt"
    other.write_text("six==1.17.0\n")
    assert Environment("none", other).path != made.path


@pytest.mark.slow
def test_a_package_that_does_not_come_is_one_error_and_leaves_nothing_that_looks_whole(made, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    pins = tmp_path / "missing.txt"
    pins.write_text("no-such-package==1\n")
    with pytest.raises(EndpointError, match=r"missing cannot be installed: .*no-such-package==1"):
        Environment("missing", pins).install()
    assert not Environment("missing", pins).here


def test_a_folder_that_cannot_be_written_is_told_and_the_command_that_installs(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MEMPILER_SYSTEMS", str(tmp_path / "file" / "below"))
    with pytest.raises(UserError, match="mem0 is not installed; run: mempiler fetch system:mem0"):
        factory("mem0")
    with pytest.raises(UserError, match=r"cannot be written: .*set MEMPILER_SYSTEMS"):
        SYSTEMS["mem0"].environment.install()


def test_list_has_every_system(cli: Any) -> None:
    found = json.loads(cli("list", "systems", "--json")[1])["systems"]
    assert list(found) == list(SYSTEMS)
    assert all(f"run: mempiler fetch system:{name}" in told for name, told in found.items())


def test_every_system_has_its_file_its_pins_and_its_row_of_the_page() -> None:
    names = {name.replace("-", "_") for name in SYSTEMS}
    files = {path.stem for path in (ROOT / "inside").glob("*.py")}
    assert files == names | {"__init__", "own", "worker", "sentence_transformers"}
    pins = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in (ROOT / "pins").glob("*")}
    assert pins.keys() == SYSTEMS.keys()
    assert all("==" in line for lines in pins.values() for line in lines)

    for name, system in SYSTEMS.items():
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `system:{name}` |")]
        what, packages = row.split(" | ")[1:3]
        assert what == system.what
        pinned = {line.partition("==")[0].replace("_", "-").lower() for line in pins[name]}
        assert {package.partition("[")[0].lower() for package in packages.split(", ")} <= pinned
