"""`mempiler memories rebuild`: write memories that are queued or out of date."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Literal, Unpack

import click

from ..errors import UserError
from . import options
from .option_values import AskingOptions
from .printing import print_counts, prints_json
from .stored_users import find_owners

if TYPE_CHECKING:
    from ..memory.results import MemoryStatus
    from ..memory.store.owner import Owner
    from ..memory.store.store import Store
    from ..serving.memories.memories import Memories
    from ..serving.memories.queue_writer import WriteCounts

Selection = Literal["outdated", "queued", "failed"]
"""Which sessions of a user are written.

"outdated": all of them if another program wrote the memory, or else those that are queued.
"queued": those that are queued. "failed": those that could not be written before.
"""


@click.command("rebuild")
@click.argument("program", type=click.Path())
@options.STORE
@options.USER
@options.ALL_TENANTS
@click.option(
    "--queued",
    is_flag=True,
    help="only what is queued; memories that another program wrote are left alone",
)
@click.option(
    "--failed",
    is_flag=True,
    help="only sessions, and parts of sessions, that could not be written before",
)
@click.option("--force", is_flag=True, help="also memories that this very program wrote")
@options.JSON
@options.asking_options
def rebuild(
    program: str,
    store: str | None,
    user: str | None,
    tenant: str | None,
    queued: bool,
    failed: bool,
    force: bool,
    **asking: Unpack[AskingOptions],
) -> None:
    """Write memories with PROGRAM: sessions that are queued, and memories that are out of date.

    A memory is out of date if another program or embedder wrote it. The command works on all
    tenants and users, unless one is named. Turns that could not be written before are tried once
    more. If the command is stopped, the same command without --force continues.
    """
    from ..engines.model_checks import endpoint_errors
    from ..programs.threads import gather
    from ..serving.memories.memories import Memories
    from ..serving.memories.queue_writer import WriteCounts

    if queued + failed + force > 1:
        raise UserError("--queued, --failed and --force each say what is written; give one of them")
    selection: Selection = "outdated"
    if queued:
        selection = "queued"
    elif failed:
        selection = "failed"

    memory_program, _, lm = options.open_program_and_model(program, asking)
    with options.open_store(store) as opened_store:
        owners = find_owners(opened_store, tenant, user)
        if force:
            for owner in owners:
                opened_store.memories.reset(owner)
        if queued and user is None:
            owners = _owners_with_queue(opened_store, tenant)

        memories = Memories(memory_program, opened_store, lm)
        rebuilder = _Rebuilder(memories, selection, is_user_named=user is not None)
        with endpoint_errors():
            counts_by_user = gather([partial(rebuilder.write_user, owner) for owner in owners])
        statuses = opened_store.users.list_all(tenant, user)

    total = sum(counts_by_user, WriteCounts())
    _print_summary(total, statuses, memories)


def _owners_with_queue(store: Store, tenant: str | None) -> list[Owner]:
    """Return the users who have sessions, or parts of sessions, that are not written yet."""
    statuses = store.users.list_all(tenant)
    return [status.owner for status in statuses if status.queued or status.partial]


class _Rebuilder:
    """Writes the memories of users in several threads.

    After an error no thread begins another session.

    Args:
        memories: The program that writes, its language model, and the store.
        selection: Which sessions of each user are written.
        is_user_named: Whether the command has `--user`.
    """

    def __init__(self, memories: Memories, selection: Selection, is_user_named: bool) -> None:
        self._memories = memories
        self._selection = selection
        self._is_user_named = is_user_named
        self._is_stopped = threading.Event()

    def write_user(self, owner: Owner) -> WriteCounts:
        """Write the memory of a user; do nothing if there was an error with another user."""
        from ..serving.memories.queue_writer import WriteCounts

        if self._is_stopped.is_set():
            return WriteCounts()
        try:
            return self._write_selected_sessions(owner)
        except BaseException:
            self._is_stopped.set()
            raise

    def _write_selected_sessions(self, owner: Owner) -> WriteCounts:
        """Write the sessions of a user that the command is to write.

        These are the queued ones with `--queued`, and those that failed before with `--failed`.
        Without such an option, the whole memory is written anew if another program wrote it.
        """
        from ..serving.memories.user_memory import UserMemory

        if self._selection == "queued":
            return self._write_queue(owner)

        memory = UserMemory(self._memories, owner, stop=self._is_stopped.is_set)
        if self._selection == "failed":
            return memory.retry()
        # If this program wrote the memory, `rebuild` writes only the sessions that are queued.
        return memory.rebuild()

    def _write_queue(self, owner: Owner) -> WriteCounts:
        """Write the queued sessions of a user.

        Raises:
            ProgramError: Another program wrote the memory of this user, whom the command names. A
                command for all users skips such users instead.
        """
        from ..serving.memories.queue_writer import WriteCounts
        from ..serving.memories.writing import write_user_queue
        from ..serving.settings import LEASE

        # For a named user, `write_user_queue` raises an error that says how to repair the memory.
        if not self._is_user_named and _is_of_other_program(self._memories, owner):
            return WriteCounts()
        return write_user_queue(
            self._memories,
            owner,
            lease=LEASE,
            stop=self._is_stopped.is_set,
            # Turns that could not be written before are tried once more.
            retry=True,
        )


def _is_of_other_program(memories: Memories, owner: Owner) -> bool:
    """Return whether the memory of a user was written by a program that writes differently."""
    stamp = memories.store.memories.stamp(owner)
    return stamp is not None and not stamp.writes_like(memories.writer_fingerprint)


def _print_summary(total: WriteCounts, statuses: list[MemoryStatus], memories: Memories) -> None:
    """Print how much was written, and how much is left to write.

    Args:
        total: What was written.
        statuses: The users of the command, after it.
        memories: Knows which program wrote.
    """
    other_program_count = 0
    for status in statuses:
        stamp = status.stamp
        if stamp is not None and not stamp.writes_like(memories.writer_fingerprint):
            other_program_count += 1

    counts = {
        "users": len(statuses),
        "sessions": total.items,
        "failures": len(total.failures),
    }
    remaining_counts = {
        "still queued": sum(status.queued for status in statuses),
        "partial": sum(status.partial for status in statuses),
        "users of another program": other_program_count,
    }
    for name, count in remaining_counts.items():
        # Text for people leaves out counts of 0. JSON always has the same keys.
        if count or prints_json():
            counts[name] = count
    print_counts(counts)
