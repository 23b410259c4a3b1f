"""Memories as a log of changes; no word of a damaged row is said; forgetting leaves no bytes."""

import json
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mempiler import ConflictError, Session, Store, StoreError, Turn, UserMemory, build
from mempiler.engines.lm import language_model
from mempiler.memory.edits import Amendment
from mempiler.memory.store import forget_log, sqlite
from mempiler.memory.store.documents import ChangeLog, Document, MemoryChange
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.records import Erasure
from mempiler.serving.memories.queue_writer import SHORT
from sqlalchemy import text

from ..conftest import listening
from .conftest import ADA, BOB, WRITER, session


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


@pytest.mark.parametrize(
    ("forget", "name", "sessions", "turns"),
    [
        (lambda store: store.forgetting.forget_user(ADA), "ada", 3, 4),
        (lambda store: store.forgetting.forget_session(ADA, "s"), "s", 1, 2),
        (lambda store: store.forgetting.forget_session(ADA, "chat"), "chat", 1, 1),
    ],
    ids=["user", "session", "open session"],
)
def test_a_receipt_counts_what_was_deleted_and_says_who_decides_about_the_bytes(
    store, forget, name, sessions, turns
):
    store.items.add(ADA, session("one", "more", id="s"))
    store.items.add(ADA, session("two", id="t"))
    store.open_sessions.append(ADA, "chat", [Turn(id="", speaker="Ada", text="three")])
    found = forget(store)
    assert found
    assert found.forgotten == name
    assert found.sessions == sessions
    assert found.turns == turns
    assert not forget(store)
    if store.url.startswith("sqlite"):
        assert found.erased is True
        assert found.held_by == ""
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
            store.forgetting.forget_user(Owner(f"user{user}"))
        # Without a file that is written anew, four copies are left of user 2.
        assert files(tmp_path).count(b"MARK2x") == 0


def _churn(store: Store, chance: random.Random, n: int) -> None:
    """One random change of a random user, whose texts and ids all hold a marker."""
    user = chance.randrange(6)
    owner, mark = Owner(f"user{user}"), f"MARK{user}x"

    def text() -> str:
        size = chance.choice([3, 20, 200, 2000])
        return " ".join(
            mark if chance.random() < 0.3 else f"word{chance.randrange(999)}" for _ in range(size)
        )

    if chance.random() < 0.3:
        store.open_sessions.append(
            owner, f"c{chance.randrange(5)}-{n // 40}", [Turn(id="", speaker=mark, text=text())]
        )
    else:
        turns = tuple(Turn(id="", speaker="a", text=text()) for _ in range(chance.randrange(1, 5)))
        store.items.add(owner, Session(id=f"{mark}s{n}", turns=turns))
    claims = store.queue.claim("me", 60, WRITER, owner) if chance.random() < 0.4 else []
    last = max((stored.position for stored in store.items.list_all(owner)), default=0)
    for claim in claims if last else ():
        memory = '{"m": "%s"}' % (text() * chance.randrange(1, 9))
        document = Document(memory, last, None, last, ("a",), WRITER)
        store.queue.commit(claim, document, 60, item_positions=range(1, last + 1))
        store.queue.release(claim)


def test_an_amendment_of_an_entry_whose_session_was_forgotten_meanwhile_is_not_stored(
    store: Any,
) -> None:
    """It quotes the entry, so the forgotten text would come back with it."""
    store.items.add(ADA, session("a very secret word", id="s1"))
    store.items.add(ADA, session("something else", id="s2"))
    forget_count = store.forgetting.count()
    amendment = Amendment(1, "delete", "s1:1", "turn", "a very secret word", ("s1:1",))
    store.forgetting.forget_session(ADA, "s1")

    assert not store.amendments.append(ADA, amendment, forget_count)
    assert store.amendments.list_all(ADA) == []

    later = Amendment(1, "delete", "s2:1", "turn", "something else", ("s2:1",))
    assert store.amendments.append(ADA, later, forget_count, store.forgetting.count())


