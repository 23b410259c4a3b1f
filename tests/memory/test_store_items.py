"""Raw items in a store: stored once, in order and unchanged, under visible names; private files.

An item is what is stored as a whole: a session that has ended, logs, or a profile. An open session
has not ended: turns are still appended to it.
"""

import fcntl
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
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
from mempiler.memory.store import sqlite, tables
from mempiler.memory.store.database import Database
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.postgresql import PostgreSQL
from sqlalchemy import event, insert, update
from sqlalchemy.engine import make_url

from ..conftest import listening
from .conftest import ADA, session


def turn_of_ada(text: str, turn_id: str = "") -> Turn:
    return Turn(id=turn_id, speaker="Ada", text=text)


def stored_ids(store: Store) -> list[str]:
    """Return the ids of Ada's sessions, in their order."""
    return [stored.item.id for stored in store.items.list_all(ADA)]


def stored_turns(store: Store) -> list[Turn]:
    """Return the turns of Ada's sessions that have ended, in their order."""
    turns: list[Turn] = []
    for stored in store.items.list_all(ADA):
        turns.extend(stored.item.turns)
    return turns


def stored_texts(store: Store) -> list[str]:
    """Return the texts of Ada's sessions that have ended, in their order."""
    return [turn.text for turn in stored_turns(store)]


# Sessions.


def test_sessions_keep_their_order(store: Store) -> None:
    store.items.add(ADA, session("one", id="b"))
    store.items.add(ADA, session("two", id="a"))

    assert stored_ids(store) == ["b", "a"]
    assert stored_texts(store) == ["one", "two"]


def test_a_session_without_an_id_gets_one_that_is_not_taken(store: Store) -> None:
    """The new id is "D" and a number. D2 and D3 are taken: by a session, and by an open one."""
    store.items.add(ADA, session("x", id="D2"))
    store.open_sessions.append(ADA, "D3", [turn_of_ada("y")])

    added = store.items.add(ADA, session("one"))

    assert added.id == "D4"


def test_a_turn_without_an_id_gets_that_of_its_session_and_its_number(store: Store) -> None:
    store.items.add(ADA, session("one", "two", id="D4"))

    assert [turn.id for turn in stored_turns(store)] == ["D4:1", "D4:2"]


def test_two_sessions_without_ids_are_two_even_if_their_content_is_the_same(store: Store) -> None:
    store.items.add(ADA, session("one"))
    store.items.add(ADA, session("one"))

    assert stored_ids(store) == ["D1", "D2"]


def test_the_same_session_is_stored_once(store: Store) -> None:
    first = store.items.add(ADA, session("one", id="s"))
    second = store.items.add(ADA, session("one", id="s"))

    assert first.new is True
    assert second.new is False
    assert first.position == second.position
    assert stored_ids(store) == ["s"]


def test_another_session_under_the_same_id_is_refused(store: Store) -> None:
    store.items.add(ADA, session("one", id="s"))

    with pytest.raises(
        ConflictError, match=r"^session 's' of user 'ada' is stored with other content; give .*$"
    ):
        store.items.add(ADA, session("two", id="s"))


def test_replacing_a_session_by_itself_changes_nothing(store: Store) -> None:
    store.items.add(ADA, session("one", id="s"))
    store.items.add(ADA, session("other", id="t"))

    added = store.items.replace(ADA, session("one", id="s"))

    assert added.new is False
    assert stored_ids(store) == ["s", "t"]
    # To replace a session is to forget the old one, which did not happen here.
    assert store.forgetting.count() == 0


def test_a_session_that_replaces_another_one_goes_to_the_end(store: Store) -> None:
    store.items.add(ADA, session("one", id="s"))
    store.items.add(ADA, session("other", id="t"))

    added = store.items.replace(ADA, session("two", id="s"))

    assert added.new is True
    assert stored_ids(store) == ["t", "s"]
    assert stored_texts(store) == ["other", "two"]


def test_a_session_without_id_cannot_replace_another_one(store: Store) -> None:
    with pytest.raises(UserError, match="has no id; give the id of the session that it replaces"):
        store.items.replace(ADA, session("three"))


