"""Amendments as rows of a store, on SQLite and PostgreSQL."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from mempiler import ConflictError, Session, Turn
from mempiler.memory.amending import Amendment
from mempiler.memory.stored import Owner

ADA, BOB = Owner("ada"), Owner("ada", "other")
ROW = Amendment(1, "update", "D1:1", "turn", "Ada: tea", ("D1:1",), "Ada: rum", datetime(2025, 1, 2, 3, 4, 5), "Ada")


def session(id: str) -> Session:
    return Session(id=id, turns=(Turn(id=f"{id}:1", speaker="Ada", text="tea"),))


def test_amendments_are_numbered_one_after_the_other_for_each_user(store: Any) -> None:
    for owner in (ADA, BOB):
        store.add(owner, session("D1"))
    assert [store.amend(ADA, row) for row in (ROW, ROW, replace(ROW, number=3))] == [True, False, False]
    assert (store.read(ADA).amended, store.read(BOB).amended) == (1, 0)
    assert store.amendments(ADA) == [ROW]
    assert store.amend(ADA, replace(ROW, number=2, what="undo", undoes=1))
    assert store.amend(BOB, ROW)
    assert [row.number for row in store.amendments(ADA)] == [1, 2]
    assert store.amend(Owner("nobody"), ROW) is False


def test_amendments_go_with_what_they_rest_on_and_do_not_come_back(store: Any) -> None:
    for id in ("D1", "D2"):
        store.add(ADA, session(id))
    since = store.forgets()
    assert store.amend(ADA, ROW)
    assert store.amend(ADA, replace(ROW, number=2, entry="D2:1", sources=("D2:1",)))
    store.forget_item(ADA, "D1")
    assert [row.number for row in store.amendments(ADA)] == [2]
    store.forget(ADA)
    assert store.amendments(ADA) == []
    store.add(ADA, session("D1"))
    with pytest.raises(ConflictError, match="forgotten"):
        store.amend(ADA, ROW, since)
    assert store.amendments(ADA) == []
