"""Digests of files of weights, where every byte counts and each file is read once.

A digest is kept in a small file of the user's cache, beside what the file system says of the file:
its size, times and inode. If any of these differs later, the file is read again.

    remembered_digest(path)      # reads the whole file
    remembered_digest(path)      # reads the kept digest

An entry is replaced as a whole, so processes may work side by side and be killed at any moment. An
entry that is missing or damaged costs time only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from .cache_folder import cache_folder

SETTLE_SECONDS = 2.0
"""How long a file must be unchanged before its digest is kept.

The clock of a file system may tick as coarsely as that, and none of the times shows a second change
within one tick."""

_HEX_DIGITS_OF_SHA256 = 64


@dataclass(frozen=True)
class FileState:
    """What the file system says of a file; a change of its content changes this, too."""

    size: int
    modified_ns: int
    changed_ns: int
    """When content, name or owner last changed; programs cannot set it."""
    inode: int
    device: int

    @classmethod
    def of_open_file(cls, descriptor: int) -> Self:
        """Return the state of an open file."""
        status = os.fstat(descriptor)
        return cls(
            size=status.st_size,
            modified_ns=status.st_mtime_ns,
            changed_ns=status.st_ctime_ns,
            inode=status.st_ino,
            device=status.st_dev,
        )

    @property
    def is_settled(self) -> bool:
        """Whether the last change is so long ago that a further one would show in the times."""
        last_change = max(self.modified_ns, self.changed_ns) / 1e9
        return time.time() - last_change >= SETTLE_SECONDS


def file_digest(path: Path) -> str:
    """Read a file, and return its sha256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered_digest(path: Path) -> str:
    """Return the sha256 of a file; read it only if it is new or may have changed.

    The digest is kept in the user's cache, with the size and times that the file had.

    Raises:
        OSError: The file cannot be read.
    """
    entry = _entry_path(path)
    with path.open("rb") as file:
        state = FileState.of_open_file(file.fileno())
        known_digest = _read_entry(entry, state)
        if known_digest is not None:
            return known_digest

        digest = hashlib.file_digest(file, "sha256").hexdigest()
        changed_while_reading = FileState.of_open_file(file.fileno()) != state

    # If the file has just changed, a further change might not show in its times, and a digest that
    # is kept now would be taken for that of the changed file.
    if state.is_settled and not changed_while_reading:
        _write_entry(entry, state, digest)
    return digest


def _entry_path(path: Path) -> Path:
    """Return where the entry of a file is; its name does not show the path of the file."""
    real_path = os.path.realpath(path)
    name = hashlib.sha256(os.fsencode(real_path)).hexdigest()
    return cache_folder() / "digests" / f"{name}.json"


def _read_entry(entry: Path, state: FileState) -> str | None:
    """Return the digest that is kept for this state of a file; None if there is none."""
    try:
        content: Any = json.loads(entry.read_text(encoding="utf-8"))
        digest = content["sha256"]
        state_of_digest = content["state"]
    except (OSError, ValueError, KeyError, TypeError):
        return None

    is_whole = isinstance(digest, str) and len(digest) == _HEX_DIGITS_OF_SHA256
    if not is_whole or state_of_digest != asdict(state):
        return None
    return digest


def _write_entry(entry: Path, state: FileState, digest: str) -> None:
    """Keep a digest; if the folder cannot be written, the file is read again the next time."""
    content = json.dumps({"sha256": digest, "state": asdict(state)})
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary_name = tempfile.mkstemp(dir=entry.parent, prefix=".new-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(content)
            Path(temporary_name).replace(entry)
        except OSError:
            Path(temporary_name).unlink()
            raise
