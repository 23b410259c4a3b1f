"""Writes and resets the memories of users.

A memory is stored as a log: its whole text once, as change number 0, and then one row for every
commit, with what changed. So a commit writes little, however long the memory is. From time to time
the writer sends the whole text again (`Document.change` is None), and the log begins anew.
"""

from __future__ import annotations

import json
from uuid import uuid4

from .database import Database, Transaction
from .document_rows import read_head
from .documents import Document, MemoryChange, Stamp
from .owner import Owner
from .user_rows import lock_user, void_claim


class StoredMemories:
    """Tells what wrote the memories, and drops memories so that they are written anew.

    Args:
        database: Where the memories are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def stamp(self, owner: Owner) -> Stamp | None:
        """Return which program and embedder wrote the memory of a user; None if there is none."""
        with self._database.read_without_transaction() as transaction:
            return read_head(transaction, owner).stamp

    def reset(self, owner: Owner) -> None:
        """Drop the memory of a user and queue all of their raw items, in one transaction."""
        with self._database.write_transaction() as transaction:
            lock_user(transaction, owner)
            reset_memory(transaction, owner)


def reset_memory(transaction: Transaction, owner: Owner) -> None:
    """Delete the memory of a user and queue all items, so that workers write it anew.

    A worker that is writing the memory at this moment cannot store it any more. The user's row must
    be locked.
    """
    transaction.execute("delete_memory", owner)
    transaction.execute("delete_changes", owner)
    # Some of the vectors may belong to texts of the memory.
    transaction.execute("delete_vectors", owner)
    transaction.execute("queue_all_items", owner)
    void_claim(transaction, owner)


def write_document(transaction: Transaction, owner: Owner, document: Document) -> None:
    """Store a memory, either what changed in it or its whole text.

    A memory is stored as a log. Row 0 is its whole text, and every further row is what one commit
    changed. A document with a `change` adds one row. A document without holds the whole text: all
    rows are deleted, and the text becomes the new row 0. The user's row must be locked.
    """
    text_name = document.log.text_name
    if document.change is not None:
        row = document.change
        # The log of the document counts this change already.
        row_number = document.log.change_count
    else:
        transaction.execute("delete_changes", owner)
        # Row 0 holds two whole texts: the memory, and the finalized memory that answers questions.
        row = MemoryChange(document.memory, document.finalized)
        row_number = 0
        # Every text has a name, by which caches see whether later rows are changes of the text that
        # they hold. Writers usually choose the name; without one the text is named here.
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
        number=row_number,
        memory=row.memory,
        finalized=row.finalized,
    )
