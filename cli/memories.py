"""`mempiler memories`: what is stored of which user; adding, moving and forgetting it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from ..errors import StoreError, UserError
from . import Renaming
from .entries import COMMANDS
from .options import ALL_TENANTS, JSON, OVERWRITE, STORE, TENANT, USER, WHOSE, adds, open_store
from .printing import as_json, output, report, table
from .rebuild import command as rebuild

if TYPE_CHECKING:
    from ..memory.entries import MemoryStatus

_ANYBODY = adds(STORE, USER, ALL_TENANTS)


@click.group("memories", cls=Renaming)
def command() -> None:
    """Stored memories: add sessions, write them, look into them, change, move and forget them."""


for _verb in (rebuild, *COMMANDS):
    command.add_command(_verb)


@command.command("add")
@click.argument("history", type=click.Path())
@STORE
@WHOSE
@TENANT
@JSON
def add(history: str, store: str | None, user: str, tenant: str) -> None:
    """Store the sessions of a HISTORY file (or chat messages) of a user, queued for `memories rebuild`.

    Sessions of chat messages are named after the file, so that the same file is stored once.
    """
    from ..memory.incoming import incoming
    from ..memory.stored import Owner

    owner = Owner(user, tenant)
    found = [incoming(*session) for session in _sessions(history)]
    with open_store(store, make=True) as opened:
        added = [opened.add(owner, item, digest) for item, digest in found]
    new = sum(one.new for one in added)
    report({"new": new, "known": len(added) - new})


@command.command("list")
@_ANYBODY
@JSON
def list_users(store: str | None, user: str | None, tenant: str | None) -> None:
    """List the users of a store."""
    with open_store(store) as opened:
        found = opened.users(tenant, user)
    heads = ("tenant", "user", "sessions", "queued", "partial", "failed", "open turns", "written by", "embedder")
    report([_status(one) for one in found], [table(heads, map(_cells, found), f"{len(found)} users")])


@command.command("export")
@click.argument("path", type=click.Path())
@OVERWRITE
@_ANYBODY
def export(path: str, overwrite: bool, store: str | None, user: str | None, tenant: str | None) -> None:
    """Write users as JSON lines to the file PATH, or to standard output if it is `-`."""
    from ..memory.transfer import MARK, export_users
    from ..records.whole_file import refuse_foreign, replacing

    if path != "-":
        refuse_foreign(Path(path), MARK, force=overwrite)
    # What users said is for nobody else's eyes, whatever the umask.
    target = nullcontext(sys.stdout) if path == "-" else replacing(Path(path), 0o600)
    with open_store(store) as opened, target as file:
        count = export_users(opened, file, tenant, user)
    output(errors=True).print(f"{count} users")


@command.command("import")
@click.argument("path", type=click.File(encoding="utf-8-sig"))
@STORE
@click.option("--replace", is_flag=True, help="forget users who are there already first")
@JSON
def import_file(path: TextIO, store: str | None, replace: bool) -> None:
    """Read users from the JSON lines of the file PATH, or from standard input if it is `-`."""
    from ..memory.transfer import import_users

    with open_store(store, make=True) as opened:
        count = import_users(opened, path, path.name, replace)
    report({"users": count})


@command.command("forget")
@STORE
@WHOSE
@TENANT
@click.option("--session", help="only this session [default: everything of the user]")
@JSON
def forget(store: str | None, user: str, tenant: str, session: str | None) -> None:
    """Delete a user, or one session of theirs; the other sessions are then queued to be remembered anew.

    Exit code 4 says that everything is deleted, and something still holds the bytes: which, and what to do.
    """
    from ..memory.stored import Owner

    owner = Owner(user, tenant)
    with open_store(store) as opened:
        found = opened.forget(owner) if session is None else opened.forget_item(owner, session)
        what = f"user {user!r}" if session is None else f"session {session!r} of user {user!r}"
        if not found:
            raise UserError(f"no {what} in {opened.url}; nothing was deleted")
        queued = sum(one.queued for one in opened.users(owner.tenant, owner.user))
    counts = {"forgotten": 1, "sessions": found.sessions, "turns": found.turns, "queued anew": queued}
    report(counts | ({"erased": found.erased, "held by": found.held_by} if as_json() else {}))
    if found.erased is False:
        raise StoreError(f"{what} is forgotten, and the bytes are not gone yet: {found.held_by}")
    if found.held_by:
        output(errors=True).print(f"of the bytes: {found.held_by}")


def _sessions(path: str) -> list[tuple[Any, str | None]]:
    from ..records import History, read_json

    raw = read_json(path)
    if not isinstance(raw, list):
        return [(item, None) for item in History.parse(raw, Path(path).stem)]
    parts = raw if raw and all(isinstance(part, list) for part in raw) else [raw]
    return [(part, f"{Path(path).stem}-{n}") for n, part in enumerate(parts, 1)]


def _status(found: MemoryStatus) -> dict[str, Any]:
    stamp = vars(found.stamp) if found.stamp else None
    return {"tenant": found.tenant, **found.model_dump(), "written_by": stamp}


def _cells(found: MemoryStatus) -> tuple[str, ...]:
    sizes = map(str, (found.sessions, found.queued, found.partial, found.failed, found.open_turns))
    who = (found.stamp.writer[:8], found.stamp.embedder or "-") if found.stamp else ("-", "-")
    return (found.owner.tenant, found.owner.user, *sizes, *who)
