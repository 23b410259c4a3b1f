"""Alembic's folder: its revisions make the tables of a store; `schema.py` runs them."""
