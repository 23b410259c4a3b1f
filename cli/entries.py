"""`mempiler memories search | show | edit`: what the memory of one user holds.

What they print is what holds now, unless what was written is asked for; the changes of one entry alone tell what it
said before. No language model is asked.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError, misfit
from .options import JSON, STORE, TENANT, WHOSE, adds, open_saved, open_store, reading_options
from .printing import report
from .rebuild import users_of

if TYPE_CHECKING:
    from ..memory.stored import Contents

_MEMORY = adds(STORE, WHOSE, TENANT, JSON, reading_options)


@click.command("search")
@click.argument("program", type=click.Path())
@click.argument("query", required=False)
@click.option("--k", type=int, default=10, help="most entries that are found")
@click.option("--where", metavar="JSON", help='conditions of sessions\' metadata, e.g. \'{"year": {"gte": 2024}}\'')
@click.option("--since", metavar="TIME", help="only what is of this moment or later, e.g. 2025-03-05")
@click.option("--until", metavar="TIME", help="only what is from before this moment")
@_MEMORY
def search(program: str, query: str | None, k: int, **given: Any) -> None:
    """Find what is nearest to QUERY in a user's memory, written by PROGRAM, and among turns that wait.

    Without a QUERY all entries are listed, in the order of their ids.
    """
    chosen = _chosen(given)
    with _memory(program, **given) as memory:
        if query is None:
            listed = list(_all(memory, chosen))
            report({"entries": _plain(listed)}, map(_line, listed))
            return
        found = memory.search(query, k, **chosen)
    waiting = ["not in the memory yet:", *found.waiting] if found.waiting else []
    lines = (hit if isinstance(hit, str) else f"{hit.score:.3f}  {hit.line()}" for hit in (*found.entries, *waiting))
    report(_plain(found._asdict()), lines)


@click.command("show")
@click.option("--program", type=click.Path(), help="whose memory it is; for --entry, and where entries were changed")
@click.option("--entry", metavar="ID", help="one entry: what it rests on, and what became of it")
@click.option("--as-written", is_flag=True, help="all that is stored, deleted entries too")
@_MEMORY
def show(program: str | None, entry: str | None, as_written: bool, **given: Any) -> None:
    """Show a user's memory, the sessions it was made from, and which entries were changed; or one entry."""
    if entry is None:
        found = _contents(_shown(program, as_written, **given))
        report(found, _contents_lines(found))
        return
    if program is None:
        raise UserError(f"--entry {entry!r:.100}: give --program, which wrote the memory")
    with _memory(program, **given) as memory:
        found, changes = memory.get(entry), memory.history(entry)
        if not found and not changes:
            raise _unknown(memory, entry)
    report(_plain({"entry": found, "changes": changes}), _entry_lines(found, changes))


@click.command("edit")
@click.argument("program", type=click.Path())
@click.argument("entry")
@click.option("--text", help="what it says from now on")
@click.option("--delete", is_flag=True, help="take it out; `memories forget` erases what was said")
@click.option("--undo", is_flag=True, help="take its last change back that stands")
@click.option("--by", default="", metavar="NAME", help="who says so, for the history")
@_MEMORY
def edit(program: str, entry: str, text: str | None, delete: bool, undo: bool, by: str, **given: Any) -> None:
    """Change one ENTRY of a user's memory, written by PROGRAM: give it another text, delete it, or undo that."""
    if (text is not None) + delete + undo != 1:
        raise UserError("say what becomes of the entry: one of --text TEXT, --delete and --undo")
    with _memory(program, **given) as memory:
        if text is not None:
            made = memory.update(entry, text, by)
        else:
            made = memory.delete(entry, by) if delete else memory.undo(entry, by)
        if made is None:
            raise _unknown(memory, entry, ", or nothing to undo")
    report(_plain(made), [f"{made.what} of {entry}"])


COMMANDS = (search, show, edit)


def _all(memory: Any, chosen: dict[str, Any]) -> Iterator[Any]:
    """The entries of a memory, page by page."""
    page = memory.list(**chosen)
    yield from page.entries
    while page.next is not None:
        page = memory.list(page.next, **chosen)
        yield from page.entries


