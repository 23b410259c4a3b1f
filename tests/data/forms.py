"""One small example of every benchmark's files, and helpers that change, write and load them.

The examples lie in `files/`, one folder for each benchmark.
"""

from __future__ import annotations

import copy
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
from mempiler.data.benchmark import Benchmark
from mempiler.data.catalog import benchmark

Files = dict[str, Any]
"""The decoded contents of some files, by their paths. The first file is the one to load."""

Change = Callable[[Any], Any]
"""A function that changes a row in place."""


def decode_file(path: Path) -> Any:
    """Return the JSON value of a file, or the list of its rows for CSV and JSON lines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text, newline="")))
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


def read_files(folder: Path) -> Files:
    """Return the decoded files below a folder, in the order of their paths."""
    files: Files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = decode_file(path)
    return files


def read_example_files() -> dict[str, Files]:
    """Return the files of every folder in `files/`."""
    folders = sorted((Path(__file__).parent / "files").iterdir())
    return {folder.name: read_files(folder) for folder in folders}


EXAMPLE_FILES = read_example_files()
"""The example files of each benchmark, by the name of the benchmark."""

PREPARED_OMNIBEHAVIOR = EXAMPLE_FILES.pop("omnibehavior-prepared")
"""OmniBehavior has a second form of files, which its authors have prepared for experiments."""


def video(time: str, *reactions: str, **context: Any) -> dict[str, Any]:
    """Return a record of OmniBehavior: a video that a user watched, and the user's reactions."""
    return {
        "type": "Video Browsing",
        "timestamp": time,
        "context": {"caption": f"At {time}", **context},
        "action": [{"type": reaction} for reaction in reactions],
    }


def main_file(files: Files) -> str:
    """Return the path of the file to load."""
    paths = list(files)
    return paths[0]


def first_row(files: Files) -> Any:
    """Return the first row, user or conversation of the file to load."""
    content = files[main_file(files)]
    return content[0] if isinstance(content, list) else content


def changed_files(name: str, change: Change) -> Files:
    """Return the example files of a benchmark, with their first row changed."""
    files = copy.deepcopy(EXAMPLE_FILES[name])
    change(first_row(files))
    return files


def unchanged(row: Any) -> None:
    """Leave a row as it is."""


def put(*keys: Any, value: Any) -> Change:
    """Return a change that sets the value at a path of keys."""

    def change(row: Any) -> None:
        container = value_at(row, keys[:-1])
        container[keys[-1]] = value

    return change


def remove(*keys: Any) -> Change:
    """Return a change that deletes the value at a path of keys."""

    def change(row: Any) -> None:
        container = value_at(row, keys[:-1])
        del container[keys[-1]]

    return change


def value_at(row: Any, keys: tuple[Any, ...]) -> Any:
    """Return the value at a path of keys."""
    value = row
    for key in keys:
        value = value[key]
    return value


def encode_file(path: str, content: Any) -> bytes:
    """Return the bytes of a file. Content that is bytes already stays as it is."""
    if isinstance(content, bytes):
        return content
    if path.endswith(".csv"):
        return encode_csv(content)
    if path.endswith(".jsonl"):
        return encode_json_lines(content)
    return json.dumps(content, ensure_ascii=False).encode()


def encode_csv(rows: list[dict[str, Any]]) -> bytes:
    """Return the bytes of a CSV file with these rows."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def encode_json_lines(rows: list[Any]) -> bytes:
    """Return the bytes of JSON lines. A row that is a text is written as it is, even if broken."""
    lines: list[str] = []
    for row in rows:
        line = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)
        lines.append(line)
    return "\n".join(lines).encode()


def write_files(folder: Path, files: Files) -> Path:
    """Write files into a folder, and return the path of the one to load."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_file(name, content))
    return folder / main_file(files)


def load(folder: Path, name: str, change: Change = unchanged, **options: Any) -> Benchmark:
    """Write the example files of a benchmark, with their first row changed, and load them."""
    return benchmark(name, write_files(folder, changed_files(name, change)), **options)


def history_lines(example: dspy.Example) -> list[str]:
    """Return the turns of an example's history as lines of text."""
    lines: list[str] = []
    for item in example.history:
        lines.extend(turn.line() for turn in item.turns)
    return lines
