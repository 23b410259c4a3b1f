"""The statements of the store: each is explained and used, and there is no other SQL."""

import ast
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from mempiler.memory.store import queries
from mempiler.memory.store.database import Database
from mempiler.memory.store.tables import tables
from sqlalchemy import inspect
from sqlalchemy.engine.interfaces import ReflectedIndex

FOLDER = Path(queries.__file__).parent
RUN = ("execute", "execute_many", "select_in_batches")
"""Methods of a transaction that run a statement by its name."""


def names_in_code() -> set[str]:
    """Every text in the code of the store; the names of statements are among them."""
    texts: set[str] = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
    return texts


def names_that_are_run() -> set[str]:
    """The names that stand in calls which run a statement."""
    names: set[str] = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in RUN and node.args and isinstance(node.args[0], ast.Constant):
                names.add(str(node.args[0].value))
    return names


def test_every_statement_is_explained_and_used() -> None:
    statements = queries.read_queries()
    assert len(statements) > 50
    assert [query.name for query in statements if not query.comment] == []
    unused = {query.name for query in statements} - names_in_code()
    assert unused == set()


def test_every_statement_that_is_run_is_there_for_both_databases() -> None:
    names = names_that_are_run()
    assert len(names) > 50
    assert names - queries.load_queries("sqlite").keys() == set()
    assert queries.load_queries("sqlite").keys() == queries.load_queries("postgresql").keys()


def test_no_name_is_given_twice() -> None:
    statements = queries.read_queries()
    for database in ("sqlite", "postgresql"):
        names = [query.name for query in statements if query.database in ("", database)]
        assert len(names) == len(set(names))
    assert {query.database for query in statements} == {"", "sqlite", "postgresql"}


def test_a_file_of_statements_is_read() -> None:
    content = """
-- What the tables are for.

-- name: count_users
-- How many users
-- there are.
SELECT count(*)

FROM users

-- Items -----
-- name: now.sqlite
-- By the clock of this process.
SELECT :now
"""
    assert queries.parse_queries(content) == [
        queries.Query(
            "count_users", "", "How many users there are.", "SELECT count(*)\n\nFROM users"
        ),
        queries.Query("now", "sqlite", "By the clock of this process.", "SELECT :now"),
    ]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_only_postgresql_has_a_clock_of_its_own(database: queries.DatabaseName) -> None:
    statements = [str(statement) for statement in queries.load_queries(database).values()]
    assert any(":now" in statement for statement in statements) == (database == "sqlite")
    assert any("clock_timestamp()" in statement for statement in statements) == (
        database == "postgresql"
    )


def test_the_revisions_make_the_tables_that_are_described(database: Database) -> None:
    with database.engine.connect() as connection:
        options = {"version_table": "mempiler_version"}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, tables) == []


def keys_and_indexes(database: Database) -> dict[str, object]:
    """The primary key and the indexes of each table, as the database describes them."""
    described: dict[str, object] = {}
    with database.engine.connect() as connection:
        inspector = inspect(connection)
        for table in tables.tables:
            indexes = sorted(inspector.get_indexes(table), key=lambda index: str(index["name"]))
            key = inspector.get_pk_constraint(table)["constrained_columns"]
            described[table] = (
                key,
                [
                    (index["name"], index["column_names"], index["unique"], condition_of(index))
                    for index in indexes
                ],
            )
    return described


def condition_of(index: ReflectedIndex) -> str:
    """The rows that a partial index holds; "" for an index of all rows."""
    options = index.get("dialect_options", {})
    return str(options.get("sqlite_where", options.get("postgresql_where", "")))


def test_the_revisions_make_the_keys_and_partial_indexes_that_are_described(
    database: Database,
) -> None:
    """Alembic's comparison looks at neither."""
    made_by_revisions = keys_and_indexes(database)
    tables.drop_all(database.engine)
    tables.create_all(database.engine)

    assert made_by_revisions == keys_and_indexes(database)
    assert "finalized_position" in str(made_by_revisions["mempiler_memories"])
    assert "worker" in str(made_by_revisions["mempiler_users"])
