"""Memories as JSON lines: for backups, for moving between SQLite and PostgreSQL, and for a user's right to their data.

    {"mempiler": "memories", "schema": 1}
    {"tenant": "default", "user": "ada", "items": [...], "open": [...], "document": {...} or null}

One line per user, complete in itself, so a file can be cut and joined.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TextIO, cast

from pydantic import TypeAdapter, ValidationError

from ..errors import DataError, UserError
from ..memory.incoming_items import storable_item
from ..memory.names import valid_name
from ..memory.store.store import Store
from ..memory.store.owner import Owner
from ..memory.store.records import UserDump
from ..records.json_input import parse_json
from ..validation import validation_message

MARK = '{"mempiler": "memories"'
"""The beginning of a file of memories."""
SCHEMA = 1
_USER: TypeAdapter[UserDump] = TypeAdapter(UserDump)
_DOCUMENT = ("memory", "position", "finalized", "finalized_position", "speakers")
_STAMP = ("writer", "program", "embedder", "schema_version")
"""What a line has of a memory as it is, and of who wrote it."""
_LATER = ("amendments", "metadata", "open_metadata")
"""Left out where there are none: a file without them can be read by a version that does not know them."""


def export_users(store: Store, file: TextIO, tenant: str | None = None, user: str | None = None) -> int:
    """Writes users, all or those of one tenant or one name, as JSON lines; returns how many."""
    file.write(json.dumps({"mempiler": "memories", "schema": SCHEMA}) + "\n")
    owners = [found.owner for found in store.users.list_all(tenant, user)]
    for owner in owners:
        file.write(json.dumps(_line(store.transfer.dump(owner)), ensure_ascii=False, separators=(",", ":")) + "\n")
    return len(owners)


def import_users(store: Store, lines: Iterable[str], name: str, replace: bool = False) -> int:
    """Reads users from what `export_users` wrote: all of them in one transaction, or none; returns how many.

    Args:
        store: Where they go.
        lines: Of a file, or of several that were joined.
        name: Names the file in errors.
        replace: Whether a user who is there already is forgotten first.

    Raises:
        DataError: A line is no user that can be stored, a user of a line before, or of another version.
        ConflictError: A user is there already, or two turns of one have one id.
    """
    return store.transfer.restore(_users(lines, name), replace)


def _users(lines: Iterable[str], name: str) -> Iterator[UserDump]:
    begun, where = False, name
    lines_by_owner = dict[Owner, int]()
    try:
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            where = f"{name}: line {number}"
            found = parse_json(text, where)
            if not isinstance(found, dict):
                raise DataError(f"{where}: is no JSON object; the file was changed")
            line = cast("dict[str, Any]", found)
            header = line.get("mempiler") == "memories"
            if header and line.get("schema") != SCHEMA:
                version = f"version {line.get('schema')!a:.40}"
                raise DataError(f"{name}: {version} of the format, this Mempiler reads {SCHEMA}")
            if not begun and not header:
                raise DataError(f"{name}: no memories of Mempiler; give a file that `mempiler memories export` wrote")
            begun = True
            if not header:
                contents = _contents(line, where)
                # The second line of a user would replace the first, or be blamed on the store.
                first = lines_by_owner.setdefault(contents.owner, number)
                if first != number:
                    owner = contents.owner
                    user = f"user {owner.user!r} of tenant {owner.tenant!r}"
                    raise DataError(f"{where}: {user} is in line {first} too; keep one of them")
                yield contents
    except ValidationError as error:
        raise DataError(f"{where}: {validation_message(error)!a:.200}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: is no UTF-8 text ({error.reason}); give the file as it was exported") from error
    except DataError:
        raise
    except (UserError, OverflowError) as error:
        raise DataError(f"{where}: {error}") from error
    if not begun:
        raise DataError(f"{name}: the file is empty")


def _contents(line: dict[str, Any], where: str) -> UserDump:
    line["owner"] = {"user": line.pop("user", None), "tenant": line.pop("tenant", None)}
    if isinstance(given := line.get("document"), dict):
        document = cast("dict[str, Any]", given)
        if document.keys() != {*_DOCUMENT, *_STAMP}:
            raise DataError(f"{where}: document: has other fields than one of an export; export it again")
        document["stamp"] = {name: document.pop(name) for name in _STAMP}
    found = _USER.validate_python(line)
    _check(found, where)
    return replace(
        found,
        items=tuple(replace(one, item=storable_item(one.item)) for one in found.items),
        open=tuple(map(storable_item, found.open)),
        open_metadata={valid_name("session", id): said for id, said in found.open_metadata.items()},
    )


def _line(found: UserDump) -> dict[str, Any]:
    line = {**vars(found.owner), **_USER.dump_python(found, mode="json", exclude={"owner"}, by_alias=True)}
    if document := line["document"]:
        line["document"] = {name: document[name] for name in _DOCUMENT} | document["stamp"]
    return {name: value for name, value in line.items() if value or name not in _LATER}


def _check(found: UserDump, where: str) -> None:
    """Refuses positions that would skip an item or apply it twice, ids that are there twice, a memory that is none."""
    positions, numbers = [item.position for item in found.items], [row.number for row in found.amendments]
    opened, document = [session.id for session in found.open], found.document
    ids = [item.item.id for item in found.items] + opened
    last = document.position if document else 0
    texts = (document.memory, document.finalized or "{}") if document else ()
    values = [parse_json(text, f"{where}: document") for text in texts]
    for wrong, what in (
        (positions != sorted(set(positions)), "the positions of its items do not rise"),
        (numbers != sorted(set(numbers)), "the numbers of its amendments do not rise"),
        ("" in ids or len(ids) > len(set(ids)), f"a session id is empty or there twice, of {ids!a:.100}"),
        (found.metadata.keys() - set(positions), "it has metadata of a position where no item is"),
        (found.open_metadata.keys() - set(opened), "it has metadata of something which is no open session"),
        (
            any(i.state != "failed" and (i.state == "queued") != (i.position > last) for i in found.items),
            f"the memory ends at position {last}, but what is remembered does not",
        ),
        (not all(isinstance(value, dict) for value in values), "document: the memory is no JSON object"),
    ):
        if wrong:
            raise DataError(f"{where}: {what}; export it again")
