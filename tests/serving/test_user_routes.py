"""Sessions, questions, memories and entries over HTTP."""

from typing import Any

import pytest
from mempiler import Store, StoreError, build

from .conftest import within

DATED = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon.", "time": "2025-03-05T18:20:00+02:00"}]


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


def test_a_store_that_fails_is_told_without_its_address(
    client: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise StoreError("postgresql://secret is gone")

    monkeypatch.setattr(store, "read", fail)
    failed = client.get("/v1/users/ada/memory")
    assert (failed.status_code, "secret" in failed.text) == (503, False)


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
