"""The entries of a memory over HTTP, one by one: listed, read, changed, deleted, brought back."""

import json
from typing import Any

import pytest


def listed(client: Any, **more: Any) -> Any:
    return client.get("/v1/users/ada/entries", params=more).json()


def remember(client: Any, user: str = "ada", tenant: str = "acme") -> None:
    client.service.program.memory(client.service.store, user, tenant, client.service.lm).remember()


def test_entries_are_listed_with_their_sessions_before_and_after_they_are_remembered(client: Any) -> None:
    client.add("I moved to Lisbon.", id="s")
    (waiting,) = listed(client)["entries"]
    assert (waiting["id"], waiting["text"], waiting["waiting"]) == ("s:1", "Ada: I moved to Lisbon.", True)
    assert (waiting["turns"], waiting["sessions"]) == (["s:1"], [{"id": "s", "metadata": {}}])
    remember(client)
    assert listed(client)["entries"] == [{**waiting, "waiting": False}]
    assert client.get("/v1/users/ada/entries/s:1").json() == {**waiting, "waiting": False}
    assert client.get("/v1/users/ada/entries/s:2").status_code == 404
    assert client.get("/v1/users/bob/entries").status_code == 404


def test_pages_are_stable_while_sessions_are_added(client: Any) -> None:
    for n in range(12):
        client.add(f"note {n}")
    first = listed(client, limit=7)
    assert [entry["id"] for entry in first["entries"]] == [f"D{n}:1" for n in range(1, 8)]
    client.add("another one", id="A")
    client.add("one more")
    second = listed(client, limit=7, cursor=first["next"])
    assert [entry["id"] for entry in second["entries"]] == [f"D{n}:1" for n in [*range(8, 13), 14]]
    assert second["next"] is None
    for wrong in ({"limit": 0}, {"limit": 1001}, {"cursor": ""}):
        assert client.get("/v1/users/ada/entries", params=wrong).status_code == 400


def test_an_entry_is_changed_deleted_and_brought_back_with_its_history(client: Any) -> None:
    client.add("My code word is falcon.", id="s")
    remember(client)
    path = "/v1/users/ada/entries/s:1"
    changed = client.patch(path, json={"text": "My code word is otter.", "by": "support"})
    assert [one["what"] for one in changed.json()["changes"]] == ["written", "update"]
    last = changed.json()["changes"][1]
    assert (last["text"], last["new"]) == ("Ada: My code word is falcon.", "Ada: My code word is otter.")
    assert (last["by"], last["turns"], bool(last["at"])) == ("support", ["s:1"], True)
    for answer in (client.ask("What is the code word?"), client.post("/v1/users/ada/search", json={"query": "word"})):
        assert ("otter" in answer.text, "falcon" in answer.text) == (True, False)
    assert client.delete(path, params={"by": "ada"}).status_code == 200
    for response in (
        client.ask("What is the code word?"),
        client.post("/v1/users/ada/search", json={"query": "code word"}),
        client.get("/v1/users/ada/memory"),
        client.get("/v1/users/ada/entries"),
        client.chat("What is my code word?"),
    ):
        assert (response.status_code, "falcon" in response.text, "otter" in response.text) == (200, False, False)
    assert client.get(path).status_code == 404
    assert [client.post(f"{path}/undo").status_code for _ in range(3)] == [200, 200, 404]
    assert "falcon" in client.post("/v1/users/ada/search", json={"query": "code word"}).text
    history = client.get(f"{path}/history").json()["changes"]
    assert [one["what"] for one in history] == ["written", "update", "delete", "undo", "undo"]


@pytest.mark.parametrize("method", ["memory-r2", "rgmem"])
def test_neither_evidence_nor_memory_show_what_a_deleted_entry_said(connect: Any, method: str) -> None:
    from mempiler import build
    from mempiler.engines.embedders import embedder

    client = connect(program=build(method, embedder=embedder()))
    client.add("My code word is falcon. I like tea. I live in Lisbon.", id="s")
    remember(client)
    found = client.get("/v1/users/ada/entries").json()["entries"]
    for entry in [one["id"] for one in found if "falcon" in one["text"]]:
        client.delete(f"/v1/users/ada/entries/{entry}")
    for response in (
        client.ask("What does Ada like?"),
        client.post("/v1/users/ada/search", json={"query": "word"}),
        client.get("/v1/users/ada/memory"),
    ):
        assert (response.status_code, "falcon" in response.text) == (200, False)


def test_metadata_choose_what_is_searched_and_asked(client: Any) -> None:
    for id, word, year in (("a", "falcon", 2024), ("b", "otter", 2025)):
        messages = [{"role": "user", "name": "Ada", "content": f"My code word is {word}.", "time": f"{year}-01-01"}]
        body = {"id": id, "messages": messages, "metadata": {"year": year, "channel": "phone"}}
        assert client.post("/v1/users/ada/sessions", json=body).status_code == 201
    remember(client)
    for chosen in ({"where": {"year": 2024}}, {"where": {"year": {"lt": 2025}}}, {"until": "2024-06-01"}):
        found = client.post("/v1/users/ada/search", json={"query": "code word", **chosen}).text
        answer = client.post("/v1/users/ada/ask", json={"question": "What is the code word?", **chosen}).text
        for text in (found, answer):
            assert ("falcon" in text, "otter" in text) == (True, False)
    assert [session["metadata"] for session in listed(client)["entries"][0]["sessions"]] == [
        {"year": 2024, "channel": "phone"}
    ]
    for wrong in ({"year": {"$gt": 1}}, {"year": None}, {"a b": 1}, {"year": {}}, [], "x", {"year": {"in": []}}):
        refused = client.post("/v1/users/ada/search", json={"query": "x", "where": wrong})
        assert (refused.status_code, "\n" in refused.json()["error"]["message"]) == (400, False)
        of_list = client.get("/v1/users/ada/entries", params={"where": json.dumps(wrong)})
        assert (of_list.status_code, of_list.json()) == (400, refused.json())


def test_metadata_and_times_choose_what_is_listed_before_and_after_it_is_remembered(client: Any) -> None:
    for n in range(1, 7):
        said = [{"role": "user", "name": "Ada", "content": f"note {n}", "time": f"2025-0{n}-01"}]
        body = {"id": f"s{n}", "messages": said, "metadata": {"odd": n % 2 == 1}}
        assert client.post("/v1/users/ada/sessions", json=body).status_code == 201
    chosen = {"where": '{"odd": true}', "since": "2025-02-01T00:00:00Z", "limit": 1}
    for _ in range(2):
        first = listed(client, **chosen)
        second = listed(client, **chosen, cursor=first["next"])
        ids = [[entry["id"] for entry in found["entries"]] for found in (first, second)]
        assert (ids, second["next"]) == ([["s3:1"], ["s5:1"]], None)
        until = listed(client, where='{"odd": false}', until="2025-06-01")["entries"]
        assert [entry["id"] for entry in until] == ["s2:1", "s4:1"]
        remember(client)
    for wrong, says in (
        ({"where": "{"}, "where: Invalid JSON"),
        ({"where": '{"odd": NaN}'}, "where.odd"),
        ({"where": "[" * 200 + "]" * 200}, "where: "),
        ({"since": "yesterday"}, "since: "),
        ({"until": "x"}, "until: "),
    ):
        refused = client.get("/v1/users/ada/entries", params=wrong)
        assert (refused.status_code, refused.json()["error"]["message"].startswith(says)) == (400, True), wrong
