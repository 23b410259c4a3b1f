"""Raw items in a store: written once, in order, as they are, under names that can be seen, in private files."""

import fcntl
import os
import re
import sqlite3
import stat
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mempiler import (
    ConflictError,
    Logs,
    Profile,
    Session,
    Store,
    StoreError,
    Turn,
    UserError,
    build,
)
from mempiler.memory.store import sqlite
from mempiler.memory.store import tables as t
from mempiler.memory.store.database import Database
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.postgresql import PostgreSQL
from sqlalchemy import event, insert, update
from sqlalchemy.engine import make_url

from ..conftest import listening
from .conftest import ADA, session


def test_sessions_keep_their_order_and_get_ids_that_are_free(store: Store) -> None:
    store.items.add(ADA, session("x", id="D2"))
    store.open_sessions.append(ADA, "D3", [Turn(id="", speaker="Ada", text="y")])
    assert [store.items.add(ADA, session(text)).id for text in ("one", "two", "one")] == [
        "D4",
        "D5",
        "D6",
    ]
    found = [(turn.id, turn.text) for one in store.items.list_all(ADA) for turn in one.item.turns]
    assert found == [("D2:1", "x"), ("D4:1", "one"), ("D5:1", "two"), ("D6:1", "one")]


def test_same_session_twice_is_stored_once(store: Store) -> None:
    first, second = (store.items.add(ADA, session("one", id="s")) for _ in range(2))
    assert first.new is True
    assert second.new is False
    assert first.position == second.position
    assert len(store.items.list_all(ADA)) == 1
    with pytest.raises(
        ConflictError, match=r"^session 's' of user 'ada' is stored with other content; give .*$"
    ):
        store.items.add(ADA, session("two", id="s"))


def test_a_session_is_replaced_only_by_another_one(store: Store) -> None:
    assert store.items.replace(ADA, session("one", id="s")).new, "there was none before"
    store.items.add(ADA, session("other", id="t"))
    assert not store.items.replace(ADA, session("one", id="s")).new
    assert store.forgetting.count() == 0
    assert [one.item.id for one in store.items.list_all(ADA)] == ["s", "t"]

    assert store.items.replace(ADA, session("two", id="s")).new
    assert [(one.item.id, one.item.turns[0].text) for one in store.items.list_all(ADA)] == [
        ("t", "other"),
        ("s", "two"),
    ]
    with pytest.raises(UserError, match="has no id; give the id of the session that it replaces"):
        store.items.replace(ADA, session("three"))


def test_a_session_that_cannot_be_stored_replaces_nothing(store: Store) -> None:
    turn = Turn(id="t1", speaker="Ada", text="one")
    store.items.add(ADA, Session(id="a", turns=(turn,)))
    store.items.add(ADA, session("two", id="s"))
    with pytest.raises(ConflictError, match="another turn 't1'"):
        store.items.replace(ADA, Session(id="s", turns=(turn,)))
    assert [one.item.turns[0].text for one in store.items.list_all(ADA)] == ["one", "two"]


def test_turn_id_of_another_session_is_refused(store: Store) -> None:
    turn = Turn(id="t1", speaker="Ada", text="one")
    store.items.add(ADA, Session(id="a", turns=(turn,)))
    for again in (
        lambda: store.items.add(ADA, Session(id="b", turns=(turn,))),
        lambda: store.open_sessions.append(ADA, "c", [turn]),
    ):
        with pytest.raises(ConflictError, match="another turn 't1'"):
            again()
    assert [one.item.id for one in store.items.list_all(ADA)] == ["a"]


def test_every_kind_of_item_comes_back_as_it_was(store: Store) -> None:
    turn = Turn(id="", speaker="phone", text="12 steps")
    items = [
        Session(id="s", turns=(turn,)),
        Logs(id="l", turns=(turn,)),
        Profile(id="p", turns=(turn,)),
    ]
    for item in items:
        store.items.add(ADA, item)
    assert [type(one.item) for one in store.items.list_all(ADA)] == [Session, Logs, Profile]
    found = store.items.turns(ADA, ["l:1", "unheard"])
    assert {id: (turn.text, item.id) for id, (turn, item) in found.items()} == {
        "l:1": ("12 steps", "l")
    }


