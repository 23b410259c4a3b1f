"""Forgetting leaves no bytes, and refuses what was begun before it.

A store counts how often something was forgotten. A write that was begun with an older count
(`forget_count`) is refused if it is about what was forgotten since. Whoever forgets gets a receipt:
it says what was deleted, and whether its bytes are gone from the disk. An open session is one that
has not ended. An amendment is a change that a user makes to an entry of a memory.

Also: memories are stored as a log of changes, and no error quotes a damaged row.
"""

import json
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from mempiler import ConflictError, Session, Store, StoreError, Turn, UserMemory, build
from mempiler.engines.lm import language_model
from mempiler.memory.edits import Amendment
from mempiler.memory.results import Receipt
from mempiler.memory.store import sqlite
from mempiler.memory.store.documents import ChangeLog, Document, MemoryChange
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.records import Erasure
from mempiler.serving.memories.queue_writer import SHORT
from sqlalchemy import text as sql

from ..conftest import listening
from .conftest import ADA, BOB, WRITER, session


def bytes_of_files(folder: Path) -> bytes:
    """Return the contents of all files in a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def message(text: str) -> list[dict[str, str]]:
    """Return the messages of a session in which a user says this."""
    return [{"role": "user", "content": text}]


def deletion_of_turn(turn_id: str, text: str) -> Amendment:
    """Return what is stored when a user deletes an entry that is a turn; it quotes the text."""
    return Amendment(
        number=1, action="delete", entry=turn_id, kind="turn", old_text=text, sources=(turn_id,)
    )


# Receipts.


def test_the_receipt_of_a_user_counts_all_sessions_and_turns(store: Store) -> None:
    store.items.add(ADA, session("one", "more", id="s"))
    store.items.add(ADA, session("two", id="t"))
    store.open_sessions.append(ADA, "chat", session("three").turns)

    receipt = store.forgetting.forget_user(ADA)

    assert receipt.forgotten == "ada"
    assert receipt.sessions == 3
    assert receipt.turns == 4


def test_the_receipt_of_a_session_counts_its_turns(store: Store) -> None:
    store.items.add(ADA, session("one", "more", id="s"))
    store.items.add(ADA, session("two", id="t"))

    receipt = store.forgetting.forget_session(ADA, "s")

    assert receipt.forgotten == "s"
    assert receipt.sessions == 1
    assert receipt.turns == 2


def test_the_receipt_of_an_open_session_counts_its_turns(store: Store) -> None:
    store.open_sessions.append(ADA, "chat", session("one").turns)

    receipt = store.forgetting.forget_session(ADA, "chat")

    assert receipt.forgotten == "chat"
    assert receipt.sessions == 1
    assert receipt.turns == 1


def test_a_receipt_is_false_if_there_was_nothing_to_forget(store: Store) -> None:
    store.items.add(ADA, session("one", id="s"))

    assert store.forgetting.forget_session(ADA, "s")
    assert not store.forgetting.forget_session(ADA, "s")
    assert store.forgetting.forget_user(ADA)
    assert not store.forgetting.forget_user(ADA)


def forget_user(store: Store) -> Receipt:
    return store.forgetting.forget_user(ADA)


def forget_session(store: Store) -> Receipt:
    return store.forgetting.forget_session(ADA, "s")


def forget_open_session(store: Store) -> Receipt:
    return store.forgetting.forget_session(ADA, "chat")


@pytest.mark.parametrize("forget", [forget_user, forget_session, forget_open_session])
def test_a_receipt_says_that_the_bytes_are_erased_from_a_file(
    tmp_path: Path, forget: Callable[[Store], Receipt]
) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.items.add(ADA, session("one", id="s"))
        store.open_sessions.append(ADA, "chat", session("two").turns)

        receipt = forget(store)

    assert receipt.erased is True
    assert receipt.held_by == ""


@pytest.mark.slow
def test_a_receipt_says_that_postgresql_still_holds_deleted_rows(postgres: Any) -> None:
    """PostgreSQL keeps the bytes of a deleted row until it needs the place."""
    with Store(postgres.emptied()) as store:
        store.items.add(ADA, session("one", id="s"))

        receipt = store.forgetting.forget_session(ADA, "s")

    assert receipt.erased is None
    assert "until it needs the place, or VACUUM FULL; and in logs" in receipt.held_by


# Bytes.


def random_text(chance: random.Random, mark: str) -> str:
    """Return a text of random length, in which a third of the words is the mark."""
    words: list[str] = []
    for _ in range(chance.choice([3, 20, 200, 2000])):
        is_mark = chance.random() < 0.3
        words.append(mark if is_mark else f"word{chance.randrange(999)}")
    return " ".join(words)


def add_random_session(
    store: Store, chance: random.Random, owner: Owner, mark: str, number: int
) -> None:
    """Append to an open session, or add a session, with texts and ids that hold the mark."""
    if chance.random() < 0.3:
        # One of five open sessions; other ones after each forty calls.
        session_id = f"c{chance.randrange(5)}-{number // 40}"
        turn = Turn(id="", speaker=mark, text=random_text(chance, mark))
        store.open_sessions.append(owner, session_id, [turn])
        return

    turns: list[Turn] = []
    for _ in range(chance.randrange(1, 5)):
        turns.append(Turn(id="", speaker="a", text=random_text(chance, mark)))
    store.items.add(owner, Session(id=f"{mark}s{number}", turns=tuple(turns)))


def write_random_memory(store: Store, chance: random.Random, owner: Owner, mark: str) -> None:
    """Write all sessions of a user into a memory of random length that holds the mark."""
    last_position = max((stored.position for stored in store.items.list_all(owner)), default=0)
    for claim in store.queue.claim("me", lease=60, stamp=WRITER, owner=owner):
        if last_position == 0:
            return
        document = Document(
            memory=json.dumps({"m": random_text(chance, mark) * chance.randrange(1, 9)}),
            position=last_position,
            finalized=None,
            finalized_position=last_position,
            speakers=("a",),
            stamp=WRITER,
        )
        positions = range(1, last_position + 1)
        store.queue.commit(claim, document, lease=60, item_positions=positions)
        store.queue.release(claim)


def test_no_piece_of_the_text_stays_between_the_rows_of_a_page(tmp_path: Path) -> None:
    """SQLite overwrites deleted rows, but not the old copies of rows that it has moved.

    Every text of user 2 has the word "MARK2x", so the word must be gone with the user.
    """
    chance = random.Random(6)
    with Store(tmp_path / "s.sqlite") as store:
        for number in range(150):
            user = chance.randrange(6)
            owner = Owner(f"user{user}")
            mark = f"MARK{user}x"
            add_random_session(store, chance, owner, mark, number)
            if chance.random() < 0.4:
                write_random_memory(store, chance, owner, mark)
        assert b"MARK2x" in bytes_of_files(tmp_path)

        for user in range(3):
            store.forgetting.forget_user(Owner(f"user{user}"))

        # If the file were not rewritten as a whole, these random texts would leave four copies.
        assert bytes_of_files(tmp_path).count(b"MARK2x") == 0


@contextmanager
def open_reader(path: Path) -> Iterator[sqlite3.Connection]:
    """Begin to read a store in another connection, which then sees the rows of this moment."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM mempiler_items").fetchone()
        yield reader