def test_a_session_that_cannot_be_stored_replaces_nothing(store: Store) -> None:
    """The new session "s" has a turn whose id is taken by the session "a"."""
    turn = turn_of_ada("one", turn_id="t1")
    store.items.add(ADA, Session(id="a", turns=(turn,)))
    store.items.add(ADA, session("two", id="s"))

    with pytest.raises(ConflictError, match="another turn 't1'"):
        store.items.replace(ADA, Session(id="s", turns=(turn,)))
    # The old session "s" is still there.
    assert stored_texts(store) == ["one", "two"]


def test_a_turn_with_the_id_of_another_one_is_refused(store: Store) -> None:
    """The ids of turns are unique for a user, whatever session they are in."""
    turn = turn_of_ada("one", turn_id="t1")
    store.items.add(ADA, Session(id="a", turns=(turn,)))

    with pytest.raises(ConflictError, match="another turn 't1'"):
        store.items.add(ADA, Session(id="b", turns=(turn,)))
    with pytest.raises(ConflictError, match="another turn 't1'"):
        store.open_sessions.append(ADA, "c", [turn])
    assert stored_ids(store) == ["a"]


def test_every_kind_of_item_comes_back_as_it_was(store: Store) -> None:
    """A session, the logs of a device, and a profile."""
    turn = Turn(id="", speaker="phone", text="12 steps")
    store.items.add(ADA, Session(id="s", turns=(turn,)))
    store.items.add(ADA, Logs(id="l", turns=(turn,)))
    store.items.add(ADA, Profile(id="p", turns=(turn,)))

    kinds = [type(stored.item) for stored in store.items.list_all(ADA)]

    assert kinds == [Session, Logs, Profile]
    assert stored_texts(store) == ["12 steps", "12 steps", "12 steps"]


def test_turns_are_found_by_their_ids_with_their_items(store: Store) -> None:
    turn = Turn(id="", speaker="phone", text="12 steps")
    store.items.add(ADA, Logs(id="l", turns=(turn,)))

    turns_by_id = store.items.turns(ADA, ["l:1", "unknown"])

    assert turns_by_id.keys() == {"l:1"}
    found_turn, item = turns_by_id["l:1"]
    assert found_turn.text == "12 steps"
    assert item.id == "l"


def test_sql_in_names_and_texts_is_stored_as_plain_text(store: Store) -> None:
    sql_in_name = "'; DROP TABLE mempiler_users; --"
    sql_in_text = "a\0b\n'; DROP TABLE mempiler_items; --"
    owner = Owner(user=sql_in_name, tenant=sql_in_name)

    store.items.add(owner, session(sql_in_text, id=sql_in_name))

    (stored,) = store.items.list_all(owner)
    assert stored.item.id == sql_in_name
    assert stored.item.turns[0].text == sql_in_text


def test_names_may_have_800_bytes(store: Store) -> None:
    """In PostgreSQL a key of several long names would be too long for an index."""
    longest_name = "\U0001f642" * 200
    assert len(longest_name.encode()) == 800
    owner = Owner(user=longest_name, tenant=longest_name)

    store.items.add(owner, session("one", id=longest_name))

    (stored,) = store.items.list_all(owner)
    assert stored.item.id == longest_name


def test_sql_in_the_name_of_a_user_who_is_forgotten_deletes_no_other_user(store: Store) -> None:
    owner = Owner("' OR 'a' = 'a")
    store.items.add(owner, session("one"))
    store.items.add(Owner("bob"), session("two"))

    assert store.forgetting.forget_user(owner)

    assert [user.owner.user for user in store.users.list_all()] == ["bob"]


def test_users_of_the_same_name_in_two_tenants_are_two_users(store: Store) -> None:
    store.items.add(Owner("ada", tenant="acme"), session("one"))

    assert store.items.list_all(Owner("ada", tenant="globex")) == []


