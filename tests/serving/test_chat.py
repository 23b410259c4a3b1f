"""The OpenAI-compatible chat: sessions, durability before the answer, repetitions, the official client."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from mempiler import Store
from openai import OpenAI

from .conftest import ADA, failing, turns


def test_what_was_said_is_stored_before_the_model_is_asked(connect: Any, scripted: Any, store: Store) -> None:
    def down(text: str, n: int) -> bool:
        assert turns(store) == ["user: I moved."]
        return n == 1

    client = connect(scripted(failing(down, "fine")))
    failed = client.chat("I moved.")
    assert (failed.status_code, failed.json()["error"]["type"], "SECRET" in failed.text) == (502, "server_error", False)
    assert turns(store) == ["user: I moved."]
    assert client.chat("I moved.").status_code == 200
    assert turns(store) == ["user: I moved.", "assistant: fine"]


def test_only_what_follows_the_last_answer_is_new(connect: Any, scripted: Any, store: Store) -> None:
    lm = scripted(lambda kind, text, n: {"answer": f"answer {n}"})
    client = connect(lm)
    client.chat("one")
    client.chat("one", "answer 1", "two")
    assert turns(store) == ["user: one", "assistant: answer 1", "user: two", "assistant: answer 2"]
    prompt = lm.engine.prompts[-1][1]
    assert prompt.count("user: one") == prompt.count("assistant: answer 1") == 1
    assert "user: two" not in prompt
    # What the system says reaches the model, and no memory.
    said = [
        {"role": "system", "content": "Be a pirate."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    client.post("/v1/chat/completions", json={"user": "ada", "messages": said, "metadata": {"session": "b"}})
    assert "system: Be a pirate." in lm.engine.prompts[-1][1]
    assert turns(store)[4:] == ["user: Hi", "assistant: answer 3"]


def test_another_name_ends_a_session_which_goes_on_under_a_name_of_its_own(client: Any) -> None:
    client.chat("hello", metadata={"session": "a"})
    client.chat("hello again")
    for name in ("b", "a", "a"):
        client.chat("hello", metadata={"session": name})
    later = [id for id in client.sessions() if id.startswith("a~")]
    assert len(later) == 1
    assert client.sessions() == {"a": ("queued", 4), "b": ("queued", 2), later[0]: ("open", 4)}


def test_session_ends_after_the_gap(connect: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    client, before = connect(session_gap=30), datetime(2025, 3, 5, 12)
    monkeypatch.setattr("mempiler.serving.user_memory.now", lambda: before)
    for minutes, sessions in (
        (0, [("open", 2)]),
        (29, [("open", 4)]),
        (31, [("queued", 4), ("open", 2)]),
        (-31, [("queued", 4), ("queued", 2), ("open", 2)]),  # turns lie in the future
    ):
        at = before + timedelta(minutes=minutes)
        monkeypatch.setattr("mempiler.serving.conversation.now", lambda at=at: at)
        client.chat(f"in {minutes} minutes")
        assert list(client.sessions().values()) == sessions


def test_idle_session_is_ended_by_the_worker(client: Any, store: Store) -> None:
    client.chat("one")
    assert client.service.worker.sweep() == 0
    client.service.worker._gap = 0
    assert client.service.worker.sweep() == 1
    assert list(client.sessions().values()) == [("queued", 2)]


def test_answer_of_a_session_that_ended_meanwhile_is_kept(connect: Any, scripted: Any, store: Store) -> None:
    client = connect(scripted(lambda kind, text, n: {"answer": f"position {store.end(ADA, 'a').position}"}))
    client.chat("I moved.", metadata={"session": "a"})
    assert turns(store) == ["user: I moved.", "assistant: position 1"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"user": None}, "user: "),
    ({"messages": [{"role": "assistant", "content": "hi"}]}, "role user"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content: Input should be"),
    ({"n": 2}, "n: "),
    ({"tools": [{"type": "function"}]}, "tools: takes a language model at an address"),
    ({"metadata": {"session": "../etc"}}, "metadata.session: "),
    ({"mempiler": {"metadata": {"a b": 1}}}, "mempiler.metadata.a b.[key]: the name 'a b'"),
    ({"mempiler": {"session": "a"}}, "mempiler.session: Extra"),
]


def test_what_it_cannot_do_is_refused_and_changes_nothing(client: Any, store: Store) -> None:
    for change, message in REFUSED:
        body = {"user": "ada", "messages": [{"role": "user", "content": "hi"}], **change}
        response = client.post("/v1/chat/completions", json=body)
        assert (response.status_code, message in response.json()["error"]["message"]) == (400, True), change
    assert store.users() == []


@pytest.mark.parametrize("stream", [False, True])
def test_official_client_gains_a_memory(client: Any, stream: bool) -> None:
    for name, paid in (("Grace", True), ("Ruth", False)):
        client.add(f"My sister is called {name}.", metadata={"paid": paid})
    key = client.headers["Authorization"].removeprefix("Bearer ")
    with OpenAI(base_url=f"{client.address}/v1", api_key=key, timeout=20) as openai:
        (model,) = openai.models.list().data
        found: Any = openai.chat.completions.create(
            model=model.id,
            user="ada",
            stream=stream,
            messages=[{"role": "user", "content": "What is my sister called?"}],
            metadata={"session": "phone"},
            extra_body={"mempiler": {"metadata": {"paid": True, "n": 1.5}, "where": {"paid": True}}},
        )
        parts = [chunk.choices[0].delta.content or "" for chunk in found] if stream else []
        text = "".join(parts) if stream else found.choices[0].message.content
    assert text == "My sister is called Grace."
    assert client.sessions()["phone"] == ("open", 2)
    found = client.post("/v1/users/ada/search", json={"query": "sister", "where": {"paid": True, "n": 1.5}}).json()
    assert {hit["id"] for hit in found["waiting"]} == {"phone:1", "phone:2"}
