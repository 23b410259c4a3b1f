"""Memories as JSON lines: for backups, for moving to another store, and for a user's right to data.

    {"mempiler": "memories", "schema": 1}
    {"tenant": "default", "user": "ada", "items": [...], "open": [...], "document": {...} or null}

One line per user, complete in itself, so a file can be cut and joined. `memory.store.transfer`
reads users from a store, and stores them.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TextIO, cast

from pydantic import TypeAdapter, ValidationError

from ...errors import DataError, UserError
from ...memory.incoming_items import storable_item
from ...memory.names import valid_name
from ...memory.store.owner import Owner
from ...memory.store.records import UserDump
from ...memory.store.store import Store
from ...records.json_input import parse_json
from ...validation import validation_message

MARK = '{"mempiler": "memories"'
"""The beginning of a file of memories."""
SCHEMA = 1

_USER: TypeAdapter[UserDump] = TypeAdapter(UserDump)
_MEMORY_FIELDS = ("memory", "position", "finalized", "finalized_position", "speakers")
"""What the document of a line has of the memory."""
_STAMP_FIELDS = ("writer", "program", "embedder", "schema_version")
"""What the document of a line has of the program that wrote the memory."""
_OPTIONAL_FIELDS = ("amendments", "metadata", "open_metadata", "answers", "feedback")
"""Fields that are left out of a line where they are empty."""


def export_users(
    store: Store, file: TextIO, tenant: str | None = None, user: str | None = None
) -> int:
    """Write users as JSON lines: all users, or those of one tenant or one name.

    Returns:
        How many users were written.
    """
    file.write(json.dumps({"mempiler": "memories", "schema": SCHEMA}) + "\n")
    owners = [status.owner for status in store.users.list_all(tenant, user)]
    for owner in owners:
        fields = _fields_of_dump(store.transfer.dump(owner))
        file.write(json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n")
    return len(owners)


def import_users(
    store: Store, lines: Iterable[str], name: str, replace_existing: bool = False
) -> int:
    """Store users from lines that `export_users` wrote: all of them in one transaction, or none.

    Args:
        store: Where they are stored.
        lines: The lines of a file, or of several files that were joined.
        name: Names the file in errors.
        replace_existing: Whether a user who is in the store already is forgotten first.

    Returns:
        How many users were stored.

    Raises:
        DataError: A line is malformed, of another version of the format, or holds the same user as
            a line before it.
        ConflictError: A user is in the store already, or two turns of a user have the same id,
            which only the store finds out.
    """
    return store.transfer.restore(_read_dumps(lines, name), replace_existing)


def _read_dumps(lines: Iterable[str], name: str) -> Iterator[UserDump]:
    """Yield the users of a file; every error says which line it is about.

    Each line is a user or a header. Files that were joined have further headers between the users.
    """
    has_header = False
    line_numbers: dict[Owner, int] = {}
    try:
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            where = f"{name}: line {number}"
            with _errors_with_line(where):
                fields = _parse_object(text, where)
            if fields.get("mempiler") == "memories":
                _check_header(fields, name)
                has_header = True
                continue
            if not has_header:
                raise DataError(
                    f"{name}: no memories of Mempiler; "
                    "give a file that `mempiler memories export` wrote"
                )

            with _errors_with_line(where):
                dump = _parse_dump(fields, where)
            _refuse_repeated_user(dump.owner, number, line_numbers, where)
            yield dump
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}: is no UTF-8 text ({error.reason}); give the file as it was exported"
        ) from error
    if not has_header:
        raise DataError(f"{name}: the file is empty")


def _refuse_repeated_user(
    owner: Owner, number: int, line_numbers: dict[Owner, int], where: str
) -> None:
    """Refuse a line about a user who is in an earlier line of the file.

    The store would find the user there already, from the earlier line. It would overwrite the user,
    or report that the user existed before the import.

    Args:
        owner: The user of this line.
        number: The number of this line.
        line_numbers: The first line of each user. A new user is added to it.
        where: The file and the line, for the error message.
    """
    first_number = line_numbers.setdefault(owner, number)
    if first_number != number:
        user = f"user {owner.user!r} of tenant {owner.tenant!r}"
        raise DataError(f"{where}: {user} is in line {first_number} too; keep one of them")


@contextmanager
def _errors_with_line(where: str) -> Generator[None]:
    """Turn what is wrong with a line in the block into a `DataError` that names the line."""
    try:
        yield
    except ValidationError as error:
        raise DataError(f"{where}: {validation_message(error)!a:.200}") from error
    except DataError:
        # It names the line already.
        raise
    except (UserError, OverflowError) as error:
        raise DataError(f"{where}: {error}") from error


def _parse_object(text: str, where: str) -> dict[str, Any]:
    """Return the JSON object in a line."""
    value = parse_json(text, where)
    if not isinstance(value, dict):
        raise DataError(f"{where}: is no JSON object; the file was changed")
    return cast("dict[str, Any]", value)


def _check_header(fields: Mapping[str, Any], name: str) -> None:
    """Refuse a file of another version of the format."""
    schema = fields.get("schema")
    if schema != SCHEMA:
        raise DataError(
            f"{name}: version {schema!a:.40} of the format, this Mempiler reads {SCHEMA}"
        )


def _parse_dump(fields: Mapping[str, Any], where: str) -> UserDump:
    """Return the user of a line, checked.

    Raises:
        DataError: Its parts do not fit together.
        ValidationError: A field is missing, unknown or of the wrong type.
        UserError: A name or a text cannot be stored.
    """
    # A line has the parts of the owner and of the stamp as plain fields of their own.
    dump_fields = dict(fields)
    dump_fields["owner"] = {
        "user": dump_fields.pop("user", None),
        "tenant": dump_fields.pop("tenant", None),
    }
    document = dump_fields.get("document")
    if isinstance(document, dict):
        dump_fields["document"] = _with_nested_stamp(cast("dict[str, Any]", document), where)
    dump = _USER.validate_python(dump_fields)

    _check_ids_and_positions(dump, where)
    _check_memory(dump, where)
    _check_answers(dump, where)

    # Names, ids and turns that no store takes are refused here, where the line is known. The owner
    # was checked when it was parsed.
    items = [replace(stored, item=storable_item(stored.item)) for stored in dump.items]
    open_metadata = {
        valid_name("session", session_id): metadata
        for session_id, metadata in dump.open_metadata.items()
    }
    return replace(
        dump,
        items=tuple(items),
        open=tuple(storable_item(session) for session in dump.open),
        open_metadata=open_metadata,
    )


def _with_nested_stamp(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the document of a line in the shape of a `Document`, with its stamp in one field.

    Raises:
        DataError: Fields are missing or unknown.
    """
    if document.keys() != {*_MEMORY_FIELDS, *_STAMP_FIELDS}:
        raise DataError(
            f"{where}: document: has other fields than one of an export; export it again"
        )
    fields = {name: document[name] for name in _MEMORY_FIELDS}
    fields["stamp"] = {name: document[name] for name in _STAMP_FIELDS}
    return fields


