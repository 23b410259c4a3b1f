"""Rows that a failing disk or a stranger's tool has changed: named by where they are, never by what they hold."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mempiler import Store, build
from mempiler.engines.models import language_model
from mempiler.errors import StoreError
from mempiler.memory.amending import Amendment

from .conftest import ADA, BOB, session

SECRET = "falcon"
"""Of everything that the damaged rows hold."""
SAID = f"the code is {SECRET}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of two users: two remembered sessions each, an amendment, a session that waits, and an open one."""
    path = tmp_path / "s.sqlite"
    program = build("turn-rag")
    with Store(path) as store:
        for owner in (ADA, BOB):
            for id in ("s1", "s2"):
                store.add(owner, session(SAID, id=id), metadata={"code": SECRET})
            program.memory(store, owner.user, lm=language_model("offline")).remember()
            store.amend(owner, Amendment(1, "delete", "s1:1", "turn", SECRET, ("s1:1",)))
            store.add(owner, session(SAID, id="s3"))
            store.append(owner, "s4", session(SAID).turns, metadata={"code": SECRET})
    return path


def hurt(path: Path, table: str, column: str, value: str, where: str = "") -> None:
    """Changes a column of Ada's rows; `{}` in the new value is the old one."""
    before, _, after = value.partition("{}") if "{}" in value else (value, "", "")
    new = f"cast(x'{before.encode('latin-1').hex()}' as text)"
    new += f" || {column} || '{after}'" if "{}" in value else ""
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE mempiler_{table} SET {column} = {new} WHERE user = 'ada'{where}")
    db.close()


CUT, BYTES = '{"x": "falcon', "\xff falcon {}"
"""What is no JSON; and what is no text: of a byte that no UTF-8 has."""
DAMAGE: list[tuple[str, str, str, str]] = [
    ("items", "json", CUT, " AND position = 3"),
    ("items", "json", BYTES, " AND position = 3"),
    ("items", "state", SECRET, " AND position = 3"),
    ("open_turns", "json", CUT, ""),
    ("changes", "memory", CUT, " AND number = 0"),
    ("changes", "memory", '{"turns": {"sorted": 1}}', " AND number > 0"),
    ("memories", "speakers", CUT, ""),
    ("metadata", "json", CUT, " AND session = 's1'"),
    ("amendments", "sources", BYTES, ""),
    ("amendments", "what", SECRET, ""),
]


def raised(read: Callable[[], Any]) -> Exception | None:
    try:
        read()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(("table", "column", "value", "where"), DAMAGE)
def test_no_way_of_reading_says_what_a_damaged_row_holds(
    path: Path, table: str, column: str, value: str, where: str
) -> None:
    hurt(path, table, column, value, where)
    with Store(path) as store:
        reads: list[Callable[[], Any]] = [
            lambda: store.read(ADA),
            lambda: store.items(ADA),
            lambda: store.turns(ADA, ["s3:1"]),
            lambda: store.sessions(ADA, ["s1:1"]),
            lambda: store.amendments(ADA),
            lambda: store.end(ADA, "s4"),
            lambda: store.dump(ADA),
            lambda: build("turn-rag").memory(store, "ada", lm=language_model("offline")).look(),
        ]
        errors = [error for error in map(raised, reads) if error is not None]
        assert errors
        for error in errors:
            assert (isinstance(error, StoreError), "'ada'" in str(error)) == (True, True), error
            assert (SECRET in str(error), error.__cause__) == (False, None)
        assert store.read(BOB).document
        assert store.forget(ADA), "damage is no reason to keep what is to be forgotten"
