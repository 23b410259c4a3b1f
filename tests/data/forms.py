"""Small files of every benchmark's form, which lie in `files/`, and how they are changed, written and loaded."""

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
Change = Callable[[Any], Any]


def decoded(path: Path) -> Any:
    """A JSON value, or the rows of a CSV or of JSON lines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text, newline="")))
    return list(map(json.loads, text.splitlines())) if path.suffix == ".jsonl" else json.loads(text)


def form(folder: Path) -> Files:
    """The files of a form by their paths; the first is the one to name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): decoded(path) for path in files}


FORMS = {folder.name: form(folder) for folder in sorted((Path(__file__).parent / "files").iterdir())}
"""By benchmark, and by the path of each file."""
PREPARED = FORMS.pop("omnibehavior-prepared")
"""OmniBehavior's other form."""
CHAT = FORMS["jsonl"]["own.jsonl"][0]["messages"]


def video(time: str, *reactions: str, **context: Any) -> dict[str, Any]:
    """A record of OmniBehavior: a video, and what the user did with it."""
    about = {"caption": f"At {time}", **context}
    done = [{"type": kind} for kind in reactions]
    return {"type": "Video Browsing", "timestamp": time, "context": about, "action": done}


def first(name: str, files: Files) -> Any:
    """What most changes are made to: the first row, user or conversation of the first file."""
    value = next(iter(files.values()))
    return value[0] if isinstance(value, list) else value


def changed(name: str, change: Change) -> Files:
    """The files of a form, with a change of the first row."""
    files = copy.deepcopy(FORMS[name])
    change(first(name, files))
    return files


def put(*keys: Any, value: Any = ...) -> Change:
    """A change that sets what is at the end of some keys, or deletes it."""

    def change(row: Any) -> None:
        for key in keys[:-1]:
            row = row[key]
        if value is ...:
            del row[keys[-1]]
        else:
            row[keys[-1]] = value

    return change


def encoded(path: str, value: Any) -> bytes:
    """What a file holds."""
    if isinstance(value, bytes):
        return value
    if path.endswith(".csv"):
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(value[0]))
        writer.writeheader()
        writer.writerows(value)
        return text.getvalue().encode()
    if path.endswith(".jsonl"):
        return "\n".join(row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in value).encode()
    return json.dumps(value, ensure_ascii=False).encode()


def write(folder: Path, files: Files) -> Path:
    """Writes files; gives the path of the first, which is the one to name."""
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encoded(name, value))
    return folder / next(iter(files))


def load(folder: Path, name: str, change: Change = lambda row: None, **options: Any) -> Benchmark:
    """The benchmark of a form, with a change of the first row."""
    return benchmark(name, write(folder, changed(name, change)), **options)


def lines(example: dspy.Example) -> list[str]:
    """The turns of an example's history."""
    return [turn.line() for item in example.history for turn in item.turns]
