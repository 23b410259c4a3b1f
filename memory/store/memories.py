"""Writes and resets the memories of users.

A memory is stored as a log: its whole text once, as change number 0, and then one row for every
commit, with what changed. So a commit writes little, however long the memory is. From time to time
the writer sends the whole text again (`Document.change` is None), and the log begins anew.
"""

from __future__ import annotations

import json
from uuid import uuid4

from .database import Database, Transaction
from .documents import Document, MemoryChange
from .owner import Owner
from .user_rows import lock_user, void_claim


class StoredMemories:
    """Drops memories, so that they are written anew.

    Args:
        database: Where the memories are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def reset(self, owner: Owner) -> None:
        """Drop the memory of a user and queue all of their raw items, in one transaction."""
        with self._database.write_transaction() as transaction:
            lock_user(transaction, owner)
            reset_memory(transaction, owner)


def reset_memory(transaction: Transaction, owner: Owner) -> None:
    """Drop the memory of a user, queue all items, and refuse what a worker wrote of them.

    The user's row must be locked. Vectors go with the memory: they may be of its texts.
    """
    transaction.execute("delete_memory", owner)
    transaction.execute("delete_changes", owner)
    transaction.execute("delete_vectors", owner)
    transaction.execute("queue_all_items", owner)
    void_claim(transaction, owner)


def write_document(transaction: Transaction, owner: Owner, document: Document) -> None:
    """Store a memory as the next row of its change log.

    If the document says what changed, that is the next row. If it holds the whole text, the log
    begins anew: the text becomes row 0, and all earlier rows go. The user's row must be locked.
    """
    change = document.change
    text_name = document.log.base
    change_number = document.log.count
    if change is None:
        transaction.execute("delete_changes", owner)
        change = MemoryChange(document.memory, document.finalized)
        change_number = 0
        # A new text gets a new name. A process that has the old text in its cache sees by the name
        # that the rows to come are no changes of the text it has.
        if not text_name:
            text_name = uuid4().hex

    transaction.execute(
        "upsert_memory",
        owner,
        base=text_name,
        position=document.position,
        finalized_position=document.finalized_position,
        speakers=json.dumps(document.speakers),
        writer=document.stamp.writer,
        program=document.stamp.program,
        embedder=document.stamp.embedder,
        schema=document.stamp.schema,
    )
    transaction.execute(
        "insert_change",
        owner,
        number=change_number,
        memory=change.memory,
        finalized=change.finalized,
    )
