"""What callers say of sessions, as rows of a store, on SQLite and PostgreSQL."""

from typing import Any

import pytest
from mempiler import ConflictError, Session, Turn, UserError
from mempiler.memory.metadata import Conditions
from mempiler.memory.stored import Owner

ADA, OTHER = Owner("ada"), Owner("ada", "other")


def session(id: str) -> Session:
    return Session(id=id, turns=tuple(Turn(id=f"{id}:{n}", speaker="Ada", text="tea") for n in (1, 2)))


def chosen(store: Any, owner: Owner, **where: Any) -> set[str]:
    return set(store.turns_where(owner, Conditions.parse(where)))


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
    store.add(ADA, session("a"), metadata={"n": 1})
    assert store.add(ADA, session("a"), metadata={"n": 1}).new is False
    for other in ({"n": 2}, None):
        with pytest.raises(ConflictError):
            store.add(ADA, session("a"), metadata=other)
    with pytest.raises(UserError):
        store.add(ADA, session("b"), metadata={"n": [1]})
    assert [stored.item.id for stored in store.items(ADA)] == ["a"]
    store.forget_item(ADA, "a")
    store.add(ADA, session("a"))
    assert chosen(store, ADA, n=1) == set()
