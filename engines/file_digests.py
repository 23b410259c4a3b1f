"""Digests of files of weights: every byte counts, and each file is read once.

A digest that was computed is kept in a small file of the user's cache, beside what the file system says of the file:
size, times, inode. A file that differs in any of these is read again. Entries are replaced whole, so processes may be
killed at any moment and may work side by side. An entry that is missing or damaged costs time only.
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

SETTLED = 2.0
"""Seconds after its last change from which a digest of a file is kept: clocks of file systems tick as coarsely as that,
and a change within one tick shows in none of the times."""


@dataclass(frozen=True)
class FileState:
    """What the file system says of a file; a change of its content changes it."""

    size: int
    modified_ns: int
    changed_ns: int
    """When content, name or owner last changed; programs cannot set it."""
    inode: int
    device: int

    @classmethod
    def of(cls, file: int) -> Self:
        """The state of an open file, by its descriptor."""
        found = os.fstat(file)
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)

    @property
    def is_settled(self) -> bool:
        """Whether the last change is so long ago that a further one would show."""
        return time.time() - max(self.modified_ns, self.changed_ns) / 1e9 >= SETTLED


def cache() -> Path:
    """The folder in the user's cache; not created yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mempiler"


def digest_of(path: Path) -> str:
    """The sha256 of a file, read now."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered_digest(path: Path) -> str:
    """The sha256 of a file; it is read only if it was not read before, or may have changed since.

    Raises:
        OSError: The file cannot be read.
    """
    entry = _entry_of(path)
    with path.open("rb") as file:
        state = FileState.of(file.fileno())
        known = _read_entry(entry, state)
        if known is not None:
            return known

        digest = hashlib.file_digest(file, "sha256").hexdigest()
        changed_meanwhile = FileState.of(file.fileno()) != state

    if state.is_settled and not changed_meanwhile:
        _write_entry(entry, state, digest)
    return digest


def _entry_of(path: Path) -> Path:
    """The place of a file's entry, which does not tell the path."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    return cache() / "digests" / f"{name}.json"


def _read_entry(entry: Path, state: FileState) -> str | None:
    """The digest that was kept for this state of a file; None if there is none."""
    try:
        kept: Any = json.loads(entry.read_text(encoding="utf-8"))
        digest = kept["sha256"]
        is_whole = isinstance(digest, str) and len(digest) == 64
        return digest if is_whole and kept["state"] == asdict(state) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_entry(entry: Path, state: FileState, digest: str) -> None:
    """Keep a digest; where the folder cannot be written, the file is read again the next time."""
    content = json.dumps({"sha256": digest, "state": asdict(state)})
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=entry.parent, prefix=".new-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(content)
            Path(name).replace(entry)
        except OSError:
            Path(name).unlink()
            raise
