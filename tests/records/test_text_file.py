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
    """A named pipe to which nobody writes; it is empty after 20 seconds for whoever waits."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    timer = threading.Timer(20, os.close, (writer,))
    timer.daemon = True
    timer.start()
    return path


def test_a_pipe_a_device_and_a_folder_are_refused_at_once(pipe: Path) -> None:
    """Whoever reads a pipe waits for its writer, and the device /dev/zero never ends."""
    for path, said in (
        (pipe, "it is a pipe or a device"),
        (Path("/dev/zero"), "it is a pipe or a device"),
        (pipe.parent, "it is a folder"),
    ):
        with pytest.raises(DataError, match=said):
            read_json(path)


def test_a_line_is_read_up_to_the_longest_one_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten characters are allowed, with the line break; the second line has eleven."""
    monkeypatch.setattr(text_file, "MAX_LINE_LENGTH", 10)
    path = tmp_path / "lines.txt"
    path.write_text("123456789\n1234567890\n")
    lines: list[str] = []
    with (
        open_text_file(path) as file,
        pytest.raises(DataError, match=r"lines.txt: line 2 has more than 10 characters"),
    ):
        lines.extend(read_lines(file, path))
    assert lines == ["123456789\n"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_is_read_up_to_the_longest_one_that_is_allowed(
    tmp_path, monkeypatch, suffix
) -> None:
    """Three million characters are allowed; of a compressed file its unpacked text counts."""
    monkeypatch.setattr(text_file, "MAX_FILE_LENGTH", 3_000_000)
    path = tmp_path / f"whole{suffix}"
    pack = gzip.compress if suffix else bytes
    path.write_bytes(pack(b"a" * 3_000_000))
    assert len(read_text(path)) == 3_000_000
    path.write_bytes(pack(b"a" * 3_000_001))
    with pytest.raises(DataError, match="has more than 3,000,000 characters"):
        read_text(path)
