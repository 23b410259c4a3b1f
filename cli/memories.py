"""`mempiler memories`: adds, lists, searches, edits, moves and forgets stored memories.

Only `rebuild` asks a language model.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TextIO

import click

from ..errors import StoreError, UserError
from ..validation import validation_message
from . import options
from .options import open_store
from .printing import Output, as_json, escape_control_characters, report, table

if TYPE_CHECKING:
    from ..serving.writing import WriteCounts

_ANYBODY = options.adds(options.STORE, options.USER, options.ALL_TENANTS)
_ENTRIES = options.adds(options.STORE, options.WHOSE, options.TENANT, options.JSON, options.reading_options)


@click.group("memories")
def command() -> None:
    """Stored memories: add sessions, write them, look into them, change, move and forget them."""


@command.command("add")
@click.argument("history", type=click.Path())
@options.STORE
@options.WHOSE
@options.TENANT
@options.JSON
def add(history: str, store: str | None, user: str, tenant: str) -> None:
    """Store the sessions or chat messages of a HISTORY file.

    They are queued for `memories rebuild`; messages are a session named after the file, so that it is stored once.
    """
    from ..memory.incoming_items import read_incoming_item
    from ..memory.store.owner import Owner
    from ..records import History, read_json

    owner, raw, name = Owner(user, tenant), read_json(history), Path(history).stem
    if isinstance(raw, list):
        parts = raw if raw and all(isinstance(part, list) for part in raw) else [raw]
        found = [read_incoming_item(part, f"{name}-{n}") for n, part in enumerate(parts, 1)]
    else:
        found = [read_incoming_item(item, None) for item in History.parse(raw, name)]
    with open_store(store, make=True) as opened:
        added = [opened.items.add(owner, item, digest) for item, digest in found]
    new = sum(one.new for one in added)
    report({"new": new, "known": len(added) - new})


@command.command("list")
@_ANYBODY
@options.JSON
def list_users(store: str | None, user: str | None, tenant: str | None) -> None:
    """List the users of a store."""
    with open_store(store) as opened:
        found = opened.users.list_all(tenant, user)
    told, rows = list[dict[str, Any]](), list[tuple[str, ...]]()
    for one in found:
        sizes = map(str, (one.sessions, one.queued, one.partial, one.failed, one.open_turns))
        who = (one.stamp.writer[:8], one.stamp.embedder or "-") if one.stamp else ("-", "-")
        rows.append((one.owner.tenant, one.owner.user, *sizes, *who))
        told.append({"tenant": one.tenant, **one.model_dump(), "written_by": vars(one.stamp) if one.stamp else None})
    heads = ("tenant", "user", "sessions", "queued", "partial", "failed", "open turns", "written by", "embedder")
    report(told, [table(heads, rows, f"{len(found)} users")])


@command.command("rebuild")
@click.argument("program", type=click.Path())
@options.STORE
@options.USER
@options.ALL_TENANTS
@click.option("--queued", is_flag=True, help="only what is queued; memories that another program wrote are left alone")
@click.option("--failed", is_flag=True, help="only sessions, and parts of sessions, that could not be written before")
@click.option("--force", is_flag=True, help="also memories that this very program wrote")
@options.JSON
@options.asking_options
def rebuild(program: str, queued: bool, failed: bool, force: bool, **given: Any) -> None:
    """Write memories with PROGRAM: what is queued or out of date.

    Out of date is what another program or embedder wrote. All tenants and users are meant, unless one is named.
    Stopped half way, the same command without --force goes on. Turns that were not taken in are tried once more.
    """
    from ..engines.model_checks import endpoint_errors
    from ..programs.threads import gather
    from ..serving.memories import Memories
    from ..serving.writing import WriteCounts

    if queued + failed + force > 1:
        raise UserError("--queued, --failed and --force each say what is written; give one of them")
    store, user, tenant = (given.pop(name) for name in ("store", "user", "tenant"))
    loaded, _, model = options.open_asked(program, given)
    stopped = threading.Event()
    with open_store(store) as opened:
        owners = _users(opened, tenant, user)
        for owner in owners if force else ():
            opened.memories.reset(owner)
        if queued and user is None:
            owners = [one.owner for one in opened.users.list_all(tenant) if one.queued or one.partial]
        memories = Memories(loaded, opened, model)

        def written(owner: Any) -> WriteCounts:
            try:
                return WriteCounts() if stopped.is_set() else _written(memories, owner, queued, failed, user, stopped)
            except BaseException:
                stopped.set()
                raise

        with endpoint_errors():
            done = sum(gather([lambda owner=owner: written(owner) for owner in owners]), WriteCounts())
        users = opened.users.list_all(tenant, user)
    others = sum(one.stamp is not None and not one.stamp.writes_like(memories.writer_fingerprint) for one in users)
    counts = {"users": len(users), "sessions": done.items, "failures": len(done.failures)}
    left = {"still queued": sum(one.queued for one in users), "partial": sum(one.partial for one in users)}
    left["users of another program"] = others
    report(counts | {name: count for name, count in left.items() if count or as_json()})


def _users(opened: Any, tenant: str | None, user: str | None) -> list[Any]:
    """The users of a store, or those of one tenant or one name; refuses a name that is not there."""
    found = [one.owner for one in opened.users.list_all(tenant, user)]
    if user is not None and not found:
        raise UserError(f"no user {user!r} in {opened.url}; `mempiler memories list` shows all")
    return found


def _written(
    memories: Any, owner: Any, queued: bool, failed: bool, named: str | None, stopped: threading.Event
) -> WriteCounts:
    """Writes the memory of a user; if only what is queued is written, one of another program alone if it is named."""
    from ..serving.settings import LEASE
    from ..serving.user_memory import UserMemory
    from ..serving.writing import WriteCounts, write_user_queue

    if not queued:
        memory = UserMemory(memories, owner, stop=stopped.is_set)
        return memory.retry() if failed else memory.rebuild()
    stamp = None if named else memories.store.memories.stamp(owner)
    if stamp is not None and not stamp.writes_like(memories.writer_fingerprint):
        return WriteCounts()
    return write_user_queue(memories, owner, LEASE, stopped.is_set, retry=True)


@command.command("search")
@click.argument("program", type=click.Path())
@click.argument("query", required=False)
@click.option("--k", type=int, default=10, help="most entries that are found")
@click.option("--where", metavar="JSON", help='conditions of sessions\' metadata, e.g. \'{"year": {"gte": 2024}}\'')
@click.option("--since", metavar="TIME", help="only what is of this moment or later, e.g. 2025-03-05")
@click.option("--until", metavar="TIME", help="only what is from before this moment")
@_ENTRIES
def search(program: str, query: str | None, k: int, where: Any, since: Any, until: Any, **given: Any) -> None:
    """Find what is nearest to QUERY in a user's memory.

    PROGRAM wrote it; turns that wait are searched too. Without a QUERY all entries are listed, in order of their ids.
    """
    from pydantic import ValidationError

    from ..serving.bodies import Listing

    try:
        chosen = Listing(where=where, since=since, until=until).as_kwargs
    except ValidationError as error:
        raise UserError(validation_message(error)) from error
    with _memory(program, **given) as memory:
        if query is None:
            listed = list(_all(memory, chosen))
            report({"entries": listed}, map(_line, listed))
            return
        found = memory.search(query, k, **chosen)
    waiting = ["not in the memory yet:", *found.pending] if found.pending else []
    lines = (hit if isinstance(hit, str) else f"{hit.score:.3f}  {hit.line()}" for hit in (*found.entries, *waiting))
    report(found._asdict(), lines)


@command.command("show")
@click.argument("program", type=click.Path(), required=False)
@_ENTRIES
def show(program: str | None, store: str | None, user: str, tenant: str, **reading: Any) -> None:
    """Show a user's memory, its sessions, and what was changed in it.

    PROGRAM, which wrote the memory, is needed only where entries were changed.
    """
    from ..memory.edits import active_amendments
    from ..runs.artifact import open_program
    from ..serving.memory_view import redacted_dump

    with open_store(store) as opened:
        (owner,) = _users(opened, tenant, user)
        found = opened.transfer.dump(owner)
        changes = active_amendments(found.amendments)
        if changes and program is None:
            told = "give PROGRAM, which wrote the memory; `mempiler memories export` writes all that is stored"
            raise UserError(f"entries of user {user!r} were changed: {told}")
        if changes and program is not None:
            loaded = open_program(program, **reading).program
            found = redacted_dump(loaded.memory(opened, user, tenant).view(), found)
    document = found.document
    memory = json.loads(document.finalized or document.memory) if document else None
    sessions = [
        {"id": one.item.id, "state": one.state, "error": one.error, "lines": one.item.lines()} for one in found.items
    ]
    sessions += [{"id": one.id, "state": "open", "error": "", "lines": one.lines()} for one in found.open]
    lines = [json.dumps(memory, indent=1, ensure_ascii=False)]
    for one in sessions:
        lines += [f"\n{one['id']}: {one['state']} {one['error']}".rstrip(), *(f"  {line}" for line in one["lines"])]
    lines += ["\nchanges of entries:", *(f"  {row.line}" for row in changes)] if changes else []
    about = {"user": user, "tenant": tenant, "memory": memory, "sessions": sessions}
    report({**about, "changes": [row.line for row in changes]}, lines)


@command.command("edit")
@click.argument("program", type=click.Path())
@click.argument("entry")
@click.option("--text", help="what it says from now on")
@click.option("--delete", is_flag=True, help="take it out; `memories forget` erases what was said")
@click.option("--undo", is_flag=True, help="take its last change back that stands")
@click.option("--by", default="", metavar="NAME", help="who says so, for the history")
@_ENTRIES
def edit(program: str, entry: str, text: str | None, delete: bool, undo: bool, by: str, **given: Any) -> None:
    """Reword or delete an ENTRY of a PROGRAM's memory, or undo that."""
    if (text is not None) + delete + undo != 1:
        raise UserError("say what becomes of the entry: one of --text TEXT, --delete and --undo")
    with _memory(program, **given) as memory:
        if text is not None:
            made = memory.entries.update(entry, text, by)
        else:
            made = memory.entries.delete(entry, by) if delete else memory.entries.undo(entry, by)
        if made is None:
            told = "or nothing to undo; `mempiler memories search PROGRAM` lists all"
            raise UserError(f"no entry {entry!r:.100} of user {memory.owner.user!r}, {told}")
    report(made, [f"{made.what} of {entry}"])


