"""Imports of many sessions: each line stored or refused by number, in bounded memory, and once if repeated."""

import asyncio
import json
import multiprocessing
import os
import signal
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from mempiler import AsyncClient, Client, Store
from mempiler.cli import main
from mempiler.memory.stored import Owner
from mempiler.service.importing import BATCH, Importing, Lines, import_lines

from .conftest import TOKENS


def session(n: int, user: str = "ada", text: str = "") -> dict[str, Any]:
    return {
        "user": user,
        "id": f"s{n}",
        "messages": [{"role": "user", "content": text or f"Note {n} is on the fridge."}],
    }


def lines(*sessions: Any) -> bytes:
    return b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in sessions)


def test_lines_are_stored_or_refused_by_number_and_reason(client: Any) -> None:
    no_id = {name: value for name, value in session(5).items() if name != "id"}
    sent = lines(
        session(1),
        b"",
        session(2, "ben"),
        b"{not json",
        b"[]",
        no_id,
        session(6, "../x"),
        session(1, text="Something else."),
        {**session(9), "messages": []},
        b'{"user": "a", "id": "b", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"\xff\xfe",
        session(1),
        session(12, "cleo"),
    )
    answer = client.post("/v1/import", content=sent)
    found = answer.json()
    assert (answer.status_code, found["stored"], found["known"], found["refused"]) == (200, 3, 1, 8)
    reasons = {one["line"]: one["reason"] for one in found["refusals"]}
    expected = {
        4: "no JSON: ",
        5: "expected a JSON object",
        6: "id: Field required",
        7: "user: ",
        8: "session 's1' of user 'ada' is stored with other content",
        9: "messages: ",
        10: "",
        11: "",
    }
    assert list(reasons) == list(expected)
    assert all(reasons[line].startswith(start) for line, start in expected.items()), reasons
    assert client.sessions() == {"s1": ("queued", 1)}
    assert [user["user"] for user in client.get("/v1/users").json()["users"]] == ["ada", "ben", "cleo"]
    assert client.as_tenant("globex").get("/v1/users").json()["users"] == []
    again = client.post("/v1/import", content=sent).json()
    assert (again["stored"], again["known"], again["refused"]) == (0, 4, 8)


def test_metadata_of_lines_choose_sessions(client: Any, tmp_path: Path) -> None:
    phone, mail = {**session(1), "metadata": {"channel": "phone"}}, {**session(2), "metadata": {"channel": "mail"}}
    wrong, other = {**session(3), "metadata": {"a b": 1}}, {**phone, "metadata": {"channel": "mail"}}
    path = tmp_path / "chats.jsonl"
    path.write_bytes(lines(phone))
    main(["memories", "add", str(path), "--tenant", "acme", "--store", str(client.service.store.url)])
    with Client(client.address, TOKENS["acme"]) as mine:
        found, ada = mine.import_sessions([phone, mail, wrong, other]), mine.memory("ada")
        assert (found.stored, found.known, [one.line for one in found.refusals]) == (1, 1, [3, 4])
        assert [hit.id for hit in ada.search("note", where={"channel": "phone"}).waiting] == ["s1:1"]
        assert [one.sessions[0].metadata for one in ada.list().entries] == [phone["metadata"], mail["metadata"]]


def test_imports_want_a_token_and_keep_their_limits(connect: Any) -> None:
    client = connect(max_body=500, max_turns=2)
    assert client.as_tenant(None).post("/v1/import", content=lines(session(1))).status_code == 401
    many = {**session(2), "messages": session(2)["messages"] * 3}
    found = client.post(
        "/v1/import", content=lines(session(1, text="x" * 600), many, session(3), session(4, text="y" * 600))
    )
    reasons = {one["line"]: one["reason"] for one in found.json()["refusals"]}
    assert (found.json()["stored"], list(reasons)) == (1, [1, 2, 4])
    assert reasons[1] == "the line has more than 500 bytes"
    assert client.post("/v1/import", content=lines(*(session(n) for n in range(30)))).json()["stored"] == 29


def test_bodies_that_stop_coming_are_refused_and_what_came_is_stored(connect: Any) -> None:
    client = connect(timeout=0.5)

    def slow() -> Iterator[bytes]:
        yield lines(*(session(n) for n in range(BATCH)), b"")
        time.sleep(1.5)
        yield lines(session(BATCH))

    assert client.post("/v1/import", content=slow()).status_code == 408
    assert len(client.sessions()) == BATCH


