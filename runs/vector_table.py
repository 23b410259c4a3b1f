"""The vectors of texts in the store of a run."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .json_rows import JsonRows

_TABLE = "vectors"
_PREFIXES_ID = ""
"""Id of the row with an embedder's prefixes, among the rows of its vectors."""


@dataclass(frozen=True)
class Prefixes:
    """What an embedder puts before a text."""

    query: str
    passage: str


class VectorTable:
    """The vectors of one embedder, as an `engines.call_context.VectorCache`.

    Args:
        file: The file with the vectors.
        embedder: The name of the embedder.
    """

    def __init__(self, file: JsonRows, embedder: str) -> None:
        self._file = file
        self._embedder = embedder

    def read_prefixes(self) -> Prefixes | None:
        """Return the prefixes of the embedder; None if the run did not use it."""
        record = self._file.get(_TABLE, self._embedder, _PREFIXES_ID)
        if record is None:
            return None
        return Prefixes(query=record["query"], passage=record["passage"])

    def write_prefixes(self, prefixes: Prefixes) -> None:
        """Write the prefixes of the embedder."""
        record = {"query": prefixes.query, "passage": prefixes.passage}
        self._file.put(_TABLE, self._embedder, _PREFIXES_ID, record)

    def read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the vectors that are stored, by key; keys without a vector are left out."""
        # The file holds texts: a key stands there in hexadecimal digits, a vector in base64.
        stored_ids = self._file.ids(_TABLE, self._embedder, [key.hex() for key in keys])
        vectors: dict[bytes, bytes] = {}
        for row_id in stored_ids:
            content = self._file.get(_TABLE, self._embedder, row_id)
            vectors[bytes.fromhex(row_id)] = base64.b64decode(str(content))
        return vectors

    def write(self, vectors: Mapping[bytes, bytes]) -> None:
        """Write vectors by key."""
        for key, vector in vectors.items():
            content = base64.b64encode(vector).decode()
            self._file.put(_TABLE, self._embedder, key.hex(), content)