def _all(memory: Any, chosen: Any) -> Iterator[Any]:
    page = memory.entries.list(**chosen)
    yield from page.entries
    while page.next is not None:
        page = memory.entries.list(page.next, **chosen)
        yield from page.entries


@contextmanager
def _memory(program: str, store: str | None, user: str, tenant: str, **reading: Any) -> Generator[Any]:
    """The memory of a user who is known; refuses others."""
    from ..engines.model_checks import endpoint_errors
    from ..runs.artifact import open_program

    loaded = open_program(program, **reading).program
    with open_store(store) as opened, endpoint_errors():
        _users(opened, tenant, user)
        yield loaded.memory(opened, user, tenant)


def _line(entry: Any) -> str:
    when = f"({entry.time:%Y-%m-%d %H:%M}) " if entry.time else ""
    return f"[{entry.id}] {when}{entry.text}{' (waits)' if entry.waiting else ''}"


@command.command("export")
@click.argument("path", type=click.Path())
@options.OVERWRITE
@_ANYBODY
def export(path: str, overwrite: bool, store: str | None, user: str | None, tenant: str | None) -> None:
    """Write users as JSON lines to PATH (- is standard output)."""
    from ..records.atomic_file import atomic_write
    from ..runs.results_folder import refuse_foreign_file
    from ..serving.transfer import MARK, export_users

    if path != "-":
        refuse_foreign_file(Path(path), MARK, force=overwrite)
    # What users said is for nobody else's eyes, whatever the umask.
    shown: Any = SimpleNamespace(write=lambda text: click.echo(escape_control_characters(text), nl=False))
    target = nullcontext(shown) if path == "-" else atomic_write(Path(path), 0o600)
    with open_store(store) as opened, target as file:
        count = export_users(opened, file, tenant, user)
    Output(stderr=True).print(f"{count} users")