def test_open_reader_is_named_and_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        store.items.add(ADA, session("a very secret word"))
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM mempiler_items").fetchone()
        begun, waits = time.monotonic(), []
        writing = threading.Thread(
            target=lambda: waits.append(_timed(lambda: store.items.add(BOB, session("two"))))
        )
        writing.start()
        found = store.forgetting.forget_user(ADA)
        writing.join()
        assert (
            max(time.monotonic() - begun, *waits) < 8
        )  # who waits for a writer does so for ten seconds
        assert found
        assert found.erased is False
        assert "somebody reads the store" in found.held_by
        assert b"secret" in files(tmp_path)
        reader.execute("COMMIT")
        with Store(path) as other:
            assert other.forgetting.erase() == Erasure(erased=True)
        assert not store.forgetting.forget_user(ADA)
        assert b"secret" not in files(tmp_path)
        assert [one.owner for one in store.users.list_all()] == [BOB]


def _timed(call: Callable[[], Any]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def test_a_session_that_is_replaced_leaves_no_byte_and_nothing_that_was_said_of_it(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        memory = build("turn-rag").memory(store, "ada", lm=language_model("offline"))
        memory.add(
            [{"role": "user", "content": "the falcon flies"}], id="s", metadata={"bird": "falcon"}
        )
        memory.entries.update("s:1", "the falcon sleeps", by="falcon")
        assert b"falcon" in files(tmp_path)
        replaced = memory.replace([{"role": "user", "content": "the owl flies"}], id="s")
        assert replaced.id == "s"
        assert replaced.new is True
        assert [entry.text for entry in memory.entries.list().entries] == ["user: the owl flies"]
        assert b"falcon" not in files(tmp_path)


def test_a_replaced_open_session_is_the_new_one(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.open_sessions.append(ADA, "chat", [Turn(id="", speaker="Ada", text="falcon")])
        assert store.items.replace(ADA, session("owl", id="chat")).new
        assert store.read(ADA).open_sessions == ()
        assert [stored.item.turns[0].text for stored in store.items.list_all(ADA)] == ["owl"]
        assert b"falcon" not in files(tmp_path)


def test_file_that_is_too_large_to_be_rewritten_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_REWRITTEN_BYTES", 0)
    with Store(tmp_path / "s.sqlite") as store:
        store.items.add(ADA, session("one"))
        found = store.forgetting.forget_user(ADA)
        assert found.erased is False
        assert "sqlite3 FILE VACUUM" in found.held_by
        # The caller knows it now, and it is not tried again.
        assert store.forgetting.erase() == Erasure(erased=True)


def test_bytes_in_a_file_that_cannot_be_read_are_not_called_erased(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.items.add(ADA, session("one"))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        path.write_bytes(b"no database" * 1000)
        erasure = store.forgetting.erase()
    assert erasure.erased is False
    assert "s.sqlite" in erasure.held_by


@pytest.mark.parametrize("write", ["add", "append", "replace"])
def test_write_that_began_before_is_refused_in_every_process(
    open_store: Callable[..., Store], write: str
) -> None:
    one, two = open_store(), open_store()
    one.forgetting.forget_user(BOB)
    since = two.forgetting.count()
    one.forgetting.forget_user(ADA)

    def go(owner: Owner, since: int | None) -> None:
        if write == "add":
            two.items.add(owner, session("one"), forget_count=since)
        elif write == "replace":
            two.items.replace(owner, session("one", id="s"), forget_count=since)
        else:
            two.open_sessions.append(
                owner, "chat", [Turn(id="", speaker="Ada", text="one")], forget_count=since
            )

    with pytest.raises(
        ConflictError, match=r"^user 'ada' was forgotten while this was under way; nothing of it"
    ):
        go(ADA, since)
    assert two.users.list_all() == []
    go(BOB, since)
    go(ADA, None)
    assert [found.owner for found in one.users.list_all()] == [ADA, BOB]


@pytest.mark.parametrize("write", ["add", "replace", "append"])
def test_a_repeated_write_does_not_bring_back_a_session_that_was_forgotten_in_between(
    store: Store, write: str
) -> None:
    forget_count = store.forgetting.count()

    def store_session(id: str, forget_count: int | None) -> None:
        if write == "add":
            store.items.add(ADA, session("one", id=id), forget_count=forget_count)
        elif write == "replace":
            store.items.replace(ADA, session("one", id=id), forget_count=forget_count)
        else:
            store.open_sessions.append(ADA, id, session("one").turns, forget_count=forget_count)

    store_session("s", forget_count)
    store.forgetting.forget_session(ADA, "s")
    with pytest.raises(ConflictError, match="session 's' of user 'ada' was forgotten while this"):
        store_session("s", forget_count)
    assert store.read(ADA).pending_items == ()
    assert store.read(ADA).open_sessions == ()

    store_session("other", forget_count)
    # Who begins after the forgetting may use the id again.
    store_session("s", None)


@pytest.mark.parametrize("text", ["new", "newer"])
def test_a_session_that_was_replaced_meanwhile_is_replaced_by_the_last_caller(
    store: Store, text: str
) -> None:
    """Also by the repetition of a call that was killed before it answered."""
    store.items.add(ADA, session("old", id="s"))
    forget_count = store.forgetting.count()
    store.items.replace(ADA, session("new", id="s"), forget_count=forget_count)

    added = store.items.replace(ADA, session(text, id="s"), forget_count=forget_count)
    assert added.new == (text == "newer")
    assert [stored.item.turns[0].text for stored in store.items.list_all(ADA)] == [text]


def test_write_that_waits_for_its_turn_while_the_user_is_forgotten_is_refused(
    open_store, monkeypatch
) -> None:
    one, two = open_store(), open_store()

    def count_before_ada_is_forgotten(database: Any) -> int:
        count = forget_log.read_forget_count(database)
        one.forgetting.forget_user(ADA)
        return count

    monkeypatch.setattr(
        "mempiler.memory.store.items.read_forget_count", count_before_ada_is_forgotten
    )
    with pytest.raises(ConflictError):
        two.items.add(ADA, session("one"))
    assert one.users.list_all() == []


def test_first_write_of_a_new_user_is_waited_for_and_deleted(
    open_store: Callable[..., Store],
) -> None:
    """Before it is committed nobody else sees that there is such a user."""
    one, two = open_store(), open_store()
    begun, go = threading.Event(), threading.Event()

    def users() -> Any:
        yield two.transfer.dump(ADA)
        begun.set()
        go.wait(10)

    writing = threading.Thread(target=two.transfer.restore, args=(users(),))
    writing.start()
    assert begun.wait(10)
    forgetting = threading.Thread(target=one.forgetting.forget_user, args=(ADA,))
    forgetting.start()
    time.sleep(0.1)
    go.set()
    writing.join()
    forgetting.join()
    assert one.users.list_all() == []


FIRST = Document('{"words": ["a"], "number": 1}', 1, '{"words": []}', 1, (), WRITER)


def changed(count: int, words: list[str], finalized: Any = None) -> Document:
    change = MemoryChange(
        json.dumps({"words": {"items": [[count, 0, words]]}}),
        None if finalized is None else json.dumps(finalized),
    )
    return Document("", 1, None, 1, (), WRITER, change=change, log=ChangeLog(change_count=count))


ANSWERED = {"words": {"value": ["answered"]}}


@pytest.mark.parametrize(
    ("changes", "memory", "finalized"),
    [
        ([], {"words": ["a"], "number": 1}, {"words": []}),
        ([changed(1, ["b"])], {"words": ["a", "b"], "number": 1}, {"words": []}),
        (
            [changed(1, ["b"]), changed(2, ["c"])],
            {"words": ["a", "b", "c"], "number": 1},
            {"words": []},
        ),
        (
            [changed(1, ["b"], ANSWERED)],
            {"words": ["a", "b"], "number": 1},
            {"words": ["answered"], "number": 1},
        ),
        # What questions are answered from is told by the memory of its own commit.
        (
            [changed(1, ["b"], {}), changed(2, ["c"])],
            {"words": ["a", "b", "c"], "number": 1},
            "a memory before",
        ),
        ([changed(1, ["b"]), FIRST], {"words": ["a"], "number": 1}, {"words": []}),
    ],
)
def test_a_memory_is_its_text_and_all_changes_since(store, changes, memory, finalized) -> None:
    store.items.add(ADA, session("x"))
    (claim,) = store.queue.claim("me", 60, WRITER)
    for document in (FIRST, *changes):
        assert claim is not None
        claim = store.queue.commit(claim, document, 60)
    found = store.read(ADA).document
    assert found is not None
    wanted = {"words": ["a", "b"], "number": 1} if finalized == "a memory before" else finalized
    assert json.loads(found.memory) == memory
    assert json.loads(found.finalized or "") == wanted
    assert found.log.change_count == (0 if changes[-1:] == [FIRST] else len(changes))


def test_a_commit_writes_what_is_new_and_the_text_anew_when_the_changes_are_as_long(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.sqlite"
    memory, lengths, counts = remembering(path), list[int](), list[int]()
    for n in range(40):
        said(memory, n)
        with closing(sqlite3.connect(path)) as db:
            found = "SELECT count(*), coalesce(max(length(memory)), 0) FROM mempiler_changes WHERE number > 0"
            count, longest = db.execute(found).fetchone()
        counts.append(count)
        lengths.append(longest)
    assert counts[:3] == [0, 1, 2]
    assert 0 in counts[3:]
    assert max(lengths) < 2 * min(length for length in lengths if length)
    assert max(counts) * min(length for length in lengths if length) <= 2 * SHORT


def remembering(path: Path, method: str = "turn-rag") -> UserMemory:
    return build(method).memory(path, "ada", lm=language_model("offline"))


def said(memory: UserMemory, n: int) -> None:
    memory.add([{"role": "user", "name": "Ada", "content": f"Number {n}: {'so I said. ' * 400}"}])


@pytest.mark.parametrize("method", ["turn-rag", "h2memory"])
def test_another_process_reads_what_was_changed_and_not_the_whole(
    method: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.sqlite"
    writing, reading = (remembering(path, method) for _ in range(2))
    behind: list[int] = []

    def note_changes_read(db: Any, cursor: Any, statement: str, values: Any, *rest: Any) -> None:
        if "FROM mempiler_changes" in statement:
            behind.append(values[-1])

    for n in range(4):
        told = [
            {
                "role": "user",
                "name": "Ada",
                "content": f"I have {n + 2} dogs, and I moved to town{n}.",
            }
        ]
        (writing if n < 3 else reading).add(told)
        behind.clear()
        with listening("before_cursor_execute", note_changes_read):
            read = reading.read()
        expected = [n == 0] if n < 3 else []
        assert [number < 0 for number in behind] == expected
        assert read == writing.read() == remembering(path, method).read()
    assert reading.recall("Where did Ada move?").hits == writing.recall("Where did Ada move?").hits


def test_changes_of_another_process_that_do_not_fit_are_said(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    writing, reading = remembering(path), remembering(path)
    said(writing, 1)
    reading.read()
    said(writing, 2)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            """UPDATE mempiler_changes SET memory = '{"turns": {"sorted": 1}}' WHERE number > 0"""
        )
    with pytest.raises(StoreError, match="does not fit its program: ValueError; run: mempiler"):
        reading.read()


SECRET = "falcon"
"""Of everything that the damaged rows hold."""
SAID = f"the code is {SECRET}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of two users: two remembered sessions each, an amendment, a session that waits, and an open one."""
    path = tmp_path / "s.sqlite"
    program = build("turn-rag")
    with Store(path) as store:
        for owner in (ADA, BOB):
            for id in ("s1", "s2"):
                store.items.add(owner, session(SAID, id=id), metadata={"code": SECRET})
            program.memory(store, owner.user, lm=language_model("offline")).remember()
            store.amendments.append(
                owner, Amendment(1, "delete", "s1:1", "turn", SECRET, ("s1:1",))
            )
            store.items.add(owner, session(SAID, id="s3"))
            store.open_sessions.append(owner, "s4", session(SAID).turns, metadata={"code": SECRET})
    return path


CUT, BYTES = b'{"x": "falcon', b"\xff falcon"
"""What is no JSON; and what is no text: of a byte that no UTF-8 has."""
DEEP = b'["falcon", ' + b"[" * 100_000
"""What no stack is deep enough for."""


@pytest.mark.parametrize(
    ("table", "column", "value", "where"),
    [
        ("items", "json", CUT, "position = 3"),
        ("items", "json", BYTES, "position = 3"),
        ("items", "state", b"falcon", "position = 2"),
        ("items", "attempts", b"falcon", "position = 2"),
        ("open_turns", "json", CUT, ""),
        ("changes", "memory", CUT, "number = 0"),
        ("changes", "memory", b'{"turns": {"sorted": 1}}', "number > 0"),
        ("memories", "speakers", CUT, ""),
        ("memories", "speakers", DEEP, ""),
        ("metadata", "json", CUT, "session = 's1'"),
        ("metadata", "json", DEEP, "session = 's1'"),
        ("amendments", "sources", BYTES, ""),
        ("amendments", "number", b"1x", ""),
    ],
)
def test_no_way_of_reading_says_what_a_damaged_row_holds(path, table, column, value, where) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        changed = f"UPDATE mempiler_{table} SET {column} = CAST(? AS TEXT)"
        db.execute(f"{changed} WHERE user = 'ada' AND {where or 'true'}", (value,))
    with Store(path) as store:
        reads: list[Callable[[], Any]] = [
            lambda: store.read(ADA),
            lambda: store.items.list_all(ADA),
            lambda: store.items.turns(ADA, ["s3:1"]),
            lambda: store.metadata.sessions_of_turns(ADA, ["s1:1"]),
            lambda: store.amendments.list_all(ADA),
            lambda: store.open_sessions.end(ADA, "s4"),
            lambda: store.transfer.dump(ADA),
            lambda: build("turn-rag").memory(store, "ada", lm=language_model("offline")).view(),
        ]
        errors = list[StoreError]()
        for read in reads:
            try:
                read()
            except StoreError as error:
                errors.append(error)
        assert errors
        for error in errors:
            assert "'ada'" in str(error)
            assert SECRET not in str(error)
            assert error.__cause__ is None
        assert store.read(BOB).document
        assert store.forgetting.forget_user(ADA), (
            "damage is no reason to keep what is to be forgotten"
        )


def test_a_damaged_open_session_is_named_when_it_is_to_be_forgotten(
    store: Any, database: Any
) -> None:
    """Its turn has an id that would stay taken. The message does not say what the row holds."""
    store.open_sessions.append(ADA, "chat", [Turn(id="", speaker="Ada", text="falcon")])
    with database.write_transaction() as transaction:
        transaction.connection.execute(
            text('UPDATE mempiler_open_turns SET json = \'{"text": "falcon\'')
        )

    with pytest.raises(StoreError, match="session 'chat': the row is damaged") as raised:
        store.forgetting.forget_session(ADA, "chat")
    assert "falcon" not in str(raised.value)
    assert store.forgetting.forget_user(ADA)
