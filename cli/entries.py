"""`mempiler memories search | show | edit`: what the memory of one user holds.

What they print is what holds now, unless what was written is asked for; the changes of one entry alone tell what it
said before. No language model is asked.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError, misfit
from .options import JSON, STORE, TENANT, WHOSE, open_saved, open_store, reading_options
from .printing import output, print_json
from .rebuild import users_of

if TYPE_CHECKING:
    from ..memory.stored import Contents


@click.command("search")
@click.argument("program", type=click.Path())
@click.argument("query", required=False)
@click.option("--k", type=int, default=10, show_default=True, help="most entries that are found")
@click.option("--where", metavar="JSON", help='conditions of sessions\' metadata, e.g. \'{"year": {"gte": 2024}}\'')
@click.option("--since", metavar="TIME", help="only what is of this moment or later, e.g. 2025-03-05")
@click.option("--until", metavar="TIME", help="only what is from before this moment")
@click.option("--cursor", metavar="ID", help="without QUERY: where to go on, as the page before said")
@click.option("--limit", type=int, default=100, show_default=True, help="without QUERY: most entries of a page")
@STORE
@WHOSE
@TENANT
@JSON
@reading_options
def search(
    program: str, query: str | None, k: int, cursor: str | None, limit: int, as_json: bool, **given: Any
) -> None:
    """Find what is nearest to QUERY in a user's memory, written by PROGRAM, and among turns that wait.

    Without a QUERY all entries are listed, in the order of their ids.
    """
    chosen = _chosen(given)
    with _memory(program, **given) as memory:
        found = memory.list(cursor, limit, **chosen) if query is None else memory.search(query, k, **chosen)
    if as_json:
        _print(found if query is None else found._asdict())
        return
    console = output()
    if query is None:
        for entry in found.entries:
            console.print(_line(entry), soft_wrap=True)
        if found.next is not None:
            output(errors=True).print(f"more: --cursor {found.next!r}", soft_wrap=True)
        return
    for heading, hits in (("", found.entries), ("not in the memory yet:", found.waiting)):
        if heading and hits:
            console.print(heading)
        for hit in hits:
            console.print(f"{hit.score:.3f}  {hit.line()}", soft_wrap=True)


@click.command("show")
@click.option("--program", type=click.Path(), help="whose memory it is; for --entry, and where entries were changed")
@click.option("--entry", metavar="ID", help="one entry: what it rests on, and what became of it")
@click.option("--as-written", is_flag=True, help="all that is stored, deleted entries too")
@STORE
@WHOSE
@TENANT
@JSON
@reading_options
def show(
    program: str | None,
    entry: str | None,
    as_written: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Show a user's memory, the sessions it was made from, and which entries were changed; or one entry."""
    if entry is not None:
        if program is None:
            raise UserError(f"--entry {entry!r:.100}: give --program, which wrote the memory")
        _show_entry(program, entry, as_json, **given)
        return
    found = _shown(program, as_written, **given)
    _show_all(found, as_json)


@click.command("edit")
@click.argument("program", type=click.Path())
@click.argument("entry")
@click.option("--text", help="what it says from now on")
@click.option("--delete", is_flag=True, help="take it out; `memories forget` erases what was said")
@click.option("--undo", is_flag=True, help="take its last change back that stands")
@click.option("--by", default="", metavar="NAME", help="who says so, for the history")
@STORE
@WHOSE
@TENANT
@JSON
@reading_options
def edit(
    program: str, entry: str, text: str | None, delete: bool, undo: bool, by: str, as_json: bool, **given: Any
) -> None:
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
    if as_json:
        _print(made)
    else:
        output().print(f"{made.what} of {entry}", soft_wrap=True)


COMMANDS = (search, show, edit)


def _show_entry(program: str, entry: str, as_json: bool, **given: Any) -> None:
    with _memory(program, **given) as memory:
        found, changes = memory.get(entry), memory.history(entry)
        if not found and not changes:
            raise _unknown(memory, entry)
    if as_json:
        _print({"entry": found, "changes": changes})
        return
    console = output()
    if found:
        console.print(_line(found), soft_wrap=True)
        console.print(f"  {found.kind} of {', '.join(found.turns) or 'no turn'}", soft_wrap=True)
        for session in found.sessions:
            said = ", ".join(f"{name}={value}" for name, value in session.metadata.items())
            console.print(f"  session {session.id} {said}".rstrip(), soft_wrap=True)
    for change in changes:
        when = f"{change.at:%Y-%m-%d %H:%M}" if change.at else "-"
        who = f" by {change.by}" if change.by else ""
        new = f" -> {change.new}" if change.new is not None else ""
        console.print(f"{when}  {change.what}{who}: {change.text}{new}", soft_wrap=True)


def _show_all(found: Contents, as_json: bool) -> None:
    from ..memory.amending import in_force

    changes = [row.line for row in in_force(found.amendments)]
    memory = json.loads(found.document.settled or found.document.memory) if found.document else None
    sessions = [
        {"id": one.item.id, "state": one.state, "error": one.error, "lines": one.item.lines()} for one in found.items
    ]
    sessions += [{"id": one.id, "state": "open", "error": "", "lines": one.lines()} for one in found.open]
    if as_json:
        owner = {"user": found.owner.user, "tenant": found.owner.tenant}
        print_json({**owner, "memory": memory, "sessions": sessions, "changes": changes})
        return
    console = output()
    console.print(json.dumps(memory, indent=1, ensure_ascii=False), soft_wrap=True)
    for session in sessions:
        console.print(f"\n{session['id']}: {session['state']} {session['error']}".rstrip(), soft_wrap=True)
        for line in session["lines"]:
            console.print(f"  {line}", soft_wrap=True)
    if changes:
        console.print("\nchanges of entries:")
    for change in changes:
        console.print(f"  {change}", soft_wrap=True)


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
    """The memory of a user who is known.

    Raises:
        UserError: There is no such user.
    """
    from ..engines.models import endpoint_errors

    loaded = open_saved(program, **reading).program
    with open_store(store) as opened, endpoint_errors():
        (owner,) = users_of(opened, tenant, user)
        yield loaded.memory(opened, owner.user, owner.tenant)


def _chosen(given: dict[str, Any]) -> dict[str, Any]:
    """Takes what of a memory is looked at out of a command's options, checked as a service does.

    Raises:
        UserError: A condition or a time is none.
    """
    from pydantic import ValidationError

    from ..records import parse_json
    from ..serving.bodies import Chosen

    names = ("where", "since", "until")
    said = {name: value for name in names if (value := given.pop(name)) is not None}
    if "where" in said:
        said["where"] = parse_json(said["where"], "where")
    try:
        found = Chosen.model_validate(said)
    except ValidationError as error:
        raise UserError(misfit(error)) from error
    return {name: getattr(found, name) for name in names}


def _unknown(memory: Any, entry: str, more: str = "") -> UserError:
    told = "`mempiler memories search PROGRAM` lists all"
    return UserError(f"no entry {entry!r:.100} of user {memory.owner.user!r}{more}; {told}")


def _line(entry: Any) -> str:
    when = f"({entry.time:%Y-%m-%d %H:%M}) " if entry.time else ""
    return f"[{entry.id}] {when}{entry.text}{' (waits)' if entry.waiting else ''}"


def _print(found: Any) -> None:
    from pydantic_core import to_jsonable_python

    print_json(to_jsonable_python(found))
