"""Events: one for each session that was remembered, in order, for its tenant alone, and none lost on the way."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from mempiler import AsyncClient, Client, ServiceError, Store, UserError, build
from mempiler.engines.models import language_model
from mempiler.memory import events as stored_events
from mempiler.memory.stored import Owner

from .conftest import TOKENS, service_over, serving


def say(store: Store, user: str, *ids: str, tenant: str = "acme") -> None:
    """Stores sessions and remembers them."""
    program, lm = build("turn-rag"), language_model("offline")
    memory = program.memory(store, user, tenant, lm)
    for id in ids:
        memory.add([{"role": "user", "content": f"I told {id}."}], id=id, remember=False)
    memory.remember()


def told(store: Store, after: int | None = 0, tenant: str = "acme", most: int = 500) -> list[tuple[int, str, str, str]]:
    found = store.events(tenant, after, most).events
    return [(one.number, one.user, one.session, one.state) for one in found]


def test_sessions_are_told_in_order_and_apart(store: Store) -> None:
    say(store, "ada", "a1", "a2")
    say(store, "ada", "g1", tenant="globex")
    say(store, "ben", "b1")
    assert told(store) == [
        (1, "ada", "a1", "remembered"),
        (2, "ada", "a2", "remembered"),
        (3, "ben", "b1", "remembered"),
    ]
    assert told(store, tenant="globex") == [(1, "ada", "g1", "remembered")]
    assert (told(store, after=2), told(store, after=0, most=1)) == ([(3, "ben", "b1", "remembered")], told(store)[:1])
    assert (store.events("acme").last, store.events("nobody").last) == (3, 0)


def test_what_fails_is_told_once(store: Store, monkeypatch: Any) -> None:
    program, lm = build("turn-rag"), language_model("offline")

    def broken(*given: Any) -> Any:
        raise RuntimeError("no")

    monkeypatch.setattr(type(program.method.writer), "write", broken)
    memory = program.memory(store, "ada", "acme", lm)
    memory.add([{"role": "user", "content": "Hello."}], id="a1")
    assert told(store) == [(1, "ada", "a1", "failed")]


def test_turns_that_are_taken_in_later_are_told_again(store: Store, scripted: Any) -> None:
    answers = iter([{"facts": "x"}, {"facts": "x"}])

    def reply(kind: str, text: str, n: int) -> Any:
        return next(answers, {"facts": []}) if kind == "facts" else {"operations": []}

    memory = build("memory-r2").memory(store, "ada", "acme", scripted(reply))
    memory.add([{"role": "user", "content": "Hello."}], id="a1")
    assert told(store) == [(1, "ada", "a1", "partial")]
    memory.add([{"role": "user", "content": "Hello again."}], id="a2")
    assert [event[2:] for event in told(store)[1:]] == [("a1", "remembered"), ("a2", "remembered")]


def test_forgetting_deletes_events_and_numbers_go_on(store: Store) -> None:
    say(store, "ada", "a1", "a2")
    say(store, "ben", "b1")
    store.forget_item(Owner("ada", "acme"), "a1")
    assert [event[:3] for event in told(store)] == [(2, "ada", "a2"), (3, "ben", "b1")]
    store.forget(Owner("ada", "acme"))
    say(store, "cleo", "c1")
    assert [event[:3] for event in told(store)] == [(3, "ben", "b1"), (4, "cleo", "c1")]
    assert (told(store, after=4), store.events("acme", 2).missed) == ([], False)


def test_only_the_newest_are_kept_and_who_missed_some_is_told(store: Store, monkeypatch: Any) -> None:
    monkeypatch.setattr(stored_events, "KEPT", 5)
    monkeypatch.setattr(stored_events, "PRUNED_AT", 10)
    for n in range(12):
        say(store, "ada", f"a{n}")
    assert [event[0] for event in told(store)] == list(range(6, 13))
    assert [store.events("acme", after).missed for after in (0, 4, 5, 11, 12)] == [True, True, False, False, False]


def test_writers_in_parallel_leave_no_gap_behind_a_reader(tmp_path: Path) -> None:
    seen: list[int] = []
    stop = threading.Event()

    def read() -> None:
        with Store(tmp_path / "memories.sqlite") as own:
            while not stop.is_set() or own.events("acme", len(seen)).events:
                found = own.events("acme", seen[-1] if seen else 0)
                seen.extend(event.number for event in found.events)

    Store(tmp_path / "memories.sqlite").close()
    reader = threading.Thread(target=read)
    reader.start()

    def write(n: int) -> None:
        with Store(tmp_path / "memories.sqlite") as own:
            say(own, f"user-{n}", *(f"s{k}" for k in range(5)))

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(write, range(6)))
    stop.set()
    reader.join(20)
    assert seen == list(range(1, 31))


@pytest.fixture
def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def heard(events: Iterator[Any], count: int) -> list[tuple[int, str, str]]:
    return [(one.number, one.session, one.state) for one in islice(events, count)]


def test_a_client_hears_on_over_a_restart_and_another_process(tmp_path: Path, free_port: int) -> None:
    with (
        Store(tmp_path / "memories.sqlite") as store,
        Client(f"http://127.0.0.1:{free_port}", TOKENS["acme"]) as client,
    ):
        say(store, "ada", "a1", "a2")
        events = client.events(after=0)
        with serving(service_over(store, tmp_path), free_port):
            assert heard(events, 2) == [(1, "a1", "remembered"), (2, "a2", "remembered")]
        say(store, "ada", "a3")
        with serving(service_over(store, tmp_path), free_port):
            assert heard(events, 1) == [(3, "a3", "remembered")]
            with Store(tmp_path / "memories.sqlite") as other:
                say(other, "ben", "b1")
            assert heard(events, 1) == [(4, "b1", "remembered")]
            events.close()


def test_news_are_told_within_seconds_and_to_their_tenant(connect: Any) -> None:
    client = connect(writers=2)

    async def listen(tenant: str, ready: asyncio.Event) -> tuple[str, str]:
        async with AsyncClient(client.address, TOKENS[tenant]) as own:
            ready.set()
            async for event in own.events(after=0):
                return event.user, event.state
        raise AssertionError

    async def run() -> list[Any]:
        ready = [asyncio.Event(), asyncio.Event()]
        listening = [asyncio.ensure_future(listen(name, one)) for name, one in zip(TOKENS, ready, strict=True)]
        await asyncio.gather(*(one.wait() for one in ready))
        for name in TOKENS:
            await asyncio.to_thread(client.as_tenant(name).add, "Hello.", f"of-{name}")
        return await asyncio.wait_for(asyncio.gather(*listening), 20)

    assert asyncio.run(run()) == [("of-acme", "remembered"), ("of-globex", "remembered")]


def stream(client: Any, **more: Any) -> Any:
    return client.get("/v1/events", params={"seconds": 0}, **more)


def test_streams_are_server_sent_events(client: Any) -> None:
    say(client.service.store, "ada", "a1")
    answer = stream(client, headers={"Last-Event-ID": "0"})
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    head, body = answer.text.split("\n\n", 1)
    assert head == "id: 0\n: hello"
    assert body.startswith(
        'id: 1\nevent: session\ndata: {"user": "ada", "session": "a1", "state": "remembered", "time": '
    )
    assert stream(client).text == "id: 1\n: hello\n\n"
    assert stream(client.as_tenant("globex"), headers={"Last-Event-ID": "0"}).text == "id: 0\n: hello\n\n"
    assert [stream(client, headers={"Last-Event-ID": id}).status_code for id in ("x", "-1", "9" * 30)] == [400] * 3
    assert stream(client.as_tenant(None)).status_code == 401


def test_a_tenant_has_so_many_streams_and_a_withdrawn_token_ends_its_own(client: Any) -> None:
    client.service.listening["acme"] = 32
    assert stream(client).status_code == 429
    del client.service.listening["acme"]
    with client.stream("GET", "/v1/events") as open_stream:
        lines = open_stream.iter_lines()
        assert next(lines) == "id: 0"
        path = client.service.tokens._path
        path.write_text(path.read_text().replace(TOKENS["acme"], "another-token-of-acme"))
        begun = time.monotonic()
        assert [line for line in lines if line] == [": hello"]
        assert time.monotonic() - begun < 10
    assert client.service.listening["acme"] == 0


def test_a_service_that_is_not_there_or_refuses_is_the_listeners_error(client: Any) -> None:
    with Client("http://127.0.0.1:9", timeout=0.1) as nowhere, pytest.raises(ServiceError, match="ConnectError"):
        next(nowhere.events())
    with Client(client.address, "a-token-that-is-wrong") as wrong, pytest.raises(UserError, match="valid token"):
        next(wrong.events())
