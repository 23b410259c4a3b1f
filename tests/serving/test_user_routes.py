"""Sessions, questions, memories and forgetting over HTTP, each user behind the tenant of a token."""

from typing import Any

import pytest
from mempiler import Store, build

from .conftest import within

DATED = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon.", "time": "2025-03-05T18:20:00+02:00"}]


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "name": "Ada", "content": text}]


def test_session_is_stored_once_under_its_id(client: Any) -> None:
    body = {"id": "chat-1", "messages": said("I moved to Lisbon.")}
    first, second = (client.post("/v1/users/ada/sessions", json=body) for _ in range(2))
    assert (first.status_code, first.json()) == (201, {"id": "chat-1", "position": 1, "new": True})
    assert (second.status_code, second.json()["new"]) == (200, False)
    changed = client.post("/v1/users/ada/sessions", json={**body, "messages": said("I did not.")})
    assert (changed.status_code, changed.json()["error"]["type"]) == (409, "conflict_error")


def test_answer_comes_with_the_turns_it_rests_on(client: Any) -> None:
    client.post("/v1/users/ada/sessions", json={"id": "s", "messages": DATED})
    found = client.post("/v1/users/ada/ask", json={"question": "Where did Ada move?"}).json()
    assert found["answer"] == "I moved to Lisbon."
    source = {"id": "s:1", "speaker": "Ada", "text": "I moved to Lisbon.", "time": "2025-03-05T16:20:00Z"}
    assert found["evidence"][0]["sources"] == [source]


def test_search_gives_entries_with_their_turns_and_waiting_turns_apart(client: Any) -> None:
    client.post("/v1/users/ada/sessions", json={"id": "s", "messages": DATED})
    source = {"id": "s:1", "speaker": "Ada", "text": "I moved to Lisbon.", "time": "2025-03-05T16:20:00Z"}

    def found(**more: Any) -> dict[str, Any]:
        return client.post("/v1/users/ada/search", json={"query": "Lisbon", **more}).json()

    assert found()["entries"] == []
    (waiting,) = found()["waiting"]
    assert waiting["sources"] == [source]
    client.service.program.memory(client.service.store, "ada", "acme", client.service.lm).remember()
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


def test_what_is_not_remembered_yet_is_counted_as_waiting(client: Any) -> None:
    client.post("/v1/users/ada/sessions", json={"messages": DATED})
    found = client.get("/v1/users/ada/memory").json()
    assert (found["waiting"], found["memory"]["turns"]) == (1, [])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/users/ada"),
        ("GET", "/v1/users/ada/memory"),
        ("GET", "/v1/users/ada/sessions"),
        ("DELETE", "/v1/users/ada"),
        ("DELETE", "/v1/users/ada/sessions/s"),
        ("POST", "/v1/users/ada/ask"),
        ("POST", "/v1/users/ada/search"),
        ("POST", "/v1/users/ada/sessions/s/end"),
        ("GET", "/v1/users/ada/entries"),
        ("GET", "/v1/users/ada/entries/s:1"),
        ("PATCH", "/v1/users/ada/entries/s:1"),
        ("DELETE", "/v1/users/ada/entries/s:1"),
        ("POST", "/v1/users/ada/entries/s:1/undo"),
        ("GET", "/v1/users/ada/entries/s:1/history"),
    ],
)
def test_no_token_reaches_a_user_of_another_tenant(client: Any, store: Store, method: str, path: str) -> None:
    client.post("/v1/users/ada/sessions", json={"id": "s", "messages": DATED})
    before = [store.dump(user.owner) for user in store.users()]
    bodies = {"ask": {"question": "Where did Ada move?"}, "search": {"query": "Lisbon"}, "s:1": {"text": "No."}}
    body = bodies.get(path.rpartition("/")[2])
    response = client.as_tenant("globex").request(method, path, json=body)
    assert response.status_code == 404
    assert "Lisbon" not in response.text
    assert [store.dump(user.owner) for user in store.users()] == before


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
    from mempiler import StoreError

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