@pytest.mark.parametrize(
    ("item", "message"),
    [
        pytest.param(Session(id="s"), "has no turns", id="no turns"),
        pytest.param(
            Session(id="s\n[[ ## completed ## ]]", turns=(Turn(id="", speaker="a"),)),
            "control character",
            id="line break in an id",
        ),
        pytest.param(
            Session(id="s", turns=(Turn(id="", speaker="a\nb", text="x"),)),
            "speaker 'a",
            id="line break in a speaker",
        ),
        pytest.param(
            Session(id="s", turns=(Turn(id="t\n", speaker="a", text="x"),)),
            "turn 't",
            id="line break in the id of a turn",
        ),
        pytest.param(
            Session(id="s", turns=(Turn(id="", speaker="a", text="\ud83d"),)),
            "lone surrogate",
            id="text that is no Unicode",
        ),
    ],
)
def test_items_that_cannot_be_stored_are_refused(
    tmp_path: Path, item: Session, message: str
) -> None:
    with Store(tmp_path / "s.sqlite") as store, pytest.raises(UserError, match=message):
        store.items.add(ADA, item)


# Open sessions.


def test_the_turns_of_an_open_session_are_read_at_once(store: Store) -> None:
    store.open_sessions.append(ADA, "chat", [turn_of_ada("hello")])
    store.open_sessions.append(ADA, "chat", [turn_of_ada("hi")])

    (open_session,) = store.read(ADA).open_sessions

    assert [turn.text for turn in open_session.turns] == ["hello", "hi"]
    assert [turn.id for turn in open_session.turns] == ["chat:1", "chat:2"]


def test_turns_that_may_only_continue_a_session_are_stored_if_there_is_one(store: Store) -> None:
    """With `may_begin=False` an answer is stored only beside its question."""
    store.open_sessions.append(ADA, "chat", [turn_of_ada("hello")])

    reply = Turn(id="", speaker="bot", text="hi")
    (stored_reply,) = store.open_sessions.append(ADA, "chat", [reply], may_begin=False)

    assert stored_reply.id == "chat:2"


def test_an_open_session_that_ends_becomes_an_item(store: Store) -> None:
    store.open_sessions.append(ADA, "chat", [turn_of_ada("hello"), turn_of_ada("hi")])

    assert store.open_sessions.end(ADA, "chat") is not None

    assert stored_texts(store) == ["hello", "hi"]
    assert store.read(ADA).open_sessions == ()


def test_a_session_that_has_ended_cannot_be_ended_again(store: Store) -> None:
    store.open_sessions.append(ADA, "chat", [turn_of_ada("hello")])
    store.open_sessions.end(ADA, "chat")

    assert store.open_sessions.end(ADA, "chat") is None


def test_a_session_that_has_ended_takes_no_further_turns(store: Store) -> None:
    store.open_sessions.append(ADA, "chat", [turn_of_ada("hello")])
    store.open_sessions.end(ADA, "chat")

    with pytest.raises(ConflictError, match="has ended"):
        store.open_sessions.append(ADA, "chat", [turn_of_ada("hi")])


def test_ending_an_unknown_session_makes_no_user(store: Store) -> None:
    assert store.open_sessions.end(ADA, "chat") is None
    assert store.users.list_all() == []


def test_turns_that_may_only_continue_a_session_are_refused_if_there_is_none(store: Store) -> None:
    """A model answers while the session of the question is forgotten.

    The answer must not bring the session back, so it is stored with `may_begin=False`.
    """
    with pytest.raises(ConflictError, match="has no open session 'chat'"):
        store.open_sessions.append(ADA, "chat", [turn_of_ada("hello")], may_begin=False)
    assert store.users.list_all() == []


def damage_open_session(database: Database, session_id: str) -> None:
    """Cut off the JSON of the turns of an open session."""
    rows = tables.open_turns.c.session == session_id
    damage = update(tables.open_turns).where(rows).values(json='{"text": ')
    with database.write_transaction() as transaction:
        transaction.connection.execute(damage)


def test_an_open_session_ends_though_another_one_of_its_user_is_damaged(
    store: Store, database: Database
) -> None:
    store.open_sessions.append(ADA, "broken", [turn_of_ada("hello")])
    store.open_sessions.append(ADA, "intact", [turn_of_ada("hello")])
    damage_open_session(database, "broken")

    assert store.open_sessions.end(ADA, "intact") is not None

    assert stored_ids(store) == ["intact"]