def _fields_of_dump(dump: UserDump) -> dict[str, Any]:
    """Return the fields of a user's line, in the order in which a file shows them.

    The owner and the stamp of the document are not nested: their parts are fields of their own.
    """
    fields: dict[str, Any] = {"user": dump.owner.user, "tenant": dump.owner.tenant}
    fields |= _USER.dump_python(dump, mode="json", exclude={"owner"}, by_alias=True)
    document = fields["document"]
    if document is not None:
        memory_fields = {name: document[name] for name in _MEMORY_FIELDS}
        fields["document"] = memory_fields | document["stamp"]
    for name in _OPTIONAL_FIELDS:
        if not fields[name]:
            del fields[name]
    return fields


def _check_ids_and_positions(dump: UserDump, where: str) -> None:
    """Refuse ids and numbers that are there twice, or out of order, and metadata of nothing."""
    positions = [stored.position for stored in dump.items]
    if not _rises(positions):
        raise _mismatch(where, "the positions of its items do not rise")
    if not _rises([amendment.number for amendment in dump.amendments]):
        raise _mismatch(where, "the numbers of its amendments do not rise")

    open_ids = [session.id for session in dump.open]
    session_ids = [stored.item.id for stored in dump.items] + open_ids
    if "" in session_ids or len(session_ids) > len(set(session_ids)):
        raise _mismatch(where, f"a session id is empty or there twice, of {session_ids!a:.100}")

    if dump.metadata.keys() - set(positions):
        raise _mismatch(where, "it has metadata of a position where no item is")
    if dump.open_metadata.keys() - set(open_ids):
        raise _mismatch(where, "it has metadata of something which is no open session")


def _check_memory(dump: UserDump, where: str) -> None:
    """Refuse a memory that is no JSON object, or that contradicts the states of the items.

    Items that are remembered, or partial (but for some turns), are in the memory. So none of them
    may lie behind the memory's last position.
    """
    document = dump.document
    last_position = document.position if document else 0
    for stored in dump.items:
        is_in_memory = stored.state in ("remembered", "partial")
        if is_in_memory and stored.position > last_position:
            raise _mismatch(
                where,
                f"the memory ends at position {last_position}, but an item behind it is "
                "marked as remembered",
            )
        # The opposite is allowed: an item before that position may be queued. It failed once, and
        # is tried again.

    if document is None:
        return
    for text in (document.memory, document.finalized or "{}"):
        if not isinstance(parse_json(text, f"{where}: document"), dict):
            raise _mismatch(where, "document: the memory is no JSON object")


def _check_answers(dump: UserDump, where: str) -> None:
    """Refuse answers that are there twice, and feedback on an answer that is not there."""
    answer_ids = [answer.id for answer in dump.answers]
    if len(answer_ids) > len(set(answer_ids)):
        raise _mismatch(where, "it has two answers of one id")

    rated_ids = [rating.answer for rating in dump.feedback]
    if len(rated_ids) > len(set(rated_ids)):
        raise _mismatch(where, "it has feedback twice on one answer")
    if set(rated_ids) - set(answer_ids):
        raise _mismatch(where, "it has feedback on an answer that is not there")


def _rises(numbers: list[int]) -> bool:
    """Return whether each number is larger than the one before it."""
    return numbers == sorted(set(numbers))


def _mismatch(where: str, reason: str) -> DataError:
    return DataError(f"{where}: {reason}; export it again")
