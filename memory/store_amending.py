"""Amendments in a store: one row each, in order, with everything else of their user."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, func, insert, select

from ..errors import UserError
from . import erasing
from . import store_tables as t
from .amending import Amendment
from .store_reads import BATCH
from .store_rows import lock
from .store_tables import each, given, key_of, mine, of, whose
from .stored import Owner

_WHAT: TypeAdapter[Literal["delete", "update", "undo"]] = TypeAdapter(Literal["delete", "update", "undo"])
MOST = 10_000
"""Most amendments of a user."""
_ROWS = select(t.amendments).where(*mine(t.amendments)).order_by(t.amendments.c.number)
_LAST = select(func.max(t.amendments.c.number).label("number")).where(*mine(t.amendments))
_NEW = insert(t.amendments)
_THERE = select(t.turns.c.turn).where(*mine(t.turns), t.turns.c.turn.in_(given("ids")))


def read(db: Connection, owner: Owner, skipped: list[str] | None = None) -> list[Amendment]:
    """All amendments of a user, in order."""
    rows = db.execute(_ROWS, whose(owner))
    return each(t.amendments, owner, "number", rows, _amendment, skipped)


def write(db: Connection, owner: Owner, row: Amendment, since: int) -> bool:
    """Writes the amendment that follows the last one; false if another one came first, or the user is not known.

    Raises:
        ConflictError: The user was forgotten since.
        UserError: There are too many.
    """
    known = lock(db, owner, make=False)
    erasing.refuse(db, owner, since)
    last = db.execute(_LAST, whose(owner)).one()
    if row.number > MOST:
        raise UserError(f"user {owner.user!r} has {MOST} amendments, the most there can be; forget sessions instead")
    if not known or row.number != (last.number or 0) + 1:
        return False
    put(db, owner, [row])
    return True


def put(db: Connection, owner: Owner, rows: Iterable[Amendment]) -> None:
    """Writes amendments as they are."""
    for row in rows:
        about = {
            name: getattr(row, name) for name in ("number", "what", "entry", "kind", "text", "new", "by", "undoes")
        }
        at = row.at.replace(tzinfo=UTC).timestamp() if row.at else 0.0
        db.execute(_NEW, {**key_of(owner), **about, "sources": json.dumps(row.sources), "at": at})


def drop_unfounded(db: Connection, owner: Owner) -> None:
    """Deletes the amendments of entries that rest on a turn that is not there any more."""
    rows = read(db, owner)
    wanted = sorted({turn for row in rows for turn in row.sources})
    there = set[str]()
    for n in range(0, len(wanted), BATCH):
        there.update(db.execute(_THERE, whose(owner, ids=wanted[n : n + BATCH])).scalars())
    gone: Sequence[int] = [row.number for row in rows if not there.issuperset(row.sources)]
    for n in range(0, len(gone), BATCH):
        numbers = t.amendments.c.number.in_(gone[n : n + BATCH])
        db.execute(delete(t.amendments).where(*of(t.amendments, owner), numbers))


def _amendment(row: Any) -> Amendment:
    at = datetime.fromtimestamp(row.at, UTC).replace(tzinfo=None) if row.at else None
    return Amendment(
        number=row.number,
        what=_WHAT.validate_python(row.what),
        entry=row.entry,
        kind=row.kind,
        text=row.text,
        sources=tuple(json.loads(row.sources)),
        new=row.new,
        at=at,
        by=row.by,
        undoes=row.undoes,
    )
