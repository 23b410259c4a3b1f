"""`mempiler memories`: what is stored of which user; adding, moving and forgetting it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from ..errors import DataError, StoreError, UserError
from .entries import COMMANDS
from .options import ALL_TENANTS, JSON, OVERWRITE, STORE, TENANT, USER, WHOSE, open_store
from .printing import output, print_json, report, table, writing
from .rebuild import command as rebuild

if TYPE_CHECKING:
    from ..memory.entries import MemoryStatus


OLD = {
    "delete": "edit PROGRAM ENTRY --delete",
    "entries": "search PROGRAM",
    "get": "show --program PROGRAM --entry ENTRY",
    "history": "show --program PROGRAM --entry ENTRY",
    "remember": "rebuild PROGRAM --queued",
    "undo": "edit PROGRAM ENTRY --undo",
    "update": "edit PROGRAM ENTRY --text TEXT",
    "view": "show --user USER",
}
"""Verbs of before, and what does it now."""


class _Verbs(click.Group):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in OLD:
            raise UserError(f"mempiler memories {cmd_name} is now: mempiler memories {OLD[cmd_name]}")
        return super().get_command(ctx, cmd_name)


@click.group("memories", cls=_Verbs)
def command() -> None:
    """Stored memories: add sessions, write them, look into them, change, move and forget them."""


for _verb in (rebuild, *COMMANDS):
    command.add_command(_verb)


@command.command("add")
@click.argument("history", type=click.Path())
@STORE
@USER
@TENANT
@JSON
def add(history: str, store: str | None, user: str | None, tenant: str, as_json: bool) -> None:
    """Store the sessions of a HISTORY file (or chat messages) of a user, queued for `memories rebuild`.

    Sessions of chat messages are named after the file, so that the same file is stored once. A file of JSON lines holds
    sessions of many users, each an object of `user`, `id`, `messages` and perhaps `metadata`.
    """
    from ..memory.incoming import incoming
    from ..memory.stored import Owner

    if history.endswith(".jsonl") and user is None:
        _add_lines(history, store, tenant, as_json)
        return
    if user is None:
        raise UserError("give --user, whose sessions these are; only lines of a .jsonl file name their own users")
    owner = Owner(user, tenant)
    found = [incoming(*session) for session in _sessions(history)]
    with open_store(store, make=True) as opened:
        added = [opened.add(owner, item, digest) for item, digest in found]
    new = sum(one.new for one in added)
    report(as_json, {"new": new, "known": len(added) - new})


@command.command("list")
@STORE
@USER
@ALL_TENANTS
@JSON
def list_users(store: str | None, user: str | None, tenant: str | None, as_json: bool) -> None:
    """List the users of a store."""
    with open_store(store) as opened:
        found = opened.users(tenant, user)
    if as_json:
        print_json([_status(one) for one in found])
        return
    rows = list[Sequence[str]]()
    for one in found:
        sizes = map(str, (one.sessions, one.queued, one.partial, one.failed, one.open_turns))
        who = (one.stamp.writer[:8], one.stamp.embedder or "-") if one.stamp else ("-", "-")
        rows.append((one.owner.tenant, one.owner.user, *sizes, *who))
    heads = ("tenant", "user", "sessions", "queued", "partial", "failed", "open turns", "written by", "embedder")
    output().print(table(heads, rows, f"{len(found)} users"))


@command.command("export")
@click.argument("path", type=click.Path())
@OVERWRITE
@STORE
@USER
@ALL_TENANTS
def export(path: str, overwrite: bool, store: str | None, user: str | None, tenant: str | None) -> None:
    """Write users as JSON lines to the file PATH, or to standard output if it is `-`."""
    from ..memory.transfer import MARK, export_users

    with open_store(store) as opened, writing(path, MARK, overwrite) as file:
        count = export_users(opened, file, tenant, user)
    output(errors=True).print(f"{count} users", soft_wrap=True)


@command.command("import")
@click.argument("path", type=click.File(encoding="utf-8-sig"))
@STORE
@click.option("--replace", is_flag=True, help="forget users who are there already first")
@JSON
def import_file(path: TextIO, store: str | None, replace: bool, as_json: bool) -> None:
    """Read users from the JSON lines of the file PATH, or from standard input if it is `-`."""
    from ..memory.transfer import import_users

    with open_store(store, make=True) as opened:
        count = import_users(opened, path, path.name, replace)
    report(as_json, {"users": count})


@command.command("forget")
@STORE
@WHOSE
@TENANT
@click.option("--session", help="only this session [default: everything of the user]")
@JSON
def forget(store: str | None, user: str, tenant: str, session: str | None, as_json: bool) -> None:
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
    report(as_json, counts | ({"erased": found.erased, "held by": found.held_by} if as_json else {}))
    if found.erased is False:
        raise StoreError(f"{what} is forgotten, and the bytes are not gone yet: {found.held_by}")
    if found.held_by:
        output(errors=True).print(f"of the bytes: {found.held_by}", soft_wrap=True)


def _add_lines(path: str, store: str | None, tenant: str, as_json: bool) -> None:
    from ..serving.importing import import_lines

    try:
        with Path(path).open("rb") as file, open_store(store, make=True) as opened:
            found = import_lines(opened, tenant, file)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    for line, reason in found.refused.items():
        output(errors=True).print(f"{path}: line {line}: {reason}", soft_wrap=True, markup=False)
    report(as_json, {"new": found.stored, "known": found.known, "refused": len(found.refused)})
    if found.refused:
        raise DataError(f"{path}: {len(found.refused)} lines were refused, all others are stored")


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
