"""Environments are made whole or not at all, hold what is pinned, and are removed; commands say so in one line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from mempiler.cli import app
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
def test_what_was_broken_off_is_made_anew(made: Environment) -> None:
    assert made.here
    assert made.python().exists()
    assert not (made.path / "half").exists()


@pytest.mark.slow
def test_installing_twice_changes_nothing_and_other_pins_have_another_place(made: Environment, tmp_path: Path) -> None:
    before = (made.path / STAMP).stat().st_mtime_ns
    made.install()
    assert (made.path / STAMP).stat().st_mtime_ns == before
    other = tmp_path / "other.txt"
    other.write_text("six==1.17.0\n")
    assert Environment("none", other).path != made.path


@pytest.mark.slow
@pytest.mark.slow
def test_a_package_that_does_not_come_is_one_error_and_leaves_nothing_that_looks_whole(
    made: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    pins = tmp_path / "missing.txt"
    pins.write_text("no-such-package==1\n")
    with pytest.raises(EndpointError, match=r"missing cannot be installed: .*no-such-package==1"):
        Environment("missing", pins).install()
    assert not Environment("missing", pins).here


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_told(
    made: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MEMPILER_SYSTEMS", str(tmp_path / "file" / "below"))
    with pytest.raises(UserError, match=r"cannot be written: .*set MEMPILER_SYSTEMS"):
        made.install()


@pytest.mark.slow
def test_removing_leaves_those_of_other_names(made: Environment, tmp_path: Path) -> None:
    pins = tmp_path / "none-too.txt"
    pins.touch()
    other = Environment("none-too", pins)
    other.path.mkdir(parents=True)
    (other.path / STAMP).touch()
    assert not Environment("non", pins).remove()
    assert other.remove()
    assert not other.here
    assert made.here


def test_one_that_is_not_installed_names_the_command() -> None:
    with pytest.raises(UserError, match="mem0 is not installed; run: mempiler fetch system:mem0"):
        factory("mem0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["system:mem1"], "unknown system 'mem1'; did you mean 'mem0'?"),
        (["system:mem0", "--out", "here"], "--out and --sha256 are for data files"),
        (["system:mem0", "--from", "wheel"], "--from is for weights"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["fetch", *words])
    assert isinstance(done.exception, UserError)
    assert said in str(done.exception)


def test_list_has_every_system() -> None:
    found = json.loads(CliRunner().invoke(app, ["list", "systems", "--json"]).output)["systems"]
    assert list(found) == list(SYSTEMS)
    assert all(f"run: mempiler fetch system:{name}" in told for name, told in found.items())


def test_every_system_has_its_file_and_pins_and_no_other_is_there() -> None:
    names = {name.replace("-", "_") for name in SYSTEMS}
    files = {path.stem for path in (ROOT / "inside").glob("*.py")}
    assert files == names | {"__init__", "own", "worker", "sentence_transformers"}
    pins = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in (ROOT / "pins").glob("*")}
    assert pins.keys() == SYSTEMS.keys()
    assert all("==" in line for lines in pins.values() for line in lines)


@pytest.mark.parametrize("name", SYSTEMS)
def test_page_has_every_system_with_packages_that_are_pinned(name: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `system:{name}` |")]
    what, packages = row.split(" | ")[1:3]
    assert what == SYSTEMS[name].what
    lines = SYSTEMS[name].environment.pins.read_text(encoding="utf-8").lower().splitlines()
    pinned = {line.partition("==")[0].replace("_", "-") for line in lines}
    assert {package.partition("[")[0].lower() for package in packages.split(", ")} <= pinned
