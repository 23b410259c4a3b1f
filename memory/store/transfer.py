"""Moving users between stores: everything of a user is read at one moment, and stored anew.

Export files hold what `dump` returns, one user a line. `serving/memories/transfer.py` reads and
writes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...errors import ConflictError
from .amendments import insert_amendments, read_amendments
from .answers import insert_answers, read_answers, read_feedback, write_feedback
from .database import Database, Transaction
from .document_rows import check_text, read_document, read_head
from .documents import ChangeLog
from .forget_log import check_not_forgotten, record_forgotten, user_key
from .forgetting import Forgetting, delete_user_rows
from .items import insert_item, select_items
from .memories import write_document
from .owner import Owner
from .records import UserDump
from .session_metadata import read_metadata, write_metadata
from .turns import insert_open_turns, read_open_sessions
from .user_rows import lock_or_create_user, lock_user, void_claim


class Transfer:
    """Dumps users of a store, and restores them in another one.

    Args:
        database: Where the users are stored.
        forgetting: Erases the bytes of users who are replaced.
    """

    def __init__(self, database: Database, forgetting: Forgetting) -> None:
        self._database = database
        self._forgetting = forgetting

    def dump(self, owner: Owner) -> UserDump:
        """Return everything that is stored of a user, for an export; read in one transaction.

        Raises:
            StoreError: A row is damaged.
        """
        with self._database.read_transaction() as transaction:
            items = select_items(transaction, owner)
            open_sessions = read_open_sessions(transaction, owner)
            metadata = read_metadata(transaction, owner)
            amendments = read_amendments(transaction, owner)
            answers = read_answers(transaction, owner)
            feedback = read_feedback(transaction, owner)
            head = read_head(transaction, owner)
            document = read_document(transaction, owner, head)

        if document is not None:
            check_text(document, owner)
        # Metadata are stored by the id of their session, which may have ended (an item) or not.
        item_metadata = {
            stored.position: metadata[stored.item.id]
            for stored in items
            if stored.item.id in metadata
        }
        open_metadata = {
            session.id: metadata[session.id] for session in open_sessions if session.id in metadata
        }
        return UserDump(
            owner=owner,
            items=tuple(items),
            open=tuple(open_sessions),
            document=document,
            amendments=tuple(amendments),
            metadata=item_metadata,
            open_metadata=open_metadata,
            answers=tuple(answers),
            feedback=tuple(feedback),
        )

    def restore(self, users: Iterable[UserDump], replace_existing: bool = False) -> int:
        """Store users that `dump` returned, all in one transaction.

        If an error occurs, also while the caller's `users` are iterated, nothing is stored at all.

        Args:
            users: What to store, one dump for each user.
            replace_existing: Whether a user who is in this store already is deleted first.

        Returns:
            The number of users that were stored.

        Raises:
            ConflictError: A user is in this store already, and is not to be replaced.
            UserError: Something of a user cannot be stored.
        """
        restored = 0
        replaced: list[Owner] = []
        forget_count = self._forgetting.count()
        with self._database.write_transaction() as transaction:
            for dump in users:
                owner = dump.owner
                is_stored = lock_user(transaction, owner) is not None
                if is_stored and not replace_existing:
                    raise ConflictError(
                        f"user {owner.user!r} is in {self._database.url} already; "
                        "give --replace, or forget them"
                    )
                if is_stored:
                    delete_user_rows(transaction, owner)
                    replaced.append(owner)
                _insert_user(transaction, dump, forget_count)
                restored += 1

            # A replaced user counts as forgotten, so that writes from before are refused. This is
            # logged last: otherwise `_insert_user` above would refuse the user as well.
            for owner in replaced:
                record_forgotten(transaction, [user_key(owner)])

        # Remove the bytes of deleted rows from the file.
        if replaced:
            self._forgetting.erase()
        return restored


def _insert_user(transaction: Transaction, dump: UserDump, forget_count: int) -> None:
    """Store everything of a user who has no rows yet.

    Args:
        transaction: The transaction that restores.
        dump: What to store.
        forget_count: How often anybody had been forgotten in this store when restoring began.

    Raises:
        ConflictError: The user was forgotten since.
        UserError: Something of the user cannot be stored.
    """
    owner = dump.owner
    lock_or_create_user(transaction, owner)
    # In PostgreSQL another process may have created the user a moment ago, and a worker may have
    # claimed the user since. What it commits must not take the place of the restored memory.
    void_claim(transaction, owner)
    check_not_forgotten(transaction, owner, forget_count)

    metadata = dict(dump.open_metadata)
    for stored in dump.items:
        insert_item(transaction, owner, stored)
        metadata[stored.item.id] = dump.metadata.get(stored.position, {})
    for session in dump.open:
        insert_open_turns(transaction, owner, session.id, session.turns, last_number=0)
    write_metadata(transaction, owner, metadata)

    if dump.document is not None:
        # The text gets a new name: caches may hold another text by the name in the dump.
        renamed_document = replace(dump.document, log=ChangeLog())
        write_document(transaction, owner, renamed_document)
    insert_amendments(transaction, owner, dump.amendments)
    insert_answers(transaction, owner, dump.answers)
    write_feedback(transaction, owner, dump.feedback)
