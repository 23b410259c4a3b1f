"""Version 1: all tables of a store, and their indexes."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Float, Integer, LargeBinary, String, Text, text

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make the tables of a new store."""
    _create_user_tables()
    _create_item_tables()
    _create_memory_tables()
    _create_amendment_table()
    _create_tenant_tables()
    _create_indexes()


def _create_user_tables() -> None:
    """Make the tables of users and of the store as a whole."""
    op.create_table(
        "mempiler_meta",
        Column("name", String, primary_key=True),
        Column("value", String),
    )

    op.create_table(
        "mempiler_forgotten",
        Column("name", String, primary_key=True),
        Column("number", Integer, nullable=False),
        Column("at", Float, nullable=False),
        Column("erased", Integer, nullable=False),
    )

    op.create_table(
        "mempiler_users",
        Column("tenant", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("next_position", Integer, nullable=False),
        Column("version", String, nullable=False),
        Column("worker", String, nullable=False),
        Column("claimed_until", Float, nullable=False),
    )


def _create_item_tables() -> None:
    """Make the tables of what users said."""
    op.create_table(
        "mempiler_items",
        Column("tenant", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("position", Integer, primary_key=True),
        Column("id", String, nullable=False),
        Column("digest", String, nullable=False),
        Column("json", Text, nullable=False),
        Column("state", String, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("error", Text, nullable=False),
        Column("added", Float, nullable=False),
    )

    op.create_table(
        "mempiler_turns",
        Column("tenant", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("turn", String, primary_key=True),
        Column("position", Integer, nullable=False),
    )

    op.create_table(
        "mempiler_open_turns",
        Column("tenant", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("session", String, primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("json", Text, nullable=False),
        Column("added", Float, nullable=False),
    )

    op.create_table(
        "mempiler_metadata",
        Column("tenant", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("session", String, primary_key=True),
        Column("json", Text, nullable=False),
    )


def _create_memory_tables() -> None:
    """Make the tables of memories, and of what is stored beside them."""
    op.create_table(
        "mempiler_memories",
        Column("tenant", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("base", String, nullable=False),
        Column("position", Integer, nullable=False),
        Column("finalized_position", Integer, nullable=False),
        Column("speakers", Text, nullable=False),
        Column("writer", String, nullable=False),
        Column("program", String, nullable=False),
        Column("embedder", String, nullable=False),
        Column("schema", Integer, nullable=False),
        Column("updated", Float, nullable=False),
    )

    op.create_table(
        "mempiler_changes",
        Column("tenant", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("memory", Text, nullable=False),
        Column("finalized", Text),
    )

    op.create_table(
        "mempiler_vectors",
        Column("tenant", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("key", LargeBinary, primary_key=True),
        Column("vector", LargeBinary, nullable=False),
    )


def _create_amendment_table() -> None:
    """Make the table of the changes that users made to entries."""
    op.create_table(
        "mempiler_amendments",
        Column("tenant", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("action", String, nullable=False),
        Column("entry", String, nullable=False),
        Column("kind", String, nullable=False),
        Column("old_text", Text, nullable=False),
        Column("sources", Text, nullable=False),
        Column("at", Float, nullable=False),
        Column("by", String, nullable=False),
        Column("undoes", Integer, nullable=False),
        Column("new_text", Text),
    )


def _create_tenant_tables() -> None:
    """Make the tables of what tenants use of a service."""
    op.create_table(
        "mempiler_tenant_usage",
        Column("tenant", String, primary_key=True),
        Column("minute", Integer, nullable=False),
        Column("requests", Integer, nullable=False),
        Column("day", Integer, nullable=False),
        Column("usd", Float, nullable=False),
    )

    op.create_table(
        "mempiler_tenant_reservations",
        Column("id", String, primary_key=True),
        Column("tenant", String, nullable=False),
        Column("day", Integer, nullable=False),
        Column("usd", Float, nullable=False),
        Column("expires", Float, nullable=False),
    )


def _create_indexes() -> None:
    """Make the indexes that are no primary keys."""
    op.create_index("mempiler_items_id", "mempiler_items", ["tenant", "user", "id"], unique=True)
    op.create_index("mempiler_items_state", "mempiler_items", ["state", "tenant", "user"])
    op.create_index(
        "mempiler_tenant_reservations_tenant", "mempiler_tenant_reservations", ["tenant"]
    )

    is_claimed = text("worker <> ''")
    op.create_index(
        "mempiler_users_claimed",
        "mempiler_users",
        ["tenant"],
        sqlite_where=is_claimed,
        postgresql_where=is_claimed,
    )
    is_unfinalized = text("finalized_position < position")
    op.create_index(
        "mempiler_memories_unfinalized",
        "mempiler_memories",
        ["tenant", "user"],
        sqlite_where=is_unfinalized,
        postgresql_where=is_unfinalized,
    )