@command.command("import")
@click.argument("path", type=click.File(encoding="utf-8-sig"))
@options.STORE
@click.option("--replace", is_flag=True, help="forget users who are there already first")
@options.JSON
def import_file(path: TextIO, store: str | None, replace: bool) -> None:
    """Read users from the JSON lines of PATH (- is standard input)."""
    from ..serving.transfer import import_users

    with open_store(store, make=True) as opened:
        count = import_users(opened, path, path.name, replace)
    report({"users": count})


@command.command("forget")
@options.STORE
@options.WHOSE
@options.TENANT
@click.option("--session", help="only this session [default: everything of the user]")
@options.JSON
def forget(store: str | None, user: str, tenant: str, session: str | None) -> None:
    """Delete a user, or one session of theirs.

    The others are then queued to be remembered anew. Exit code 4: all is deleted, and something still holds the bytes.
    """
    from ..memory.store.owner import Owner

    owner = Owner(user, tenant)
    with open_store(store) as opened:
        found = opened.forgetting.forget_user(owner) if session is None else opened.forgetting.forget_session(owner, session)
        what = f"user {user!r}" if session is None else f"session {session!r} of user {user!r}"
        if not found:
            raise UserError(f"no {what} in {opened.url}; nothing was deleted")
        queued = sum(one.queued for one in opened.users.list_all(owner.tenant, owner.user))
    counts = {"forgotten": 1, "sessions": found.sessions, "turns": found.turns, "queued anew": queued}
    report(counts | ({"erased": found.erased, "held by": found.held_by} if as_json() else {}))
    if found.erased is False:
        raise StoreError(f"{what} is forgotten, and the bytes are not gone yet: {found.held_by}")
    if found.held_by:
        Output(stderr=True).print(f"of the bytes: {found.held_by}")
