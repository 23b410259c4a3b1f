"""Alembic's environment: all revisions run in the transaction of whoever opens the store."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"], version_table="mempiler_version"
)
with context.begin_transaction():
    context.run_migrations()
