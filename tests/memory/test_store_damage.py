"""Rows that a failing disk or a stranger's tool has changed: named by where they are, never by what they hold."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
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


CUT, BYTES = b'{"x": "falcon', b"\xff falcon"
"""What is no JSON; and what is no text: of a byte that no UTF-8 has."""


@pytest.mark.parametrize(
    ("table", "column", "value", "where"),
    [
        ("items", "json", CUT, "position = 3"),
        ("items", "json", BYTES, "position = 3"),
        ("open_turns", "json", CUT, ""),
        ("changes", "memory", CUT, "number = 0"),
        ("changes", "memory", b'{"turns": {"sorted": 1}}', "number > 0"),
        ("memories", "speakers", CUT, ""),
        ("metadata", "json", CUT, "session = 's1'"),
        ("amendments", "sources", BYTES, ""),
    ],
)
def test_no_way_of_reading_says_what_a_damaged_row_holds(
    path: Path, table: str, column: str, value: bytes, where: str
) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        changed = f"UPDATE mempiler_{table} SET {column} = CAST(? AS TEXT)"
        db.execute(f"{changed} WHERE user = 'ada' AND {where or 'true'}", (value,))
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
        errors = list[StoreError]()
        for read in reads:
            try:
                read()
            except StoreError as error:
                errors.append(error)
        assert errors
        for error in errors:
            assert ("'ada'" in str(error), SECRET in str(error), error.__cause__) == (True, False, None)
        assert store.read(BOB).document
        assert store.forget(ADA), "damage is no reason to keep what is to be forgotten"