def test_a_damaged_open_session_is_named_when_it_ends(store: Store, database: Database) -> None:
    store.open_sessions.append(ADA, "broken", [turn_of_ada("hello")])
    damage_open_session(database, "broken")

    with pytest.raises(StoreError, match="session 'broken': the row is damaged"):
        store.open_sessions.end(ADA, "broken")


def test_open_sessions_are_listed_in_the_order_in_which_they_began(store: Store) -> None:
    store.open_sessions.append(ADA, "b", [turn_of_ada("one")])
    store.open_sessions.append(ADA, "a", [turn_of_ada("two")])
    store.open_sessions.append(ADA, "b", [turn_of_ada("three")])

    first, second = store.open_sessions.list_all(ADA)

    assert [turn.text for turn in first.turns] == ["one", "three"]
    assert [turn.text for turn in second.turns] == ["two"]
    assert store.open_sessions.list_all(Owner("bob")) == []


# Waiting, and errors of the database.


def test_no_writer_of_a_busy_file_fails(tmp_path: Path) -> None:
    """16 stores of one file stand for 16 processes, which write at the same time.

    SQLite would let a writer wait 50 ms for its own lock. Who gets that lock is luck, and some
    writers never got it. So writers take turns by the lock of another file, for which they wait as
    long as it takes.
    """

    def add_ten_users(process: int) -> None:
        with Store(tmp_path / "s.sqlite", timeout=0.05) as store:
            for number in range(10):
                store.items.add(Owner(f"user {number} of process {process}"), session("one"))

    with Store(tmp_path / "s.sqlite") as store, ThreadPoolExecutor(16) as threads:
        processes = [threads.submit(add_ten_users, process) for process in range(16)]

        for process in processes:
            process.result()
        assert len(store.users.list_all()) == 160


def seconds_to_add(store: Store, text: str) -> float:
    """Add a session; return how long it took, with the wait for other writers."""
    started = time.monotonic()
    store.items.add(ADA, session(text))
    return time.monotonic() - started


@contextmanager
def stopped_writer(store_file: Path) -> Iterator[None]:
    """Hold the lock by which the writers of a store take turns, as a process that was stopped does.

    After 20 seconds it is given up in any case, so that a test of a writer that waits can end.
    """
    with store_file.with_name(store_file.name + "-lock").open() as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        safety_timer = threading.Timer(20, fcntl.flock, (lock_file, fcntl.LOCK_UN))
        safety_timer.start()
        try:
            yield
        finally:
            safety_timer.cancel()
            safety_timer.join()
            fcntl.flock(lock_file, fcntl.LOCK_UN)


