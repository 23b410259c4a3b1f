"""Raw items: what users said, stored durably and in order before anything else happens to it.

    session = Session(id="chat", turns=(Turn(id="", speaker="Ada", text="I moved to Lisbon."),))
    store.items.add(ada, session)      # Added(id="chat", position=1, new=True)
    store.items.add(ada, session)      # Added(id="chat", position=1, new=False): stored already

An *item* is a session, logs, a profile, ... Adding one is a single transaction:

1. The user's row is locked, and made if the user is new (`user_rows`). Its `next_position` becomes
   the position of the item. Positions are read under the lock, so they follow the order in which
   items are committed.
2. A write that began before the user was forgotten is refused (`forget_log`).
3. The id of the item is looked up. The same item under the same id is left alone, and the caller
   is told so. Another item under that id is refused, and so is a write that began before the
   session of that id was forgotten.
4. The ids of the turns are taken, which no other turn of the user may have (`turns`).
5. The item is written as one row, with its state. The state is its place in the queue: a new item
   is `queued`.

Because an item and its place in the queue are one row, there is no item that nobody will remember,
and no place in the queue without an item. Whoever is killed before the commit has stored nothing;
after the commit everything is stored, also after a power failure. `add` returns after the commit.

Callers that were killed, or did not get an answer, simply add the item again under the same id: the
*digest*, which is stored beside the item, tells that it is the same one (step 3). An item without
an id gets a new one each time, and would be stored twice.

`queue` explains how items get into the memory, each exactly once.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter
from sqlalchemy import Row

from ...errors import ConflictError, UserError
from ...records import AnyItem, Item
from ..incoming_items import item_digest, record_json, storable_item
from ..metadata import Scalar, validate_metadata
from ..results import Added
from .database import Database, Transaction, read_row
from .forget_log import check_not_forgotten, check_session_not_forgotten, read_forget_count
from .forgetting import Forgetting, delete_session_rows
from .owner import Owner
from .records import StoredItem, StoredTurn
from .session_metadata import write_metadata
from .turns import reserve_turn_ids, with_turn_ids
from .user_rows import lock_or_create_user

_ITEM: TypeAdapter[AnyItem] = TypeAdapter(AnyItem)
_STORED_ITEM = TypeAdapter(StoredItem)


class Items:
    """Adds, replaces and lists the raw items of users.

    Args:
        database: Where the items are stored.
        forgetting: Erases the bytes of items that are replaced.
    """

    def __init__(self, database: Database, forgetting: Forgetting) -> None:
        self._database = database
        self._forgetting = forgetting

    def add(
        self,
        owner: Owner,
        item: Item,
        digest: str | None = None,
        forget_count: int | None = None,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> Added:
        """Store an item and queue it for a worker, in one transaction.

        Args:
            owner: The user who said it; a new user is stored too.
            item: A session, logs, ...; an item without an id gets one: `D4` at position 4, or the
                next number that is free. Turns without an id get the item's and a number.
            digest: Identifies the content, so that the same item added again is recognized; by
                default a digest of the item and its metadata.
            forget_count: `Forgetting.count()` when the caller began: the write is refused if the
                user, or a session of this id, was forgotten since. By default the count as it is
                now.
            metadata: A few plain values by name, by which searches can choose.

        Returns:
            The id and the position of the item; `new` is False if it had been added before.

        Raises:
            ConflictError: Another item of the user has this id, or another turn an id of its turns;
                or the user or the session was forgotten since the caller began.
            UserError: The item has no turns, or something in it cannot be stored.
        """
        new_item = _check_item(item, digest, metadata)
        session_id = new_item.item.id
        with self._locked_user(owner, forget_count) as user:
            if session_id:
                stored = find_session(user.transaction, owner, session_id)
                if stored.position is not None and stored.digest == new_item.digest:
                    return Added(id=session_id, position=stored.position, new=False)
                if stored.is_taken:
                    raise ConflictError(
                        f"session {session_id!r} of user {owner.user!r} is stored with other "
                        "content; give the new one an id of its own, or forget the old one first"
                    )
                # It may be the repetition of a call that stored the session before.
                check_session_not_forgotten(user.transaction, owner, session_id, user.forget_count)
            return queue_item(user.transaction, owner, new_item, user.next_position)

    def replace(
        self,
        owner: Owner,
        item: Item,
        digest: str | None = None,
        forget_count: int | None = None,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> Added:
        """Store an item in place of the session that has the same id, and queue it for a worker.

        The old session is forgotten, as by `Forgetting.forget_session`, and its bytes are erased.
        If there is none, the item is added. Both happen in one transaction: a crash leaves either
        the old session or the new one. The arguments are those of `add`.

        Returns:
            The id and the position of the item; `new` is False if the stored one is the same.

        Raises:
            ConflictError: Another session has a turn with the id of one of its turns; or the user
                was forgotten since the caller began, or the session was and there is none now.
            UserError: The item has no id or no turns, or something in it cannot be stored.
        """
        new_item = _check_item(item, digest, metadata)
        session_id = new_item.item.id
        if not session_id:
            raise UserError("the session has no id; give the id of the session that it replaces")

        is_replaced = False
        with self._locked_user(owner, forget_count) as user:
            stored = find_session(user.transaction, owner, session_id)
            is_same = stored.digest == new_item.digest
            if is_same and stored.position is not None:
                added = Added(id=session_id, position=stored.position, new=False)
            else:
                # A session that is there may have been replaced meanwhile: the last caller wins.
                if not stored.is_taken:
                    check_session_not_forgotten(
                        user.transaction, owner, session_id, user.forget_count
                    )
                is_replaced = delete_session_rows(user.transaction, owner, session_id)
                added = queue_item(user.transaction, owner, new_item, user.next_position)

        # Why also for the same item? An earlier call may have stored it and been killed before it
        # erased the bytes of the old session. Then this call is its repetition.
        if is_replaced or is_same:
            self._forgetting.erase()
        return added

    def list_all(self, owner: Owner) -> list[StoredItem]:
        """Return all raw items of a user, by position.

        Raises:
            StoreError: A row is damaged.
        """
        with self._database.read_transaction() as transaction:
            return select_items(transaction, owner)

    def turns(self, owner: Owner, turn_ids: Sequence[str]) -> dict[str, StoredTurn]:
        """Return turns by id, together with their items.

        Unknown ids are left out, and so are turns of open sessions, which are not items yet.

        Raises:
            StoreError: The row of an item is damaged.
        """
        with self._database.read_without_transaction() as transaction:
            rows = transaction.select_in_batches("select_items_of_turns", owner, turn_ids)

        turns: dict[str, StoredTurn] = {}
        wanted_ids = set(turn_ids)
        # Several batches of ids may have turns of one item.
        rows_by_position = {row.position: row for row in rows}
        for row in rows_by_position.values():
            item = read_row("items", owner, row, _parse_json)
            for turn in item.turns:
                if turn.id in wanted_ids:
                    turns[turn.id] = StoredTurn(turn, item)
        return turns

    @contextmanager
    def _locked_user(self, owner: Owner, forget_count: int | None) -> Generator[_LockedUser]:
        """Run a transaction that writes, with the row of a user locked; a new user gets a row.

        Args:
            owner: The user.
            forget_count: `Forgetting.count()` when the caller began; None for the count as it is
                now.

        Raises:
            ConflictError: The user was forgotten since the caller began.
        """
        if forget_count is None:
            forget_count = read_forget_count(self._database)
        with self._database.write_transaction() as transaction:
            next_position = lock_or_create_user(transaction, owner)
            check_not_forgotten(transaction, owner, forget_count)
            yield _LockedUser(transaction, next_position, forget_count)


class _LockedUser(NamedTuple):
    """A transaction in which the row of a user is locked."""

    transaction: Transaction
    next_position: int
    """The position that the user's next item gets."""
    forget_count: int
    """How often anybody had been forgotten in the store when the write began."""


