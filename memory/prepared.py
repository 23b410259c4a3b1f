"""Statements that run with every request: written in SQLAlchemy's terms once, given to SQLite's driver as text.

SQLite answers a small statement in microseconds, and SQLAlchemy takes fifty times as long to look up what it compiled,
to convert values that need no conversion and to wrap rows. Connections, transactions and errors stay SQLAlchemy's, and
so does PostgreSQL altogether: there the way to the server decides.

Limits: values are texts, numbers and NULL. A list for `in_` would be another text each time; see `among`.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from sqlalchemy import Connection, Executable, literal_column
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.exc import DBAPIError

_NAMED = dialect(paramstyle="named")


class Prepared:
    """A statement that is run many times, with other values each.

    Args:
        statement: Its values are named, see `store_tables.given`.
    """

    def __init__(self, statement: Executable) -> None:
        self._statement = statement
        self._row: Callable[..., Any] = tuple

    def __call__(self, db: Connection, values: Mapping[str, Any]) -> Sequence[Any]:
        """Runs it; returns the rows, whose columns are attributes."""
        if db.dialect.name == "sqlite":
            return self._driven(db, values)
        found = db.execute(self._statement, values)
        return found.all() if found.returns_rows else ()

    def each(self, db: Connection, rows: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        """Runs it for each of some values; returns the rows of all of them."""
        if db.dialect.name == "sqlite":
            return [found for values in rows for found in self._driven(db, values)]
        # SQLAlchemy takes a detour for lists.
        found = db.execute(self._statement, rows if len(rows) > 1 else rows[0]) if rows else None
        return found.all() if found is not None and found.returns_rows else ()

    def _driven(self, db: Connection, values: Mapping[str, Any]) -> Sequence[Any]:
        text, own = self._text
        cursor = driven(db, text, {**own, **values})
        if cursor.description is None:
            return ()
        if self._row is tuple:
            names = [str(column[0]) for column in cursor.description]
            self._row = namedtuple("Row", names)._make  # pyright: ignore[reportUntypedNamedTuple]
        return [self._row(row) for row in cursor]

    @cached_property
    def _text(self) -> tuple[str, Mapping[str, Any]]:
        """The SQL, and the values that are always the same."""
        made = cast("Any", self._statement).compile(dialect=_NAMED)
        return str(made), {name: value for name, value in made.params.items() if value is not None}


def among(column: Any, *words: str) -> Any:
    """That a column is one of some words of ours, which stand in the text of the statement."""
    return column.in_([literal_column(f"'{word}'") for word in words])


def driven(db: Connection, text: str, values: Mapping[str, Any] | None = None) -> sqlite3.Cursor:
    """Gives an SQLite statement to the driver.

    Raises:
        DBAPIError: What the driver raised, as SQLAlchemy raises it.
    """
    driver = cast("sqlite3.Connection", db.connection.dbapi_connection)
    try:
        return driver.execute(text, values or {})
    except sqlite3.Error as error:
        raise DBAPIError.instance(text, None, error, sqlite3.Error, dialect=db.dialect) from error