@pytest.fixture
def turn_lasts_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer waits two seconds for the turn of another one, instead of half a minute."""
    monkeypatch.setattr(sqlite, "_LOCK_WAIT_SECONDS", 2.0)


@pytest.mark.slow
@pytest.mark.usefixtures("turn_lasts_two_seconds")
def test_only_the_first_writer_waits_for_a_process_that_is_stopped(tmp_path: Path) -> None:
    """Writers take turns, and that of a stopped process does not end. They wait for it once."""
    path = tmp_path / "s.sqlite"

    with Store(path) as store, stopped_writer(path):
        assert 2.0 <= seconds_to_add(store, "one") < 10
        assert seconds_to_add(store, "two") < 2.0


@pytest.mark.slow
@pytest.mark.usefixtures("turn_lasts_two_seconds")
def test_writers_take_turns_again_when_a_stopped_process_has_ended(tmp_path: Path) -> None:
    """A writer that comes when another process is stopped waits for its turn again."""
    path = tmp_path / "s.sqlite"

    with Store(path) as store:
        threads_before = set(threading.enumerate())
        with stopped_writer(path):
            seconds_to_add(store, "one")
        # The writer went on waiting for its turn in a thread.
        for waiting_thread in set(threading.enumerate()) - threads_before:
            waiting_thread.join(10)

        with stopped_writer(path):
            assert seconds_to_add(store, "two") >= 2.0


def fill_disk(connection: Any) -> None:
    """Let a database grow by eight pages at most, which are 32 KiB."""
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 8}")


def test_a_full_disk_is_named_and_what_fits_is_stored(tmp_path: Path) -> None:
    text_of_350_kb = "secret " * 50_000
    message = rf"disk is full; nothing was half written; .* the disk of {tmp_path}"

    with Store(tmp_path / "s.sqlite") as store, listening("begin", fill_disk):
        with pytest.raises(StoreError, match=message):
            store.items.add(ADA, session(text_of_350_kb))
        store.items.add(ADA, session("small"))

        assert stored_texts(store) == ["small"]


def test_a_locked_file_is_an_error_of_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path, timeout=0.1) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other_program:
            other_program.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                StoreError, match=r"^store .*: database is locked; nothing was half written; .*$"
            ):
                store.items.add(ADA, session("two"))

        assert store.items.list_all(ADA) == []
        assert store.items.add(ADA, session("two")).new is True


def test_a_store_may_be_reached_later_than_it_is_opened(tmp_path: Path) -> None:
    """With `connect=False` a service starts although its database is not there yet.

    A call that comes too early fails, and later ones succeed.
    """
    folder = tmp_path / "later"
    with Store(folder / "s.sqlite", connect=False) as store:
        with pytest.raises(StoreError, match="unable to open"):
            store.items.add(ADA, session("one"))

        folder.mkdir()
        store.items.add(ADA, session("two"))

        assert stored_texts(store) == ["two"]


@pytest.mark.parametrize(
    ("address", "error_class", "message"),
    [
        ("mysql://host/base", UserError, "mysql is not supported"),
        ("sqlite://", UserError, "a store needs a file"),
        ("postgresql://nobody:secret@127.0.0.1:1/none", StoreError, "start the server"),
        ("missing/folder/s.sqlite", StoreError, "make its folder"),
        ("text.txt", StoreError, "not a database"),
    ],
)
def test_a_store_that_cannot_be_opened_is_an_error_with_a_fix(
    address: str,
    error_class: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("no database at all, but long enough to be read as one" * 20)

    with pytest.raises(error_class, match=message) as raised:
        Store(address, timeout=1)
    assert "secret" not in str(raised.value)


def insert_item(database: Database, position: int, json: str) -> None:
    """Insert the row of an item of Ada, without any check."""
    row = {
        "tenant": "default",
        "user": "ada",
        "position": position,
        "id": "s",
        "digest": "",
        "json": json,
        "state": "queued",
        "attempts": 0,
        "error": "",
        "added": 0.0,
    }
    with database.write_transaction() as transaction:
        transaction.connection.execute(insert(tables.items).values(row))


def test_an_error_of_the_database_does_not_show_the_values_of_a_row(
    store: Store, database: Database
) -> None:
    """Errors go to logs, where nothing that a user said may stand.

    The database refuses a second item at the same position.
    """
    store.items.add(ADA, session("one"))

    with pytest.raises(StoreError) as raised:
        insert_item(database, position=1, json="secret")

    assert "secret" not in str(raised.value)
    assert "ada" not in str(raised.value)


# Connections to PostgreSQL.


class NotConnectedError(Exception):
    """Raised in the place of a connection."""


def connect_arguments(url: str, timeout: float) -> dict[str, Any]:
    """Return what a store passes to PostgreSQL's driver; nothing is connected to."""
    server = PostgreSQL(make_url(url), timeout)
    driver_arguments: dict[str, Any] = {}

    def note_and_refuse(dialect: Any, record: Any, positional: Any, named: dict[str, Any]) -> None:
        driver_arguments.update(named)
        raise NotConnectedError

    event.listen(server.engine, "do_connect", note_and_refuse)
    with pytest.raises(NotConnectedError), server.write():
        pass
    return driver_arguments


