"""The store: it keeps what users said, and the memories made of it, in SQLite or PostgreSQL."""
