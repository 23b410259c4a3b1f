"""Digests of weights: each file is read once, and any change of it is noticed.

`remembered_digest` returns the SHA-256 of a file, and remembers it in the cache folder together
with the state of the file (its size, its times and so on).
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mempiler.engines import file_digests
from mempiler.engines.cache_folder import cache_folder
from mempiler.engines.file_digests import remembered_digest


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file of a thousand bytes."""
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(1000))
    return path


@pytest.fixture
def files_read_so_far(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read for a digest so far.

    With this fixture, a new digest is remembered at once, and not after two seconds. The seconds
    cannot be avoided by an old file: the system itself sets the time of a file's last change.
    """
    names: list[str] = []
    digest_of_file = hashlib.file_digest

    def record_and_digest(file: Any, algorithm: Any) -> Any:
        names.append(Path(file.name).name)
        return digest_of_file(file, algorithm)

    monkeypatch.setattr(hashlib, "file_digest", record_and_digest)
    monkeypatch.setattr(file_digests, "SETTLE_SECONDS", 0.0)
    return names


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest_entries() -> list[Path]:
    """Return the files in the cache, each of which remembers one digest."""
    return list((cache_folder() / "digests").glob("*.json"))


def test_a_file_is_read_once(weights: Path, files_read_so_far: list[str]) -> None:
    assert remembered_digest(weights) == sha256(weights)
    assert remembered_digest(weights) == sha256(weights)
    assert files_read_so_far == ["weights.bin"]


def test_a_change_that_keeps_size_and_modification_time_is_noticed(
    weights: Path, files_read_so_far: list[str]
) -> None:
    old_digest = remembered_digest(weights)
    old_stat = weights.stat()

    with weights.open("r+b") as file:
        file.seek(500)
        file.write(b"!")
    os.utime(weights, ns=(old_stat.st_atime_ns, old_stat.st_mtime_ns))

    assert weights.stat().st_mtime_ns == old_stat.st_mtime_ns
    assert remembered_digest(weights) == sha256(weights)
    assert remembered_digest(weights) != old_digest
    assert len(files_read_so_far) == 2


def test_another_file_of_the_same_size_and_time_in_its_place_is_noticed(
    weights: Path, files_read_so_far: list[str]
) -> None:
    old_digest = remembered_digest(weights)
    old_stat = weights.stat()

    other_file = weights.with_name("other")
    other_file.write_bytes(b"!" * 1000)
    os.utime(other_file, ns=(old_stat.st_atime_ns, old_stat.st_mtime_ns))
    other_file.replace(weights)

    assert remembered_digest(weights) == sha256(weights)
    assert remembered_digest(weights) != old_digest


def test_the_digest_of_a_file_that_has_just_changed_is_not_remembered(weights: Path) -> None:
    """A further change within the same tick of the file system's clock would not be noticed."""
    remembered_digest(weights)
    assert not (cache_folder() / "digests").exists()


@pytest.mark.parametrize(
    "damaged_content",
    [b"", b"{", b"[]", b'{"sha256": 5}', b'{"sha256": "abc", "state": {}}', b"\xff"],
)
def test_a_damaged_entry_has_the_file_read_again_and_is_repaired(
    weights: Path, files_read_so_far: list[str], damaged_content: bytes
) -> None:
    remembered_digest(weights)
    (entry,) = digest_entries()
    entry.write_bytes(damaged_content)

    assert remembered_digest(weights) == sha256(weights)  # reads the file, and repairs the entry
    assert remembered_digest(weights) == sha256(weights)
    assert len(files_read_so_far) == 2


def test_every_file_has_its_own_entry(weights: Path, files_read_so_far: list[str]) -> None:
    other_file = weights.with_name("other.bin")
    other_file.write_bytes(b"!" * 1000)

    assert remembered_digest(weights) == sha256(weights)
    assert remembered_digest(other_file) == sha256(other_file)
    assert len(digest_entries()) == 2


@pytest.mark.usefixtures("files_read_so_far")
def test_an_entry_does_not_tell_the_path_of_its_file(weights: Path) -> None:
    remembered_digest(weights)

    (entry,) = digest_entries()
    assert "weights" not in entry.name
    assert "weights" not in entry.read_text()
    assert json.loads(entry.read_text()).keys() == {"sha256", "state"}


def test_without_a_cache_folder_a_file_is_read_each_time(
    weights: Path, files_read_so_far: list[str]
) -> None:
    cache_folder().parent.mkdir(exist_ok=True)
    cache_folder().write_text("a file in the place of the folder")

    assert remembered_digest(weights) == sha256(weights)
    assert remembered_digest(weights) == sha256(weights)
    assert len(files_read_so_far) == 2


DIGEST_AND_FORGET_FOR_EVER = """
import sys
from pathlib import Path
from typing import Any
from mempiler.engines import file_digests
from mempiler.engines.cache_folder import cache_folder
file_digests.SETTLE_SECONDS = 0.0
while True:
    digest = file_digests.remembered_digest(Path(sys.argv[1]))
    print(digest, flush=True)
    for entry in (cache_folder() / "digests").glob("*.json"):
        entry.unlink(missing_ok=True)
"""
"""A program that digests a file again and again, and deletes the entry each time."""


@pytest.mark.usefixtures("files_read_so_far")
def test_processes_that_write_at_the_same_time_and_are_killed_leave_no_damaged_entry(
    weights: Path,
) -> None:
    command = [sys.executable, "-c", DIGEST_AND_FORGET_FOR_EVER, str(weights)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for writer in writers:  # both have begun to write
            assert writer.stdout is not None
            assert writer.stdout.readline().strip() == sha256(weights)
        for _ in range(300):
            assert remembered_digest(weights) == sha256(weights)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()

    for entry in digest_entries():
        assert json.loads(entry.read_text())["sha256"] == sha256(weights)
    assert remembered_digest(weights) == sha256(weights)
