"""A store whose processes are killed: while its tables are made, and under load.

Imports of damaged files leave one line, and nothing in a store.
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
from pathlib import Path
from typing import Any

import pytest
from mempiler import ConflictError, Store, StoreError, build
from mempiler.engines.lm import language_model
from mempiler.memory.incoming_items import read_incoming_item
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.schema import SCHEMA_VERSION
from mempiler.serving.memories.transfer import import_users
from sqlalchemy import Engine, create_engine, event, inspect, text

ADA, OLD = Owner("ada"), Owner("old")


def engine_of(url: str) -> Engine:
    return create_engine(
        url.replace("postgresql:", "postgresql+psycopg:") if "://" in url else f"sqlite:///{url}"
    )


def contents(url: str) -> dict[str, Any]:
    """Everything in the tables."""
    engine = engine_of(url)
    with engine.connect() as db:
        names = inspect(db).get_table_names()
        found = {
            name: sorted(map(repr, db.execute(text(f"SELECT * FROM {name}")))) for name in names
        }
    engine.dispose()
    return found


def _die_before(statement: int) -> None:
    """Make this process kill itself before so many statements that change a store."""
    left = [statement]

    @event.listens_for(Engine, "before_cursor_execute")
    def _die(db: Any, cursor: Any, statement: str, *rest: Any) -> None:
        left[0] -= statement.split()[0] not in ("PRAGMA", "SELECT")
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _killed_at(url: str, statement: int) -> None:
    """Opens a store, and dies before one of the statements that change it."""
    _die_before(statement)
    Store(url).close()


def _in_a_process(work: Callable[..., None], *arguments: Any) -> Any:
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    return process


def test_a_process_killed_while_it_creates_the_tables_has_changed_nothing(
    url_without_tables: str,
) -> None:
    statement, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        statement += 1
        process = _in_a_process(_killed_at, url_without_tables, statement)
        process.join(60)
        code = process.exitcode
        if code == -signal.SIGKILL:
            assert contents(url_without_tables) == {}
    assert code == 0
    assert statement > 12
    assert contents(url_without_tables)["mempiler_version"] == [f"('{SCHEMA_VERSION}',)"]


def _open(url: str) -> None:
    with Store(url) as store:
        assert store.users.list_all() == []


def test_processes_that_open_it_at_once_make_its_tables_once(url_without_tables: str) -> None:
    processes = [_in_a_process(_open, url_without_tables) for _ in range(6)]
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 6
    assert contents(url_without_tables)["mempiler_version"] == [f"('{SCHEMA_VERSION}',)"]


def test_threads_make_tables_of_stores_of_their_own(tmp_path: Path) -> None:
    urls = [str(tmp_path / f"{n}.sqlite") for n in range(8)]
    with ThreadPoolExecutor(len(urls)) as pool:
        list(pool.map(_open, urls))
    assert all(contents(url)["mempiler_version"] == [f"('{SCHEMA_VERSION}',)"] for url in urls)


def test_another_version_is_refused_in_one_line(url: str) -> None:
    Store(url).close()
    engine = engine_of(url)
    with engine.begin() as db:
        db.execute(text("UPDATE mempiler_version SET version_num = '4'"))
    engine.dispose()
    with pytest.raises(
        StoreError,
        match=rf"of version 4, this Mempiler reads {SCHEMA_VERSION} .*add the sessions to a new store",
    ):
        Store(url)


HEADER = '{"mempiler": "memories", "schema": 1}'


def line(user: str = "ada", item: dict[str, Any] | None = None, **changes: Any) -> str:
    whole = {
        "position": 1,
        "state": "queued",
        "digest": "d",
        "item": {"id": "s", "turns": [turn(id=f"{user}:1")]},
    }
    return json.dumps(
        {"tenant": "default", "user": user, "items": [{**whole, **(item or {})}], **changes}
    )


def turn(**changes: Any) -> dict[str, Any]:
    return {"id": "t", "speaker": "a", "text": "hello", **changes}


def of_turn(**changes: Any) -> str:
    return line(item={"item": {"id": "s", "turns": [turn(**changes)]}})


DOCUMENT = {
    "memory": "[1]",
    "position": 0,
    "finalized": None,
    "finalized_position": 0,
    "speakers": [],
    "writer": "w",
}
DOCUMENT |= {"program": "p", "embedder": "", "schema_version": 2}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (of_turn(text="\ud83d"), "half of a surrogate pair"),
        (line(user="a" * 513), "has 513 characters; use at most 512"),
        ("[" * 100_000, "nested more than 100 levels deep"),
        (line().replace('"position": 1', f'"position": {"9" * 5000}'), "has 5000 digits"),
        (of_turn(time="0001-01-01T00:00:00+14:00"), "outside the calendar"),
        (line(item={"item": {"id": "s\u200b", "turns": []}}), "cannot be seen"),
        (
            line(open=[{"id": "s", "turns": [{"id": "x", "speaker": "a"}]}]),
            "is empty or there twice",
        ),
        (line(document=DOCUMENT), "the memory is no JSON object"),
        (line(**{"a\nb": 1}), r"line 3: 'a\nb: Unexpected"),
        (line()[:40], "line 3: not valid JSON"),
        (line(item={"state": "remembered"}), "the memory ends at position 0"),
        (line(item={"position": 0}), "position: Input should be greater than or equal to 1"),
        ([], "the file is empty"),
        ([line()], "no memories of Mempiler"),
        (['{"mempiler": "memories", "schema": 99}', line()], "version 99"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_one_line_and_nothing_half_imported(tmp_path, monkeypatch, cli, bad, message) -> None:
    monkeypatch.chdir(tmp_path)
    lines, where = (bad, "") if isinstance(bad, list) else ([HEADER, line("bob"), bad], ": line 3")
    Path("all.jsonl").write_text("\n".join(lines))
    code, _, told = cli("memories", "import", "all.jsonl", "--store", "s.sqlite")
    assert code == 2
    assert told.startswith(f"mempiler: all.jsonl{where}")
    assert told.count("\n") == 1
    assert message in told
    with Store("s.sqlite") as store:
        assert store.users.list_all() == []


def test_user_who_is_there_already_keeps_all_others_out_and_times_are_kept_in_utc(
    store: Store,
) -> None:
    import_users(store, [HEADER, of_turn(time="2024-03-05T10:00:00+02:00")], "file")
    with pytest.raises(ConflictError, match="user 'ada' is in"):
        import_users(store, [HEADER, line("bob"), line("ada")], "file")
    (found,) = store.users.list_all()
    assert str(store.items.list_all(found.owner)[0].item.turns[0].time) == "2024-03-05 08:00:00"


def _message(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "name": "Ada", "content": text, "time": "2024-03-05"}]


def _replace_and_die_before(url: str, statement: int) -> None:
    # Of the store only: what models and searches start in the process that forks is missing in this one.
    with Store(url) as store:
        _die_before(statement)
        store.items.replace(ADA, *read_incoming_item(_message("new"), "s"))


def test_replacing_a_session_leaves_the_old_one_or_the_new_one_wherever_it_is_killed(
    url: str,
) -> None:
    """`s` is in the memory before; whoever comes afterwards writes the memory that was to be written, once."""
    seen: list[str] = []
    statement, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        with Store(url) as store:
            memory = build("turn-rag").memory(store, "ada", lm=language_model("offline"))
            memory.forget()
            memory.add(_message("old"), id="s", metadata={"of": "old"})
            memory.add(_message("other"), id="t")

        statement += 1
        process = _in_a_process(_replace_and_die_before, url, statement)
        process.join(60)
        code = process.exitcode

        with Store(url) as store:
            memory = build("turn-rag").memory(store, "ada", lm=language_model("offline"))
            texts = {item.id: item.turns[0].text for item in memory.items()}
            seen.append(texts.pop("s"))
            assert texts == {"t": "other"}
            is_old = seen[-1] == "old"
            assert store.metadata.sessions_of_turns(ADA, ["s:1"]) == {
                "s:1": ("s", {"of": "old"} if is_old else {})
            }
            memory.remember()
            written = [entry.text for entry in memory.entries.list().entries if not entry.waiting]
            assert sorted(written) == sorted(["Ada: old" if is_old else "Ada: new", "Ada: other"])

    assert code == 0
    assert seen == sorted(seen, reverse=True), "once it is replaced, it stays so"
    assert seen[0] == "old"
    assert seen[-1] == "new"
    assert len(seen) > 10


SCRIPT = Path(__file__).parents[2] / "perf" / "kill.py"


def killed(url: str, *options: str) -> dict[str, Any]:
    """What the script counted, over forty sessions unless told otherwise."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--store", url, "--sessions", "40", "--users", "5", *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_killed_workers_lose_and_repeat_no_session(url: str) -> None:
    found = killed(url, "--kills", "5", "--every", "0.05")
    assert found["kills"] == 5
    assert found["sessions"] == 40
    assert found["remembered"] == 40
    assert found["idle"] < 5, "every kill came after the load"
    assert found["lost"] == 0
    assert found["twice"] == 0
    assert found["wrong"] == 0


@pytest.mark.slow
def test_load_under_jumping_clocks_and_kills_loses_nothing(url: str) -> None:
    found = killed(url, "--kills", "15", "--sessions", "95", "--delay", "0.05", "--clocks-jump")
    assert found["kills"] == 15
    assert found["remembered"] == found["sessions"]
    assert found["lost"] == 0
    assert found["twice"] == 0
    assert found["wrong"] == 0
