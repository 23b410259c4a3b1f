"""The tables of a store, in SQLAlchemy's terms.

The statements in `queries.sql` name these tables and columns; what each table is for stands at the
head of that file. The tables are made by the revisions in `migrations/versions`, and a test checks
that these give what stands here.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

tables = MetaData()
"""All tables but `mempiler_version`, which is Alembic's."""

meta = Table(
    "mempiler_meta",
    tables,
    Column("name", String, primary_key=True),
    Column("value", String),
)

users = Table(
    "mempiler_users",
    tables,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    # The position of the next item.
    Column("next_position", Integer, nullable=False),
    # Another one whenever the memory changes.
    Column("version", String, nullable=False),
    # Who writes the memory at the moment, "" for nobody, and until when.
    Column("worker", String, nullable=False),
    Column("claimed_until", Float, nullable=False),
)

items = Table(
    "mempiler_items",
    tables,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("id", String, nullable=False),
    # Tells whether an item that is added again is the same one.
    Column("digest", String, nullable=False),
    Column("json", Text, nullable=False),
    # One of `states.State`.
    Column("state", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("added", Float, nullable=False),
)

turns = Table(
    "mempiler_turns",
    tables,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("turn", String, primary_key=True),
    # Of its item; 0 in an open session.
    Column("position", Integer, nullable=False),
)

open_turns = Table(
    "mempiler_open_turns",
    tables,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("session", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("json", Text, nullable=False),
    Column("added", Float, nullable=False),
)

metadata = Table(
    "mempiler_metadata",
    tables,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("session", String, primary_key=True),
    Column("json", Text, nullable=False),
)

memories = Table(
    "mempiler_memories",
    tables,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    # Names the text that the changes start from.
    Column("base", String, nullable=False),
    # The last item in the memory, and in the one that questions are answered from.
    Column("position", Integer, nullable=False),
    Column("finalized_position", Integer, nullable=False),
    Column("speakers", Text, nullable=False),
    # What wrote it, see `documents.Stamp`.
    Column("writer", String, nullable=False),
    Column("program", String, nullable=False),
    Column("embedder", String, nullable=False),
    Column("schema", Integer, nullable=False),
    Column("updated", Float, nullable=False),
)

changes = Table(
    "mempiler_changes",
    tables,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    # Number 0 is a whole text, the others are what changed since, one for each commit.
    Column("number", Integer, primary_key=True),
    Column("memory", Text, nullable=False),
    Column("finalized", Text),
)

vectors = Table(
    "mempiler_vectors",
    tables,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("vector", LargeBinary, nullable=False),
)

amendments = Table(
    "mempiler_amendments",
    tables,
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

answers = Table(
    "mempiler_answers",
    tables,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    # Rises with every answer of the user.
    Column("number", Integer, primary_key=True),
    Column("id", String, nullable=False),
    Column("question", Text, nullable=False),
    Column("answer", Text, nullable=False),
    # The memory that was asked: its version, its last item, and the open sessions as JSON.
    Column("memory_version", String, nullable=False),
    Column("position", Integer, nullable=False),
    Column("open_turns", Text, nullable=False),
    # What was recalled, and the turns that the answer rests on, both as JSON.
    Column("entries", Text, nullable=False),
    Column("sources", Text, nullable=False),
    # 1 if the answer may rest on any turn, else 0.
    Column("rests_on_all", Integer, nullable=False),
    Column("at", Float, nullable=False),
)

feedback = Table(
    "mempiler_feedback",
    tables,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    # The id of the answer.
    Column("answer", String, primary_key=True),
    # 1 for right, 0 for wrong, NULL if the user did not say.
    Column("is_right", Integer),
    Column("correction", Text),
    # As JSON.
    Column("useful_entries", Text, nullable=False),
    Column("at", Float, nullable=False),
)

forgotten = Table(
    "mempiler_forgotten",
    tables,
    Column("name", String, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("erased", Integer, nullable=False),
)

tenant_usage = Table(
    "mempiler_tenant_usage",
    tables,
    Column("tenant", String, primary_key=True),
    # The last minute in which there was a request, in minutes since 1970, and its requests.
    Column("minute", Integer, nullable=False),
    Column("requests", Integer, nullable=False),
    # The last day on which there was a model call, in days since 1970, and its cost.
    Column("day", Integer, nullable=False),
    Column("usd", Float, nullable=False),
)

tenant_reservations = Table(
    "mempiler_tenant_reservations",
    tables,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("day", Integer, nullable=False),
    Column("usd", Float, nullable=False),
    Column("expires", Float, nullable=False),
)

Index("mempiler_items_id", items.c.tenant, items.c.user, items.c.id, unique=True)
Index("mempiler_items_state", items.c.state, items.c.tenant, items.c.user)
Index("mempiler_answers_id", answers.c.tenant, answers.c.user, answers.c.id, unique=True)
Index("mempiler_tenant_reservations_tenant", tenant_reservations.c.tenant)

# Two indexes of few rows: claimed users, and memories that are still to be finalized. Statements
# use them only if they repeat the condition in these words.
Index(
    "mempiler_users_claimed",
    users.c.tenant,
    sqlite_where=text("worker <> ''"),
    postgresql_where=text("worker <> ''"),
)
Index(
    "mempiler_memories_unfinalized",
    memories.c.tenant,
    memories.c.user,
    sqlite_where=text("finalized_position < position"),
    postgresql_where=text("finalized_position < position"),
)
