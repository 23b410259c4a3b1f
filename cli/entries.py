"""`mempiler memories search | show | edit`: what the memory of one user holds; no language model is asked."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import click

from ..errors import UserError, misfit
from .options import JSON, STORE, TENANT, WHOSE, adds, open_saved, open_store, reading_options
from .printing import report
from .rebuild import users_of

_MEMORY = adds(STORE, WHOSE, TENANT, JSON, reading_options)


@click.command("search")
@click.argument("program", type=click.Path())
@click.argument("query", required=False)
@click.option("--k", type=int, default=10, help="most entries that are found")
@click.option("--where", metavar="JSON", help='conditions of sessions\' metadata, e.g. \'{"year": {"gte": 2024}}\'')
@click.option("--since", metavar="TIME", help="only what is of this moment or later, e.g. 2025-03-05")
@click.option("--until", metavar="TIME", help="only what is from before this moment")
@_MEMORY
def search(program: str, query: str | None, k: int, where: Any, since: Any, until: Any, **given: Any) -> None:
    """Find what is nearest to QUERY in a user's memory, written by PROGRAM, and among turns that wait.

    Without a QUERY all entries are listed, in the order of their ids.
    """
    from pydantic import ValidationError

    from ..serving.bodies import Listing

    asked = {"where": where, "since": since, "until": until}
    try:
        chosen = Listing.model_validate({name: value for name, value in asked.items() if value is not None}).chosen
    except ValidationError as error:
        raise UserError(misfit(error)) from error
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
@click.option("--program", type=click.Path(), help="which wrote the memory; where entries were changed")
@_MEMORY
def show(program: str | None, store: str | None, user: str, tenant: str, **reading: Any) -> None:
    """Show what a user's memory holds, the sessions it was made from, and which entries were changed."""
    from ..memory.amending import in_force
    from ..serving.view import contents_shown

    with open_store(store) as opened:
        (owner,) = users_of(opened, tenant, user)
        found = opened.dump(owner)
        changes = in_force(found.amendments)
        if changes and program is None:
            told = "give --program, which wrote the memory; `mempiler memories export` writes all that is stored"
            raise UserError(f"entries of user {user!r} were changed: {told}")
        if changes and program is not None:
            loaded = open_saved(program, **reading).program
            found = contents_shown(loaded.method, loaded.memory(opened, user, tenant).look(), found)
    document = found.document
    memory = json.loads(document.settled or document.memory) if document else None
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
            told = "or nothing to undo; `mempiler memories search PROGRAM` lists all"
            raise UserError(f"no entry {entry!r:.100} of user {memory.owner.user!r}, {told}")
    report(_plain(made), [f"{made.what} of {entry}"])


COMMANDS = (search, show, edit)


def _all(memory: Any, chosen: dict[str, Any]) -> Iterator[Any]:
    """The entries of a memory, page by page."""
    page = memory.list(**chosen)
    yield from page.entries
    while page.next is not None:
        page = memory.list(page.next, **chosen)
        yield from page.entries


@contextmanager
def _memory(program: str, store: str | None, user: str, tenant: str, **reading: Any) -> Generator[Any]:
    """The memory of a user who is known; refuses others."""
    from ..engines.models import endpoint_errors

    loaded = open_saved(program, **reading).program
    with open_store(store) as opened, endpoint_errors():
        users_of(opened, tenant, user)
        yield loaded.memory(opened, user, tenant)


def _line(entry: Any) -> str:
    when = f"({entry.time:%Y-%m-%d %H:%M}) " if entry.time else ""
    return f"[{entry.id}] {when}{entry.text}{' (waits)' if entry.waiting else ''}"


def _plain(found: Any) -> Any:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(found)
