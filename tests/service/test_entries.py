"""The entries of a memory over HTTP, one by one: listed, read, changed, deleted, brought back."""

from typing import Any


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
