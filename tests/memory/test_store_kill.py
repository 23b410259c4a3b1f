"""A store whose processes are killed: while tables are created, while it writes, and under load.

Also: a damaged file that is imported gives an error of one line, and nothing in the store.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mempiler import ConflictError, Store, StoreError, UserMemory, build
from mempiler.engines.lm import language_model
from mempiler.memory.incoming_items import read_incoming_item
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.schema import SCHEMA_VERSION
from mempiler.serving.memories.transfer import import_users
from sqlalchemy import Engine, create_engine, event, inspect, text

ADA = Owner("ada")


def engine_of(url: str) -> Engine:
    """Return a connection to the database of a store, beside the store."""
    if "://" in url:
        return create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    return create_engine(f"sqlite:///{url}")


def contents(url: str) -> dict[str, list[str]]:
    """Return the rows of all tables, as texts."""
    rows_by_table: dict[str, list[str]] = {}
    engine = engine_of(url)
    with engine.connect() as connection:
        for table in inspect(connection).get_table_names():
            rows = connection.execute(text(f"SELECT * FROM {table}"))
            rows_by_table[table] = sorted(repr(row) for row in rows)
    engine.dispose()
    return rows_by_table


def start_process(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Run a function in a process of its own, which is forked off this one."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    return process


def exit_code_of_process(work: Callable[..., None], *arguments: Any) -> int | None:
    """Run a function in a process of its own, and return its exit code."""
    process = start_process(work, *arguments)
    process.join(60)
    return process.exitcode


class KillSwitch:
    """Kills this process right before one of the statements that change a database.

    Args:
        number: The number of that statement, from 1.
    """

    def __init__(self, number: int) -> None:
        self._statements_left = number
        event.listen(Engine, "before_cursor_execute", self._count)

    def _count(self, connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.split()[0] in ("PRAGMA", "SELECT"):
            return
        self._statements_left -= 1
        if self._statements_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


# The tables.


def open_and_die(url: str, statement_number: int) -> None:
    """Open a store, in a process that is killed before a statement that changes the database."""
    KillSwitch(statement_number)
    Store(url).close()


def open_empty_store(url: str) -> None:
    """Open a store, which creates its tables, and check that it is empty."""
    with Store(url) as store:
        assert store.users.list_all() == []


ROWS_OF_VERSION = [f"('{SCHEMA_VERSION}',)"]
"""The rows of the table that says which version the tables have."""


@pytest.mark.slow
def test_a_process_killed_while_it_creates_the_tables_has_changed_nothing(
    url_without_tables: str,
) -> None:
    """A process is killed before its first statement, the next one before its second, and so on.

    The last process has fewer statements than that. It is not killed, and creates the tables.
    """
    statement_number = 0
    exit_code: int | None = -signal.SIGKILL
    while exit_code == -signal.SIGKILL:
        statement_number += 1
        exit_code = exit_code_of_process(open_and_die, url_without_tables, statement_number)
        if exit_code == -signal.SIGKILL:
            assert contents(url_without_tables) == {}

    assert exit_code == 0
    # There are a dozen tables and more.
    assert statement_number > 12
    assert contents(url_without_tables)["mempiler_version"] == ROWS_OF_VERSION


def test_processes_that_open_a_store_at_once_create_its_tables_once(
    url_without_tables: str,
) -> None:
    """A process that created them a second time would fail, and exit with another code."""
    processes = [start_process(open_empty_store, url_without_tables) for _ in range(6)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0

    assert contents(url_without_tables)["mempiler_version"] == ROWS_OF_VERSION


def test_threads_create_the_tables_of_several_stores_at_once(tmp_path: Path) -> None:
    urls = [str(tmp_path / f"{number}.sqlite") for number in range(8)]

    with ThreadPoolExecutor(len(urls)) as threads:
        list(threads.map(open_empty_store, urls))

    for url in urls:
        assert contents(url)["mempiler_version"] == ROWS_OF_VERSION


def test_a_store_of_an_older_version_is_refused_in_one_line(url: str) -> None:
    Store(url).close()
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE mempiler_version SET version_num = '4'"))
    engine.dispose()

    with pytest.raises(StoreError) as raised:
        Store(url)

    message = str(raised.value)
    assert f"of version 4, this Mempiler reads {SCHEMA_VERSION}" in message
    assert "add the sessions to a new store" in message
    assert "\n" not in message


# Imports.

HEADER = '{"mempiler": "memories", "schema": 1}'
"""The first line of a file of memories."""
EMPTY_DOCUMENT = {
    "memory": "{}",
    "position": 0,
    "finalized": None,
    "finalized_position": 0,
    "speakers": [],
    "writer": "w",
    "program": "p",
    "embedder": "",
    "schema_version": 2,
}


def user_line(user: str = "ada", **fields: Any) -> str:
    """Return the line of a user with one session, with other or further fields of the user."""
    turn = {"id": f"{user}:1", "speaker": "a", "text": "hello"}
    item = {
        "position": 1,
        "state": "queued",
        "digest": "d",
        "item": {"id": "s", "turns": [turn]},
    }
    return json.dumps({"tenant": "default", "user": user, "items": [item], **fields})


def line_with_item(**item_fields: Any) -> str:
    """Return the line of a user, with other fields of the session."""
    line = json.loads(user_line())
    line["items"][0].update(item_fields)
    return json.dumps(line)


def line_with_turn(**turn_fields: Any) -> str:
    """Return the line of a user, with other fields of the only turn."""
    turn = {"id": "t", "speaker": "a", "text": "hello", **turn_fields}
    return line_with_item(item={"id": "s", "turns": [turn]})


DAMAGED_LINES = [
    pytest.param(
        line_with_turn(text="\ud83d"), "half of a surrogate pair", id="text that is no Unicode"
    ),
    pytest.param(
        user_line(user="a" * 513), "has 513 characters; use at most 512", id="name that is too long"
    ),
    pytest.param("[" * 100_000, "nested more than 100 levels deep", id="deep JSON"),
    pytest.param(
        user_line().replace('"position": 1', '"position": ' + "9" * 5000),
        "has 5000 digits",
        id="long number",
    ),
    pytest.param(
        line_with_turn(time="0001-01-01T00:00:00+14:00"), "outside the calendar", id="early time"
    ),
    pytest.param(
        line_with_item(item={"id": "s\u200b", "turns": []}), "cannot be seen", id="invisible id"
    ),
    pytest.param(
        user_line(open=[{"id": "s", "turns": [{"id": "x", "speaker": "a"}]}]),
        "is empty or there twice",
        id="open session with the id of another one",
    ),
    pytest.param(
        user_line(document={**EMPTY_DOCUMENT, "memory": "[1]"}),
        "the memory is no JSON object",
        id="memory that is a list",
    ),
    pytest.param(
        user_line(**{"a\nb": 1}), r"line 3: 'a\nb: Unexpected", id="unknown field with a line break"
    ),
    pytest.param(user_line()[:40], "line 3: not valid JSON", id="cut off"),
    pytest.param(
        line_with_item(state="remembered"),
        "the memory ends at position 0",
        id="item that is remembered without a memory",
    ),
    pytest.param(
        line_with_item(position=0),
        "position: Input should be greater than or equal to 1",
        id="position that is zero",
    ),
]


class FailedImport(NamedTuple):
    """What `mempiler memories import` left behind after it failed."""

    error: str
    stored_users: list[Owner]


@pytest.fixture
def import_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> Callable[[list[str]], FailedImport]:
    """A function that imports the file "all.jsonl" with some lines, which must fail."""
    monkeypatch.chdir(tmp_path)

    def import_lines(lines: list[str]) -> FailedImport:
        Path("all.jsonl").write_text("\n".join(lines))
        code, _, errors = cli("memories", "import", "all.jsonl", "--store", "s.sqlite")
        assert code == 2
        with Store("s.sqlite") as store:
            stored_users = [user.owner for user in store.users.list_all()]
        return FailedImport(errors, stored_users)

    return import_lines


@pytest.mark.parametrize(("damaged_line", "message"), DAMAGED_LINES)
def test_a_damaged_line_is_named_and_no_line_of_its_file_is_imported(
    import_that_fails: Callable[[list[str]], FailedImport], damaged_line: str, message: str
) -> None:
    failed_import = import_that_fails([HEADER, user_line("bob"), damaged_line])

    assert failed_import.error.startswith("mempiler: all.jsonl: line 3")
    assert message in failed_import.error
    assert failed_import.error.count("\n") == 1
    assert failed_import.stored_users == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        pytest.param([], "the file is empty", id="empty file"),
        pytest.param([user_line()], "no memories of Mempiler", id="no header"),
        pytest.param(
            ['{"mempiler": "memories", "schema": 99}', user_line()],
            "version 99",
            id="newer version",
        ),
    ],
)
def test_a_file_that_holds_no_memories_is_refused(
    import_that_fails: Callable[[list[str]], FailedImport], lines: list[str], message: str
) -> None:
    failed_import = import_that_fails(lines)

    assert failed_import.error.startswith("mempiler: all.jsonl")
    assert message in failed_import.error
    assert failed_import.stored_users == []


def test_nobody_is_imported_if_one_of_the_users_is_in_the_store_already(store: Store) -> None:
    import_users(store, [HEADER, user_line("ada")], "file")

    with pytest.raises(ConflictError, match="user 'ada' is in"):
        import_users(store, [HEADER, user_line("bob"), user_line("ada")], "file")

    assert [user.owner for user in store.users.list_all()] == [ADA]


def test_imported_times_are_stored_in_utc(store: Store) -> None:
    import_users(store, [HEADER, line_with_turn(time="2024-03-05T10:00:00+02:00")], "file")

    (stored,) = store.items.list_all(ADA)
    assert str(stored.item.turns[0].time) == "2024-03-05 08:00:00"


# A session that is replaced.


def message(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "name": "Ada", "content": text, "time": "2024-03-05"}]


def memory_in(store: Store) -> UserMemory:
    return build("turn-rag").memory(store, "ada", lm=language_model("offline"))


def replace_and_die(url: str, statement_number: int) -> None:
    """Replace session "s", in a process that is killed before a statement of that."""
    # This uses nothing but the store: threads of models and searches do not survive a fork.
    with Store(url) as store:
        KillSwitch(statement_number)
        item, digest = read_incoming_item(message("new"), "s")
        store.items.replace(ADA, item, digest)


def check_replaced_session(url: str) -> str:
    """Check that session "s" was replaced as a whole or not at all; return its text.

    It says "old" and has metadata before, and says "new" and has none afterwards.
    """
    with Store(url) as store:
        memory = memory_in(store)
        texts = {item.id: item.turns[0].text for item in memory.items()}
        assert texts.keys() == {"s", "t"}
        assert texts["t"] == "other"
        text_of_s = texts["s"]
        assert text_of_s in ("old", "new")

        # The new session has no metadata.
        metadata = {"of": "old"} if text_of_s == "old" else {}
        assert store.metadata.sessions_of_turns(ADA, ["s:1"]) == {"s:1": ("s", metadata)}

        # Whoever comes afterwards writes the memory that was to be written, once.
        memory.remember()
        entries = memory.entries.list().entries
        written_texts = [entry.text for entry in entries if not entry.waiting]
        assert sorted(written_texts) == sorted([f"Ada: {text_of_s}", "Ada: other"])
    return text_of_s


@pytest.mark.slow
def test_replacing_a_session_leaves_the_old_one_or_the_new_one_wherever_it_is_killed(
    url: str,
) -> None:
    """A process is killed before its first statement, the next one before its second, and so on.

    The last process has fewer statements than that, and is not killed. The session says "old" at
    first, and "new" when it has been replaced.
    """
    texts_after_kills: list[str] = []
    exit_code: int | None = -signal.SIGKILL
    while exit_code == -signal.SIGKILL:
        with Store(url) as store:
            memory = memory_in(store)
            memory.forget()
            memory.add(message("old"), id="s", metadata={"of": "old"})
            memory.add(message("other"), id="t")

        statement_number = len(texts_after_kills) + 1
        exit_code = exit_code_of_process(replace_and_die, url, statement_number)
        texts_after_kills.append(check_replaced_session(url))

    assert exit_code == 0
    assert len(texts_after_kills) > 10
    # The statement that commits makes the difference.
    old_count = texts_after_kills.count("old")
    new_count = texts_after_kills.count("new")
    assert old_count > 0
    assert new_count > 0
    assert texts_after_kills == ["old"] * old_count + ["new"] * new_count


# Load.

SCRIPT = Path(__file__).parents[2] / "perf" / "kill.py"


def run_load_with_kills(url: str, *options: str) -> dict[str, Any]:
    """Let a script add sessions and kill workers; return what it counted.

    It counts sessions that were lost, were written twice, or are wrong, and kills that came when
    there was nothing to write ("idle").
    """
    command = [sys.executable, str(SCRIPT), "--store", url, "--users", "5", *options]
    process = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.returncode == 0, process.stderr + process.stdout
    return json.loads(process.stdout)


@pytest.mark.slow
def test_killed_workers_lose_and_repeat_no_session(url: str) -> None:
    counts = run_load_with_kills(url, "--sessions", "40", "--kills", "5", "--every", "0.05")

    assert counts["kills"] == 5
    assert counts["sessions"] == 40
    assert counts["remembered"] == 40
    # Otherwise every kill came after the load.
    assert counts["idle"] < 5
    assert counts["lost"] == 0
    assert counts["twice"] == 0
    assert counts["wrong"] == 0


@pytest.mark.slow
def test_load_under_jumping_clocks_and_kills_loses_nothing(url: str) -> None:
    """The clock of each worker is wrong by up to a day, and by another time again and again."""
    counts = run_load_with_kills(
        url, "--sessions", "95", "--kills", "15", "--delay", "0.05", "--clocks-jump"
    )

    assert counts["kills"] == 15
    assert counts["remembered"] == counts["sessions"]
    assert counts["lost"] == 0
    assert counts["twice"] == 0
    assert counts["wrong"] == 0
