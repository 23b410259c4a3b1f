"""Memories as JSON lines: for backups, for moving between SQLite and PostgreSQL, and for a user's right to their data.

    {"mempiler": "memories", "schema": 1}
    {"tenant": "default", "user": "ada", "items": [...], "open": [...], "document": {...} or null}

One line per user, complete in itself, so a file can be cut and joined. A file holds what users said: keep it like the
store.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TextIO

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from ..errors import ConflictError, DataError, UserError
from ..records import Session
from ..records.json_input import decode
from .amending import Amendment
from .incoming import checked, plain
from .metadata import checked_metadata
from .store import Store
from .stored import Contents, Document, Number, Owner, Position, Stamp, StoredItem, name_of

MARK = '{"mempiler": "memories"'
"""The beginning of a file of memories."""
SCHEMA = 1
_OWN = ("memory", "position", "settled", "settled_position", "speakers")
"""What a line has of a document as it is."""


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DocumentLine(_Line):
    """A memory."""

    memory: str
    position: Number
    settled: str | None
    settled_position: Number
    speakers: tuple[str, ...]
    writer: str
    program: str
    embedder: str
    schema_version: Number


class UserLine(_Line):
    """Everything of one user."""

    tenant: str
    user: str
    items: tuple[StoredItem, ...]
    open: tuple[Session, ...] = ()
    document: DocumentLine | None = None
    amendments: tuple[Amendment, ...] = ()
    metadata: dict[Position, dict[str, Any]] = Field(default_factory=dict[int, dict[str, Any]])
    """Of items, by position."""
    open_metadata: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    """Of open sessions, by id."""


def export_users(
    store: Store, file: TextIO, tenant: str | None = None, user: str | None = None, skipped: list[str] | None = None
) -> int:
    """Writes users as JSON lines.

    Args:
        store: Where they are.
        file: Where to.
        tenant: Only this tenant's.
        user: Only this user.
        skipped: Damaged rows are left out, and named here.

    Returns:
        How many were written.

    Raises:
        StoreError: A row is damaged, and `skipped` is None.
    """
    file.write(json.dumps({"mempiler": "memories", "schema": SCHEMA}) + "\n")
    owners = [found.owner for found in store.users(tenant, user)]
    for owner in owners:
        line = _line(store, owner, skipped)
        # A file without them can be read by a version that does not know them.
        unsaid = {name for name in ("amendments", "metadata", "open_metadata") if not getattr(line, name)}
        file.write(line.model_dump_json(exclude=unsaid) + "\n")
    return len(owners)


def import_users(store: Store, lines: Iterable[str], name: str, replace: bool = False) -> int:
    """Reads users from JSON lines: all of them in one transaction, or none.

    Args:
        store: Where they go.
        lines: What `export_users` wrote.
        name: Names the file in errors.
        replace: Whether a user who is there already is forgotten first.

    Returns:
        How many were read.

    Raises:
        DataError: A line is no user that can be stored, or of another version.
        ConflictError: A user is there already, or two turns of one have one id.
    """
    return store.restore(_users(lines, name), replace)


def _users(lines: Iterable[str], name: str) -> Iterator[Contents]:
    for number, raw in _objects(lines, name):
        where = f"{name}: line {number}"
        try:
            line = UserLine.model_validate(raw)
            _check(line, where)
            yield _contents(line)
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(map(str, first["loc"]))
            raise DataError(f"{where}: {_shown(path)}: {_shown(first['msg'])}") from error
        except ConflictError:
            raise
        except (UserError, OverflowError) as error:
            raise DataError(f"{where}: {error}") from error


def _shown(text: str) -> str:
    """Text of a file as a message can show it: short, and nothing but what can be printed."""
    cut = text if len(text) <= 150 else f"{text[:150]}..."
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in cut)


def _contents(line: UserLine) -> Contents:
    """What a line holds, as a store takes it; times are kept in UTC, as everywhere."""
    items = tuple(replace(one, item=checked(plain(one.item))) for one in line.items)
    opened = tuple(checked(plain(session)) for session in line.open)
    metadata = {position: checked_metadata(said) for position, said in line.metadata.items()}
    of_open = {name_of("session", id): checked_metadata(said) for id, said in line.open_metadata.items()}
    owner = Owner(line.user, line.tenant)
    return Contents(owner, items, opened, _document(line.document), line.amendments, metadata, of_open)


def _line(store: Store, owner: Owner, skipped: list[str] | None) -> UserLine:
    found = store.dump(owner, skipped)
    return UserLine(
        tenant=owner.tenant,
        user=owner.user,
        items=found.items,
        open=found.open,
        document=_document_line(found.document) if found.document else None,
        amendments=found.amendments,
        metadata={position: dict(said) for position, said in found.metadata.items()},
        open_metadata={id: dict(said) for id, said in found.open_metadata.items()},
    )


def _document_line(document: Document) -> DocumentLine:
    own = {name: getattr(document, name) for name in _OWN}
    stamp = document.stamp
    about = {"writer": stamp.writer, "program": stamp.program, "embedder": stamp.embedder}
    return DocumentLine.model_validate({**own, **about, "schema_version": stamp.schema})


def _document(line: DocumentLine | None) -> Document | None:
    if line is None:
        return None
    stamp = Stamp(line.writer, line.program, line.embedder, line.schema_version)
    return Document(**{name: getattr(line, name) for name in _OWN}, stamp=stamp)


def _check(line: UserLine, where: str) -> None:
    """Refuses positions that would skip an item or apply it twice, ids that are there twice, a memory that is none."""
    positions = [item.position for item in line.items]
    if positions != sorted(set(positions)):
        raise DataError(f"{where}: the positions of its items do not rise; export it again")
    ids = [item.item.id for item in line.items] + [session.id for session in line.open]
    twice = next((id for id, count in Counter(ids).items() if count > 1 or not id), None)
    if twice is not None:
        raise DataError(f"{where}: session id {twice!a:.100} is empty or there twice; give each session its own")
    nothing = next((position for position in line.metadata if position not in positions), None)
    if nothing is not None:
        raise DataError(f"{where}: metadata of the position {nothing}, where no item is; export it again")
    nobody = next((id for id in line.open_metadata if id not in ids[len(line.items) :]), None)
    if nobody is not None:
        raise DataError(f"{where}: metadata of {nobody!a:.100}, which is no open session; export it again")
    numbers = [row.number for row in line.amendments]
    if numbers != sorted(set(numbers)):
        raise DataError(f"{where}: the numbers of its amendments do not rise; export it again")
    last = line.document.position if line.document else 0
    wrong = next((i for i in line.items if i.state != "failed" and (i.state == "queued") != (i.position > last)), None)
    if wrong is not None:
        raise DataError(f"{where}: item {wrong.item.id!r} is {wrong.state}, but the memory ends at position {last}")
    for text in (line.document.memory, line.document.settled) if line.document else ():
        if text is not None and not isinstance(_parsed(text, f"{where}: document"), dict):
            raise DataError(f"{where}: document: the memory is no JSON object; export it again")


def _objects(lines: Iterable[str], name: str) -> Iterator[tuple[int, Any]]:
    """The JSON objects of the lines after the header, numbered; headers of joined files are passed over."""
    begun = False
    for number, text in _numbered(lines, name):
        if not text.strip():
            continue
        found = _parsed(text, f"{name}: line {number}")
        header = found if isinstance(found, dict) and found.get("mempiler") == "memories" else None
        if header and header.get("schema") != SCHEMA:
            raise DataError(f"{name}: version {header.get('schema')!a:.40} of the format, this Mempiler reads {SCHEMA}")
        if not begun and not header:
            raise DataError(f"{name}: no memories of Mempiler; give a file that `mempiler memories export` wrote")
        begun = True
        if not header:
            yield number, found
    if not begun:
        raise DataError(f"{name}: the file is empty")


def _numbered(lines: Iterable[str], name: str) -> Iterator[tuple[int, str]]:
    try:
        yield from enumerate(lines, 1)
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: is no UTF-8 text ({error.reason}); give the file as it was exported") from error


def _parsed(text: str, where: str) -> JsonValue:
    """The JSON value of a text.

    Raises:
        DataError: It is no strict JSON.
    """
    try:
        return decode(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{where} is not valid JSON ({error.msg}); the file was cut") from error
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error
