"""Vectors of users' texts, stored so that an embedder need not compute them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .database import Database
from .forget_log import any_session_key, is_forgotten_since, user_key
from .owner import Owner
from .user_rows import lock_user


class StoredVectors:
    """Keeps vectors by keys that callers choose, e.g. a digest of the text and its embedder.

    Args:
        database: Where the vectors are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, owner: Owner, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return those vectors that are stored, by key; keys without a vector are left out."""
        with self._database.read_without_transaction() as transaction:
            rows = transaction.select_in_batches("select_vectors", owner, keys)
            return {bytes(row.key): bytes(row.vector) for row in rows}

    def put(self, owner: Owner, vectors: Mapping[bytes, bytes], forget_count: int) -> bool:
        """Store vectors of a user's texts, unless something of the user was forgotten meanwhile.

        Nobody knows from which session the text of a vector comes. So if the user, or any session
        of the user, was forgotten since the texts were read, no vector is stored.

        Args:
            owner: The user who has the texts.
            vectors: The vectors by key.
            forget_count: `Forgetting.count()` when the texts were read.

        Returns:
            Whether they were stored; False also for an unknown user.
        """
        rows = [{"key": key, "vector": vector} for key, vector in vectors.items()]
        log_keys = [user_key(owner), any_session_key(owner)]
        with self._database.write_transaction() as transaction:
            is_known = lock_user(transaction, owner) is not None
            if not is_known or is_forgotten_since(transaction, log_keys, forget_count):
                return False
            transaction.execute_many("upsert_vector", owner, rows)
            return True