def test_clients_import(client: Any) -> None:
    sessions = [session(n, f"user-{n % 7}") for n in range(200)]
    with Client(client.address, TOKENS["acme"]) as mine:
        first = mine.import_sessions(iter(sessions))
        assert (first.stored, first.known, first.refused, first.refusals) == (200, 0, 0, ())
        assert sum(one.queued for one in mine.users()) == 200

    async def again() -> Any:
        async with AsyncClient(client.address, TOKENS["acme"]) as other:
            return await other.import_sessions([*sessions, {"user": "x"}])

    second = asyncio.run(again())
    assert (second.stored, second.known, [one.line for one in second.refusals]) == (0, 200, [201])


def test_an_import_takes_the_memory_of_a_batch(store: Store) -> None:
    def pieces() -> Iterator[bytes]:
        for n in range(800):
            yield lines(session(n, f"user-{n % 50}", text="x" * 10_000), b"")

    import_lines(store, "acme", [lines(session(0, "first"))])
    tracemalloc.start()
    found = import_lines(store, "acme", pieces())
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.stored, most < 5_000_000) == (800, True), most


def test_a_user_who_is_forgotten_meanwhile_stays_forgotten(store: Store) -> None:
    importing = Importing(store, "acme", 10_000, 100)
    for n in range(2):
        importing.take(n, lines(session(n)))
        importing.store()
        store.forget(Owner("ada", "acme"))
    assert (importing.found.stored, importing.found.refused) == (1, 1)
    assert "was forgotten" in importing.found.refusals[0].reason
    assert store.items(Owner("ada", "acme")) == []


def test_a_killed_import_is_repeated_and_duplicates_nothing(tmp_path: Path) -> None:
    url, sessions = tmp_path / "memories.sqlite", [session(n, f"user-{n % 5}") for n in range(400)]

    def run() -> None:
        with Store(url) as own:
            import_lines(own, "acme", (time.sleep(0.001) or lines(one, b"") for one in sessions))

    Store(url).close()
    killed = 0
    while True:
        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        process.join(0.2)
        if process.exitcode is not None:
            break
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        killed += 1
        if killed == 3:
            run()
            break
    with Store(url) as store:
        items = [one for user in range(5) for one in store.items(Owner(f"user-{user}", "acme"))]
        texts = [one.item.turns[0].text for one in items]
        assert len(texts) == len(set(texts)) == 400
        for user in range(5):
            positions = [one.position for one in store.items(Owner(f"user-{user}", "acme"))]
            assert positions == list(range(1, 81))
    assert killed


LINE = some.binary(max_size=12).map(lambda line: line.replace(b"\n", b""))


@settings(max_examples=40, deadline=None)
@given(
    some.lists(some.binary(max_size=12).filter(lambda line: b"\n" not in line)),
    some.integers(1, 7),
    some.integers(1, 9),
)
def test_lines_are_the_same_however_the_bytes_are_cut(sent: list[bytes], size: int, most: int) -> None:
    text, cutter = b"\n".join(sent), Lines(most)
    pieces = [text[n : n + size] for n in range(0, len(text), size)]
    found = [line for piece in pieces for line in cutter.feed(piece)]
    found += cutter.end()
    expected = [(n, line if len(line) <= most else None) for n, line in enumerate(text.split(b"\n"), 1)]
    assert found == (expected if expected[-1][1] != b"" else expected[:-1])


def test_the_command_adds_a_file_of_lines(tmp_path: Path, capsys: Any) -> None:
    path, url = tmp_path / "chats.jsonl", str(tmp_path / "memories.sqlite")
    path.write_bytes(lines(session(1), session(2, "ben"), {"user": "x"}))
    with pytest.raises(SystemExit) as ended:
        main(["memories", "add", str(path), "--store", url, "--json"])
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert json.loads(told.out) == {"new": 2, "known": 0, "refused": 1}
    assert f"{path}: line 3: id: Field required" in told.err
    with Store(url) as store:
        assert [one.owner.user for one in store.users("default")] == ["ada", "ben"]


def test_a_client_that_goes_away_leaves_what_it_sent(client: Any) -> None:
    def cut() -> Iterator[bytes]:
        yield lines(*(session(n) for n in range(BATCH)), b"")
        raise httpx.WriteError("cut")

    with pytest.raises(httpx.WriteError):
        client.post("/v1/import", content=cut())
    assert client.post("/v1/import", content=lines(*(session(n) for n in range(BATCH)))).json()["refused"] == 0
    assert len(client.sessions()) == BATCH
