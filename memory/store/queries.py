"""The SQL statements of a store, by their names in `queries.sql`.

Most statements are the same for SQLite and PostgreSQL. Where the two differ there are two of them,
`name.sqlite` and `name.postgresql`, and `load_queries` returns the one of its database as `name`:

    >>> from mempiler.memory.store.queries import load_queries
    >>> queries = load_queries("sqlite")
    >>> print(queries["count_users"])
    SELECT count(*) FROM mempiler_users
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sqlalchemy import BindParameter, TextClause, bindparam, text

DatabaseName = Literal["sqlite", "postgresql"]

_HEADING = re.compile(r"^-- name: (.+)$", re.MULTILINE)
"""The line that begins a statement; the group is its name, e.g. `claim_user.sqlite`."""
_LIST_PARAMETER = re.compile(r"\bIN :(\w+)")
"""A parameter behind `IN` stands for all values of a list."""
_NOW = re.compile(r":now\b")
_POSTGRESQL_NOW = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"
"""The time in seconds since 1970 by the clock of the server."""


class Query(NamedTuple):
    """One statement as it stands in the file."""

    name: str
    database: str
    """The only database that it is for; "" for both."""
    comment: str
    sql: str


@cache
def load_queries(database: DatabaseName) -> dict[str, TextClause]:
    """Return the SQL statements for SQLite or for PostgreSQL, by name."""
    statements: dict[str, TextClause] = {}
    for query in read_queries():
        if query.database not in ("", database):
            continue
        sql = query.sql
        if database == "postgresql":
            # Workers on several machines have clocks that differ; the server has one. With SQLite
            # `:now` stays a parameter, whose value `Transaction` fills in.
            sql = _NOW.sub(_POSTGRESQL_NOW, sql)
        statement = text(sql)
        for name in set(_LIST_PARAMETER.findall(sql)):
            # `IN :values` becomes `IN (?, ?, ...)`, with one parameter for each value of a list.
            parameter: BindParameter[Any] = bindparam(name, expanding=True)
            statement = statement.bindparams(parameter)
        statements[query.name] = statement
    return statements


def read_queries() -> list[Query]:
    """Return all statements of `queries.sql`, in their order."""
    content = Path(__file__).with_name("queries.sql").read_text(encoding="utf-8")
    return parse_queries(content)


def parse_queries(content: str) -> list[Query]:
    """Split the text of an SQL file into its named statements.

    Each statement has a heading, a comment and SQL:

        -- name: count_users
        -- Count the users of all tenants.
        SELECT count(*) FROM mempiler_users

    Comments after the SQL belong to the file, e.g. as headings of its sections, and are dropped.
    """
    # `re.split` also returns what the group in the pattern matched, here the names. So the list is
    # the introduction of the file, then name, body, name, body, ...
    _, *sections = _HEADING.split(content)
    headings = sections[::2]
    bodies = sections[1::2]

    queries: list[Query] = []
    for heading, body in zip(headings, bodies, strict=True):
        # `claim_user.sqlite` is for SQLite only; without a dot a statement is for both databases.
        name, _, database = heading.partition(".")
        comment_lines: list[str] = []
        sql_lines: list[str] = []
        for line in body.strip().splitlines():
            if not line.startswith("--"):
                sql_lines.append(line)
            # A comment after the SQL does not belong to the statement.
            elif not sql_lines:
                comment_lines.append(line.removeprefix("--").strip())
        query = Query(name, database, " ".join(comment_lines), "\n".join(sql_lines).strip())
        queries.append(query)
    return queries
