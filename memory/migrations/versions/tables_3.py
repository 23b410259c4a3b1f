"""From the tables of versions 1 and 2 to twelve: texts and metadata lie with what they are of.

The earlier versions have no revisions; a store of version 1 may lack some of its tables, which came one by one.
"""

from __future__ import annotations

from alembic import context, op
from sqlalchemy import Column, String, inspect

revision, down_revision = "3", None

DROPPED = ("recalls", "moments", "past_texts", "past_changes", "events", "event_counts", "rebuilds")
"""What was noted beside memories, and nothing that a user stored."""


def upgrade() -> None:
    """Moves what is there, and makes what is missing."""
    there = set(inspect(op.get_bind()).get_table_names())
    for name in DROPPED:
        op.drop_table(f"mempiler_{name}", if_exists=True)
    if "mempiler_metadata" in there:
        op.rename_table("mempiler_metadata", "mempiler_metadata_2")
    context.config.attributes["tables"].create_all(op.get_bind())
    _texts_become_changes("mempiler_texts" in there)
    _metadata_are_of_sessions("mempiler_metadata" in there, "mempiler_open_metadata" in there)
    op.execute("UPDATE mempiler_meta SET value = '3' WHERE name = 'schema'")


def _texts_become_changes(texts: bool) -> None:
    """The text of a memory is its change 0; before there were changes, it stood beside the positions."""
    into = 'INSERT INTO mempiler_changes (tenant, "user", number, memory, settled) SELECT tenant, "user", 0, '
    op.add_column("mempiler_memories", Column("base", String, nullable=False, server_default=""))
    if texts:
        op.execute(f"{into} memory, settled FROM mempiler_texts")
        op.execute(
            "UPDATE mempiler_memories AS m SET base = (SELECT base FROM mempiler_texts AS t "
            'WHERE t.tenant = m.tenant AND t."user" = m."user") WHERE EXISTS (SELECT 1 FROM mempiler_texts AS t '
            'WHERE t.tenant = m.tenant AND t."user" = m."user")'
        )
        op.drop_table("mempiler_texts")
    op.execute(
        f"{into} json, settled FROM mempiler_memories AS m WHERE NOT EXISTS (SELECT 1 FROM mempiler_changes AS c "
        'WHERE c.tenant = m.tenant AND c."user" = m."user" AND number = 0)'
    )
    with op.batch_alter_table("mempiler_memories") as table:
        table.drop_column("json")
        table.drop_column("settled")
        table.alter_column("base", server_default=None)


def _metadata_are_of_sessions(of_items: bool, of_open: bool) -> None:
    if of_items:
        op.execute(
            'INSERT INTO mempiler_metadata SELECT i.tenant, i."user", i.id, m.json FROM mempiler_items AS i '
            'JOIN mempiler_metadata_2 AS m ON m.tenant = i.tenant AND m."user" = i."user" AND m.position = i.position'
        )
        op.drop_table("mempiler_metadata_2")
    if of_open:
        op.execute('INSERT INTO mempiler_metadata SELECT tenant, "user", session, json FROM mempiler_open_metadata')
        op.drop_table("mempiler_open_metadata")