def test_an_open_reader_is_named_in_the_receipt(tmp_path: Path) -> None:
    """Another connection is still reading the old rows, so their bytes cannot be erased yet."""
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.items.add(ADA, session("a very secret word"))

        with open_reader(path):
            receipt = store.forgetting.forget_user(ADA)

            assert receipt.erased is False
            assert "somebody reads the store" in receipt.held_by
            assert b"secret" in bytes_of_files(tmp_path)


def test_bytes_that_a_reader_kept_are_erased_when_it_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.items.add(ADA, session("a very secret word"))
        with open_reader(path):
            store.forgetting.forget_user(ADA)

        with Store(path) as other_store:
            erasure = other_store.forgetting.erase()

        assert erasure == Erasure(erased=True)
        assert b"secret" not in bytes_of_files(tmp_path)


def test_neither_forgetting_nor_another_writer_waits_for_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.items.add(ADA, session("one"))

        with open_reader(path):
            started = time.monotonic()
            writer = threading.Thread(target=store.items.add, args=(BOB, session("two")))
            writer.start()
            store.forgetting.forget_user(ADA)
            writer.join()

        # A writer that waited for another one would do so for ten seconds.
        assert time.monotonic() - started < 8
        assert [user.owner for user in store.users.list_all()] == [BOB]


