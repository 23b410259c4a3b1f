"""The vectors of a user's texts, in the store with everything else of the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from . import erasing
from . import store_tables as t
from .store_reads import BATCH
from .store_rows import insert_into, lock
from .store_tables import given, key_of, mine, whose
from .stored import Owner

_FOUND = select(t.vectors.c.key, t.vectors.c.vector).where(*mine(t.vectors), t.vectors.c.key.in_(given("keys")))


def read(db: Connection, owner: Owner, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """The vectors of a user that are there, by key."""
    found: dict[bytes, bytes] = {}
    for n in range(0, len(keys), BATCH):
        rows = db.execute(_FOUND, whose(owner, keys=keys[n : n + BATCH]))
        found |= {bytes(row.key): bytes(row.vector) for row in rows}
    return found


def write(db: Connection, owner: Owner, vectors: Mapping[bytes, bytes], since: int) -> bool:
    """Writes vectors of a user; false if the user or a session of theirs was forgotten since.

    Args:
        db: A transaction that writes.
        owner: Whose.
        vectors: By key.
        since: What `erasing.forgets` was when the work began that made them.
    """
    known = lock(db, owner, make=False)
    if not known or erasing.forgotten_since(db, since, owner, erasing.a_session_of(owner)):
        return False
    key, new = key_of(owner), insert_into(db)(t.vectors)
    new = new.on_conflict_do_update(index_elements=[*key, "key"], set_={"vector": new.excluded.vector})
    db.execute(new, [{**key, "key": name, "vector": vector} for name, vector in vectors.items()])
    return True
