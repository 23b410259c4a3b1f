"""What a generation run has accepted so far, one JSON line each, so that a resumed run repeats no paid call.

    {"key": "sha256 of step, prompt and inputs", "step": "timeline", "id": "user0/q3", "value": ...}

Limits: one process at a time. A line that a crash cut short is dropped; that step runs again.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from ...errors import DataError, UserError
from ...records.json_input import decode
from ...records.whole_file import replacing

JOURNAL = "journal.jsonl"


class Journal:
    """Accepted values by key; safe under threads. Made by `open`."""

    def __init__(self, file: TextIO, values: dict[str, Any]) -> None:
        self._file = file
        self._values = values
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, resume: bool = False) -> Self:
        """Opens a journal; its folder is made if missing.

        Args:
            path: The file.
            resume: Whether an existing one is continued.

        Raises:
            UserError: There is one and `resume` is not set, or it cannot be written.
            DataError: A line in it is no entry.
        """
        if path.exists() and path.stat().st_size and not resume:
            raise UserError(f"{path.parent}: holds an earlier run; go on with it by --resume, or choose another --out")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            content = path.read_bytes()
            # Only whole lines count: the last one may have been cut by a crash.
            whole = content[: content.rfind(b"\n") + 1]
            if whole != content:
                path.write_bytes(whole)
            values = _entries(path, whole)
            file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}; choose another --out") from error
        return cls(file, values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def put(self, key: str, step: str, id: str, value: Any) -> None:
        """Writes a value before it is used."""
        line = json.dumps({"key": key, "step": step, "id": id, "value": value}, ensure_ascii=False)
        with self._lock:
            self._values[key] = value
            self._file.write(line + "\n")
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _entries(path: Path, content: bytes) -> dict[str, Any]:
    values = {}
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            entry = decode(line.decode())
            values[entry["key"]] = entry["value"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: line {number} is no entry of a journal; delete that line") from error
    return values


def write_json(path: Path, content: Any) -> Path:
    """Writes a file of the data set as a whole or not at all; its folder is made if missing.

    Raises:
        UserError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
    return path
