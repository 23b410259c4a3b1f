"""`mempiler memories`: add, list, search, edit, move and forget stored memories.

Only `rebuild` asks a language model.
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from ..errors import StoreError, UserError
from ..runs.console import Output, escape_control_characters, table
from . import options
from .memories_entries import edit, search, show
from .memories_rebuild import rebuild
from .options import open_store
from .printing import print_counts, print_result, prints_json

if TYPE_CHECKING:
    from ..memory.incoming_items import IncomingItem
    from ..memory.results import MemoryStatus, Receipt
    from ..records.json_input import JsonValue

_user_choice = options.adds(options.STORE, options.USER, options.ALL_TENANTS)
"""Adds the options that choose a store, and perhaps one user or one tenant in it."""


@click.group("memories")
def command() -> None:
    """Add sessions to stored memories, write them, look into them, change, move and forget them."""


command.add_command(rebuild)
command.add_command(search)
command.add_command(show)
command.add_command(edit)


@command.command("add")
@click.argument("history", type=click.Path())
@options.STORE
@options.WHOSE
@options.TENANT
@options.JSON
def add(history: str, store: str | None, user: str, tenant: str) -> None:
    """Store the sessions or chat messages of a HISTORY file.

    They are queued for `memories rebuild`. Messages become one session with the name of the file;
    a session that is stored already is not stored again.
    """
    from ..memory.store.owner import Owner
    from ..records import read_json

    owner = Owner(user, tenant)
    incoming_items = _read_items(read_json(history), Path(history).stem)

    new_count = 0
    known_count = 0
    with open_store(store, make=True) as opened_store:
        for incoming in incoming_items:
            added = opened_store.items.add(owner, incoming.item, incoming.digest)
            if added.new:
                new_count += 1
            else:
                known_count += 1
    print_counts({"new": new_count, "known": known_count})


def _read_items(content: JsonValue, name: str) -> list[IncomingItem]:
    """Return the items of a history file.

    Args:
        content: The JSON value of the file: messages, lists of messages, or a history.
        name: The name of the file; sessions of messages are numbered after it.
    """
    from ..memory.incoming_items import read_incoming_item
    from ..records import History

    if not isinstance(content, list):
        history = History.parse(content, name)
        return [read_incoming_item(item) for item in history]

    has_sessions = bool(content) and all(isinstance(part, list) for part in content)
    sessions: list[Any] = content if has_sessions else [content]
    items: list[IncomingItem] = []
    for number, messages in enumerate(sessions, start=1):
        items.append(read_incoming_item(messages, f"{name}-{number}"))
    return items


@command.command("list")
@_user_choice
@options.JSON
def list_users(store: str | None, user: str | None, tenant: str | None) -> None:
    """List the users of a store."""
    with open_store(store) as opened_store:
        statuses: list[MemoryStatus] = opened_store.users.list_all(tenant, user)

    users: list[dict[str, Any]] = []
    for status in statuses:
        # `model_dump` leaves out the tenant and the stamp, which the HTTP service does not show.
        stamp = asdict(status.stamp) if status.stamp else None
        users.append({"tenant": status.tenant, **status.model_dump(), "written_by": stamp})

    heads = (
        "tenant",
        "user",
        "sessions",
        "queued",
        "partial",
        "failed",
        "open turns",
        "written by",
        "embedder",
    )
    rows = [_user_row(status) for status in statuses]
    print_result(users, [table(heads, rows, f"{len(statuses)} users")])


def _user_row(status: MemoryStatus) -> tuple[str, ...]:
    writer = "-"
    embedder = "-"
    if status.stamp:
        writer = status.stamp.writer[:8]
        embedder = status.stamp.embedder or "-"
    return (
        status.owner.tenant,
        status.owner.user,
        str(status.sessions),
        str(status.queued),
        str(status.partial),
        str(status.failed),
        str(status.open_turns),
        writer,
        embedder,
    )


@command.command("export")
@click.argument("path", type=click.Path())
@options.OVERWRITE
@_user_choice
def export(
    path: str, overwrite: bool, store: str | None, user: str | None, tenant: str | None
) -> None:
    """Write users as JSON lines to PATH (- is standard output)."""
    from ..records.atomic_file import atomic_write
    from ..runs.results_folder import refuse_foreign_file
    from ..serving.memories.transfer import MARK, export_users

    target: AbstractContextManager[TextIO]
    if path == "-":
        target = _EscapedOutput()
    else:
        refuse_foreign_file(Path(path), MARK, force=overwrite)
        # Only the owner of the file may read what users said, whatever the umask is.
        target = atomic_write(Path(path), 0o600)

    with open_store(store) as opened_store, target as file:
        user_count = export_users(opened_store, file, tenant, user)
    Output(stderr=True).print(f"{user_count} users")


class _EscapedOutput(io.StringIO):
    """A text file that is standard output; characters that steer a terminal are escaped."""

    def write(self, text: str, /) -> int:
        click.echo(escape_control_characters(text), nl=False)
        return len(text)


@command.command("import")
@click.argument("path", type=click.File(encoding="utf-8-sig"))
@options.STORE
@click.option("--replace", is_flag=True, help="forget users who are there already first")
@options.JSON
def import_file(path: TextIO, store: str | None, replace: bool) -> None:
    """Read users from the JSON lines of PATH (- is standard input)."""
    from ..serving.memories.transfer import import_users

    with open_store(store, make=True) as opened_store:
        user_count = import_users(opened_store, path, path.name, replace)
    print_counts({"users": user_count})


@command.command("forget")
@options.STORE
@options.WHOSE
@options.TENANT
@click.option("--session", help="only this session [default: everything of the user]")
@options.JSON
def forget(store: str | None, user: str, tenant: str, session: str | None) -> None:
    """Delete a user, or one session of theirs.

    After one session was deleted, the user's other sessions are queued, so that `memories rebuild`
    writes a memory without it. Exit code 4: everything is deleted, but its bytes are still in the
    file of the database, where an expert could read them. The message says what to do.
    """
    from ..memory.store.owner import Owner

    owner = Owner(user, tenant)
    with open_store(store) as opened_store:
        receipt: Receipt
        if session is None:
            title = f"user {user!r}"
            receipt = opened_store.forgetting.forget_user(owner)
        else:
            title = f"session {session!r} of user {user!r}"
            receipt = opened_store.forgetting.forget_session(owner, session)
        if not receipt.known:
            raise UserError(f"no {title} in {opened_store.url}; nothing was deleted")
        statuses = opened_store.users.list_all(owner.tenant, owner.user)

    counts: dict[str, object] = {
        "forgotten": 1,
        "sessions": receipt.sessions,
        "turns": receipt.turns,
        "queued anew": sum(status.queued for status in statuses),
    }
    if prints_json():
        counts["erased"] = receipt.erased
        counts["held by"] = receipt.held_by
    print_counts(counts)

    _report_erasure(receipt, title)


def _report_erasure(receipt: Receipt, title: str) -> None:
    """Warn the user if deleted texts can still be found among the bytes of the database's files.

    Args:
        receipt: What was deleted, and whether its bytes were erased.
        title: What was deleted, in words, e.g. "user 'ann'".

    Raises:
        StoreError: The bytes were not erased.
    """
    reason = receipt.held_by
    if receipt.erased is True:
        return
    if receipt.erased is False:
        raise StoreError(f"{title} is forgotten, and the bytes are not gone yet: {reason}")

    # `erased` is None: the server of the database decides when it overwrites the bytes.
    Output(stderr=True).print(f"the bytes may still be there: {reason}")
