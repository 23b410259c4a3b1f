"""Vectors on disk: what a model in this process has embedded once is read again by the next one.

    sha256(weights, text) ──> vector, checksum        in `mempiler/vectors.sqlite` of the user's cache

It holds no text and is readable by its user alone. Yet vectors are data about what was said, and whoever has a text can
see whether it was embedded: forgetting a user empties the file (`clear`). It is a cache: a file that is damaged, locked
or cannot be written costs time and nothing else.

Limits: at most `MOST` vectors (160 MB of 384 numbers), the oldest go first. Texts that were forgotten in another store
are embedded anew as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from .weights import cache

MOST = 100_000
"""Vectors that are kept."""
WAIT = 2.0
"""Seconds to wait for another process."""
_TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL, checksum BLOB NOT NULL)"
_AT_ONCE = 500


class VectorFile:
    """The file; one object may be used by many threads, and the file by many processes.

    Args:
        model: Digest of the weights, and whatever else decides about a text's vector.
        path: The file; that in the user's cache if None.
        most: Vectors that are kept.
    """

    def __init__(self, model: str, path: Path | None = None, most: int = MOST) -> None:
        self._model, self._path, self._most = model, path or default_path(), most

    def read(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """The vectors that are there, by text."""
        keys = {self._key(text): text for text in texts}
        found: dict[str, np.ndarray] = {}

        def look(connection: sqlite3.Connection) -> None:
            for start in range(0, len(keys), _AT_ONCE):
                part = list(keys)[start : start + _AT_ONCE]
                asked = f"SELECT key, vector, checksum FROM vectors WHERE key IN ({','.join('?' * len(part))})"
                for key, content, checksum in connection.execute(asked, part):
                    if checksum == _checksum(key, content):
                        found[keys[key]] = np.frombuffer(content, dtype="<f4").astype(np.float32)

        self._do(look)
        return found

    def write(self, vectors: Mapping[str, np.ndarray]) -> None:
        """Adds vectors."""
        rows: list[tuple[bytes, bytes, bytes]] = []
        for text, vector in vectors.items():
            key, content = self._key(text), vector.astype("<f4").tobytes()
            rows.append((key, content, _checksum(key, content)))

        def add(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            last = "(SELECT max(rowid) FROM vectors)"
            connection.execute(f"DELETE FROM vectors WHERE rowid <= {last} - ?", (self._most,))
            connection.commit()

        self._do(add)

    def clear(self) -> None:
        """Empties the file, of the vectors of other models too."""
        clear(self._path)

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self._model}\0{text}".encode(errors="surrogatepass")).digest()

    def _do(self, action: Callable[[sqlite3.Connection], None]) -> None:
        """Does something with the file; what fails is as if there were none, and a damaged file goes."""
        with contextlib.suppress(OSError, sqlite3.OperationalError):
            try:
                with contextlib.closing(_connect(self._path)) as connection:
                    connection.execute(_TABLE)
                    action(connection)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                self._path.unlink(missing_ok=True)


def default_path() -> Path:
    """The file in the user's cache."""
    return cache() / "vectors.sqlite"


def clear(path: Path | None = None) -> None:
    """Empties a file, that in the user's cache if None, so that nothing of its vectors is left in it."""
    path = path or default_path()
    if not path.exists():
        return
    try:
        with contextlib.closing(_connect(path)) as connection:
            connection.execute("DELETE FROM vectors")
            connection.commit()
            connection.execute("VACUUM")
    except sqlite3.DatabaseError:
        # Whoever has it open goes on with a file that has no name any more.
        path.unlink(missing_ok=True)


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