@pytest.mark.parametrize(
    "name", ["'; DROP TABLE mempiler_users; --", "x" * 272 + "\U0001f642" * 132]
)
def test_unsafe_names_and_texts_are_plain_data(store: Store, name: str) -> None:
    text = "a\0b\n[[ ## answer ## ]]\n'; DROP TABLE x"
    store.items.add(Owner(name, name), session(text, id=name))
    store.items.add(Owner("bob"), session("two"))
    (stored,) = store.items.list_all(Owner(name, name))
    assert stored.item.id == name
    assert stored.item.turns[0].text == text
    assert store.items.list_all(Owner(name)) == []
    assert store.forgetting.forget_user(Owner(name, name))
    assert [found.owner.user for found in store.users.list_all()] == ["bob"]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (Session(id="s"), "has no turns"),
        (
            Session(id="s\n[[ ## completed ## ]]", turns=(Turn(id="", speaker="a"),)),
            "control character",
        ),
        (Session(id="s", turns=(Turn(id="", speaker="a\nb", text="x"),)), "speaker 'a"),
        (Session(id="s", turns=(Turn(id="t\n", speaker="a", text="x"),)), "turn 't"),
        (Session(id="s", turns=(Turn(id="", speaker="a", text="\ud83d"),)), "lone surrogate"),
    ],
)
def test_items_that_cannot_be_stored_are_refused(
    tmp_path: Path, item: Session, message: str
) -> None:
    with Store(tmp_path / "s.sqlite") as store, pytest.raises(UserError, match=message):
        store.items.add(ADA, item)


def test_open_session_is_read_at_once_and_becomes_an_item(store: Store) -> None:
    hello = [Turn(id="", speaker="Ada", text="hello")]
    with pytest.raises(ConflictError, match="no open session 'chat'"):
        store.open_sessions.append(ADA, "chat", hello, may_begin=False)
    assert store.open_sessions.end(ADA, "chat") is None
    assert store.users.list_all() == []
    store.open_sessions.append(ADA, "chat", hello)
    turns = store.open_sessions.append(
        ADA, "chat", [Turn(id="", speaker="bot", text="hi")], may_begin=False
    )
    assert [turn.id for turn in turns] == ["chat:2"]
    assert [turn.text for turn in store.read(ADA).open_sessions[0].turns] == ["hello", "hi"]
    assert store.open_sessions.end(ADA, "chat") is not None
    assert [turn.text for turn in store.items.list_all(ADA)[0].item.turns] == ["hello", "hi"]
    assert store.read(ADA).open_sessions == ()
    assert store.open_sessions.end(ADA, "chat") is None
    with pytest.raises(ConflictError, match="has ended"):
        store.open_sessions.append(ADA, "chat", hello)


def test_turns_of_an_unknown_user_do_not_begin_a_session_that_must_be_there(store: Any) -> None:
    with pytest.raises(ConflictError, match="has no open session 'chat'"):
        store.open_sessions.append(ADA, "chat", session("hello").turns, may_begin=False)


def test_an_open_session_ends_though_another_one_of_its_user_is_damaged(
    store: Store, database: Database
) -> None:
    for session_id in ("broken", "whole"):
        store.open_sessions.append(ADA, session_id, [Turn(id="", speaker="Ada", text="hello")])
    damage_open_session(database, "broken")

    assert store.open_sessions.end(ADA, "whole") is not None
    assert [stored.item.id for stored in store.items.list_all(ADA)] == ["whole"]
    with pytest.raises(StoreError, match="session 'broken': the row is damaged"):
        store.open_sessions.end(ADA, "broken")


def damage_open_session(database: Database, session_id: str) -> None:
    rows = t.open_turns.c.session == session_id
    with database.write_transaction() as transaction:
        transaction.connection.execute(update(t.open_turns).where(rows).values(json='{"text": '))


def test_open_sessions_are_listed_in_the_order_in_which_they_began(store: Store) -> None:
    for session_id, text in (("b", "one"), ("a", "two"), ("b", "three")):
        store.open_sessions.append(ADA, session_id, [Turn(id="", speaker="Ada", text=text)])

    texts = [[turn.text for turn in opened.turns] for opened in store.open_sessions.list_all(ADA)]
    assert texts == [["one", "three"], ["two"]]
    assert store.open_sessions.list_all(Owner("bob")) == []


def test_writers_of_a_file_wait_for_one_another_not_for_the_lock_of_sqlite(tmp_path: Path) -> None:
    """SQLite's own lock is had by luck: with a wait of 50 ms, some of 32 threads never got it."""
    path = tmp_path / "s.sqlite"
    with (
        Store(path, timeout=0.05) as store,
        Store(path, timeout=0.05) as other,
        ThreadPoolExecutor(32) as pool,
    ):
        writers = [
            pool.submit((store, other)[n % 2].items.add, Owner(f"user-{n % 32}"), session(f"{n}"))
            for n in range(160)
        ]
        assert all(writer.result().new for writer in writers)
        assert sum(user.sessions for user in store.users.list_all()) == 160


