"""Who was forgotten, and when: so that nothing which was begun before is stored afterwards.

The store counts how often anybody was forgotten (`read_forget_count`). Whoever begins work for a
user reads that count first, and passes it on as `forget_count` when the result is stored. Every
forgotten user and session is logged with the count that it brought about. A write is refused if the
log has its user under a higher number than the writer's `forget_count`: the user was forgotten
after the work had begun.

    forget_count = store.forgetting.count()      # 7
    session = read_the_session_of_ada()          # meanwhile Ada is forgotten, under number 8
    store.items.add(ada, session, forget_count=forget_count)      # ConflictError: 8 > 7

The log must not keep the names of those who were forgotten, so it knows them by a digest, the
*key*. Keys are removed after `KEPT_SECONDS`, once the bytes are erased from the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ...errors import ConflictError
from .database import Database, Transaction
from .owner import Owner

KEPT_SECONDS = 86_400.0
"""How long it is known who was forgotten: a day, because no write takes longer."""


def user_key(owner: Owner) -> str:
    """Return the key under which a forgotten user is logged: a digest, not the name itself."""
    return _digest(owner.tenant, owner.user)


def session_key(owner: Owner, session_id: str) -> str:
    """Return the key under which a forgotten session is logged: a digest, not the id itself."""
    return _digest(owner.tenant, owner.user, session_id)


def any_session_key(owner: Owner) -> str:
    """Return the key that is logged in addition whenever any session of a user is forgotten."""
    # No session has an empty id, so this is the key of no single session.
    return _digest(owner.tenant, owner.user, "")


def read_forget_count(database: Database) -> int:
    """Return how often a user or session was forgotten in this store; 0 if none ever was."""
    with database.read_without_transaction() as transaction:
        stored_count: str | None = transaction.execute("select_forget_count").scalar()
    return int(stored_count or 0)


def record_forgotten(transaction: Transaction, keys: Sequence[str]) -> None:
    """Log users or sessions as forgotten, all under one number: the store's count, plus 1.

    Writers compare this number with the count that they read when they began.

    Args:
        transaction: The transaction that deletes their rows.
        keys: The digests that stand for the users or sessions.
    """
    number = int(transaction.execute("increase_forget_count").scalar_one())
    # In an SQLite file the bytes of the deleted rows are still to be erased. A server decides by
    # itself when it drops them, so there is nothing left to do.
    is_erased = int(transaction.is_server)
    entries = [{"name": key, "number": number, "erased": is_erased} for key in keys]
    transaction.execute_many("log_forgotten", None, entries)
    transaction.execute("delete_old_log_entries", kept_seconds=KEPT_SECONDS)


def is_forgotten_since(transaction: Transaction, keys: Sequence[str], forget_count: int) -> bool:
    """Return whether one of some users or sessions was forgotten after a moment.

    Args:
        transaction: The transaction that reads.
        keys: The digests under which they would be logged.
        forget_count: How often anybody had been forgotten in the store at that moment.
    """
    entry = transaction.execute("select_forgotten_since", names=keys, forget_count=forget_count)
    return entry.first() is not None


def check_not_forgotten(transaction: Transaction, owner: Owner, forget_count: int) -> None:
    """Refuse a write that began before its user was forgotten.

    The user's row must be locked: then nobody can forget the user between this check and the write.

    Args:
        transaction: The transaction that writes.
        owner: The user.
        forget_count: How often anybody had been forgotten in the store when the write began.

    Raises:
        ConflictError: The user was forgotten since.
    """
    if is_forgotten_since(transaction, [user_key(owner)], forget_count):
        raise ConflictError(
            f"user {owner.user!r} was forgotten while this was under way; nothing of it was stored"
        )


def check_session_not_forgotten(
    transaction: Transaction, owner: Owner, session_id: str, forget_count: int
) -> None:
    """Refuse to store a session again if it was forgotten after the write began.

    A caller that got no answer repeats its call. If the first call had stored the session, and the
    session was forgotten since, the repetition must not bring it back. The user's row must be
    locked.

    Args:
        transaction: The transaction that writes.
        owner: The user.
        session_id: The id of the session, of which nothing is stored.
        forget_count: How often anybody had been forgotten in the store when the write began.

    Raises:
        ConflictError: The session was forgotten since.
    """
    if is_forgotten_since(transaction, [session_key(owner, session_id)], forget_count):
        raise ConflictError(
            f"session {session_id!r} of user {owner.user!r} was forgotten while this was under "
            "way; nothing of it was stored"
        )


def is_erasure_pending(transaction: Transaction, key: str) -> bool:
    """Return whether bytes of a forgotten user or session may still be in the database file.

    Args:
        transaction: The transaction that reads.
        key: The digest under which the user or session is logged.
    """
    entry = transaction.execute("select_unerased_log_entry", name=key)
    return entry.first() is not None


def last_unerased_number(transaction: Transaction) -> int | None:
    """Return the number of the last forgotten user or session whose bytes are not yet erased.

    None if all bytes are erased.
    """
    number: int | None = transaction.execute("select_last_unerased_number").scalar()
    return number


def record_erased(transaction: Transaction, last_number: int) -> None:
    """Note that the bytes of all users and sessions forgotten up to a number are erased."""
    transaction.execute("mark_erased", last_number=last_number)


def _digest(*names: str) -> str:
    """Return a digest of some names, by which they can be recognized but not read."""
    # No name holds NUL, so different names never give the same text.
    return hashlib.sha256("\0".join(names).encode()).hexdigest()
