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
   is told so. Another item under that id is refused.
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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import TypeAdapter
from sqlalchemy import Row

from ...errors import ConflictError, UserError
from ...records import AnyItem, Item
from ..incoming_items import item_digest, record_json, storable_item
from ..metadata import Scalar, validate_metadata
from ..results import Added
from .database import Database, Transaction, read_row
from .forget_log import check_not_forgotten, read_forget_count
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
                user was forgotten since. By default the count as it is now.
            metadata: A few plain values by name, by which searches can choose.

        Returns:
            The id and the position of the item; `new` is False if it had been added before.

        Raises:
            ConflictError: Another item of the user has this id, or another turn an id of its turns;
                or the user was forgotten since the caller began.
            UserError: The item has no turns, or something in it cannot be stored.
        """
        item = storable_item(item)
        values = {} if metadata is None else validate_metadata(metadata)
        if forget_count is None:
            forget_count = read_forget_count(self._database)
        if not digest:
            digest = item_digest(item, values)

        with self._database.write_transaction() as transaction:
            position = lock_or_create_user(transaction, owner)
            check_not_forgotten(transaction, owner, forget_count)
            return queue_item(transaction, owner, item, position, digest, values)

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
                was forgotten since the caller began.
            UserError: The item has no id or no turns, or something in it cannot be stored.
        """
        item = storable_item(item)
        if not item.id:
            raise UserError("the session has no id; give the id of the session that it replaces")

        values = {} if metadata is None else validate_metadata(metadata)
        if forget_count is None:
            forget_count = read_forget_count(self._database)
        if not digest:
            digest = item_digest(item, values)

        with self._database.write_transaction() as transaction:
            position = lock_or_create_user(transaction, owner)
            check_not_forgotten(transaction, owner, forget_count)
            stored = find_session(transaction, owner, item.id)
            # Nothing changes if the stored item is the same: `queue_item` leaves it alone.
            is_same = stored.digest == digest
            is_replaced = False
            if not is_same:
                is_replaced = delete_session_rows(transaction, owner, item.id)
            added = queue_item(transaction, owner, item, position, digest, values)

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
        with self._database.single_read() as transaction:
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


def queue_item(
    transaction: Transaction,
    owner: Owner,
    item: Item,
    position: int,
    digest: str,
    metadata: Mapping[str, Scalar],
) -> Added:
    """Store an item as the last one in a user's queue, unless the same item is stored already.

    The user's row must be locked.

    Args:
        transaction: The transaction that stores the item.
        owner: The user who has the queue.
        item: An item that `storable_item` has checked.
        position: The user's next position, as `lock_or_create_user` returned it.
        digest: Identifies the content: an item with the same id and digest is the same item.
        metadata: Stored beside the item unless empty.

    Returns:
        The id and the position of the item; `new` is False if it was stored before.

    Raises:
        ConflictError: The id of the item, or of one of its turns, is taken.
    """
    if item.id:
        stored = find_session(transaction, owner, item.id)
        if stored.position is not None and stored.digest == digest:
            return Added(id=item.id, position=stored.position, new=False)
        if stored.is_taken:
            raise ConflictError(
                f"session {item.id!r} of user {owner.user!r} is stored with other content; "
                "give the new one an id of its own, or forget the old one first"
            )

    item_id = item.id or _free_id(transaction, owner, position)
    turns = with_turn_ids(item.turns, item_id)
    named_item = cast("AnyItem", item.model_copy(update={"id": item_id, "turns": turns}))

    insert_item(transaction, owner, StoredItem(position, named_item, "queued", digest=digest))
    write_metadata(transaction, owner, {item_id: metadata})
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