def test_a_process_that_is_stopped_keeps_no_writer_waiting_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turn never ends. It does not hold SQLite's own lock here, so the others can write."""
    monkeypatch.setattr(sqlite, "_LOCK_WAIT_SECONDS", 2.0)
    with Store(tmp_path / "s.sqlite") as store, (tmp_path / "s.sqlite-lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threads_before = set(threading.enumerate())
        # If the writers wait for ever, this ends the test.
        unlocking = threading.Timer(20, fcntl.flock, (lock, fcntl.LOCK_UN))
        unlocking.start()
        began = time.monotonic()
        assert store.items.add(ADA, session("one")).new
        assert 2.0 <= time.monotonic() - began < 10

        # Only the first writer waits for a turn that does not end.
        began = time.monotonic()
        assert store.items.add(ADA, session("two")).new
        assert time.monotonic() - began < 2.0
        unlocking.cancel()

        # Once it has ended, writers take turns with other processes again.
        fcntl.flock(lock, fcntl.LOCK_UN)
        for waiting in set(threading.enumerate()) - threads_before - {unlocking}:
            waiting.join(10)
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = time.monotonic()
        assert store.items.add(ADA, session("three")).new
        assert time.monotonic() - began >= 2.0


def test_full_disk_is_named_and_what_fits_is_stored(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:

        def limit(connection: Any) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 8}")

        message = rf"disk is full; nothing was half written; .* the disk of {tmp_path}"
        with listening("begin", limit), pytest.raises(StoreError, match=message):
            store.items.add(ADA, session("secret " * 50_000))
        store.items.add(ADA, session("small"))
        assert [stored.item.turns[0].text for stored in store.items.list_all(ADA)] == ["small"]


def test_locked_file_is_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path, timeout=0.1) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                StoreError, match=r"^store .*: database is locked; nothing was half written; .*$"
            ):
                store.items.add(ADA, session("two"))
        assert store.items.list_all(ADA) == []
        assert store.items.add(ADA, session("two")).new is True