class NewItem(NamedTuple):
    """An item that can be stored, with what is stored beside it."""

    item: Item
    """An item that `storable_item` has checked."""
    digest: str
    """Identifies the content: an item with the same id and digest is the same item."""
    metadata: Mapping[str, Scalar]


def _check_item(item: Item, digest: str | None, metadata: Mapping[str, Scalar] | None) -> NewItem:
    """Return a caller's item in the form in which it is stored; without a digest it gets one.

    Raises:
        UserError: The item has no turns, or something in it or its metadata cannot be stored.
    """
    item = storable_item(item)
    values = validate_metadata(metadata)
    return NewItem(item, digest or item_digest(item, values), values)


@dataclass(frozen=True)
class SessionState:
    """What is stored under the id of a session: an item, an open session, or nothing."""

    position: int | None
    """The position of the item; None if there is none."""
    digest: str | None
    """The digest of the item; None if there is none."""
    last_open_number: int | None
    """The number of the last turn of the open session; None if there is none."""

    @property
    def is_taken(self) -> bool:
        """Whether an item or an open session has this id."""
        return self.digest is not None or self.last_open_number is not None


def find_session(transaction: Transaction, owner: Owner, session_id: str) -> SessionState:
    """Return what is stored under the id of a session."""
    row = transaction.execute("find_session", owner, session=session_id).one()
    return SessionState(row.position, row.digest, row.last_open_number)