def test_no_wait_for_a_server_is_longer_than_the_timeout_of_the_store() -> None:
    arguments = connect_arguments("postgresql://ada@host/base", timeout=2.5)

    # The first is in seconds, which the driver takes as a whole number, the others in milliseconds.
    assert arguments["connect_timeout"] == 2
    assert arguments["tcp_user_timeout"] == 2500
    assert arguments["options"] == "-c lock_timeout=2500 -c statement_timeout=2500"


def test_a_server_that_is_gone_without_a_word_is_noticed_after_25_seconds() -> None:
    arguments = connect_arguments("postgresql://ada@host/base", timeout=2.5)

    # After 10 seconds without a word the driver asks three times, every 5 seconds: 10 + 3 * 5.
    assert arguments["keepalives_idle"] == 10
    assert arguments["keepalives_interval"] == 5
    assert arguments["keepalives_count"] == 3


def test_the_timeout_of_a_connection_is_two_seconds_or_more() -> None:
    arguments = connect_arguments("postgresql://ada@host/base", timeout=0.1)

    # The driver takes whole seconds, and 0 would mean to wait for ever.
    assert arguments["connect_timeout"] == 2


def test_a_timeout_in_the_address_of_a_server_goes_before_the_timeout_of_the_store() -> None:
    arguments = connect_arguments("postgresql://ada@host/base?connect_timeout=7", timeout=2.5)
    assert int(arguments["connect_timeout"]) == 7


def test_erasure_on_a_server_says_that_postgresql_keeps_deleted_rows() -> None:
    server = PostgreSQL(make_url("postgresql://ada@host/base"), timeout=1)

    erasure = server.erase_deleted_bytes()

    assert erasure.erased is None
    assert not erasure.is_final
    assert "PostgreSQL keeps deleted rows" in erasure.held_by


@pytest.mark.slow
def test_connections_that_the_server_ended_are_replaced_without_an_error(postgres: Any) -> None:
    import psycopg

    with Store(postgres.emptied()) as store:
        store.check()
        with psycopg.connect(postgres.url, autocommit=True) as administrator:
            administrator.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = 'postgres'"
            )
        # The connections end a moment later.
        time.sleep(0.2)

        store.check()
        assert store.users.list_all() == []


# Names.

# Unicode has two spellings of this name, which look the same.
COMPOSED = "Jos\u00e9"
DECOMPOSED = "Jose\u0301"


def test_two_spellings_of_a_name_in_unicode_are_one_user() -> None:
    assert COMPOSED != DECOMPOSED

    assert Owner(DECOMPOSED, tenant=DECOMPOSED) == Owner(COMPOSED, tenant=COMPOSED)


def test_two_spellings_of_an_id_in_unicode_are_one_session(store: Store) -> None:
    first = store.items.add(ADA, session("one", id=DECOMPOSED))
    second = store.items.add(ADA, session("one", id=COMPOSED))

    assert first.new is True
    assert second.new is False


def test_two_spellings_of_an_id_in_unicode_are_one_open_session(store: Store) -> None:
    store.open_sessions.append(ADA, DECOMPOSED, [turn_of_ada("one")])

    assert store.open_sessions.end(ADA, COMPOSED) is not None


def test_a_session_is_forgotten_by_either_spelling_of_its_id(store: Store) -> None:
    store.items.add(ADA, session("one", id=COMPOSED))

    assert store.forgetting.forget_session(ADA, DECOMPOSED)


