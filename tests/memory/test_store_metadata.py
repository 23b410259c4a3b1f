"""What callers say of sessions and change in entries, as rows of a store, on SQLite and PostgreSQL."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from mempiler import ConflictError, Session, Turn, UserError
from mempiler.memory.amending import Amendment
from mempiler.memory.incoming import checked_conditions
from mempiler.memory.stored import Owner

from .conftest import ADA

OTHER = Owner("ada", "other")
ROW = Amendment(1, "update", "D1:1", "turn", "Ada: tea", ("D1:1",), "Ada: rum", datetime(2025, 1, 2, 3, 4, 5), "Ada")


def session(id: str) -> Session:
    return Session(id=id, turns=tuple(Turn(id=f"{id}:{n}", speaker="Ada", text="tea") for n in (1, 2)))


def chosen(store: Any, owner: Owner, **where: Any) -> set[str]:
    return set(store.turns_where(owner, checked_conditions(where)))


def test_sessions_are_found_by_their_metadata_and_no_other_users(store: Any) -> None:
    for id, n in (("a", 1), ("b", 2)):
        store.add(ADA, session(id), metadata={"n": n, "name": "Zoë ' \" \\ %"})
    store.add(ADA, session("c"))
    store.add(OTHER, session("d"), metadata={"n": 1})
    assert chosen(store, ADA, n=1) == {"a:1", "a:2"}
    assert chosen(store, ADA, n={"gt": 0}, name="Zoë ' \" \\ %") == {"a:1", "a:2", "b:1", "b:2"}
    assert chosen(store, OTHER, n=1) == {"d:1", "d:2"}
    assert store.sessions(ADA, ["a:1", "c:2", "d:1"]) == {
        "a:1": ("a", {"n": 1, "name": "Zoë ' \" \\ %"}),
        "c:2": ("c", {}),
    }


def test_metadata_are_stored_with_their_session_or_not_at_all(store: Any) -> None:
    assert [store.add(ADA, session("a"), metadata={"n": 1}).new for _ in range(2)] == [True, False]
    for other in ({"n": 2}, None):
        with pytest.raises(ConflictError):
            store.add(ADA, session("a"), metadata=other)
    with pytest.raises(UserError):
        store.add(ADA, session("b"), metadata={"n": [1]})
    assert [stored.item.id for stored in store.items(ADA)] == ["a"]
    store.forget_item(ADA, "a")
    store.add(ADA, session("a"))
    assert chosen(store, ADA, n=1) == set()


def test_an_open_session_has_what_was_said_of_it_last_and_takes_it_along_when_it_ends(store: Any) -> None:
    for id, said in (("a", {"n": 1, "channel": "phone"}), ("a", {"n": 2}), ("a", {}), ("b", {"n": 1})):
        store.append(ADA, id, [Turn(id="", speaker="Ada", text="tea")], metadata=said)
    for _ in range(2):
        assert chosen(store, ADA, n=2, channel="phone") == {"a:1", "a:2", "a:3"}
        assert chosen(store, ADA, n=1) == {"b:1"}
        assert store.sessions(ADA, ["a:3"])["a:3"] == ("a", {"n": 2, "channel": "phone"})
        store.end(ADA, "a")
    assert store.dump(ADA).metadata == {1: {"n": 2, "channel": "phone"}}
    assert store.dump(ADA).open_metadata == {"b": {"n": 1}}


def test_amendments_are_numbered_one_after_the_other_for_each_user(store: Any) -> None:
    for owner in (ADA, OTHER):
        store.add(owner, session("D1"))
    assert [store.amend(ADA, row) for row in (ROW, ROW, replace(ROW, number=3))] == [True, False, False]
    assert (store.read(ADA).amended, store.read(OTHER).amended, store.amendments(ADA)) == (1, 0, [ROW])
    assert [store.amend(owner, ROW) for owner in (OTHER, Owner("nobody"))] == [True, False]


def test_amendments_go_with_what_they_rest_on_and_do_not_come_back(store: Any) -> None:
    for id in ("D1", "D2"):
        store.add(ADA, session(id))
    since = store.forgets()
    assert store.amend(ADA, ROW)
    assert store.amend(ADA, replace(ROW, number=2, entry="D2:1", sources=("D2:1",)))
    store.forget_item(ADA, "D1")
    assert [row.number for row in store.amendments(ADA)] == [2]
    store.forget(ADA)
    store.add(ADA, session("D1"))
    with pytest.raises(ConflictError, match="forgotten"):
        store.amend(ADA, ROW, since)
    assert store.amendments(ADA) == []