def queue_item(transaction: Transaction, owner: Owner, new_item: NewItem, position: int) -> Added:
    """Store an item as the last one in a user's queue.

    The user's row must be locked, and no session of the user may have the id of the item.

    Args:
        transaction: The transaction that stores the item.
        owner: The user who has the queue.
        new_item: The item; without an id it gets one.
        position: The user's next position, as `lock_or_create_user` returned it.

    Returns:
        The id and the position of the item.

    Raises:
        ConflictError: The id of one of its turns is taken.
    """
    item = new_item.item
    item_id = item.id or _free_id(transaction, owner, position)
    turns = with_turn_ids(item.turns, item_id)
    named_item = cast("AnyItem", item.model_copy(update={"id": item_id, "turns": turns}))

    stored = StoredItem(position, named_item, "queued", digest=new_item.digest)
    insert_item(transaction, owner, stored)
    write_metadata(transaction, owner, {item_id: new_item.metadata})
    return Added(id=item_id, position=position, new=True)


def insert_item(transaction: Transaction, owner: Owner, stored: StoredItem) -> None:
    """Store an item at its position, and reserve the ids of its turns for it.

    The user's row must be locked.

    Raises:
        ConflictError: The id of a turn is taken.
        UserError: A text cannot be stored.
    """
    reserve_turn_ids(transaction, owner, stored.item.turns, stored.position)
    transaction.execute(
        "insert_item",
        owner,
        position=stored.position,
        id=stored.item.id,
        digest=stored.digest,
        json=record_json(stored.item),
        state=stored.state,
        attempts=stored.attempts,
        error=stored.error,
    )
    # Imported items may leave positions out, so this is not always one more than before.
    next_position = stored.position + 1
    transaction.execute("raise_next_position", owner, next_position=next_position)


def select_items(transaction: Transaction, owner: Owner) -> list[StoredItem]:
    """Return all items of a user, by position.

    Raises:
        StoreError: A row is damaged.
    """
    rows = transaction.execute("select_items", owner)
    return [read_row("items", owner, row, parse_item) for row in rows]


def parse_item(row: Row[Any], item: AnyItem | None = None) -> StoredItem:
    """Return the stored item of a row of items.

    Args:
        row: A row with the columns of `StoredItem`, and the item as `json`.
        item: The item, if the caller has parsed it before.

    Raises:
        ValidationError: The row is damaged.
    """
    return _STORED_ITEM.validate_python(
        {
            "position": row.position,
            "item": item or _parse_json(row),
            "state": row.state,
            "attempts": row.attempts,
            "error": row.error,
            "digest": row.digest,
        }
    )


def _parse_json(row: Row[Any]) -> AnyItem:
    """Return the session, logs, ... that a row of items holds as JSON."""
    return _ITEM.validate_json(row.json)


def _free_id(transaction: Transaction, owner: Owner, position: int) -> str:
    """Return an id for an item that came without one: `D4` at position 4, or the next free one."""
    number = position
    while find_session(transaction, owner, f"D{number}").is_taken:
        number += 1
    return f"D{number}"
