"""`mempiler memories search`, `show` and `edit`: look into the memory of a user, and change it."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Unpack

import click

from ..errors import UserError
from ..validation import validation_message
from . import options
from .option_values import ReadingOptions
from .options import open_store
from .printing import print_result
from .stored_users import find_owner

if TYPE_CHECKING:
    from ..memory.edits import Amendment
    from ..memory.entry_choice import EntryChoice
    from ..memory.results import ListedEntry
    from ..memory.store.owner import Owner
    from ..memory.store.records import UserDump
    from ..memory.store.store import Store
    from ..programs.program import MemoryProgram
    from ..records import SearchResult
    from ..records.json_input import JsonValue
    from ..serving.memories.user_memory import UserMemory

_memory_options = options.adds(
    options.STORE, options.WHOSE, options.TENANT, options.JSON, options.reading_options
)
"""Adds the options that choose the memory of a user, and by which its program is loaded."""


@click.command("search")
@click.argument("program", type=click.Path())
@click.argument("query", required=False)
@click.option("--k", type=int, default=10, help="most entries that are found by a QUERY")
@click.option(
    "--where",
    metavar="JSON",
    help='conditions of sessions\' metadata, e.g. \'{"year": {"gte": 2024}}\'',
)
@click.option(
    "--since", metavar="TIME", help="only what is of this moment or later, e.g. 2025-03-05"
)
@click.option("--until", metavar="TIME", help="only what is from before this moment")
@_memory_options
def search(
    program: str,
    query: str | None,
    k: int,
    where: str | None,
    since: str | None,
    until: str | None,
    store: str | None,
    user: str,
    tenant: str,
    **reading: Unpack[ReadingOptions],
) -> None:
    """Find what is nearest to QUERY in a user's memory.

    PROGRAM is the program that wrote the memory. Turns that are not written yet are searched, too.
    Without a QUERY all entries are listed, in order of their ids.
    """
    entry_filter = _parse_filter(where, since, until)
    with _open_memory(program, store, user, tenant, reading) as memory:
        if query is None:
            entries = list(_all_entries(memory, entry_filter))
            print_result({"entries": entries}, [_entry_line(entry) for entry in entries])
        else:
            search_result = memory.search(query, k, **entry_filter)
            print_result(search_result._asdict(), _search_lines(search_result))


def _parse_filter(where: str | None, since: str | None, until: str | None) -> EntryChoice:
    """Return the keyword arguments by which searching and listing choose entries.

    Raises:
        UserError: A value cannot be read; the message names it.
    """
    from pydantic import ValidationError

    # The HTTP service reads the same values from requests.
    from ..serving.http.schemas import Listing

    values = {"where": where, "since": since, "until": until}
    try:
        return Listing.model_validate(values).as_kwargs
    except ValidationError as error:
        raise UserError(validation_message(error)) from error


def _all_entries(memory: UserMemory, entry_filter: EntryChoice) -> Iterator[ListedEntry]:
    """Yield entries in order of their ids, page by page."""
    page = memory.entries.list(**entry_filter)
    yield from page.entries
    while page.next is not None:
        page = memory.entries.list(page.next, **entry_filter)
        yield from page.entries


def _entry_line(entry: ListedEntry) -> str:
    time = f"({entry.time:%Y-%m-%d %H:%M}) " if entry.time else ""
    mark = " (waits)" if entry.waiting else ""
    return f"[{entry.id}] {time}{entry.text}{mark}"


def _search_lines(search_result: SearchResult) -> Iterator[str]:
    for hit in search_result.entries:
        yield f"{hit.score:.3f}  {hit.line()}"
    if search_result.pending:
        yield "not in the memory yet:"
    for hit in search_result.pending:
        yield f"{hit.score:.3f}  {hit.line()}"


@contextmanager
def _open_memory(
    program: str, store: str | None, user: str, tenant: str, reading: ReadingOptions
) -> Generator[UserMemory]:
    """Open the memory of a user of a store.

    Raises:
        UserError: There is no such user.
        EndpointError: A call inside the block failed.
    """
    from ..engines.model_checks import endpoint_errors

    memory_program = _load_program(program, reading)
    with open_store(store) as opened_store, endpoint_errors():
        find_owner(opened_store, tenant, user)
        yield memory_program.memory(opened_store, user, tenant)


def _load_program(program: str, reading: ReadingOptions) -> MemoryProgram:
    from ..runs.artifact import open_program

    loaded = open_program(
        program,
        allow_code=reading["allow_code"],
        embedder=reading["embedder"],
        embedder_api_base=reading["embedder_api_base"],
        reranker=reading["reranker"],
    )
    return loaded.program


@dataclass(frozen=True)
class _StoredSession:
    """A session of a user, as `show` prints it."""

    id: str
    state: str
    error: str
    """Why it could not be written; empty if nothing went wrong."""
    lines: list[str]
    """Its turns."""


@click.command("show")
@click.argument("program", type=click.Path(), required=False)
@_memory_options
def show(
    program: str | None,
    store: str | None,
    user: str,
    tenant: str,
    **reading: Unpack[ReadingOptions],
) -> None:
    """Show a user's memory, its sessions, and what was changed in it.

    PROGRAM, which wrote the memory, is needed only where entries were changed.
    """
    from ..memory.edits import active_amendments

    with open_store(store) as opened_store:
        owner = find_owner(opened_store, tenant, user)
        dump: UserDump = opened_store.transfer.dump(owner)
        changes = active_amendments(dump.amendments)
        if changes:
            if program is None:
                fix = "give PROGRAM, which wrote the memory"
                alternative = "`mempiler memories export` writes all that is stored"
                raise UserError(f"entries of user {user!r} were changed: {fix}; {alternative}")
            dump = _hide_changed_texts(dump, opened_store, owner, _load_program(program, reading))

    memory = _memory_of(dump)
    sessions = _sessions_of(dump)
    result = {
        "user": user,
        "tenant": tenant,
        "memory": memory,
        "sessions": [asdict(session) for session in sessions],
        "changes": [change.line for change in changes],
    }
    print_result(result, _memory_lines(memory, sessions, changes))


def _hide_changed_texts(
    dump: UserDump, store: Store, owner: Owner, program: MemoryProgram
) -> UserDump:
    """Return a dump without texts of entries that were deleted or reworded.

    The store keeps such texts, so that a change can be undone, but nobody should be shown them.
    Only the program that wrote the memory can find its entries, and so these texts.

    Args:
        dump: What the store holds of the user.
        store: The store.
        owner: The user.
        program: The program that wrote the memory.
    """
    from ..serving.memories.redaction import redacted_dump

    user_memory = program.memory(store, owner.user, owner.tenant)
    return redacted_dump(user_memory.view(), dump)


def _memory_of(dump: UserDump) -> JsonValue:
    """Return the memory from which a user's questions are answered, as JSON data.

    The result is None if no memory was written yet.
    """
    document = dump.document
    if document is None:
        return None

    # Further sessions are written into `memory`. Some methods answer from another form of it, which
    # is stored as `finalized`.
    memory_json = document.finalized or document.memory
    return json.loads(memory_json)


def _sessions_of(dump: UserDump) -> list[_StoredSession]:
    """Return the sessions that have ended, and then those that are open."""
    sessions: list[_StoredSession] = []
    for stored in dump.items:
        lines = list(stored.item.lines())
        sessions.append(_StoredSession(stored.item.id, stored.state, stored.error, lines))
    for session in dump.open:
        sessions.append(_StoredSession(session.id, "open", "", list(session.lines())))
    return sessions


def _memory_lines(
    memory: JsonValue, sessions: Sequence[_StoredSession], changes: Sequence[Amendment]
) -> Iterator[str]:
    """Yield a memory as JSON text, then the sessions with their turns, then the changes."""
    yield json.dumps(memory, indent=1, ensure_ascii=False)
    for session in sessions:
        # Most sessions have no error, which would leave a space at the end of the line.
        yield f"\n{session.id}: {session.state} {session.error}".rstrip()
        for line in session.lines:
            yield f"  {line}"
    if changes:
        yield "\nchanges of entries:"
    for change in changes:
        yield f"  {change.line}"


@click.command("edit")
@click.argument("program", type=click.Path())
@click.argument("entry")
@click.option("--text", help="what it says from now on")
@click.option("--delete", is_flag=True, help="take it out; `memories forget` erases what was said")
@click.option("--undo", is_flag=True, help="undo its last change that was not undone yet")
@click.option("--by", default="", metavar="NAME", help="who makes the change, for its history")
@_memory_options
def edit(
    program: str,
    entry: str,
    text: str | None,
    delete: bool,
    undo: bool,
    by: str,
    store: str | None,
    user: str,
    tenant: str,
    **reading: Unpack[ReadingOptions],
) -> None:
    """Reword or delete an ENTRY of a PROGRAM's memory, or undo that."""
    chosen_actions = [text is not None, delete, undo]
    if chosen_actions.count(True) != 1:
        raise UserError("say what becomes of the entry: one of --text TEXT, --delete and --undo")

    with _open_memory(program, store, user, tenant, reading) as memory:
        if text is not None:
            change = memory.entries.update(entry, text, by)
        elif delete:
            change = memory.entries.delete(entry, by)
        else:
            change = memory.entries.undo(entry, by)
        if change is None:
            problem = f"no entry {entry!r:.100} of user {memory.owner.user!r}, or nothing to undo"
            raise UserError(f"{problem}; `mempiler memories search PROGRAM` lists all")
    print_result(change, [f"{change.what} of {entry}"])
