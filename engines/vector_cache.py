"""Keep embedding vectors from one process to the next, by a digest of text and embedder.

    cached_vectors = CachedVectors("minilm ...")           # of one embedder
    cached_vectors.write({"Ann": encoding}, ["Ann"])
    cached_vectors.read(["Ann", "Bob"])                    # {"Ann": encoding}

Vectors are data about what was said. Those of a store's user are kept with this user alone, and
are forgotten with everything else of the user. Vectors of what is asked of a user's memory are not
kept. All other vectors are in one file, see `VectorFile`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from .cache_folder import cache_folder
from .call_context import VectorCache, current_context
from .encoder import TOKEN_WIDTH, TextEncoding

MAX_NUMBERS = 128_000_000
"""The most numbers in the file, which are 512 MB; the oldest vectors are removed first."""
WAIT_SECONDS = 2.0
"""How long to wait for another process that holds the file."""

_KEYS_PER_QUERY = 500
_NUMBER_BYTES = 4
_LENGTH_BYTES = 4
"""Bytes of the number, at the end of a record with tokens, that says how long its vector is."""

_CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS kept (
    key BLOB NOT NULL UNIQUE,
    vector BLOB NOT NULL,
    checksum BLOB NOT NULL
)
"""
_SELECT = "SELECT key, vector, checksum FROM kept WHERE key IN ({placeholders})"
_INSERT = "INSERT OR REPLACE INTO kept VALUES (?, ?, ?)"
_DELETE_OLDEST = "DELETE FROM kept WHERE rowid <= (SELECT max(rowid) FROM kept) - ?"

_log = logging.getLogger("mempiler")


class CachedVectors:
    """The vectors of one embedder, in a file or with a user.

    Args:
        identity: What decides about the vector of a text, beside the text; None if the file belongs
            to one embedder alone.
        file: Where vectors are kept that belong to no user; by default a `VectorFile`.
        tokens: Whether tokens are kept with the vectors.
    """

    def __init__(
        self, identity: str | None, file: VectorCache | None = None, tokens: bool = False
    ) -> None:
        self._file: VectorCache = file or VectorFile()
        self._has_tokens = tokens
        self._key_prefix = "" if identity is None else f"{identity}\0"

    def read(self, texts: Sequence[str], is_query: bool = False) -> dict[str, TextEncoding]:
        """Return the encodings that earlier work has kept, by text.

        Args:
            texts: Distinct texts, with the prefix of their kind.
            is_query: Whether the texts are search queries. Queries of a user are never kept, so for
                these the result is empty.
        """
        cache = self._cache_of_current_work(is_query)
        if cache is None:
            return {}

        texts_by_key = {self._key(text): text for text in texts}
        records = cache.read(list(texts_by_key))
        return {texts_by_key[key]: self._decode(record) for key, record in records.items()}

    def write(
        self,
        encodings: Mapping[str, TextEncoding],
        new_texts: Collection[str],
        is_query: bool = False,
    ) -> None:
        """Keep encodings for later work: in the cache of the current user, else in the shared file.

        Args:
            encodings: The encodings of all texts that the current work needed, by text.
            new_texts: Those of the texts that had to be computed.
            is_query: Whether the texts are search queries. Queries of a user are never kept.
        """
        cache = self._cache_of_current_work(is_query)
        if cache is None:
            return

        # The shared file has all texts but the new ones. The cache of a user gets all: a text may
        # have been in memory because another user said the same, and then this cache lacks it.
        texts: Collection[str] = encodings
        if cache is self._file:
            texts = new_texts
        if texts:
            cache.write({self._key(text): self._encode(encodings[text]) for text in texts})

    def _cache_of_current_work(self, is_query: bool) -> VectorCache | None:
        """Return where vectors are kept: in the cache of the call context's user, else in the file.

        None for what a user searches for, which is not kept.
        """
        users_cache = current_context().vector_cache
        if users_cache is None:
            return self._file
        return None if is_query else users_cache

    def _key(self, text: str) -> bytes:
        content = f"{self._key_prefix}{text}"
        return hashlib.sha256(content.encode(errors="surrogatepass")).digest()

    def _encode(self, encoding: TextEncoding) -> bytes:
        """Return the record of a text, see `_decode` for its form."""
        vector = encoding.vector.astype("<f4").tobytes()
        if not self._has_tokens:
            return vector
        return vector + encoding.tokens.tobytes() + len(vector).to_bytes(_LENGTH_BYTES, "little")

    def _decode(self, record: bytes) -> TextEncoding:
        """Return the vector and the tokens in a record.

            vector                                        without tokens
            vector | tokens | bytes of the vector         with tokens

        A vector has 4 bytes a number, tokens have 1, and the last field has 4 bytes.
        """
        vector_end = len(record)
        token_bytes = b""
        if self._has_tokens:
            vector_end = int.from_bytes(record[-_LENGTH_BYTES:], "little")
            token_bytes = record[vector_end:-_LENGTH_BYTES]

        # Of a damaged record only whole numbers are read. Its vector is then too short, and the
        # embedder drops vectors that do not have its dimension.
        whole_end = vector_end // _NUMBER_BYTES * _NUMBER_BYTES
        vector = np.frombuffer(record[:whole_end], dtype="<f4").astype(np.float32)

        # Tokens are as wide as the vector, but at most `TOKEN_WIDTH`. An empty vector has no
        # tokens, and numpy cannot make rows of width 0.
        token_width = max(1, min(len(vector), TOKEN_WIDTH))
        return TextEncoding(vector, np.frombuffer(token_bytes, np.int8).reshape(-1, token_width))


