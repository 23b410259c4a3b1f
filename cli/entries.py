"""`mempiler memories search | entries | get | update | delete | undo | history`: the entries of a stored memory.

What they print is what holds now; a history alone tells what an entry said before. No language
model is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from ..errors import UserError
from .options import JSON, STORE, TENANT, WHOSE, open_saved, open_store, output, print_json, reading_options
from .rebuild import users_of

_BY = click.option("--by", default="", metavar="NAME", help="who says so, for the history")
_CHOOSING = [
    click.option(
        "--where", metavar="JSON", help='conditions of the metadata of sessions, e.g. \'{"year": {"gte": 2024}}\''
    ),
    click.option("--since", metavar="TIME", help="only what is of this moment or later, e.g. 2025-03-05"),
    click.option("--until", metavar="TIME", help="only what is from before this moment"),
]


def _verb(name: str, *about: Callable[..., Any]) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes a command about entries of one user's memory, with further arguments and options."""

    def made(function: Callable[..., Any]) -> click.Command:
        for one in reversed((click.argument("program", type=click.Path()), *about, STORE, WHOSE, TENANT, JSON)):
            function = one(function)
        return click.command(name)(reading_options(function))

    return made


_ENTRY = click.argument("entry")


@_verb("search", click.argument("query"), click.option("--k", type=int, default=10, show_default=True), *_CHOOSING)
def search(query: str, k: int, as_json: bool, **given: Any) -> None:
    """Find what is nearest to QUERY in a user's memory, written by PROGRAM, and among turns that wait."""
    chosen = _chosen(given)
    with _memory(**given) as memory:
        found = memory.search(query, k, **chosen)
    if as_json:
        _print(found._asdict())
        return
    console = output()
    for heading, hits in (("", found.entries), ("not in the memory yet:", found.waiting)):
        if heading and hits:
            console.print(heading)
        for hit in hits:
            console.print(f"{hit.score:.3f}  {hit.line()}", soft_wrap=True)


@_verb(
    "entries",
    click.option("--cursor", metavar="ID", help="where to go on: what the page before said"),
    click.option("--limit", type=int, default=100, show_default=True, help="most entries of a page"),
    *_CHOOSING,
)
def entries(cursor: str | None, limit: int, as_json: bool, **given: Any) -> None:
    """List the entries of a user's memory in the order of their ids, and the turns that are not in it yet."""
    chosen = _chosen(given)
    with _memory(**given) as memory:
        page = memory.list(cursor, limit, **chosen)
    if as_json:
        _print(page)
        return
    for entry in page.entries:
        output().print(_line(entry), soft_wrap=True)
    if page.next is not None:
        output(errors=True).print(f"more: --cursor {page.next!r}", soft_wrap=True)


@_verb("get", _ENTRY)
def get(entry: str, as_json: bool, **given: Any) -> None:
    """Show one ENTRY of a user's memory, and what it rests on."""
    with _memory(**given) as memory:
        found = _known(memory, entry, memory.get(entry))
    if as_json:
        _print(found)
        return
    console = output()
    console.print(_line(found), soft_wrap=True)
    console.print(f"  {found.kind} of {', '.join(found.turns) or 'no turn'}", soft_wrap=True)
    for session in found.sessions:
        said = ", ".join(f"{name}={value}" for name, value in session.metadata.items())
        console.print(f"  session {session.id} {said}".rstrip(), soft_wrap=True)


@_verb("update", _ENTRY, click.argument("text"), _BY)
def update(entry: str, text: str, by: str, as_json: bool, **given: Any) -> None:
    """Give an ENTRY of a user's memory another TEXT; `undo` takes it back."""
    _amend(given, entry, as_json, lambda memory: memory.update(entry, text, by))


@_verb("delete", _ENTRY, _BY)
def delete(entry: str, by: str, as_json: bool, **given: Any) -> None:
    """Take an ENTRY out of a user's memory; `undo` brings it back, and `memories forget` erases what was said."""
    _amend(given, entry, as_json, lambda memory: memory.delete(entry, by))


@_verb("undo", _ENTRY, _BY)
def undo(entry: str, by: str, as_json: bool, **given: Any) -> None:
    """Take the last change of an ENTRY back that stands."""
    _amend(given, entry, as_json, lambda memory: memory.undo(entry, by))


@_verb("history", _ENTRY)
def history(entry: str, as_json: bool, **given: Any) -> None:
    """Tell what became of an ENTRY, oldest first, with what it said before."""
    with _memory(**given) as memory:
        events = _known(memory, entry, memory.history(entry))
    if as_json:
        _print({"entry": entry, "changes": events})
        return
    for event in events:
        when = f"{event.at:%Y-%m-%d %H:%M}" if event.at else "-"
        who = f" by {event.by}" if event.by else ""
        new = f" -> {event.new}" if event.new is not None else ""
        output().print(f"{when}  {event.what}{who}: {event.text}{new}", soft_wrap=True)


COMMANDS = (search, entries, get, update, delete, undo, history)


def _amend(given: Mapping[str, Any], entry: str, as_json: bool, change: Callable[[Any], Any]) -> None:
    with _memory(**given) as memory:
        made = change(memory)
        if made is None:
            raise _unknown(memory, entry, ", or nothing to undo")
    if as_json:
        _print(made)
    else:
        output().print(f"{made.what} of {entry}", soft_wrap=True)


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
    from ..serving.refusals import malformed

    names = [name for name in ("where", "since", "until") if name in given]
    said = {name: value for name in names if (value := given.pop(name)) is not None}
    if "where" in said:
        said["where"] = parse_json(said["where"], "where")
    try:
        found = Chosen.model_validate(said)
    except ValidationError as error:
        raise UserError(malformed(error.errors()).detail) from error
    return {name: getattr(found, name) for name in names}


def _known(memory: Any, entry: str, found: Any) -> Any:
    if not found:
        raise _unknown(memory, entry)
    return found


def _unknown(memory: Any, entry: str, more: str = "") -> UserError:
    return UserError(
        f"no entry {entry!r:.100} of user {memory.owner.user!r}{more}; `mempiler memories entries` lists all"
    )


def _line(entry: Any) -> str:
    when = f"({entry.time:%Y-%m-%d %H:%M}) " if entry.time else ""
    return f"[{entry.id}] {when}{entry.text}{' (waits)' if entry.waiting else ''}"


def _print(found: Any) -> None:
    from pydantic_core import to_jsonable_python

    print_json(to_jsonable_python(found))