def test_a_replaced_session_leaves_no_byte_of_its_text_metadata_and_amendments(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        memory = build("turn-rag").memory(store, "ada", lm=language_model("offline"))
        memory.add(message("the falcon flies"), id="s", metadata={"bird": "falcon"})
        memory.entries.update("s:1", "the falcon sleeps", by="falcon")
        assert b"falcon" in bytes_of_files(tmp_path)

        memory.replace(message("the owl flies"), id="s")

        assert [entry.text for entry in memory.entries.list().entries] == ["user: the owl flies"]
        assert b"falcon" not in bytes_of_files(tmp_path)


def test_a_session_may_replace_an_open_one(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.open_sessions.append(ADA, "chat", session("falcon").turns)

        assert store.items.replace(ADA, session("owl", id="chat")).new

        assert store.read(ADA).open_sessions == ()
        (stored,) = store.items.list_all(ADA)
        assert stored.item.turns[0].text == "owl"
        assert b"falcon" not in bytes_of_files(tmp_path)


def test_a_file_that_is_too_large_to_be_rewritten_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file larger than 256 MB is not rewritten, and a test would have to write so much.
    monkeypatch.setattr(sqlite, "MAX_REWRITTEN_BYTES", 0)
    with Store(tmp_path / "s.sqlite") as store:
        store.items.add(ADA, session("one"))

        receipt = store.forgetting.forget_user(ADA)

        assert receipt.erased is False
        assert "sqlite3 FILE VACUUM" in receipt.held_by
        # The caller knows it now, so it is not tried again.
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


# What was begun before the forgetting.


def add(store: Store, owner: Owner, session_id: str, forget_count: int | None) -> None:
    store.items.add(owner, session("one", id=session_id), forget_count=forget_count)


def replace(store: Store, owner: Owner, session_id: str, forget_count: int | None) -> None:
    store.items.replace(owner, session("one", id=session_id), forget_count=forget_count)


def append(store: Store, owner: Owner, session_id: str, forget_count: int | None) -> None:
    turns = session("one").turns
    store.open_sessions.append(owner, session_id, turns, forget_count=forget_count)


class Write(Protocol):
    """A way to store a session; `forget_count` is what its caller read before, None for now."""

    def __call__(
        self, store: Store, owner: Owner, session_id: str, forget_count: int | None
    ) -> None: ...


WRITES: list[Write] = [add, replace, append]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_began_before_its_user_was_forgotten_is_refused_in_every_process(
    open_store: Callable[..., Store], write: Write
) -> None:
    """The second process reads the forget count before the first one forgets Ada.

    So its write for Ada comes too late.
    """
    first_process = open_store()
    second_process = open_store()
    count_before_forgetting = second_process.forgetting.count()
    first_process.forgetting.forget_user(ADA)

    with pytest.raises(
        ConflictError, match=r"^user 'ada' was forgotten while this was under way; nothing of it"
    ):
        write(second_process, ADA, session_id="s", forget_count=count_before_forgetting)
    assert second_process.users.list_all() == []


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_begins_after_its_user_was_forgotten_is_stored(
    store: Store, write: Write
) -> None:
    store.forgetting.forget_user(ADA)
    count_after_forgetting = store.forgetting.count()

    write(store, ADA, session_id="s", forget_count=count_after_forgetting)

    assert [user.owner for user in store.users.list_all()] == [ADA]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_stored_though_another_user_is_forgotten_meanwhile(
    store: Store, write: Write
) -> None:
    count_before_forgetting = store.forgetting.count()
    store.forgetting.forget_user(ADA)

    write(store, BOB, session_id="s", forget_count=count_before_forgetting)

    assert [user.owner for user in store.users.list_all()] == [BOB]


@pytest.mark.parametrize("write", WRITES)
def test_a_repeated_write_does_not_bring_back_a_session_that_was_forgotten_in_between(
    store: Store, write: Write
) -> None:
    """A client repeats a request whose answer was lost, with the forget count of the first try."""
    forget_count = store.forgetting.count()
    write(store, ADA, session_id="s", forget_count=forget_count)
    store.forgetting.forget_session(ADA, "s")

    with pytest.raises(ConflictError, match="session 's' of user 'ada' was forgotten while this"):
        write(store, ADA, session_id="s", forget_count=forget_count)
    assert store.read(ADA).pending_items == ()
    assert store.read(ADA).open_sessions == ()


@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_stored_though_another_session_is_forgotten_meanwhile(
    store: Store, write: Write
) -> None:
    store.items.add(ADA, session("one", id="forgotten"))
    count_before_forgetting = store.forgetting.count()
    store.forgetting.forget_session(ADA, "forgotten")

    write(store, ADA, session_id="other", forget_count=count_before_forgetting)

    assert [user.owner for user in store.users.list_all()] == [ADA]


@pytest.mark.parametrize("write", WRITES)
def test_the_id_of_a_forgotten_session_may_be_used_again(store: Store, write: Write) -> None:
    write(store, ADA, session_id="s", forget_count=None)
    store.forgetting.forget_session(ADA, "s")
    count_after_forgetting = store.forgetting.count()

    write(store, ADA, session_id="s", forget_count=count_after_forgetting)

    assert [user.owner for user in store.users.list_all()] == [ADA]


def test_an_amendment_of_an_entry_whose_session_was_forgotten_meanwhile_is_not_stored(
    store: Store,
) -> None:
    """An amendment quotes its entry, so it would bring back the forgotten text."""
    store.items.add(ADA, session("a very secret word", id="s1"))
    store.items.add(ADA, session("something else", id="s2"))
    count_before_forgetting = store.forgetting.count()
    amendment = deletion_of_turn("s1:1", "a very secret word")
    store.forgetting.forget_session(ADA, "s1")

    assert not store.amendments.append(ADA, amendment, forget_count=count_before_forgetting)
    assert store.amendments.list_all(ADA) == []


def test_an_amendment_of_an_entry_that_was_read_before_a_forgetting_is_not_stored(
    store: Store,
) -> None:
    """A request begins after a session was forgotten, but has read its entry before.

    The words that it quotes may be those of the forgotten session.
    """
    store.items.add(ADA, session("a very secret word", id="s1"))
    store.items.add(ADA, session("something else", id="s2"))
    count_before_forgetting = store.forgetting.count()
    store.forgetting.forget_session(ADA, "s1")
    count_after_forgetting = store.forgetting.count()

    assert not store.amendments.append(
        ADA,
        deletion_of_turn("s2:1", "something else"),
        forget_count=count_after_forgetting,
        entry_forget_count=count_before_forgetting,
    )
    assert store.amendments.list_all(ADA) == []


def test_an_amendment_is_stored_if_its_entry_was_read_after_a_forgetting(store: Store) -> None:
    """A request began before another session was forgotten, and read its entry after that.

    The older forget count of the request does not matter then.
    """
    store.items.add(ADA, session("a very secret word", id="s1"))
    store.items.add(ADA, session("something else", id="s2"))
    count_before_forgetting = store.forgetting.count()
    store.forgetting.forget_session(ADA, "s1")
    count_after_forgetting = store.forgetting.count()

    assert store.amendments.append(
        ADA,
        deletion_of_turn("s2:1", "something else"),
        forget_count=count_before_forgetting,
        entry_forget_count=count_after_forgetting,
    )


def test_of_two_calls_that_replace_a_session_the_last_one_wins(store: Store) -> None:
    """Both calls began at the same forget count, and the first one forgot the old session.

    The second one is not refused for that, as it would be after another kind of forgetting.
    """
    store.items.add(ADA, session("old", id="s"))
    forget_count = store.forgetting.count()
    store.items.replace(ADA, session("new", id="s"), forget_count=forget_count)

    added = store.items.replace(ADA, session("newer", id="s"), forget_count=forget_count)

    assert added.new is True
    (stored,) = store.items.list_all(ADA)
    assert stored.item.turns[0].text == "newer"


def test_a_replacement_that_is_repeated_changes_nothing(store: Store) -> None:
    """A client that was killed before it got the answer sends the same request again."""
    store.items.add(ADA, session("old", id="s"))
    forget_count = store.forgetting.count()
    store.items.replace(ADA, session("new", id="s"), forget_count=forget_count)

    added = store.items.replace(ADA, session("new", id="s"), forget_count=forget_count)

    assert added.new is False
    (stored,) = store.items.list_all(ADA)
    assert stored.item.turns[0].text == "new"


def test_a_write_that_waits_for_its_turn_while_its_user_is_forgotten_is_refused(
    open_store: Callable[..., Store],
) -> None:
    writer = open_store()
    other_process = open_store()
    has_forgotten = threading.Event()

    def forget_ada(*_: Any) -> None:
        # The forgetting uses connections too, and must not forget anew for each of them.
        if not has_forgotten.is_set():
            has_forgotten.set()
            other_process.forgetting.forget_user(ADA)

    # The writer reads the forget count with one connection, and gives it back ("checkin"), before
    # it takes the next one to write.
    with listening("checkin", forget_ada), pytest.raises(ConflictError):
        writer.items.add(ADA, session("one"))

    assert has_forgotten.is_set()
    assert writer.users.list_all() == []


def test_forgetting_waits_for_the_first_write_of_a_new_user_and_deletes_it(
    open_store: Callable[..., Store],
) -> None:
    """Ada's first data are being written, and nobody else sees her before they are committed."""
    first_process = open_store()
    second_process = open_store()
    has_written_ada = threading.Event()
    may_commit = threading.Event()

    def users_to_restore() -> Iterator[Any]:
        yield first_process.transfer.dump(ADA)
        has_written_ada.set()
        may_commit.wait(10)

    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(first_process.transfer.restore, users_to_restore())
        assert has_written_ada.wait(10)
        forgetting = threads.submit(second_process.forgetting.forget_user, ADA)
        time.sleep(0.1)  # the forgetting has time to begin
        may_commit.set()
        writing.result()
        forgetting.result()

    assert second_process.users.list_all() == []


# Memories as a log of changes.


def commit(store: Store, *documents: Document) -> Document:
    """Store these versions of Ada's memory one after the other, and return what is read then."""
    store.items.add(ADA, session("x"))
    (claim,) = store.queue.claim("me", lease=60, stamp=WRITER)
    for document in documents:
        claim = store.queue.commit(claim, document, lease=60)
        assert claim is not None

    stored = store.read(ADA).document
    assert stored is not None
    return stored


def whole_memory(words: list[str], finalized_words: list[str]) -> Document:
    """Return a version of a memory as its whole text.

    Args:
        words: What the memory holds.
        finalized_words: What its finalized form holds, from which questions are answered.
    """
    return Document(
        memory=json.dumps({"words": words}),
        position=1,
        finalized=json.dumps({"words": finalized_words}),
        finalized_position=1,
        speakers=(),
        stamp=WRITER,
    )


def appended_word(number: int, word: str, finalized: dict[str, Any] | None = None) -> Document:
    """Return the next version of a memory as a change: a word that is appended.

    Args:
        number: The number of the change since the whole text, and of the words before this one.
        word: The new word.
        finalized: How the finalized form differs from the memory; None leaves it as it is stored.
    """
    change = MemoryChange(
        # At the index `number` no words are removed, and one is inserted.
        memory=json.dumps({"words": {"items": [[number, 0, [word]]]}}),
        finalized=None if finalized is None else json.dumps(finalized),
    )
    return Document(
        memory="",
        position=1,
        finalized=None,
        finalized_position=1,
        speakers=(),
        stamp=WRITER,
        change=change,
        log=ChangeLog(change_count=number),
    )


def test_a_memory_is_read_from_its_whole_text_and_all_later_changes(store: Store) -> None:
    """A commit may store only what is new in a memory. Whoever reads it gets the whole memory."""
    stored = commit(
        store,
        whole_memory(words=["a"], finalized_words=["a"]),
        appended_word(1, "b"),
        appended_word(2, "c"),
    )

    assert json.loads(stored.memory) == {"words": ["a", "b", "c"]}
    assert stored.log.change_count == 2


def test_a_new_whole_text_takes_the_place_of_earlier_changes(store: Store) -> None:
    stored = commit(
        store,
        whole_memory(words=["a"], finalized_words=["a"]),
        appended_word(1, "b"),
        whole_memory(words=["z"], finalized_words=["z"]),
    )

    assert json.loads(stored.memory) == {"words": ["z"]}
    assert stored.log.change_count == 0


def test_the_finalized_form_is_stored_as_its_difference_from_the_memory(store: Store) -> None:
    stored = commit(
        store,
        whole_memory(words=["a"], finalized_words=["a"]),
        appended_word(1, "b", finalized={"words": {"value": ["final"]}}),
    )

    assert json.loads(stored.memory) == {"words": ["a", "b"]}
    assert json.loads(stored.finalized or "") == {"words": ["final"]}


def test_a_change_of_the_memory_alone_leaves_the_finalized_form_as_it_was(store: Store) -> None:
    no_difference: dict[str, Any] = {}

    stored = commit(
        store,
        whole_memory(words=["a"], finalized_words=["a"]),
        appended_word(1, "b", finalized=no_difference),
        appended_word(2, "c", finalized=None),
    )

    assert json.loads(stored.memory) == {"words": ["a", "b", "c"]}
    assert json.loads(stored.finalized or "") == {"words": ["a", "b"]}


def memory_in(path: Path, method: str = "turn-rag") -> UserMemory:
    """Return Ada's memory in a store, as a process of its own would see it."""
    return build(method).memory(path, "ada", lm=language_model("offline"))


def add_long_message(memory: UserMemory, number: int) -> None:
    content = f"Number {number}: {'so I said. ' * 400}"
    memory.add([{"role": "user", "name": "Ada", "content": content}])


def lengths_of_changes(path: Path) -> list[int]:
    """Return the lengths of the changes since the whole text of a memory was written."""
    with closing(sqlite3.connect(path)) as database:
        # Number 0 is the whole text.
        rows = database.execute(
            "SELECT length(memory) FROM mempiler_changes WHERE number > 0 ORDER BY number"
        ).fetchall()
    return [length for (length,) in rows]


def test_a_commit_writes_only_what_is_new(tmp_path: Path) -> None:
    """The first of five commits writes the whole memory. The other four write equally much."""
    path = tmp_path / "s.sqlite"
    memory = memory_in(path)

    for number in range(5):
        add_long_message(memory, number)

    lengths = lengths_of_changes(path)
    assert len(lengths) == 4
    assert max(lengths) < 1.1 * min(lengths)


def test_changes_that_become_too_long_are_replaced_by_the_whole_memory(tmp_path: Path) -> None:
    """A new process reads the whole memory and all changes since, so these must stay few."""
    path = tmp_path / "s.sqlite"
    memory = memory_in(path)
    total_lengths: list[int] = []

    for number in range(40):
        add_long_message(memory, number)
        total_lengths.append(sum(lengths_of_changes(path)))

    # `SHORT` is how long the changes of a short memory may be. One more may go beyond it.
    assert max(total_lengths) <= 2 * SHORT
    # The whole memory was written by the first commit, and again by a later one.
    assert total_lengths.count(0) > 1


@contextmanager
def recorded_reads() -> Iterator[list[str]]:
    """Record what is read of memories in the block: "whole memory" or "later changes"."""
    reads: list[str] = []

    def record(connection: Any, cursor: Any, statement: str, values: Any, *_: Any) -> None:
        if "FROM mempiler_changes" in statement:
            last_number_that_is_known = values[-1]
            reads.append("whole memory" if last_number_that_is_known < 0 else "later changes")

    with listening("before_cursor_execute", record):
        yield reads


@pytest.mark.parametrize("method", ["turn-rag", "h2memory"])
def test_another_process_reads_only_what_was_changed_since_it_read_last(
    method: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.sqlite"
    writer = memory_in(path, method)
    reader = memory_in(path, method)
    writer.add(message("I have 2 dogs, and I moved to Lisbon."))
    with recorded_reads() as first_reads:
        reader.read()
    assert first_reads == ["whole memory"]

    writer.add(message("I have 3 dogs, and I moved to Porto."))
    with recorded_reads() as later_reads:
        memory_of_reader = reader.read()

    assert later_reads == ["later changes"]
    memory_of_new_process = memory_in(path, method).read()
    assert memory_of_reader == memory_of_new_process
    assert reader.recall("Where did Ada move?").hits == writer.recall("Where did Ada move?").hits


@pytest.mark.parametrize("method", ["turn-rag", "h2memory"])
def test_a_process_does_not_read_again_what_it_has_written_itself(
    method: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.sqlite"
    memory = memory_in(path, method)
    memory.add(message("I have 2 dogs, and I moved to Lisbon."))

    with recorded_reads() as reads:
        memory_of_writer = memory.read()

    assert reads == []
    memory_of_new_process = memory_in(path, method).read()
    assert memory_of_writer == memory_of_new_process


def test_a_change_that_does_not_fit_the_memory_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    writer = memory_in(path)
    reader = memory_in(path)
    add_long_message(writer, 1)
    reader.read()

    add_long_message(writer, 2)
    with closing(sqlite3.connect(path)) as database, database:
        wrong_change = '{"turns": {"sorted": 1}}'
        database.execute("UPDATE mempiler_changes SET memory = ? WHERE number > 0", [wrong_change])

    with pytest.raises(StoreError, match="does not fit its program: ValueError; run: mempiler"):
        reader.read()


# Damaged rows.

SECRET = "falcon"
"""A word in everything that the damaged rows hold."""
CUT_OFF_JSON = b'{"x": "falcon'
NO_UTF8 = b"\xff falcon"
DEEP_JSON = b'["falcon", ' + b"[" * 100_000
"""JSON that is nested deeper than any stack."""


@pytest.fixture
def store_file_full_of_secrets(tmp_path: Path) -> Path:
    """The file of a store of Ada and Bob, in which every text and every value is "falcon".

    Each has two sessions in the memory, an amendment, a session that waits, and an open session.
    """
    path = tmp_path / "s.sqlite"
    secret_text = f"the code is {SECRET}"
    secret_metadata = {"code": SECRET}
    amendment = deletion_of_turn("s1:1", SECRET)
    with Store(path) as store:
        for owner in (ADA, BOB):
            store.items.add(owner, session(secret_text, id="s1"), metadata=secret_metadata)
            store.items.add(owner, session(secret_text, id="s2"), metadata=secret_metadata)
            memory = build("turn-rag").memory(store, owner.user, lm=language_model("offline"))
            memory.remember()
            store.amendments.append(owner, amendment)
            store.items.add(owner, session(secret_text, id="s3"))
            turns = session(secret_text).turns
            store.open_sessions.append(owner, "s4", turns, metadata=secret_metadata)
    return path


def errors_of_all_reads(store: Store) -> list[StoreError]:
    """Read Ada's data in every way that there is, and return the errors of those that fail."""
    memory = build("turn-rag").memory(store, "ada", lm=language_model("offline"))
    reads: list[Callable[[], object]] = [
        partial(store.read, ADA),
        partial(store.items.list_all, ADA),
        partial(store.items.turns, ADA, ["s3:1"]),
        partial(store.metadata.sessions_of_turns, ADA, ["s1:1"]),
        partial(store.amendments.list_all, ADA),
        partial(store.open_sessions.end, ADA, "s4"),
        partial(store.transfer.dump, ADA),
        memory.view,
    ]
    errors: list[StoreError] = []
    for read in reads:
        try:
            read()
        except StoreError as error:
            errors.append(error)
    return errors


class Damage(NamedTuple):
    """A value that is written into a column of the rows of Ada that fulfil a condition."""

    table: str
    column: str
    value: bytes
    condition: str = "true"

    def apply(self, store_file: Path) -> None:
        with closing(sqlite3.connect(store_file)) as database, database:
            database.execute(
                f"UPDATE mempiler_{self.table} SET {self.column} = CAST(? AS TEXT)"
                f" WHERE user = 'ada' AND {self.condition}",
                [self.value],
            )


DAMAGES = [
    pytest.param(Damage("items", "json", CUT_OFF_JSON, "position = 3"), id="session, cut off"),
    pytest.param(Damage("items", "json", NO_UTF8, "position = 3"), id="session, no UTF-8"),
    pytest.param(Damage("items", "state", b"falcon", "position = 2"), id="unknown state"),
    pytest.param(Damage("items", "attempts", b"falcon", "position = 2"), id="attempts, no number"),
    pytest.param(Damage("open_turns", "json", CUT_OFF_JSON), id="open session, cut off"),
    pytest.param(Damage("changes", "memory", CUT_OFF_JSON, "number = 0"), id="memory, cut off"),
    pytest.param(
        Damage("changes", "memory", b'{"turns": {"sorted": 1}}', "number > 0"),
        id="change of an unknown kind",
    ),
    pytest.param(Damage("memories", "speakers", CUT_OFF_JSON), id="speakers, cut off"),
    pytest.param(Damage("memories", "speakers", DEEP_JSON), id="speakers, nested too deep"),
    pytest.param(
        Damage("metadata", "json", CUT_OFF_JSON, "session = 's1'"), id="metadata, cut off"
    ),
    pytest.param(
        Damage("metadata", "json", DEEP_JSON, "session = 's1'"), id="metadata, nested too deep"
    ),
    pytest.param(Damage("amendments", "sources", NO_UTF8), id="amendment, no UTF-8"),
    pytest.param(Damage("amendments", "number", b"1x"), id="amendment, no number"),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_way_of_reading_quotes_a_damaged_row(
    store_file_full_of_secrets: Path, damage: Damage
) -> None:
    """Errors go to logs, where nothing that a user said may stand: here the word "falcon"."""
    damage.apply(store_file_full_of_secrets)

    with Store(store_file_full_of_secrets) as store:
        errors = errors_of_all_reads(store)

    assert errors
    for error in errors:
        assert "'ada'" in str(error)
        assert "falcon" not in str(error)
        # A cause would be logged with the error.
        assert error.__cause__ is None


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_row_neither_hides_another_user_nor_prevents_forgetting(
    store_file_full_of_secrets: Path, damage: Damage
) -> None:
    """The damaged row is one of Ada's."""
    damage.apply(store_file_full_of_secrets)

    with Store(store_file_full_of_secrets) as store:
        assert store.read(BOB).document
        assert store.forgetting.forget_user(ADA)


def test_a_damaged_open_session_is_named_when_it_is_to_be_forgotten(
    store: Store, database: Any
) -> None:
    """The ids of its turns cannot be read, so they cannot be given free.

    The error says nothing of what the row holds. To forget the user as a whole is possible.
    """
    store.open_sessions.append(ADA, "chat", session("falcon").turns)
    with database.write_transaction() as transaction:
        transaction.connection.execute(
            sql('UPDATE mempiler_open_turns SET json = \'{"text": "falcon\'')
        )

    with pytest.raises(StoreError, match="session 'chat': the row is damaged") as raised:
        store.forgetting.forget_session(ADA, "chat")
    assert "falcon" not in str(raised.value)
    assert store.forgetting.forget_user(ADA)
