"""Vectors on disk: those that are of no user of a store, in `mempiler/vectors.sqlite` of the user's cache.

    key ──> vector, checksum

It holds no text and is readable by its user alone. It is a cache, and may be deleted at any time: a file that is
damaged or locked costs time and nothing else, and of one that cannot be written one line of warning says so.

Limits: at most `MOST` numbers (512 MB: 83,000 vectors of 1,536 numbers), the oldest go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .weights import cache

MOST = 128_000_000
"""Numbers that are kept."""
WAIT = 2.0
"""Seconds to wait for another process."""
_TABLE = "CREATE TABLE IF NOT EXISTS kept (key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL, checksum BLOB NOT NULL)"
# Before stores kept the vectors of their users, those were here.
_FORMER = "DROP TABLE IF EXISTS vectors"
_AT_ONCE = 500

_log = logging.getLogger("mempiler")


class VectorFile:
    """The file, as a `Shelf`; one object may be used by many threads, and the file by many processes.

    Args:
        path: The file; that in the user's cache if None.
        most: Numbers that are kept.
    """

    def __init__(self, path: Path | None = None, most: int = MOST) -> None:
        self._path, self._most = path or default_path(), most
        self._warned = False

    def read(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The vectors that are there and whole."""
        found: dict[bytes, bytes] = {}

        def look(connection: sqlite3.Connection) -> None:
            for start in range(0, len(keys), _AT_ONCE):
                part = keys[start : start + _AT_ONCE]
                asked = f"SELECT key, vector, checksum FROM kept WHERE key IN ({','.join('?' * len(part))})"
                for key, content, checksum in connection.execute(asked, part):
                    if checksum == _checksum(key, content):
                        found[key] = content

        self._do(look)
        return found

    def write(self, vectors: Mapping[bytes, bytes]) -> None:
        """Adds vectors, in the place of damaged ones too."""
        rows = [(key, content, _checksum(key, content)) for key, content in vectors.items()]
        kept = self._most * 4 // max(1, *(len(content) for content in vectors.values()))

        def add(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
            connection.execute("DELETE FROM kept WHERE rowid <= (SELECT max(rowid) FROM kept) - ?", (kept,))
            connection.commit()

        self._do(add)

    def _do(self, action: Callable[[sqlite3.Connection], None]) -> None:
        """Does something with the file; what fails is as if there were none, and a damaged file goes."""
        try:
            with contextlib.closing(_connect(self._path)) as connection:
                connection.execute(_FORMER)
                connection.execute(_TABLE)
                action(connection)
        except (OSError, sqlite3.OperationalError) as error:
            self._warn(error)
        except sqlite3.DatabaseError:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _warn(self, error: Exception) -> None:
        # A file that another process holds for long is one that works.
        if not self._warned and "locked" not in str(error):
            self._warned = True
            _log.warning("%s: %s; every process computes its vectors anew", self._path, type(error).__name__)


def default_path() -> Path:
    """The file in the user's cache."""
    return cache() / "vectors.sqlite"


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=WAIT)
    connection.execute("PRAGMA secure_delete = ON")
    # What a crash of the machine leaves behind is seen by its checksums.
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _checksum(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key + content).digest()[:8]
