"""Sessions, questions, memories and entries over HTTP."""

from typing import Any

import pytest
from mempiler import Store, StoreError, build
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import needs_embedder

from .conftest import within

DATED = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon.", "time": "2025-03-05T18:20:00+02:00"}]


def remember(client: Any) -> None:
    client.service.program.memory(client.service.store, "ada", "acme", client.service.lm).remember()


def test_search_gives_entries_with_their_turns_and_waiting_turns_apart(client: Any) -> None:
    body = {"id": "s", "messages": DATED}
    assert [client.post("/v1/users/ada/sessions", json=body).status_code for _ in range(2)] == [201, 200]
    source = {"id": "s:1", "speaker": "Ada", "text": "I moved to Lisbon.", "time": "2025-03-05T16:20:00Z"}

    def found(**more: Any) -> dict[str, Any]:
        return client.post("/v1/users/ada/search", json={"query": "Lisbon", **more}).json()

    assert found()["entries"] == []
    (waiting,) = found()["waiting"]
    assert waiting["sources"] == [source]
    remember(client)
    (entry,) = found()["entries"]
    assert (entry["kind"], entry["time"], entry["sources"]) == ("turn", source["time"], [source])
    assert (entry["id"], entry["text"], found()["waiting"]) == (waiting["id"], waiting["text"], [])
    assert found(since="2025-03-05T16:20:00Z", until="2025-03-05T16:21:00Z")["entries"] == [entry]
    assert found(until="2025-03-05T18:20:00+02:00") == {"entries": [], "waiting": []}
    refused = client.post("/v1/users/ada/search", json={"query": "Lisbon", "k": 0})
    assert (refused.status_code, "k" in refused.json()["error"]["message"]) == (400, True)


def test_queued_session_is_remembered_in_the_background(connect: Any) -> None:
    client = connect(writers=1)
    client.post("/v1/users/ada/sessions", json={"id": "s", "messages": DATED})
    assert within(10, lambda: client.get("/v1/users/ada").json()["queued"] == 0)
    found = client.get("/v1/users/ada/memory").json()
    assert (found["method"], found["waiting"], len(found["memory"]["turns"])) == ("turn-rag", 0, 1)
    assert client.get("/v1/users/ada/sessions").json() == {"sessions": [{"id": "s", "state": "remembered", "turns": 1}]}


def test_options_reach_a_task_that_chooses(connect: Any, scripted: Any) -> None:
    client = connect(scripted(lambda kind, text, n: {"answer": "(b)"}), build("turn-rag", "multiple-choice"))
    client.post("/v1/users/ada/sessions", json={"messages": DATED})
    path = "/v1/users/ada/ask"
    assert (
        client.post(path, json={"question": "Where?", "options": ["(a) Oslo", "(b) Lisbon"]}).json()["answer"] == "(b)"
    )
    assert "options" in client.post(path, json={"question": "Where?"}).json()["error"]["message"]
    chat = client.chat("Where?")
    assert (chat.status_code, "does not chat" in chat.text) == (400, True)


def test_memory_of_another_program_is_a_conflict_without_addresses(connect: Any, store: Store) -> None:
    build("session-rag").memory(store, "ada", "acme").add(DATED)
    response = connect().post("/v1/users/ada/ask", json={"question": "Where?"})
    assert response.status_code == 409
    assert "mempiler memories rebuild" in response.text
    assert "sqlite" not in response.text


def test_health_and_readiness_need_no_token(connect: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect().as_tenant(None)
    assert client.get("/health").json() == {"status": "ok"}
    found = client.get("/ready")
    assert (found.status_code, found.json()["parts"]["store"]) == (200, True)

    def fail(*arguments: object) -> None:
        raise StoreError("postgresql://secret is gone")

    monkeypatch.setattr(store, "read", fail)
    found = client.get("/ready")
    assert (found.status_code, found.json()["parts"]["store"]) == (503, False)
    failed = client.as_tenant("acme").get("/v1/users/ada/memory")
    assert (failed.status_code, "secret" in failed.text) == (503, False)


@pytest.mark.parametrize("method", ["turn-rag", "memory-r2", "rgmem"])
def test_nothing_shows_what_a_deleted_entry_said(connect: Any, method: str) -> None:
    client = connect(program=build(method, embedder=embedder() if needs_embedder(method) else None))
    client.add("My code word is falcon.", id="s")
    client.add("I like tea. I live in Lisbon.", id="t")
    remember(client)
    listed = client.get("/v1/users/ada/entries").json()["entries"]
    held = [f"/v1/users/ada/entries/{entry['id']}" for entry in listed if "falcon" in entry["text"]]
    assert [client.delete(held[0]).status_code for _ in range(2)] == [200, 404]
    assert [client.post(f"{held[0]}/undo").status_code for _ in range(2)] == [200, 404]
    assert "falcon" in client.get(held[0]).text
    for path in held:
        client.delete(path, params={"by": "ada"})
    assert client.get(f"{held[0]}/history").json()["changes"][-1]["by"] == "ada"
    for response in (
        client.ask("What is the code word?"),
        client.post("/v1/users/ada/search", json={"query": "code word"}),
        client.get("/v1/users/ada/memory"),
        client.get("/v1/users/ada/entries"),
        client.chat("What is my word, and what do I like?"),
    ):
        assert (response.status_code, "falcon" in response.text) == (200, False)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"where": "{"}, "where: Invalid JSON"),
        ({"where": '{"odd": NaN}'}, "where.odd"),
        ({"where": "[" * 200 + "]" * 200}, "where: "),
        ({"since": "yesterday"}, "since: "),
        ({"limit": 1001}, "limit: "),
        ({"cursor": ""}, "cursor: "),
    ],
)
def test_a_list_of_no_such_entries_is_refused(filled: Any, wrong: dict[str, str], says: str) -> None:
    refused = filled.get("/v1/users/ada/entries", params=wrong)
    assert (refused.status_code, refused.json()["error"]["message"].startswith(says)) == (400, True)
    chosen = filled.get("/v1/users/ada/entries", params={"where": '{"odd": true}'}).json()
    assert chosen == {"entries": [], "next": None}
