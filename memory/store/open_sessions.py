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
from .forget_log import check_not_forgotten, read_forget_count
from .items import find_session, queue_item
from .owner import Owner
from .records import MAX_LEASE, IdleSession
from .session_metadata import read_metadata, write_metadata
from .turns import delete_open_session, insert_open_turns, read_open_sessions
from .user_rows import lock_or_create_user, lock_user


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
        """Store turns at the end of an open session, in one transaction.

        Args:
            owner: The user who has the session.
            session_id: The session.
            turns: What was said; turns without an id get the session's and a number.
            may_begin: Whether the session begins with these turns if it is not there.
            forget_count: What `Forgetting.count` was when the caller began; by default what it is
                now.
            metadata: Added to the metadata that the session has.

        Returns:
            The turns with their ids.

        Raises:
            ConflictError: The session has ended, or is not there and may not begin; another turn of
                the user has the id of one; or the user was forgotten since the caller began.
            UserError: An id, a text or the metadata cannot be stored.
        """
        session_id = valid_name("session", session_id)
        values = {} if metadata is None else validate_metadata(metadata)
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
            StoreError: A row of an open session is damaged.
        """
        session_id = valid_name("session", session_id)
        with self._database.write_transaction() as transaction:
            position = lock_user(transaction, owner)
            session = _find_open_session(transaction, owner, session_id)
            if position is None or session is None:
                return None

            metadata = read_metadata(transaction, owner, [session_id]).get(session_id, {})
            digest = item_digest(session, metadata)
            # The item takes the ids of the turns, so the open session gives them back first.
            delete_open_session(transaction, owner, session_id)
            # The metadata are stored by the id of the session, and stay as they are.
            return queue_item(transaction, owner, session, position, digest, metadata={})

    def idle(self, seconds: float) -> list[IdleSession]:
        """Return the open sessions without a turn for so many seconds, oldest first.

        A last turn in the future was dated by a wrong clock. Its session is idle as well, or it
        would never end.
        """
        with self._database.read_transaction() as transaction:
            rows = transaction.execute("select_idle_sessions", seconds=seconds, max_lead=MAX_LEASE)
            return [IdleSession(Owner.stored(row.user, row.tenant), row.session) for row in rows]


def _last_number(transaction: Transaction, owner: Owner, session_id: str, may_begin: bool) -> int:
    """Return the number of the last turn of an open session; 0 if it begins now.

    Raises:
        ConflictError: The session has ended, or is not there and may not begin.
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
    """Add metadata to those that a session has; of two values with one name the new one counts."""
    if not new_values:
        return
    stored_values = read_metadata(transaction, owner, [session_id]).get(session_id, {})
    # Together they may be too many.
    values = validate_metadata({**stored_values, **new_values})
    write_metadata(transaction, owner, {session_id: values})


def _find_open_session(transaction: Transaction, owner: Owner, session_id: str) -> Session | None:
    for session in read_open_sessions(transaction, owner):
        if session.id == session_id:
            return session
    return None
