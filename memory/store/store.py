"""The memory store: it keeps durably what users said, and the memories made of it.

    with Store("memories.sqlite") as store:
        ada = Owner("ada")
        store.items.add(ada, session)                        # on the disk, and queued for a worker
        (claim,) = store.queue.claim("worker-1", lease=60, stamp=stamp)
        ...                                                  # a program writes the memory
        store.queue.commit(claim, document, lease=0)         # memory and queue in one transaction
        store.read(ada).document                             # the memory
        store.forgetting.forget_user(ada)                    # with all bytes

What callers may rely on:

- **Atomic**: every method that changes what is stored of users does so in one transaction. Whoever
  is killed on the way leaves the store as it was before the call, or as it is after it.
- **Exactly once**: every item is in the memory of its user once, however often and wherever workers
  are killed; `queue` explains how.
- **Forgetting wins**: a write that began before its user was forgotten is refused; `forgetting`
  explains how.
- **Waiting**: writers take turns. If the database stays locked, for example by a process that is
  stopped, a writer raises a `StoreError` after `timeout` seconds; with an SQLite file it may wait
  half a minute before that. Nobody waits for a language model: no transaction is open while one
  works.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self
from uuid import uuid4

from ...records.shared_by_copies import SharedByCopies
from .amendments import AmendmentLog
from .answers import KeptAnswers
from .database import Database
from .document_rows import NO_LOG
from .documents import ChangeLog
from .forgetting import Forgetting
from .items import Items
from .memories import StoredMemories
from .open_sessions import OpenSessions
from .owner import Owner
from .queue import Queue
from .records import ParsedRows, Snapshot
from .session_metadata import SessionMetadata
from .snapshots import Snapshots
from .tenant_usage import TenantUsage
from .transfer import Transfer
from .users import Users
from .vectors import StoredVectors


class Store(SharedByCopies):
    """Raw items, queues and memories of many users in one database.

    Any number of threads and processes may use it at the same time.

    Args:
        url: The path of an SQLite file, or `postgresql://user:password@host/database`.
        timeout: Seconds to wait for a connection, or a lock of another program, before a
            `StoreError`.
        connect: Whether to connect now. If not, a store that cannot be reached fails its calls
            until it can.

    Raises:
        UserError: There is no such kind of store.
        StoreError: The store cannot be opened. This and every method may raise it, and nothing is
            half written then.
        MissingDependencyError: PostgreSQL's driver is not installed.

    Example:
        >>> from mempiler.memory.store.store import Store
        >>> from mempiler.memory.store.owner import Owner
        >>> from mempiler.records import Session, Turn
        >>> turn = Turn(id="D1:1", speaker="Ada", text="I moved to Lisbon.")
        >>> session = Session(id="D1", turns=(turn,))
        >>> with Store("memories.sqlite") as store:
        ...     first = store.items.add(Owner("ada"), session)
        ...     again = store.items.add(Owner("ada"), session)
        >>> (first.new, again.new)
        (True, False)
    """

    def __init__(self, url: str | Path, timeout: float = 30.0, connect: bool = True) -> None:
        self._database = Database(url, timeout, connect)
        self._snapshots = Snapshots(self._database)

        self.forgetting = Forgetting(self._database)
        self.items = Items(self._database, self.forgetting)
        self.open_sessions = OpenSessions(self._database)
        self.metadata = SessionMetadata(self._database)
        self.queue = Queue(self._database)
        self.memories = StoredMemories(self._database)
        self.amendments = AmendmentLog(self._database)
        self.answers = KeptAnswers(self._database)
        self.vectors = StoredVectors(self._database)
        self.users = Users(self._database)
        self.tenant_usage = TenantUsage(self._database)
        self.transfer = Transfer(self._database, self.forgetting)

    @property
    def url(self) -> str:
        """The address of the store, without a password."""
        return self._database.url

    @property
    def writable(self) -> bool:
        """Whether the store can be written: not if the rights to its file or folder forbid it."""
        return self._database.writable

    def read(
        self,
        owner: Owner,
        is_known: Callable[[str], bool] = lambda version: False,
        parsed: ParsedRows | None = None,
        known_log: ChangeLog = NO_LOG,
    ) -> Snapshot:
        """Return the memory of a user, and the items that are not in it yet, as they are now.

        `Snapshots.read` explains the arguments.
        """
        return self._snapshots.read(owner, is_known, parsed, known_log)

    def check(self) -> None:
        """Write a row without a meaning, to find out whether the store can be written.

        Reading alone would not show that the disk is full, for example.

        Raises:
            StoreError: The store cannot be written.
        """
        with self._database.write_transaction() as transaction:
            transaction.execute("write_check", value=uuid4().hex)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