def _entry_lines(found: Any, changes: Any) -> Iterator[str]:
    if found:
        yield _line(found)
        yield f"  {found.kind} of {', '.join(found.turns) or 'no turn'}"
        for session in found.sessions:
            said = ", ".join(f"{name}={value}" for name, value in session.metadata.items())
            yield f"  session {session.id} {said}".rstrip()
    for change in changes:
        when = f"{change.at:%Y-%m-%d %H:%M}" if change.at else "-"
        who = f" by {change.by}" if change.by else ""
        new = f" -> {change.new}" if change.new is not None else ""
        yield f"{when}  {change.what}{who}: {change.text}{new}"


def _contents(found: Contents) -> dict[str, Any]:
    from ..memory.amending import in_force

    document = found.document
    sessions = [
        {"id": one.item.id, "state": one.state, "error": one.error, "lines": one.item.lines()} for one in found.items
    ]
    sessions += [{"id": one.id, "state": "open", "error": "", "lines": one.lines()} for one in found.open]
    return {
        "user": found.owner.user,
        "tenant": found.owner.tenant,
        "memory": json.loads(document.settled or document.memory) if document else None,
        "sessions": sessions,
        "changes": [row.line for row in in_force(found.amendments)],
    }


def _contents_lines(found: dict[str, Any]) -> Iterator[str]:
    yield json.dumps(found["memory"], indent=1, ensure_ascii=False)
    for session in found["sessions"]:
        yield f"\n{session['id']}: {session['state']} {session['error']}".rstrip()
        yield from (f"  {line}" for line in session["lines"])
    if found["changes"]:
        yield "\nchanges of entries:"
        yield from (f"  {change}" for change in found["changes"])


def _shown(
    program: str | None, as_written: bool, store: str | None, user: str, tenant: str, **reading: Any
) -> Contents:
    """Everything of a user, without what was deleted unless it is asked for.

    Raises:
        UserError: There is no such user, or a program is needed to tell what holds.
    """
    from ..memory.amending import in_force
    from ..serving.view import contents_shown

    with open_store(store) as opened:
        (owner,) = users_of(opened, tenant, user)
        found = opened.dump(owner)
        if as_written or not in_force(found.amendments):
            return found
        if program is None:
            raise UserError(
                f"entries of user {user!r} were changed: give --program, which wrote the memory, for what holds now, "
                "or --as-written for all that is stored"
            )
        loaded = open_saved(program, **reading).program
        return contents_shown(loaded.method, loaded.memory(opened, owner.user, owner.tenant).look(), found)


@contextmanager
def _memory(program: str, store: str | None, user: str, tenant: str, **reading: Any) -> Generator[Any]:
    """The memory of a user who is known; refuses others."""
    from ..engines.models import endpoint_errors

    loaded = open_saved(program, **reading).program
    with open_store(store) as opened, endpoint_errors():
        (owner,) = users_of(opened, tenant, user)
        yield loaded.memory(opened, owner.user, owner.tenant)


def _chosen(given: dict[str, Any]) -> dict[str, Any]:
    """Takes what of a memory is looked at out of a command's options, checked as a service does."""
    from pydantic import ValidationError

    from ..serving.bodies import Listing

    names = ("where", "since", "until")
    try:
        return Listing.model_validate({name: value for name in names if (value := given.pop(name)) is not None}).chosen
    except ValidationError as error:
        raise UserError(misfit(error)) from error


def _unknown(memory: Any, entry: str, more: str = "") -> UserError:
    told = "`mempiler memories search PROGRAM` lists all"
    return UserError(f"no entry {entry!r:.100} of user {memory.owner.user!r}{more}; {told}")


def _line(entry: Any) -> str:
    when = f"({entry.time:%Y-%m-%d %H:%M}) " if entry.time else ""
    return f"[{entry.id}] {when}{entry.text}{' (waits)' if entry.waiting else ''}"


def _plain(found: Any) -> Any:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(found)
