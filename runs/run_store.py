"""The store of a run: one SQLite file in its folder, with all that the run has paid for.

    answers    digest of a call (model, messages, settings, rollout id) and its number
                                                  -> the provider's answer
    nodes      writer key and history prefix      -> memory, and the calls that wrote it
    rows       phase and question id              -> the scored row
    vectors    embedder and digest of a text      -> the vector of the text

A run is resumed by replay: the same command runs again from its seed, and calls that the file holds
are not repeated. Every row is committed at once (write-ahead log), so a killed process loses only
calls that were in flight.

Each table has a class of its own: `AnswerTable`, `MemoryTable`, `RowTable`, `VectorTable`.
"""

from __future__ import annotations

import copy
import json
import sqlite3
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError, UserError
from .answer_table import AnswerTable
from .memory_table import MemoryTable
from .row_table import RowTable

_TABLES = (
    "CREATE TABLE IF NOT EXISTS {name} "
    "(scope TEXT, id TEXT, value TEXT, PRIMARY KEY (scope, id)) WITHOUT ROWID"
)
_COMPRESSED_LENGTH = 1000
"""Characters from which on a value is compressed."""
_IDS_PER_STATEMENT = 500


class RunStore:
    """The four tables of a run.

    All methods raise these errors, too, when the file is damaged or cannot be used any more.

    Args:
        path: The SQLite file, which is created if it is not there.

    Raises:
        UserError: The file cannot be opened or written.
        DataError: It is not the file of a run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            for name in ("answers", "nodes", "rows", "vectors"):
                self._database.execute(_TABLES.format(name=name))
        except sqlite3.OperationalError as error:
            raise UserError(f"{path}: cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            raise DataError(f"{path}: is no file of a run: {error}") from error
        self.answers = AnswerTable(self)
        self.memories = MemoryTable(self)
        self.rows = RowTable(self)

    def part(self, name: str) -> RunStore:
        """Return a store for a part of a larger run, which uses the same file.

        Parts share their memories, and also the answers to calls that share one answer with all
        equal calls. They do not share rows, nor the answers to calls that each have their own
        (`AnswerTable`): the ids of these begin with the name of the part.
        """
        id_prefix = f"{name}:"
        # A copy has the same database and the same table of memories.
        part = copy.copy(self)
        part.answers = AnswerTable(self, id_prefix)
        part.rows = RowTable(self, id_prefix)
        return part

    def get(self, table: str, scope: str, row_id: str) -> Any | None:
        """Return the value of a row, or None."""
        statement = f"SELECT value FROM {table} WHERE scope=? AND id=?"
        result = self._execute("read", statement, (scope, row_id))
        if not result:
            return None
        value = result[0][0]
        try:
            text = zlib.decompress(value) if isinstance(value, bytes) else value
            return json.loads(text)
        except (zlib.error, ValueError) as error:
            raise self._damage(error) from error

    def put(self, table: str, scope: str, row_id: str, value: Any) -> None:
        """Write and commit a row."""
        text = json.dumps(value, ensure_ascii=False)
        # Steps repeat what was said before them, and prompts repeat it again.
        content = text if len(text) < _COMPRESSED_LENGTH else zlib.compress(text.encode(), 1)
        statement = f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)"
        self._execute("written", statement, (scope, row_id, content))

    def all(self, table: str, scope: str) -> list[Any]:
        """Return the values of all rows of a scope, ordered by the numbers in their ids.

        An id is "3", for example, or "variant:3" for a row of the part "variant" of the run. Rows
        of one part stand together.
        """
        result = self._execute("read", f"SELECT id FROM {table} WHERE scope=?", (scope,))
        row_ids = [row_id for (row_id,) in result]
        row_ids.sort(key=_part_and_number)
        # `get` also decompresses a value.
        return [self.get(table, scope, row_id) for row_id in row_ids]

    def ids(self, table: str, scope: str, ids: Sequence[str]) -> set[str]:
        """Return those of some ids that have a row."""
        stored_ids: set[str] = set()
        for start in range(0, len(ids), _IDS_PER_STATEMENT):
            batch = ids[start : start + _IDS_PER_STATEMENT]
            placeholders = ",".join("?" * len(batch))
            statement = f"SELECT id FROM {table} WHERE scope=? AND id IN ({placeholders})"
            result = self._execute("read", statement, (scope, *batch))
            stored_ids.update(row_id for (row_id,) in result)
        return stored_ids

    def _execute(
        self, action: str, statement: str, values: tuple[str | bytes, ...]
    ) -> list[tuple[Any, ...]]:
        """Execute a statement; return its rows.

        Args:
            action: What the file is used for, for messages: "read" or "written".
            statement: The SQL.
            values: The values of its placeholders.
        """
        try:
            with self._lock:
                return self._database.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            advice = "put that right and resume the run"
            raise UserError(f"{self.path}: cannot be {action}: {error}; {advice}") from error
        except sqlite3.DatabaseError as error:
            raise self._damage(error) from error

    def _damage(self, error: Exception) -> DataError:
        """Return the error that says that the file is damaged."""
        return DataError(f"{self.path}: is damaged: {error}; delete it, or start a new run")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()


def _part_and_number(row_id: str) -> tuple[str, int]:
    """Return the part of the run and the number in the id of an answer."""
    part, _, number = row_id.rpartition(":")
    return part, int(number)
