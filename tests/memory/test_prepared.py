"""Statements that go to SQLite's driver as text: rows, lists of values and errors are as SQLAlchemy gives them."""

from pathlib import Path
from typing import Any

import pytest
from mempiler import Store
from mempiler.memory import store_tables as t
from mempiler.memory.prepared import Prepared
from mempiler.memory.store_tables import given
from sqlalchemy import insert, literal, select
from sqlalchemy.exc import IntegrityError

NEW = Prepared(insert(t.meta))
FOUND = Prepared(select(t.meta.c.name, literal(7).label("seven")).where(t.meta.c.name == given("wanted")))


@pytest.fixture
def opened(url: str) -> Any:
    with Store(url) as store:
        yield store._engine


def test_rows_have_names_and_constants(opened: Any) -> None:
    with opened.begin() as db:
        NEW.each(db, [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}])
        NEW.each(db, [])
        NEW(db, {"name": "c", "value": None})
        rows = [row for name in "abcd" for row in FOUND(db, {"wanted": name})]
        assert [(row.name, row.seven) for row in rows] == [("a", 7), ("b", 7), ("c", 7)]


def test_error_is_sqlalchemys_and_undoes_the_transaction(opened: Any) -> None:
    with pytest.raises(IntegrityError), opened.begin() as db:
        NEW.each(db, [{"name": "a", "value": value} for value in "12"])
    with opened.begin() as db:
        assert not FOUND(db, {"wanted": "a"})


def test_statement_serves_several_databases(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with Store(tmp_path / name) as store, store._engine.begin() as db:
            assert not FOUND(db, {"wanted": "a"})
            NEW(db, {"name": "a", "value": name})
            assert len(FOUND(db, {"wanted": "a"})) == 1
