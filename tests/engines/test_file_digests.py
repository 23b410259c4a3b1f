"""Digests of weights: the whole file counts, it is read once, and a change of it is seen whatever its times say."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mempiler.engines import file_digests
from mempiler.engines.cache_folder import cache_folder
from mempiler.engines.file_digests import remembered_digest


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(1000))
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read; each counts as settled at once, so that no test has to wait."""
    names = list[str]()
    read = hashlib.file_digest

    def count(file: object, kind: str) -> object:
        names.append(Path(getattr(file, "name")).name)  # noqa: B009
        return read(file, kind)  # pyright: ignore

    monkeypatch.setattr(hashlib, "file_digest", count)
    monkeypatch.setattr(file_digests, "SETTLE_SECONDS", 0.0)
    return names


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entries() -> list[Path]:
    return list((cache_folder() / "digests").iterdir())


def test_a_file_is_read_once(weights: Path, reads: list[str]) -> None:
    link = weights.with_name("link")
    link.symlink_to(weights)
    assert (
        remembered_digest(weights)
        == remembered_digest(weights)
        == remembered_digest(link)
        == sha256(weights)
    )
    assert reads == ["weights.bin"]


def test_a_change_in_place_of_the_same_size_and_time_is_seen(
    weights: Path, reads: list[str]
) -> None:
    before, about = remembered_digest(weights), weights.stat()
    with weights.open("r+b") as file:
        file.seek(500)
        file.write(b"!")
    os.utime(weights, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert weights.stat().st_mtime_ns == about.st_mtime_ns
    assert remembered_digest(weights) == sha256(weights) != before
    assert len(reads) == 2


def test_another_file_of_the_same_size_and_time_in_its_place_is_seen(
    weights: Path, reads: list[str]
) -> None:
    before, about = remembered_digest(weights), weights.stat()
    other = weights.with_name("other")
    other.write_bytes(b"!" * 1000)
    os.utime(other, ns=(about.st_atime_ns, about.st_mtime_ns))
    other.replace(weights)
    assert remembered_digest(weights) == sha256(weights) != before


def test_a_file_that_has_just_changed_is_not_remembered(weights: Path) -> None:
    """A further change within the same tick of the file system's clock would not show."""
    remembered_digest(weights)
    assert not (cache_folder() / "digests").exists()


@pytest.mark.parametrize(
    "harm", [b"", b"{", b"[]", b'{"sha256": 5}', b'{"sha256": "abc", "state": {}}', b"\xff"]
)
def test_a_damaged_entry_costs_time_only(weights: Path, reads: list[str], harm: bytes) -> None:
    remembered_digest(weights)
    (entry,) = entries()
    entry.write_bytes(harm)
    assert [remembered_digest(weights), remembered_digest(weights)] == [sha256(weights)] * 2
    assert len(reads) == 2


def test_an_entry_tells_no_path_and_is_no_other_files(weights: Path, reads: list[str]) -> None:
    other = weights.with_name("other.bin")
    other.write_bytes(b"!" * 1000)
    assert remembered_digest(weights) == sha256(weights)
    assert remembered_digest(other) == sha256(other)
    assert len(entries()) == 2
    for entry in entries():
        assert "weights" not in entry.name + entry.read_text()
        assert set(json.loads(entry.read_text())) == {"sha256", "state"}


def test_without_a_cache_folder_a_file_is_read_each_time(weights: Path, reads: list[str]) -> None:
    cache_folder().parent.mkdir(exist_ok=True)
    cache_folder().write_text("")
    assert [remembered_digest(weights), remembered_digest(weights)] == [sha256(weights)] * 2
    assert len(reads) == 2


FORGET_AND_DIGEST = """
import sys
from pathlib import Path
from mempiler.engines import file_digests
from mempiler.engines.cache_folder import cache_folder
file_digests.SETTLE_SECONDS = 0.0
while True:
    digest = file_digests.remembered_digest(Path(sys.argv[1]))
    print(digest, flush=True)
    for entry in (cache_folder() / "digests").glob("*.json"):
        entry.unlink(missing_ok=True)
"""


def test_processes_that_are_killed_while_they_write_leave_whole_entries(
    weights: Path, reads: list[str]
) -> None:
    command = [sys.executable, "-c", FORGET_AND_DIGEST, str(weights)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline().strip() == sha256(weights)
        for _ in range(300):
            assert remembered_digest(weights) == sha256(weights)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    for entry in (cache_folder() / "digests").glob("*.json"):
        assert json.loads(entry.read_text())["sha256"] == sha256(weights)
    assert remembered_digest(weights) == sha256(weights)
