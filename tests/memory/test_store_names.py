"""Names of users, tenants and sessions: one spelling each, and nothing in them that cannot be seen."""

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mempiler import Session, Store, Turn, UserError, build
from mempiler.memory.stored import Owner

NFC = "José"
NFD = unicodedata.normalize("NFD", NFC)
HIDDEN = {
    "zero width": "ad\u200ba",
    "bidi": "\u202eada",
    "filler": "ada\u3164",
    "tag": "ada\U000e0041",
}
OTHERS = {
    "control": "a\x07da",
    "line": "ada\u2028",
    "half": "ada\ud83d",
    "empty": "",
    "long": "a" * 513,
    "bytes": "名" * 267,
}


def session(text: str, id: str = "") -> Session:
    return Session(id=id, turns=(Turn(id="", speaker="Ada", text=text),))


def test_two_spellings_are_one_user_and_one_session(store: Store) -> None:
    assert NFC != NFD
    assert Owner(NFD, NFD) == Owner(NFC, NFC)
    assert store.add(Owner(NFD), session("one", NFD)).new
    assert not store.add(Owner(NFC), session("one", NFC)).new
    store.append(Owner(NFC), f"{NFD}2", [Turn(id="", speaker="Ada", text="two")])
    assert store.end(Owner(NFC), f"{NFC}2") is not None
    assert store.forget_item(Owner(NFD), f"{NFD}2")
    assert store.forget(Owner(NFD))


@pytest.mark.parametrize("name", (HIDDEN | OTHERS).values(), ids=HIDDEN | OTHERS)
@pytest.mark.parametrize("what", ["user", "tenant"])
def test_name_that_cannot_be_seen_or_stored_is_refused(name: str, what: str) -> None:
    with pytest.raises(UserError, match=rf"^{what} ") as raised:
        Owner(**{"user": "ada", what: name})
    assert "\n" not in str(raised.value)
    assert str(raised.value).isprintable()


def test_session_id_is_refused_alike(tmp_path: Path) -> None:
    name = HIDDEN["bidi"]
    with Store(tmp_path / "s.sqlite") as store:
        ada = Owner("ada")
        calls: list[Callable[[], Any]] = [
            lambda: store.add(ada, session("one", name)),
            lambda: store.append(ada, name, [Turn(id="", speaker="Ada", text="x")]),
            lambda: store.end(ada, name),
            lambda: store.forget_item(ada, name),
            lambda: build("turn-rag").memory(store, "ada").add([{"role": "user", "content": "x"}], id=name),
        ]
        for call in calls:
            with pytest.raises(UserError, match="cannot be seen"):
                call()
        assert store.users() == []


def test_names_of_before_hide_no_other_user(tmp_path: Path) -> None:
    from mempiler.memory import store_tables as t
    from sqlalchemy import update

    with Store(tmp_path / "s.sqlite") as store:
        for user in ("ada", "bob"):
            store.add(Owner(user), session("one"))
        with store._write() as db:
            db.execute(update(t.users).where(t.users.c.user == "ada").values(user="\u202eada"))
        assert [found.owner.user for found in store.users()] == ["bob", "\u202eada"]
