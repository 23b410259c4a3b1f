"""The OpenAI-compatible chat: sessions, durability before the answer, repetitions, the official client."""

import json
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from dspy.utils.exceptions import LMServerError
from mempiler import Store
from mempiler.memory import store_tables as t
from sqlalchemy import update

from .conftest import ADA, turns


def echo(kind: str, text: str, n: int) -> dict[str, str]:
    return {"answer": f"answer {n}"}


def test_turn_is_durable_before_the_model_is_asked(connect: Any, scripted: Any, store: Store) -> None:
    seen: list[list[str]] = []

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        seen.append(turns(store))
        return {"answer": "fine"}

    connect(scripted(reply)).chat("I began to play the cello.")
    assert seen == [["user: I began to play the cello."]]
    assert turns(store) == ["user: I began to play the cello.", "assistant: fine"]


def test_what_was_said_is_stored_though_the_model_fails(connect: Any, scripted: Any, store: Store) -> None:
    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if n == 1:
            raise LMServerError("the prompt was: SECRET", model="x")
        return {"answer": "fine"}

    client = connect(scripted(reply))
    failed = client.chat("I moved.")
    assert (failed.status_code, failed.json()["error"]["type"], "SECRET" in failed.text) == (502, "server_error", False)
    assert turns(store) == ["user: I moved."]
    assert client.chat("I moved.").status_code == 200
    assert turns(store) == ["user: I moved.", "assistant: fine"]


def test_only_what_follows_the_last_answer_is_new(connect: Any, scripted: Any, store: Store) -> None:
    lm = scripted(echo)
    client = connect(lm)
    client.chat("one")
    client.chat("one", "answer 1", "two")
    assert turns(store) == ["user: one", "assistant: answer 1", "user: two", "assistant: answer 2"]
    prompt = lm.engine.prompts[-1][1]
    assert prompt.count("user: one") == prompt.count("assistant: answer 1") == 1
    assert "user: two" not in prompt


def test_system_message_reaches_the_model_and_no_memory(connect: Any, scripted: Any, store: Store) -> None:
    lm = scripted(echo)
    messages = [
        {"role": "system", "content": "Be a pirate."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    connect(lm).post("/v1/chat/completions", json={"user": "ada", "messages": messages})
    assert "system: Be a pirate." in lm.engine.prompts[0][1]
    assert turns(store) == ["user: Hi", "assistant: answer 1"]


def test_another_name_ends_a_session_which_goes_on_under_a_name_of_its_own(client: Any) -> None:
    client.chat("hello", metadata={"session": "a"})
    client.chat("hello again")
    for name in ("b", "a", "a"):
        client.chat("hello", metadata={"session": name})
    later = [id for id in client.sessions() if id.startswith("a~")]
    assert len(later) == 1
    assert client.sessions() == {"a": ("queued", 4), "b": ("queued", 2), later[0]: ("open", 4)}


def test_session_ends_after_the_gap(connect: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from mempiler.serving import conversation

    client, before = connect(session_gap=30), datetime(2025, 3, 5, 12)
    monkeypatch.setattr("mempiler.serving.user_memory.now", lambda: before)
    monkeypatch.setattr(conversation, "now", lambda: before)
    client.chat("one")
    monkeypatch.setattr(conversation, "now", lambda: before + timedelta(minutes=29))
    client.chat("two")
    assert [state for state, _ in client.sessions().values()] == ["open"]
    monkeypatch.setattr(conversation, "now", lambda: before + timedelta(minutes=31))
    client.chat("three")
    assert list(client.sessions().values()) == [("queued", 4), ("open", 2)]
    monkeypatch.setattr(conversation, "now", lambda: before - timedelta(minutes=31))  # turns lie in the future
    client.chat("four")
    assert list(client.sessions().values()) == [("queued", 4), ("queued", 2), ("open", 2)]


def test_idle_session_is_ended_by_the_worker(client: Any, store: Store) -> None:
    client.chat("one")
    assert client.service.worker.sweep() == 0
    with store._write() as db:
        db.execute(update(t.open_turns).values(added=time.time() - 1801))
    assert client.service.worker.sweep() == 1
    assert list(client.sessions().values()) == [("queued", 2)]


def test_answer_of_a_session_that_ended_meanwhile_is_kept(connect: Any, scripted: Any, store: Store) -> None:
    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        store.end(ADA, "a")
        return {"answer": "fine"}

    connect(scripted(reply)).chat("I moved.", metadata={"session": "a"})
    assert turns(store) == ["user: I moved.", "assistant: fine"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": None}, "user: "),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "role user"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages.0.content"),
        ({"n": 2}, "n: "),
        ({"tools": [{"type": "function"}]}, "tools: takes a language model at an address"),
        ({"metadata": {"session": "../etc"}}, "metadata.session: "),
        ({"mempiler": {"metadata": {"a b": 1}}}, "mempiler.metadata.a b.[key]: the name 'a b'"),
        ({"mempiler": {"session": "a"}}, "mempiler.session: Extra"),
    ],
)
def test_what_it_cannot_do_is_refused_and_changes_nothing(
    client: Any, store: Store, change: dict[str, Any], message: str
) -> None:
    body = {"user": "ada", "messages": [{"role": "user", "content": "hi"}], **change}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert store.users() == []


def test_a_chat_recalls_what_it_chooses(client: Any, store: Store) -> None:
    for word, year in (("falcon", 2024), ("otter", 2025)):
        said = [{"role": "user", "name": "Ada", "content": f"My code word is {word}.", "time": f"{year}-03-05"}]
        client.post("/v1/users/ada/sessions", json={"messages": said, "metadata": {"year": year}})
    client.service.program.memory(store, "ada", "acme", client.service.lm).remember()
    for own in (
        {"where": {"year": 2024}},
        {"until": "2025-01-01"},
        {"where": {"year": {"lt": 2025}}, "since": "2020-01-01"},
    ):
        told = client.chat("What is my code word?", mempiler=own).json()
        text = json.dumps(told["mempiler"]["evidence"])
        assert (told["choices"][0]["message"]["content"], "otter" in text) == ("My code word is falcon.", False), own


@pytest.mark.parametrize("stream", [False, True])
def test_official_client_gains_a_memory(client: Any, stream: bool) -> None:
    from openai import OpenAI

    client.add("My sister is called Grace.")
    key = client.headers["Authorization"].removeprefix("Bearer ")
    with OpenAI(base_url=f"{client.address}/v1", api_key=key, timeout=20) as openai:
        (model,) = openai.models.list().data
        found: Any = openai.chat.completions.create(
            model=model.id,
            user="ada",
            stream=stream,
            messages=[{"role": "user", "content": "What is my sister called?"}],
            metadata={"session": "phone"},
            extra_body={"mempiler": {"metadata": {"paid": True, "n": 1.5}}},
        )
        text = (
            "".join(chunk.choices[0].delta.content or "" for chunk in found)
            if stream
            else found.choices[0].message.content
        )
    assert text == "My sister is called Grace."
    assert client.sessions()["phone"] == ("open", 2)
    found = client.post("/v1/users/ada/search", json={"query": "sister", "where": {"paid": True, "n": 1.5}}).json()
    assert {hit["id"] for hit in found["waiting"]} == {"phone:1", "phone:2"}
