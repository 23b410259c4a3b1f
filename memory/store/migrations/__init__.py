"""Alembic's folder: what brings the tables of stores of earlier versions up to this one (`memory.upgrading`)."""
