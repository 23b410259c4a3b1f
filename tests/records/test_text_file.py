"""What is read of a file: regular ones alone, and no more than memory can hold."""

import gzip
import os
import threading
from pathlib import Path

import pytest
from mempiler.errors import DataError
from mempiler.records import read_json, text_file
from mempiler.records.text_file import open_text_file, read_lines, read_text


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe to which nobody writes; whoever reads it waits for 20 seconds."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    timer = threading.Timer(20, os.close, (writer,))
    timer.daemon = True
    timer.start()
    return path


def test_a_pipe_is_refused_at_once(pipe: Path) -> None:
    """Whoever reads a pipe waits for its writer, who may never come."""
    with pytest.raises(DataError, match="it is a pipe or a device"):
        read_json(pipe)


def test_a_device_is_refused_at_once() -> None:
    """The device /dev/zero gives zeros without end, which would fill the memory of the machine."""
    with pytest.raises(DataError, match="it is a pipe or a device"):
        read_json(Path("/dev/zero"))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="it is a folder"):
        read_json(tmp_path)


def test_lines_are_read_up_to_one_that_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten characters are allowed, with the line break; the second line has eleven."""
    monkeypatch.setattr(text_file, "MAX_LINE_LENGTH", 10)
    path = tmp_path / "lines.txt"
    path.write_text("123456789\n1234567890\n")

    with open_text_file(path) as file:
        lines = read_lines(file, path)
        assert next(lines) == "123456789\n"
        with pytest.raises(DataError, match=r"lines.txt: line 2 has more than 10 characters"):
            next(lines)


def write_text_file(path: Path, length: int) -> None:
    """Write a text of some length, compressed if the name of the file ends in ".gz"."""
    content = b"a" * length
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize("name", ["file.txt", "file.gz"])
def test_a_file_of_the_greatest_length_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(text_file, "MAX_FILE_LENGTH", 3_000_000)
    write_text_file(tmp_path / name, length=3_000_000)

    assert len(read_text(tmp_path / name)) == 3_000_000


@pytest.mark.parametrize("name", ["file.txt", "file.gz"])
def test_a_file_that_is_longer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Of a compressed file the unpacked text counts, which may be a thousand times as long."""
    monkeypatch.setattr(text_file, "MAX_FILE_LENGTH", 3_000_000)
    write_text_file(tmp_path / name, length=3_000_001)

    with pytest.raises(DataError, match="has more than 3,000,000 characters"):
        read_text(tmp_path / name)