RIGHT_TO_LEFT_NAME = "\u202eada"
"""A name with an invisible character, which reverses the letters behind it."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("ad\u200ba", id="zero-width space"),
        pytest.param(RIGHT_TO_LEFT_NAME, id="right to left"),
        pytest.param("ada\u3164", id="filler"),
        pytest.param("ada\U000e0041", id="tag"),
        pytest.param("a\x07da", id="control character"),
        pytest.param("ada\u2028", id="line separator"),
        pytest.param("ada\ud83d", id="half of a surrogate pair"),
        pytest.param("", id="empty"),
        pytest.param("a" * 513, id="too many characters"),
        pytest.param("名" * 267, id="too many bytes"),
    ],
)
@pytest.mark.parametrize("kind", ["user", "tenant"])
def test_a_name_that_cannot_be_seen_or_stored_is_refused(name: str, kind: str) -> None:
    names = {"user": "ada", kind: name}

    with pytest.raises(UserError, match=rf"^{kind} ") as raised:
        Owner(**names)
    assert str(raised.value).isprintable()


def add_session(store: Store, session_id: str) -> None:
    store.items.add(ADA, session("one", id=session_id))


def append_to_session(store: Store, session_id: str) -> None:
    store.open_sessions.append(ADA, session_id, [turn_of_ada("x")])


def end_session(store: Store, session_id: str) -> None:
    store.open_sessions.end(ADA, session_id)


def forget_session(store: Store, session_id: str) -> None:
    store.forgetting.forget_session(ADA, session_id)


def add_to_memory(store: Store, session_id: str) -> None:
    memory = build("turn-rag").memory(store, "ada")
    memory.add([{"role": "user", "content": "x"}], id=session_id)


@pytest.mark.parametrize(
    "call", [add_session, append_to_session, end_session, forget_session, add_to_memory]
)
def test_an_invisible_id_of_a_session_is_refused_by_every_call(
    tmp_path: Path, call: Callable[[Store, str], None]
) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        with pytest.raises(UserError, match="cannot be seen"):
            call(store, RIGHT_TO_LEFT_NAME)
        assert store.users.list_all() == []


def rename_user(store_file: Path, old_name: str, new_name: str) -> None:
    """Rename a user without the check of the new name."""
    users = tables.users
    rename = update(users).where(users.c.user == old_name).values(user=new_name)
    with closing(Database(store_file)) as database, database.write_transaction() as transaction:
        transaction.connection.execute(rename)


def test_a_user_with_a_name_that_was_allowed_before_hides_no_other_user(tmp_path: Path) -> None:
    """Earlier versions took names with invisible characters. Users with one are still listed."""
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.items.add(Owner("ada"), session("one"))
        store.items.add(Owner("bob"), session("one"))
        rename_user(path, old_name="ada", new_name=RIGHT_TO_LEFT_NAME)

        names = [user.owner.user for user in store.users.list_all()]

    assert names == ["bob", RIGHT_TO_LEFT_NAME]


# Files.

PRIVATE_FILES = {
    "s.sqlite": 0o600,
    "s.sqlite-lock": 0o600,
    "s.sqlite-shm": 0o600,
    "s.sqlite-wal": 0o600,
}
"""The files of a store that is open, with modes that let nobody but the owner read and write.

SQLite keeps the last two only while the store is open.
"""


def modes_of_files(folder: Path) -> dict[str, int]:
    """Return the modes of the files in a folder by their names."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.fixture
def generous_umask() -> Iterator[None]:
    """A umask with which everybody may read and write new files.

    So a file is private only if the store makes it so.
    """
    umask_before = os.umask(0)
    yield
    os.umask(umask_before)


@pytest.mark.usefixtures("generous_umask")
def test_the_files_of_a_store_are_private(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.items.add(ADA, session("hello", id="s"))
        assert modes_of_files(tmp_path) == PRIVATE_FILES


@pytest.mark.usefixtures("generous_umask")
def test_the_files_of_a_store_stay_private_when_a_user_is_forgotten(tmp_path: Path) -> None:
    """The store then writes its files anew, so that the bytes of the user are erased from them."""
    with Store(tmp_path / "s.sqlite") as store:
        store.items.add(ADA, session("hello", id="s"))

        receipt = store.forgetting.forget_user(ADA)

        assert receipt.erased
        assert modes_of_files(tmp_path) == PRIVATE_FILES


def test_opening_a_store_makes_files_private_that_others_may_read(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    readable_by_everybody = 0o664

    # Without this open store SQLite would have deleted "-wal" and "-shm".
    with Store(path) as store:
        store.items.add(ADA, session("hello", id="s"))
        for file in tmp_path.iterdir():
            file.chmod(readable_by_everybody)

        with Store(path):
            assert modes_of_files(tmp_path) == PRIVATE_FILES
