"""Caches embedding vectors on disk, by a digest of the text and of the embedder.

Vectors are data about what was said. Those of a user of a store go onto no other shelf than that user's: they are
forgotten with everything else of theirs. What is asked of a user's memory is kept nowhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from .call_context import VectorCache, current_context
from .encoder import WIDTH, Encoded
from .weights import cache

MOST = 128_000_000
"""Numbers that the file keeps, 512 MB of them; the oldest go first."""
WAIT = 2.0
"""Seconds to wait for another process."""
_TABLE = "CREATE TABLE IF NOT EXISTS kept (key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL, checksum BLOB NOT NULL)"
_AT_ONCE = 500

_log = logging.getLogger("mempiler")


class CachedVectors:
    """The vectors of one embedder.

    Args:
        identity: What decides about a text's vector beside the text; None where the file is of one embedder alone.
        tokens: Whether tokens are kept with the vectors.
        file: Where they are kept that are of no user of a store; the file in the user's cache if None.
    """

    def __init__(self, identity: str | None, file: VectorCache | None = None, tokens: bool = False) -> None:
        self._file, self._tokens = file or VectorFile(), tokens
        self._begins = "" if identity is None else f"{identity}\0"

    def read(self, texts: Sequence[str], queries: bool = False) -> dict[str, Encoded]:
        """The vectors that are there, by text; none of `queries` that are for a user."""
        shelf = self._shelf(queries)
        if shelf is None:
            return {}
        keys = {self._key(text): text for text in texts}
        return {keys[key]: self._read(content) for key, content in shelf.read(list(keys)).items()}

    def write(self, used: Mapping[str, Encoded], new: Collection[str], queries: bool = False) -> None:
        """Keeps the new vectors; of a user all that were used, since another one's text may have been the same."""
        shelf = self._shelf(queries)
        texts = new if shelf is self._file else used
        if shelf is not None and texts:
            shelf.write({self._key(text): self._written(used[text]) for text in texts})

    def _written(self, encoded: Encoded) -> bytes:
        vector = encoded.vector.astype("<f4").tobytes()
        return vector + encoded.tokens.tobytes() + len(vector).to_bytes(4, "little") if self._tokens else vector

    def _read(self, content: bytes) -> Encoded:
        end = int.from_bytes(content[-4:], "little") if self._tokens else len(content)
        vector = np.frombuffer(content[: end // 4 * 4], dtype="<f4").astype(np.float32)
        rows = content[end:-4] if self._tokens else b""
        return Encoded(vector, np.frombuffer(rows, np.int8).reshape(-1, max(min(len(vector), WIDTH), 1)))

    def _shelf(self, queries: bool) -> VectorCache | None:
        users_cache = current_context().vector_cache
        if users_cache is None:
            return self._file
        return None if queries else users_cache

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self._begins}{text}".encode(errors="surrogatepass")).digest()


class VectorFile:
    """A file of vectors, as a `VectorCache`; it holds no text, and many threads and processes may use it.

    It may be deleted at any time: a file that is damaged or locked costs time and nothing else, and of one that cannot
    be written one line of warning says so.
    """

    def __init__(self, path: Path | None = None, most: int = MOST) -> None:
        self._path, self._most = path or cache() / "vectors.sqlite", most
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
        kept = self._most * 4 * len(rows) // max(1, sum(len(content) for content in vectors.values()))

        def add(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
            connection.execute("DELETE FROM kept WHERE rowid <= (SELECT max(rowid) FROM kept) - ?", (kept,))
            connection.commit()

        self._do(add)

    def _do(self, action: Callable[[sqlite3.Connection], None]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            with contextlib.closing(sqlite3.connect(self._path, timeout=WAIT)) as connection:
                connection.execute("PRAGMA secure_delete = ON")
                # What a crash of the machine leaves behind is seen by its checksums.
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute(_TABLE)
                action(connection)
        except (OSError, sqlite3.OperationalError) as error:
            # A file that another process holds for long is one that works.
            if not self._warned and "locked" not in str(error):
                self._warned = True
                _log.warning("%s: %s; every process computes its vectors anew", self._path, type(error).__name__)
        except sqlite3.DatabaseError:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


def _checksum(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key + content).digest()[:8]
