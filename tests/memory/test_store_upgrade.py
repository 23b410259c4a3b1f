"""A store of an earlier version is brought up to this one when it is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from mempiler.memory.store import Store
from mempiler.memory.store_tables import DROPPED, tables
from mempiler.memory.stored import Owner
from mempiler.records import Session, Turn
from sqlalchemy import create_engine, inspect


def test_tables_of_version_1_are_dropped_and_nothing_that_was_said_is_lost(tmp_path: Path) -> None:
    path, ada = tmp_path / "memories.sqlite", Owner("ada")
    said = Session(id="D1", turns=(Turn(id="D1:1", speaker="Ada", text="I moved to Lisbon."),))
    with Store(path) as store:
        store.add(ada, said)
    with sqlite3.connect(path) as made:
        for name in DROPPED:
            made.execute(f"CREATE TABLE mempiler_{name} (tenant VARCHAR, user VARCHAR, text VARCHAR)")
            made.execute(f"INSERT INTO mempiler_{name} VALUES ('default', 'ada', 'noted beside the memory')")
        made.execute("UPDATE mempiler_meta SET value = '1' WHERE name = 'schema'")
    made.close()
    for _ in range(2):
        with Store(path) as store:
            assert [one.item for one in store.items(ada)] == [said]
    engine = create_engine(f"sqlite:///{path}")
    assert set(inspect(engine).get_table_names()) == {table.name for table in tables.sorted_tables}
    engine.dispose()
