"""How often entries were recalled: counted in the process, written when there is time, gone with what they are of."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from mempiler import Session, Store, Turn
from mempiler.memory.store_recalls import EVERY, MOST
from mempiler.memory.stored import Owner

ADA, BOB = Owner("ada"), Owner("bob")
ADA_ELSEWHERE = Owner("ada", "elsewhere")


def add(store: Store, owner: Owner, id: str = "") -> None:
    store.add(owner, Session(id=id, turns=(Turn(id="", speaker="Ada", text="hello"),)))


def recalled(store: Store, owner: Owner) -> Mapping[str, int]:
    return store.dump(owner).recalled


def test_counts_add_up_and_users_and_tenants_are_apart(store: Store) -> None:
    for owner in (ADA, BOB, ADA_ELSEWHERE):
        add(store, owner)
    store.note_recalled(ADA, ["m1", "m2", "m1"], 0)
    store.note_recalled(BOB, ["m1"], 0)
    store.note_recalled(ADA_ELSEWHERE, [], 0)
    assert recalled(store, ADA) == {}
    store.keep_recalled()
    store.note_recalled(ADA, ["m2"], 0)
    store.keep_recalled()
    assert [recalled(store, owner) for owner in (ADA, BOB, ADA_ELSEWHERE)] == [{"m1": 1, "m2": 2}, {"m1": 1}, {}]


def test_counts_are_written_when_a_store_is_closed(open_store: Callable[..., Store]) -> None:
    store, other = open_store(), open_store()
    add(store, ADA)
    store.note_recalled(ADA, ["m1"], 0)
    store.close()
    assert recalled(other, ADA) == {"m1": 1}


def test_a_question_writes_only_after_many(store: Store) -> None:
    add(store, ADA)
    for n in range(EVERY):
        assert recalled(store, ADA) == {}, n
        store.note_recalled(ADA, [f"m{k}" for k in range(2 * MOST)], 0)
    assert recalled(store, ADA) == {f"m{n}": EVERY for n in range(MOST)}


@pytest.mark.parametrize("what", ["user", "session", "memory"])
def test_counts_go_with_what_they_are_of(store: Store, what: str) -> None:
    add(store, ADA, "s")
    add(store, ADA, "t")
    store.note_recalled(ADA, ["s:1"], 0)
    store.keep_recalled()
    deletes = {"user": store.forget, "session": lambda owner: store.forget_item(owner, "s"), "memory": store.reset}
    deletes[what](ADA)
    assert recalled(store, ADA) == {}


@pytest.mark.parametrize("what", ["user", "session"])
def test_a_count_of_before_the_forgetting_does_not_come_back(open_store: Callable[..., Store], what: str) -> None:
    here, elsewhere = open_store(), open_store()
    add(here, ADA, "s")
    here.note_recalled(ADA, ["s:1"], here.forgets())
    elsewhere.forget(ADA) if what == "user" else elsewhere.forget_item(ADA, "s")
    add(here, ADA, "t")
    here.keep_recalled()
    assert recalled(here, ADA) == {}
    here.note_recalled(ADA, ["t:1"], here.forgets())
    here.keep_recalled()
    assert recalled(here, ADA) == {"t:1": 1}


def test_nothing_is_kept_of_whom_nobody_knows(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.note_recalled(ADA, ["m1"], 0)
        store.keep_recalled()
        assert store.users() == []
        assert recalled(store, ADA) == {}