class VectorFile:
    """A file of vectors, as a `VectorCache`. It holds no texts.

    Many threads and processes may use it. It may be deleted at any time. A file that is damaged or
    locked costs time and nothing else. So does one that cannot be written; one line of warning says
    so.

    Args:
        path: Where it is; by default in the user's cache.
        max_numbers: The most numbers in it.
    """

    def __init__(self, path: Path | None = None, max_numbers: int = MAX_NUMBERS) -> None:
        self._path = path or cache_folder() / "vectors.sqlite"
        self._max_numbers = max_numbers
        self._has_warned = False

    def read(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the vectors that are there and whole."""
        try:
            with contextlib.closing(self._connect()) as connection:
                _prepare(connection)
                return _select(connection, keys)
        except (OSError, sqlite3.DatabaseError) as error:
            self._handle_error(error)
            return {}

    def write(self, vectors: Mapping[bytes, bytes]) -> None:
        """Add vectors, or replace damaged ones; remove the oldest if there are too many."""
        try:
            with contextlib.closing(self._connect()) as connection:
                _prepare(connection)
                _insert(connection, vectors, self._max_numbers)
                connection.commit()
        except (OSError, sqlite3.DatabaseError) as error:
            self._handle_error(error)

    def _connect(self) -> sqlite3.Connection:
        """Open the file; create it, readable for this user only, if there is none.

        Raises:
            OSError: The file cannot be written.
            sqlite3.OperationalError: SQLite cannot open it.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Before SQLite opens it, which would create a file that other users can read.
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        return sqlite3.connect(self._path, timeout=WAIT_SECONDS)

    def _handle_error(self, error: Exception) -> None:
        """Delete a damaged file; warn, once, of a file that cannot be read or written."""
        is_damaged = not isinstance(error, OSError | sqlite3.OperationalError)
        if is_damaged:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            return

        # Another process has held the file for `WAIT_SECONDS`. So it works, and needs no warning.
        is_locked = "locked" in str(error)
        if is_locked or self._has_warned:
            return
        self._has_warned = True
        kind = type(error).__name__
        _log.warning("%s: %s; every process computes its vectors anew", self._path, kind)


def _prepare(connection: sqlite3.Connection) -> None:
    """Set up a new connection, and create the table if there is none."""
    connection.execute("PRAGMA secure_delete = ON")
    # Faster; what a crash of the machine damages, the checksums show.
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(_CREATE_TABLE)


def _select(connection: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the vectors that are there and whole."""
    vectors: dict[bytes, bytes] = {}
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        some_keys = keys[start : start + _KEYS_PER_QUERY]
        placeholders = ",".join("?" * len(some_keys))
        rows = connection.execute(_SELECT.format(placeholders=placeholders), some_keys)
        for key, vector, checksum in rows:
            if checksum == _checksum(key, vector):
                vectors[key] = vector
    return vectors


def _insert(
    connection: sqlite3.Connection, vectors: Mapping[bytes, bytes], max_numbers: int
) -> None:
    """Add vectors, or replace damaged ones; remove the oldest if there are too many numbers."""
    rows = [(key, vector, _checksum(key, vector)) for key, vector in vectors.items()]
    connection.executemany(_INSERT, rows)

    # How many vectors the file may hold, if all are about as long as the new ones are on average.
    max_bytes = max_numbers * _NUMBER_BYTES
    new_bytes = max(1, sum(map(len, vectors.values())))
    max_vectors = max_bytes * len(rows) // new_bytes
    connection.execute(_DELETE_OLDEST, (max_vectors,))


def _checksum(key: bytes, vector: bytes) -> bytes:
    return hashlib.sha256(key + vector).digest()[:8]
