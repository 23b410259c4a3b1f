"""Memories as JSON lines: for backups, for moving between SQLite and PostgreSQL, and for a user's right to their data.

    {"mempiler": "memories", "schema": 1}
    {"tenant": "default", "user": "ada", "items": [...], "open": [...], "document": {...} or null}

One line per user, complete in itself, so a file can be cut and joined. A file holds what users said: keep it like the
store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from ..errors import DataError
from ..records import AnyItem, Session
from ..records.json_input import decode
from .store import Store
from .stored import Document, Owner, Stamp, State, StoredItem

SCHEMA = 1


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ItemLine(_Line):
    """A raw item."""

    position: int
    state: State
    error: str = ""
    attempts: int = 0
    item: AnyItem
    digest: str


class DocumentLine(_Line):
    """A memory."""

    memory: str
    position: int
    settled: str | None
    settled_position: int
    speakers: tuple[str, ...]
    writer: str
    program: str
    embedder: str
    schema_version: int


class UserLine(_Line):
    """Everything of one user."""

    tenant: str
    user: str
    items: tuple[ItemLine, ...]
    open: tuple[Session, ...] = ()
    document: DocumentLine | None = None


def export_users(store: Store, file: TextIO, tenant: str | None = None, user: str | None = None) -> int:
    """Writes users as JSON lines.

    Args:
        store: Where they are.
        file: Where to.
        tenant: Only this tenant's.
        user: Only this user.

    Returns:
        How many were written.
    """
    file.write(json.dumps({"mempiler": "memories", "schema": SCHEMA}) + "\n")
    owners = [found.owner for found in store.users(tenant, user)]
    for owner in owners:
        file.write(_line(store, owner).model_dump_json() + "\n")
    return len(owners)


def import_users(store: Store, lines: Iterable[str], name: str, replace: bool = False) -> int:
    """Reads users from JSON lines, each in its own transaction.

    Args:
        store: Where they go.
        lines: What `export_users` wrote.
        name: Names the file in errors.
        replace: Whether a user who is there already is forgotten first.

    Returns:
        How many were read.

    Raises:
        DataError: A line is no user, or of another version; users before it are there.
        ConflictError: A user is there already.
    """
    count = 0
    for number, raw in _objects(lines, name):
        try:
            line = UserLine.model_validate(raw)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise DataError(f"{name}: line {number}: {where}: {first['msg']}") from error
        items = [StoredItem(i.position, i.item, i.state, i.attempts, i.error) for i in line.items]
        digests = [item.digest for item in line.items]
        _check(line, f"{name}: line {number}")
        store.restore(Owner(line.user, line.tenant), items, digests, line.open, _document(line.document), replace)
        count += 1
    return count


def _line(store: Store, owner: Owner) -> UserLine:
    document, items, open_sessions = store.dump(owner)
    return UserLine(
        tenant=owner.tenant,
        user=owner.user,
        items=tuple(ItemLine.model_validate({**vars(stored), "digest": digest}) for stored, digest in items),
        open=tuple(open_sessions),
        document=_document_line(document) if document else None,
    )


def _document_line(document: Document) -> DocumentLine:
    own = {name: value for name, value in vars(document).items() if name not in ("stamp", "partial")}
    stamp = document.stamp
    about = {"writer": stamp.writer, "program": stamp.program, "embedder": stamp.embedder}
    return DocumentLine.model_validate({**own, **about, "schema_version": stamp.schema})


def _document(line: DocumentLine | None) -> Document | None:
    if line is None:
        return None
    stamp = Stamp(line.writer, line.program, line.embedder, line.schema_version)
    own = ("memory", "position", "settled", "settled_position", "speakers")
    return Document(**{name: getattr(line, name) for name in own}, stamp=stamp)


def _check(line: UserLine, where: str) -> None:
    """Refuses positions that would skip an item or apply it twice."""
    positions = [item.position for item in line.items]
    if positions != sorted(set(positions)) or any(position < 1 for position in positions):
        raise DataError(f"{where}: the positions of its items do not rise; export it again")
    last = line.document.position if line.document else 0
    wrong = next((i for i in line.items if i.state != "failed" and (i.state == "queued") != (i.position > last)), None)
    if wrong is not None:
        raise DataError(f"{where}: item {wrong.item.id!r} is {wrong.state}, but the memory ends at position {last}")


def _objects(lines: Iterable[str], name: str) -> Iterator[tuple[int, Any]]:
    """The JSON objects of the lines after the header, numbered; headers of joined files are passed over."""
    begun = False
    for number, text in _numbered(lines, name):
        if not text.strip():
            continue
        try:
            found: JsonValue = decode(text)
        except json.JSONDecodeError as error:
            raise DataError(f"{name}: line {number} is not valid JSON ({error.msg}); the file was cut") from error
        except ValueError as error:
            raise DataError(f"{name}: line {number}: {error}") from error
        header = found if isinstance(found, dict) and found.get("mempiler") == "memories" else None
        if header and header.get("schema") != SCHEMA:
            raise DataError(f"{name}: version {header.get('schema')!r} of the format, this Mempiler reads {SCHEMA}")
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
