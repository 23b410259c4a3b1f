"""Open sessions: conversations that go on. Their turns are stored as they are said.

    turns = store.open_sessions.append(ada, "chat", [Turn(id="", speaker="Ada", text="Hello")])
    turns[0].id                                # "chat:1"
    store.open_sessions.end(ada, "chat")       # now it is a queued item, see `items`

The turns of an open session are read and searched at once, but no worker writes them into the
memory. `end` makes an item of them, in one transaction: at every moment the turns are either those
of an open session or those of an item. A service ends sessions in which nobody has said anything
for a while (`idle`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import ConflictError
from ...records import Session, Turn
from ..incoming_items import item_digest
from ..metadata import Scalar, validate_metadata
from ..names import valid_name
from ..results import Added
from .database import Database, Transaction
from .forget_log import check_not_forgotten, check_session_not_forgotten, read_forget_count
from .items import NewItem, find_session, queue_item
from .owner import Owner
from .records import MAX_LEASE, IdleSession
from .session_metadata import read_metadata, write_metadata
from .turns import (
    delete_open_session,
    insert_open_turns,
    read_open_session,
    read_open_sessions,
)
from .user_rows import lock_or_create_user, lock_user

_MAX_CLOCK_LEAD = MAX_LEASE
"""Seconds that a turn may be dated in the future; a clock that dates it later is wrong."""


class OpenSessions:
    """Appends turns to open sessions, and ends them.

    Args:
        database: Where the turns are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(
        self,
        owner: Owner,
        session_id: str,
        turns: Sequence[Turn],
        may_begin: bool = True,
        forget_count: int | None = None,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> tuple[Turn, ...]:
        """Store turns at the end of a session that has not ended, in one transaction.

        Args:
            owner: The user who has the session.
            session_id: The session.
            turns: What was said; turns without an id get the session's and a number.
            may_begin: Whether these turns may begin the session, if there is none with this id.
            forget_count: `Forgetting.count()` when the caller began: the write is refused if the
                user was forgotten since, or the session that it would begin. By default the count
                as it is now.
            metadata: Added to the metadata that the session has.

        Returns:
            The turns with their ids.

        Raises:
            ConflictError: The session has ended, or is not there and may not begin; another turn of
                the user has the id of one; or the user, or the session, was forgotten since the
                caller began.
            UserError: An id, a text or the metadata cannot be stored.
        """
        session_id = valid_name("session", session_id)
        values = validate_metadata(metadata)
        if forget_count is None:
            forget_count = read_forget_count(self._database)

        with self._database.write_transaction() as transaction:
            is_known = True
            if may_begin:
                lock_or_create_user(transaction, owner)
            else:
                is_known = lock_user(transaction, owner) is not None
            check_not_forgotten(transaction, owner, forget_count)
            if not is_known:
                raise _no_open_session(owner, session_id)

            last_number = _last_number(transaction, owner, session_id, may_begin)
            begins_now = last_number == 0
            if begins_now:
                check_session_not_forgotten(transaction, owner, session_id, forget_count)
            new_turns = insert_open_turns(transaction, owner, session_id, turns, last_number)
            if new_turns:
                _add_metadata(transaction, owner, session_id, values)
        return new_turns

    def end(self, owner: Owner, session_id: str) -> Added | None:
        """End an open session: its turns become a queued item, in one transaction.

        Returns:
            The id and the position of the item; None if there is no such open session, for example
            because it was ended before.

        Raises:
            StoreError: A row of the session is damaged.
        """
        session_id = valid_name("session", session_id)
        with self._database.write_transaction() as transaction:
            position = lock_user(transaction, owner)
            session = read_open_session(transaction, owner, session_id)
            if position is None or session is None:
                return None

            metadata = read_metadata(transaction, owner, [session_id]).get(session_id, {})
            # The item keeps the id, and so the metadata that are stored for it already.
            new_item = NewItem(session, item_digest(session, metadata), metadata={})
            # Ids of turns are unique, so they are freed here before the item can take them.
            delete_open_session(transaction, owner, session_id)
            return queue_item(transaction, owner, new_item, position)

    def list_all(self, owner: Owner) -> list[Session]:
        """Return the open sessions of a user with their turns so far; the one begun first is first.

        Raises:
            StoreError: A row is damaged.
        """
        with self._database.read_without_transaction() as transaction:
            return read_open_sessions(transaction, owner)

    def idle(self, seconds: float) -> list[IdleSession]:
        """Return the open sessions without a new turn for some seconds, oldest first.

        A session also counts as idle if its last turn is dated more than `_MAX_CLOCK_LEAD` seconds
        in the future. A wrong clock has dated it, and otherwise the session would not end until
        that date.
        """
        with self._database.read_transaction() as transaction:
            rows = transaction.execute(
                "select_idle_sessions", seconds=seconds, max_lead=_MAX_CLOCK_LEAD
            )
            return [IdleSession(Owner.stored(row.user, row.tenant), row.session) for row in rows]


def _last_number(transaction: Transaction, owner: Owner, session_id: str, may_begin: bool) -> int:
    """Return the number of the last turn of an open session; 0 if the session begins now.

    Raises:
        ConflictError: The session has ended, or there is none and it may not begin.
    """
    stored = find_session(transaction, owner, session_id)
    has_ended = stored.position is not None
    if has_ended:
        raise ConflictError(
            f"session {session_id!r} of user {owner.user!r} has ended; begin one with another id"
        )
    if stored.last_open_number is not None:
        return stored.last_open_number
    if not may_begin:
        raise _no_open_session(owner, session_id)
    return 0


def _no_open_session(owner: Owner, session_id: str) -> ConflictError:
    return ConflictError(
        f"user {owner.user!r} has no open session {session_id!r}; it was forgotten"
    )


def _add_metadata(
    transaction: Transaction, owner: Owner, session_id: str, new_values: Mapping[str, Scalar]
) -> None:
    """Add metadata to those of a session; a new value replaces an old one of the same name."""
    if not new_values:
        return
    stored_values = read_metadata(transaction, owner, [session_id]).get(session_id, {})
    # Old and new values together may be more than a session may have.
    values = validate_metadata({**stored_values, **new_values})
    write_metadata(transaction, owner, {session_id: values})
