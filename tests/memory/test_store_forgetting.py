"""Forgetting in a store: bytes that are gone or a word of what holds them, and nothing that comes back."""

import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mempiler import ConflictError, Session, Store, Turn
from mempiler.memory import store_claims
from mempiler.memory.stored import Document, Owner

from .conftest import ADA, BOB, WRITER, session


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


@pytest.mark.parametrize(
    ("forget", "name", "sessions", "turns"),
    [
        (lambda store: store.forget(ADA), "ada", 3, 4),
        (lambda store: store.forget_item(ADA, "s"), "s", 1, 2),
        (lambda store: store.forget_item(ADA, "chat"), "chat", 1, 1),
    ],
    ids=["user", "session", "open session"],
)
def test_a_receipt_counts_what_was_deleted_and_says_who_decides_about_the_bytes(store, forget, name, sessions, turns):
    store.add(ADA, session("one", "more", id="s"))
    store.add(ADA, session("two", id="t"))
    store.append(ADA, "chat", [Turn(id="", speaker="Ada", text="three")])
    found = forget(store)
    assert (bool(found), found.forgotten, found.sessions, found.turns) == (True, name, sessions, turns)
    assert not forget(store)
    if store.url.startswith("sqlite"):
        assert (found.erased, found.held_by) == (True, "")
    else:
        assert found.erased is None
        assert "until it needs the place, or VACUUM FULL; and in logs and backups" in found.held_by


def test_no_piece_of_the_text_stays_between_the_rows_of_a_page(tmp_path: Path) -> None:
    """Secure deletion overwrites deleted rows, but not what rows that were moved left behind."""
    chance = random.Random(6)
    with Store(tmp_path / "s.sqlite") as store:
        for n in range(150):
            _churn(store, chance, n)
        for user in range(3):
            store.forget(Owner(f"user{user}"))
        # Without a file that is written anew, four copies are left of user 2.
        assert files(tmp_path).count(b"MARK2x") == 0


def _churn(store: Store, chance: random.Random, n: int) -> None:
    """One random change of a random user, whose texts and ids all hold a marker."""
    user = chance.randrange(6)
    owner, mark = Owner(f"user{user}"), f"MARK{user}x"

    def text() -> str:
        size = chance.choice([3, 20, 200, 2000])
        return " ".join(mark if chance.random() < 0.3 else f"word{chance.randrange(999)}" for _ in range(size))

    if chance.random() < 0.3:
        store.append(owner, f"c{chance.randrange(5)}-{n // 40}", [Turn(id="", speaker=mark, text=text())])
    else:
        turns = tuple(Turn(id="", speaker="a", text=text()) for _ in range(chance.randrange(1, 5)))
        store.add(owner, Session(id=f"{mark}s{n}", turns=turns))
    claims = store.claim("me", 60, WRITER, owner) if chance.random() < 0.4 else []
    last = max((stored.position for stored in store.items(owner)), default=0)
    for claim in claims if last else ():
        memory = '{"m": "%s"}' % (text() * chance.randrange(1, 9))
        store.commit(claim, Document(memory, last, None, last, ("a",), WRITER), 60)
        store.release(claim)


def test_open_reader_is_named_and_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        store.add(ADA, session("a very secret word"))
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM mempiler_items").fetchone()
        begun, waits = time.monotonic(), []
        writing = threading.Thread(target=lambda: waits.append(_timed(lambda: store.add(BOB, session("two")))))
        writing.start()
        found = store.forget(ADA)
        writing.join()
        assert max(time.monotonic() - begun, *waits) < 8  # who waits for a writer does so for ten seconds
        assert (bool(found), found.erased) == (True, False)
        assert "somebody reads the store" in found.held_by
        assert b"secret" in files(tmp_path)
        reader.execute("COMMIT")
        with Store(path) as other:
            assert other.erase() == (True, "")
        assert not store.forget(ADA)
        assert b"secret" not in files(tmp_path)
        assert [one.owner for one in store.users()] == [BOB]


def _timed(call: Callable[[], Any]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def test_file_that_is_too_large_to_be_rewritten_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_claims, "MOST", 0)
    with Store(tmp_path / "s.sqlite") as store:
        store.add(ADA, session("one"))
        found = store.forget(ADA)
        assert (found.erased, "sqlite3 FILE VACUUM" in found.held_by) == (False, True)


@pytest.mark.parametrize("write", ["add", "append"])
def test_write_that_began_before_is_refused_in_every_process(open_store: Callable[..., Store], write: str) -> None:
    one, two = open_store(), open_store()
    one.forget(BOB)
    since = two.forgets()
    one.forget(ADA)

    def go(owner: Owner, since: int | None) -> None:
        if write == "add":
            two.add(owner, session("one"), since=since)
        else:
            two.append(owner, "chat", [Turn(id="", speaker="Ada", text="one")], since=since)

    with pytest.raises(ConflictError, match=r"^user 'ada' was forgotten while this was under way; nothing of it"):
        go(ADA, since)
    assert two.users() == []
    go(BOB, since)
    go(ADA, None)
    assert [found.owner for found in one.users()] == [ADA, BOB]


def test_write_that_waits_for_its_turn_while_the_user_is_forgotten_is_refused(open_store, monkeypatch) -> None:
    one, two = open_store(), open_store()
    before = two.forgets
    monkeypatch.setattr(two, "forgets", lambda: (before(), one.forget(ADA))[0])
    with pytest.raises(ConflictError):
        two.add(ADA, session("one"))
    assert one.users() == []


def test_first_write_of_a_new_user_is_waited_for_and_deleted(open_store: Callable[..., Store]) -> None:
    """Before it is committed nobody else sees that there is such a user."""
    one, two = open_store(), open_store()
    begun, go = threading.Event(), threading.Event()

    def users() -> Any:
        yield two.dump(ADA)
        begun.set()
        go.wait(10)

    writing = threading.Thread(target=two.restore, args=(users(),))
    writing.start()
    assert begun.wait(10)
    forgetting = threading.Thread(target=one.forget, args=(ADA,))
    forgetting.start()
    time.sleep(0.1)
    go.set()
    writing.join()
    forgetting.join()
    assert one.users() == []
