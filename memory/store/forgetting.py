"""Forgetting: nothing of a forgotten user or session comes back, and its bytes go.

What has to be prevented, and how:

1. **A write that is under way.** While Ada is forgotten, another thread or process may be storing a
   session of hers, and commit a moment later. Therefore `forget_user` locks Ada's row before it
   deletes: writes that hold the lock are waited for, and what they stored is deleted. Then it logs
   that Ada was forgotten, under the next number of the store, in the same transaction
   (`forget_log`). A write that gets the lock afterwards finds that number higher than its own
   `forget_count`, and raises a `ConflictError`. So the order in which the two come does not matter.
   Even an unknown user is logged: their first write may not be committed yet, and so not be seen.

2. **A worker that is writing the memory.** It holds a claim for a version of the memory. Forgetting
   an item changes the version, and forgetting a user deletes it, so the worker's commit is refused
   (`queue`). Open sessions are in no memory yet.

3. **What was made of a session.** If the memory may hold something of a forgotten session, the
   whole memory is dropped, and all other items are queued: workers write it anew without that
   session. Metadata go with their session. Amendments go with the turns that they rest on, and so
   do kept answers with the feedback on them. All vectors of the user go, because nobody knows from
   which session the text of a vector comes.

4. **Copies in other processes.** A process that serves memories keeps some of them in its cache. It
   watches `count`, and drops what it keeps of users when the count grows.

5. **Bytes in the file.** SQLite overwrites deleted rows, but copies may be left in its write-ahead
   log and between the rows of a page. `erase` empties the log, rewrites the file, and empties the
   log again. While somebody reads the store this is not possible, and it would hold up every
   writer. So the log of the forgotten says whose bytes may be left, and whoever calls `erase` next
   removes them: a running service does so every few seconds. Whoever is killed after the commit
   and before the bytes are gone leaves that entry, too. PostgreSQL decides itself when deleted
   bytes are overwritten.

`Receipt` tells the caller what was deleted, and whether its bytes are gone or what holds them.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import StoreError
from ..names import valid_name
from ..results import Receipt
from .amendments import delete_unfounded_amendments
from .answers import delete_answers_from_deleted_turns
from .database import Database, Transaction
from .forget_log import (
    any_session_key,
    is_erasure_pending,
    last_unerased_number,
    read_forget_count,
    record_erased,
    record_forgotten,
    session_key,
    user_key,
)
from .memories import reset_memory
from .owner import Owner
from .records import Erasure
from .turns import delete_open_session
from .user_rows import lock_or_create_user, lock_user, void_claim

_DELETIONS_OF_A_USER = (
    "delete_items",
    "delete_turns",
    "delete_open_turns",
    "delete_metadata",
    "delete_memory",
    "delete_changes",
    "delete_vectors",
    "delete_amendments",
    "delete_answers",
    "delete_feedback",
    "delete_user",
)
"""The queries that together delete every row of a user: one for each table."""


class Forgetting:
    """Forgets users and sessions, and erases their bytes.

    Args:
        database: Where they are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def count(self) -> int:
        """Return how often a user or session was forgotten in this store.

        Whoever begins work for a user reads this number first, and passes it as `forget_count` when
        the result is stored. If the user was forgotten in between, the write is refused.
        """
        return read_forget_count(self._database)

    def forget_user(self, owner: Owner) -> Receipt:
        """Delete everything of a user in one transaction, then erase its bytes from the file.

        Writes for the user that have already begun, in any process, are refused from now on.

        Returns:
            What was deleted, and whether its bytes are gone. `known` is False for an unknown user,
            except while the file may still hold bytes of a user of that name.
        """
        with self._database.write_transaction() as transaction:
            is_stored = lock_user(transaction, owner) is not None
            is_known = is_stored or is_erasure_pending(transaction, user_key(owner))
            # Another process may be storing the first item of this user, in a transaction that
            # nobody else sees yet. Creating the same row waits until it is committed.
            lock_or_create_user(transaction, owner)

            sizes = _count_rows(transaction, owner)
            delete_user_rows(transaction, owner)
            record_forgotten(transaction, [user_key(owner)])

        is_known = is_known or sizes.sessions > 0
        return self._erase_and_confirm(owner.user, is_known, sizes.sessions, sizes.turns)

    def forget_session(self, owner: Owner, session_id: str) -> Receipt:
        """Delete one session of a user, ended or open, then erase its bytes from the file.

        `delete_session_rows` also deletes the memory if it holds something of the session; the
        other items are queued, so that it is written anew without that session.

        Returns:
            What was deleted, and whether its bytes are gone. `known` is False for an unknown
            session, except while the file may still hold bytes of a session of that id.
        """
        session_id = valid_name("session", session_id)
        with self._database.write_transaction() as transaction:
            lock_user(transaction, owner)
            turns_before = _count_rows(transaction, owner).turns
            is_known = delete_session_rows(transaction, owner, session_id)
            deleted_turns = turns_before - _count_rows(transaction, owner).turns

        # A stored session has at least one turn, so there was a session if turns were deleted.
        deleted_sessions = 1 if deleted_turns > 0 else 0
        return self._erase_and_confirm(session_id, is_known, deleted_sessions, deleted_turns)

    def erase(self) -> Erasure:
        """Remove the bytes of forgotten users and sessions from an SQLite file.

        Their rows are deleted already, but copies of the bytes may be left in the file or its
        write-ahead log. If they cannot be removed now, no error is raised: `held_by` of the result
        says why, and the caller tries again later. PostgreSQL removes such bytes by itself.
        """
        try:
            return self._erase()
        except StoreError as error:
            return Erasure(erased=False, held_by=str(error))

    def _erase(self) -> Erasure:
        """Erase as `erase` does, but raise a `StoreError` if the database fails."""
        if self._database.is_server:
            return self._database.erase_deleted_bytes()

        with self._database.read_transaction() as transaction:
            # Forgotten users and sessions are numbered. Those up to this number are erased now.
            last_number = last_unerased_number(transaction)
        if last_number is None:
            return Erasure(erased=True)

        erasure = self._database.erase_deleted_bytes()
        # A file that is too large stays too large. The caller learns it from this result, and
        # it is not tried again.
        if erasure.is_final:
            with self._database.write_transaction() as transaction:
                record_erased(transaction, last_number)
        return erasure

    def _erase_and_confirm(self, name: str, is_known: bool, sessions: int, turns: int) -> Receipt:
        """Erase the bytes of what was deleted, and return the receipt.

        Args:
            name: The name of the user, or the id of the session.
            is_known: Whether there was such a user or session.
            sessions: How many sessions were deleted.
            turns: How many turns were deleted.
        """
        erasure = self.erase()
        return Receipt(
            forgotten=name,
            known=is_known,
            sessions=sessions,
            turns=turns,
            erased=erasure.erased,
            held_by=erasure.held_by,
        )