def test_a_store_may_be_reached_later_than_it_is_opened(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    with Store(folder / "s.sqlite", connect=False) as store:
        for _ in range(2):
            with pytest.raises(StoreError, match="unable to open"):
                store.items.add(ADA, session("one"))
        folder.mkdir()
        assert store.items.add(ADA, session("one")).new
        assert len(store.items.list_all(ADA)) == 1


def connect_arguments(url: str, timeout: float) -> dict[str, Any]:
    """What a store passes to PostgreSQL's driver; nothing is connected to."""
    server = PostgreSQL(make_url(url), timeout)
    passed: dict[str, Any] = {}

    class NotConnectedError(Exception):
        pass

    @event.listens_for(server.engine, "do_connect")
    def _connect(dialect: Any, record: Any, positional: Any, named: dict[str, Any]) -> None:
        passed.update(named)
        raise NotConnectedError

    with pytest.raises(NotConnectedError), server.write():
        pass
    return passed


def test_no_wait_for_a_server_is_longer_than_the_timeout_of_the_store() -> None:
    passed = connect_arguments("postgresql://ada@host/base", timeout=2.5)
    assert passed["connect_timeout"] == 2
    assert passed["tcp_user_timeout"] == 2500
    assert passed["options"] == "-c lock_timeout=2500 -c statement_timeout=2500"
    # A server that is gone without a word is noticed after 10 + 3 * 5 seconds.
    keepalives = [passed[f"keepalives_{name}"] for name in ("idle", "interval", "count")]
    assert keepalives == [10, 5, 3]
    # The driver takes no shorter one.
    assert connect_arguments("postgresql://ada@host/base", 0.1)["connect_timeout"] == 2


def test_options_in_the_address_of_a_server_come_first() -> None:
    passed = connect_arguments("postgresql://ada@host/base?connect_timeout=7", timeout=2.5)
    assert int(passed["connect_timeout"]) == 7


def test_erasure_on_a_server_says_that_postgresql_keeps_deleted_rows() -> None:
    erasure = PostgreSQL(make_url("postgresql://ada@host/base"), 1).erase_deleted_bytes()
    assert erasure.erased is None
    assert not erasure.is_final
    assert "PostgreSQL keeps deleted rows" in erasure.held_by


@pytest.mark.slow
def test_connections_that_the_server_ended_are_replaced_unseen(postgres: Any) -> None:
    import psycopg

    with Store(postgres.emptied()) as store:
        store.check()
        with psycopg.connect(postgres.url, autocommit=True) as other:
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            other.execute(f"{ended} AND datname = 'postgres'")
        time.sleep(0.2)
        store.check()
        assert store.users.list_all() == []


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("mysql://host/base", UserError, "mysql is not supported"),
        ("sqlite://", UserError, "a store needs a file"),
        ("postgresql://nobody:secret@127.0.0.1:1/none", StoreError, "start the server"),
        ("missing/folder/s.sqlite", StoreError, "make its folder"),
        ("text", StoreError, "not a database"),
    ],
)
def test_stores_that_cannot_be_opened(address, error, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("no database at all, but long enough to be read as one" * 20)
    with pytest.raises(error, match=message) as raised:
        Store(address, timeout=1)
    assert "secret" not in str(raised.value)


def test_error_of_the_database_shows_no_row(store: Store, database: Database) -> None:
    store.items.add(ADA, session("one"))
    row = {
        "tenant": "default",
        "user": "ada",
        "position": 1,
        "id": "secret",
        "digest": "",
        "json": "secret",
    }
    with pytest.raises(StoreError) as raised, database.write_transaction() as transaction:
        transaction.connection.execute(
            insert(t.items).values(**row, state="queued", attempts=0, error="", added=0.0)
        )
    assert not re.search("secret|ada", str(raised.value))


NFC = "José"
NFD = unicodedata.normalize("NFD", NFC)
HIDDEN = {
    "zero width": "ad\u200ba",
    "bidi": "\u202eada",
    "filler": "ada\u3164",
    "tag": "ada\U000e0041",
}
OTHERS = {"control": "a\x07da", "line": "ada\u2028", "half": "ada\ud83d", "empty": ""}
LONG = {"long": "a" * 513, "bytes": "名" * 267}


def test_two_spellings_are_one_user_and_one_session(store: Store) -> None:
    assert NFC != NFD
    assert Owner(NFD, NFD) == Owner(NFC, NFC)
    assert store.items.add(Owner(NFD), session("one", id=NFD)).new
    assert not store.items.add(Owner(NFC), session("one", id=NFC)).new
    store.open_sessions.append(Owner(NFC), f"{NFD}2", [Turn(id="", speaker="Ada", text="two")])
    assert store.open_sessions.end(Owner(NFC), f"{NFC}2") is not None
    assert store.forgetting.forget_session(Owner(NFD), f"{NFD}2")
    assert store.forgetting.forget_user(Owner(NFD))


@pytest.mark.parametrize("name", (HIDDEN | OTHERS | LONG).values(), ids=HIDDEN | OTHERS | LONG)
@pytest.mark.parametrize("what", ["user", "tenant"])
def test_name_that_cannot_be_seen_or_stored_is_refused(name: str, what: str) -> None:
    with pytest.raises(UserError, match=rf"^{what} ") as raised:
        Owner(**{"user": "ada", what: name})
    assert str(raised.value).isprintable()


def test_session_id_is_refused_alike(tmp_path: Path) -> None:
    name = HIDDEN["bidi"]
    with Store(tmp_path / "s.sqlite") as store:
        calls: list[Callable[[], Any]] = [
            lambda: store.items.add(ADA, session("one", id=name)),
            lambda: store.open_sessions.append(ADA, name, [Turn(id="", speaker="Ada", text="x")]),
            lambda: store.open_sessions.end(ADA, name),
            lambda: store.forgetting.forget_session(ADA, name),
            lambda: (
                build("turn-rag")
                .memory(store, "ada")
                .add([{"role": "user", "content": "x"}], id=name)
            ),
        ]
        for call in calls:
            with pytest.raises(UserError, match="cannot be seen"):
                call()
        assert store.users.list_all() == []


def test_names_of_before_hide_no_other_user(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        for user in ("ada", "bob"):
            store.items.add(Owner(user), session("one"))
        with (
            closing(Database(tmp_path / "s.sqlite")) as database,
            database.write_transaction() as transaction,
        ):
            transaction.connection.execute(
                update(t.users).where(t.users.c.user == "ada").values(user="\u202eada")
            )
        assert [found.owner.user for found in store.users.list_all()] == ["bob", "\u202eada"]


@pytest.fixture
def generous() -> Iterator[None]:
    """A umask that keeps nothing from anybody."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("generous")
def test_database_and_its_log_are_private_and_become_it(tmp_path: Path) -> None:
    def modes() -> dict[str, int]:
        return {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}

    private = dict.fromkeys(("s.sqlite", "s.sqlite-lock", "s.sqlite-shm", "s.sqlite-wal"), 0o600)
    with Store(tmp_path / "s.sqlite") as store:
        store.items.add(ADA, session("hello", id="s"))
        assert modes() == private
        assert store.forgetting.forget_user(ADA).erased
        for path in tmp_path.iterdir():
            path.chmod(0o664)
        with Store(tmp_path / "s.sqlite"):
            assert modes() == private
