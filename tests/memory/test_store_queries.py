"""The SQL statements of the store: each is used, and there for both databases.

Statements stand in files, each under a name and a comment. One with the name of a database behind
its own ("now.sqlite") is for this database, and the others are for both.
"""

import ast
from pathlib import Path
from typing import NamedTuple

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from mempiler.memory.store import queries
from mempiler.memory.store.database import Database
from mempiler.memory.store.tables import tables
from sqlalchemy import inspect
from sqlalchemy.engine.interfaces import ReflectedIndex

FOLDER = Path(queries.__file__).parent
RUNNING_METHODS = ("execute", "execute_many", "select_in_batches")
"""Methods of a transaction that run a statement by its name."""


def texts_in_code() -> set[str]:
    """Return every text in the code of the store; the names of statements are among them."""
    texts: set[str] = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
    return texts


def names_that_are_run() -> set[str]:
    """Return the names that stand in calls which run a statement."""
    names: set[str] = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if (
                node.func.attr in RUNNING_METHODS
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                names.add(str(node.args[0].value))
    return names


def test_every_statement_is_used() -> None:
    names = {query.name for query in queries.read_queries()}

    assert names - texts_in_code() == set()


def test_every_statement_that_is_run_is_there_for_both_databases() -> None:
    names_in_code = names_that_are_run()
    names_for_sqlite = queries.load_queries("sqlite").keys()
    names_for_postgresql = queries.load_queries("postgresql").keys()

    # Otherwise the calls in the code were not found.
    assert len(names_in_code) > 50
    assert names_in_code - names_for_sqlite == set()
    assert names_for_sqlite == names_for_postgresql


def test_no_two_statements_for_a_database_have_the_same_name() -> None:
    statements = queries.read_queries()

    for database in ("sqlite", "postgresql"):
        # A statement without a database is for both.
        names = [query.name for query in statements if query.database in ("", database)]
        assert len(names) == len(set(names))


def test_the_migrations_create_the_tables_that_the_code_describes(database: Database) -> None:
    """The migrations created the tables of `database`; `tables` is what the code expects."""
    with database.engine.connect() as connection:
        options = {"version_table": "mempiler_version"}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, tables) == []


class KeyAndIndexes(NamedTuple):
    """What a database says of a table."""

    primary_key: list[str]
    indexes: list[tuple[object, ...]]
    """The name, the columns, whether it is unique, and the condition of each index."""


def keys_and_indexes(database: Database) -> dict[str, KeyAndIndexes]:
    """Return the primary key and the indexes of each table, as the database describes them."""
    described: dict[str, KeyAndIndexes] = {}
    with database.engine.connect() as connection:
        inspector = inspect(connection)
        for table in tables.tables:
            primary_key = inspector.get_pk_constraint(table)["constrained_columns"]
            indexes: list[tuple[object, ...]] = []
            for index in inspector.get_indexes(table):
                indexes.append(
                    (index["name"], index["column_names"], index["unique"], condition_of(index))
                )
            indexes.sort(key=str)
            described[table] = KeyAndIndexes(primary_key, indexes)
    return described


def condition_of(index: ReflectedIndex) -> str:
    """Return which rows a partial index holds; "" for an index of all rows."""
    options = index.get("dialect_options", {})
    return str(options.get("sqlite_where", options.get("postgresql_where", "")))


def test_the_migrations_create_the_keys_and_partial_indexes_that_the_code_describes(
    database: Database,
) -> None:
    """Alembic compares neither primary keys nor the conditions of indexes."""
    created_by_migrations = keys_and_indexes(database)

    tables.drop_all(database.engine)
    tables.create_all(database.engine)

    assert keys_and_indexes(database) == created_by_migrations
    # The conditions of two partial indexes, to show that they are compared.
    assert "finalized_position" in str(created_by_migrations["mempiler_memories"])
    assert "worker" in str(created_by_migrations["mempiler_users"])