def delete_user_rows(transaction: Transaction, owner: Owner) -> None:
    """Delete every row of a user, in all tables; the user is not logged as forgotten."""
    for query in _DELETIONS_OF_A_USER:
        transaction.execute(query, owner)


def delete_session_rows(transaction: Transaction, owner: Owner, session_id: str) -> bool:
    """Delete a session and everything that was made from it, and log that it was forgotten.

    A memory that holds something of the session is deleted too, and all other items are queued, so
    that it is written anew. The user's row must be locked. Afterwards the caller erases the bytes.

    Returns:
        False if there is no such session, and the file holds no bytes of one that had this id.

    Raises:
        StoreError: A row of the session, or an amendment or kept answer of the user, is damaged.
    """
    key = session_key(owner, session_id)
    is_item_deleted = _delete_item(transaction, owner, session_id)
    is_open_session_deleted = delete_open_session(transaction, owner, session_id)
    is_deleted = is_item_deleted or is_open_session_deleted
    if not is_deleted and not is_erasure_pending(transaction, key):
        return False

    # Nobody knows which vectors belong to texts of this session, so all of them go.
    transaction.execute("delete_vectors", owner)
    transaction.execute("delete_metadata_of_session", owner, session=session_id)
    delete_unfounded_amendments(transaction, owner)
    delete_answers_from_deleted_turns(transaction, owner)
    record_forgotten(transaction, [key, any_session_key(owner)])
    return True


def _delete_item(transaction: Transaction, owner: Owner, item_id: str) -> bool:
    """Delete an item; if the memory holds something of it, delete the memory as well.

    Returns:
        False if there is no such item.
    """
    item = transaction.execute("delete_item", owner, id=item_id).first()
    if item is None:
        return False
    transaction.execute("delete_turns_of_item", owner, position=item.position)

    is_in_memory = item.state in ("remembered", "partial")
    if is_in_memory:
        reset_memory(transaction, owner)
    else:
        # A worker may be writing the item into the memory at this moment: refuse its result.
        void_claim(transaction, owner)
    return True


class _RowCounts(NamedTuple):
    """How much is stored of a user."""

    sessions: int
    """Items and open sessions."""
    turns: int


def _count_rows(transaction: Transaction, owner: Owner) -> _RowCounts:
    """Count the sessions and the turns that are stored of a user."""
    row = transaction.execute("count_sessions_and_turns", owner).one()
    return _RowCounts(row.sessions, row.turns)
