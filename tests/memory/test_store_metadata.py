"""What callers say of sessions, as rows of a store, on SQLite and PostgreSQL."""

from typing import Any

import pytest
from mempiler import ConflictError, Session, Turn, UserError
from mempiler.memory.incoming import checked_conditions
from mempiler.memory.stored import Owner

ADA, OTHER = Owner("ada"), Owner("ada", "other")


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


def say(store: Any, id: str, **metadata: Any) -> None:
    store.append(ADA, id, [Turn(id="", speaker="Ada", text="tea")], metadata=metadata)


def test_an_open_session_has_what_was_said_of_it_last_and_takes_it_along_when_it_ends(store: Any) -> None:
    say(store, "a", n=1, channel="phone")
    say(store, "a", n=2)
    say(store, "a")
    say(store, "b", n=1)
    for _ in range(2):
        assert chosen(store, ADA, n=2, channel="phone") == {"a:1", "a:2", "a:3"}
        assert chosen(store, ADA, n=1) == {"b:1"}
        assert store.sessions(ADA, ["a:3"])["a:3"] == ("a", {"n": 2, "channel": "phone"})
        store.end(ADA, "a")
    assert chosen(store, OTHER, n=1) == set()
    assert store.dump(ADA).metadata == {1: {"n": 2, "channel": "phone"}}
    assert store.dump(ADA).open_metadata == {"b": {"n": 1}}
