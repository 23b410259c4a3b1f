"""Version 2: the tables of answers that users may rate, and of what they said about them."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Float, Integer, String, Text

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Make the two tables; they are empty."""
    op.create_table(
        "mempiler_answers",
        Column("tenant", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("id", String, nullable=False),
        Column("question", Text, nullable=False),
        Column("answer", Text, nullable=False),
        Column("memory_version", String, nullable=False),
        Column("position", Integer, nullable=False),
        Column("open_turns", Text, nullable=False),
        Column("entries", Text, nullable=False),
        Column("sources", Text, nullable=False),
        Column("rests_on_all", Integer, nullable=False),
        Column("at", Float, nullable=False),
    )
    op.create_index(
        "mempiler_answers_id", "mempiler_answers", ["tenant", "user", "id"], unique=True
    )

    op.create_table(
        "mempiler_feedback",
        Column("tenant", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("answer", String, primary_key=True),
        Column("is_right", Integer),
        Column("correction", Text),
        Column("useful_entries", Text, nullable=False),
        Column("at", Float, nullable=False),
    )
