"""The OpenAI-compatible chat: sessions, durability before the answer, repetitions; answers as the model writes them."""

import json
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import openai
import pytest
from mempiler import Store, Turn, UserMemory
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.tables import open_turns
from openai import OpenAI
from sqlalchemy import update

from ..stub_server import every
from .conftest import ADA, Reach, failing, turns, within


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


@pytest.mark.parametrize("question", ["Where do I live?", "Where did I move to?"], ids=["other words", "same words"])
@pytest.mark.parametrize("reply", ["I do not know.", "I do not know, {0} times."], ids=["the same", "another"])
@pytest.mark.parametrize("is_remembered", [False, True], ids=["waiting", "remembered"])
def test_a_fact_is_recalled_however_often_the_question_was_asked(
    connect: Any, scripted: Any, question: str, reply: str, is_remembered: bool
) -> None:
    client = connect(scripted(lambda kind, text, n: {"answer": reply.format(n)}))
    client.add("I moved to Lisbon in spring.")
    memory = UserMemory(client.service.memories, ADA)
    for n in range(11):
        if is_remembered:
            memory.remember()
        answered = client.chat(question, metadata={"session": f"chat-{n}"}).json()
        for found in (answered["mempiler"], client.ask(question).json()):
            assert "Ada: I moved to Lisbon in spring." in [entry["text"] for entry in found["evidence"]]


def test_a_question_that_tells_something_is_recalled(client: Any) -> None:
    client.chat("Did you know I moved to Lisbon?")
    for _ in range(10):
        answered = client.chat("Where did I move?").json()
    assert "user: Did you know I moved to Lisbon?" in [one["text"] for one in answered["mempiler"]["evidence"]]


def test_session_ends_after_the_gap(connect: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    client, before = connect(session_gap=30), datetime(2025, 3, 5, 12)
    monkeypatch.setattr("mempiler.serving.memories.user_memory.utc_now", lambda: before)
    for minutes, sessions in (
        (0, [("open", 2)]),
        (29, [("open", 4)]),
        (31, [("queued", 4), ("open", 2)]),
        (-31, [("queued", 4), ("queued", 2), ("open", 2)]),  # turns lie in the future
    ):
        at = before + timedelta(minutes=minutes)
        monkeypatch.setattr("mempiler.serving.http.conversation.utc_now", lambda at=at: at)
        client.chat(f"in {minutes} minutes")
        assert list(client.sessions().values()) == sessions


def test_idle_session_is_ended_by_the_worker(client: Any, store: Store) -> None:
    client.chat("one")
    assert client.service.worker.sweep() == 0
    client.service.worker._gap = 0
    assert client.service.worker.sweep() == 1
    assert list(client.sessions().values()) == [("queued", 2)]


def test_a_damaged_idle_session_does_not_keep_sessions_of_others_open(
    client: Any, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    turn = [Turn(id="", speaker="Ada", text="the code is falcon")]
    for user in ("ada", "bob"):
        store.open_sessions.append(Owner(user, "acme"), "chat", turn)
    rows = open_turns.c.user == "ada"
    with store._database.write_transaction() as transaction:
        transaction.connection.execute(update(open_turns).where(rows).values(json='{"falcon": '))
    worker = client.service.worker
    worker._gap = 0

    assert [worker.sweep(), worker.sweep()] == [1, 0]
    assert [stored.item.id for stored in store.items.list_all(Owner("bob", "acme"))] == ["chat"]
    # It is logged once, and not what the session says.
    assert caplog.text.count("user 'ada', session 'chat': the row is damaged") == 1
    assert "falcon" not in caplog.text


def test_answer_of_a_session_that_ended_meanwhile_is_kept(connect: Any, scripted: Any, store: Store) -> None:
    client = connect(scripted(lambda kind, text, n: {"answer": f"position {store.open_sessions.end(ADA, 'a').position}"}))
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
    assert store.users.list_all() == []


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


WORDS = {
    "chat": lambda answer: f"[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]",
    "json": lambda answer: json.dumps({"answer": answer}),
}


def chat(client: openai.OpenAI, text: str = "Where did I move?", **more: Any) -> Any:
    said: Any = [{"role": "user", "content": text}]
    return client.chat.completions.create(
        **{"model": "my-model", "user": "ada", "messages": said, "stream": True, **more}
    )


def words(found: Any) -> list[str]:
    """What the chunks of a stream say."""
    with found:
        said = [chunk.choices[0].delta.content for chunk in found if chunk.choices]
    return [each for each in said if each]


@pytest.mark.parametrize(
    ("layout", "model", "pause"), [("chat", "my-model", 8), ("json", "my-model", 8), ("chat", "my-model-chat", 4)]
)
def test_first_word_comes_before_the_model_has_ended(reach, store, layout, model, pause) -> None:
    heard, begun = threading.Event(), threading.Event()

    def answer(body: dict[str, Any]) -> str:
        text = "To Lisbon & Porto, she said."
        return text if model == "my-model-chat" else WORDS[layout](text)

    def between(n: int) -> None:
        # The words of an answer, and of what stands before it: at least "To" is there by now.
        if n == pause and not begun.is_set():
            begun.set()
            assert heard.wait(10)

    _, client, server = reach(answer, layout, between=between)
    said: list[str] = []
    end: Any = None
    last: Any = None
    with chat(client, model=model, stream_options={"include_usage": True}) as found:
        for chunk in found:
            if chunk.choices and chunk.choices[0].delta.content:
                said.append(chunk.choices[0].delta.content)
                assert turns(store)[0] == "user: Where did I move?"
                heard.set()
            if chunk.choices and chunk.choices[0].finish_reason:
                assert turns(store)[1:] == ["assistant: To Lisbon & Porto, she said."]
                end = chunk
            last = chunk
    assert (begun.is_set(), "".join(said), len(said) > 3) == (True, "To Lisbon & Porto, she said.", True)
    assert end.mempiler["session"]
    assert last.usage.completion_tokens > 0
    assert end.id == last.id
    assert [body["stream"] for _, _, body in server.requests] == [True]


def test_answer_held_to_a_schema_comes_as_it_is_written(reach: Reach, store: Store) -> None:
    held: list[bool] = []

    def answer(body: dict[str, Any]) -> str:
        held.append("response_format" in body)
        properties = body["response_format"]["json_schema"]["schema"]["properties"]
        return json.dumps({name: f'{name}: "To Lisbon"\n' for name in properties})

    _, client, server = reach(answer, "auto", "personal-response")
    # Its reasoning is not sent.
    assert words(chat(client)) == ["answer:", ' "To', ' Lisbon"\n']
    assert held == [True]
    assert [bool(body.get("stream")) for _, _, body in server.requests] == [True]
    assert turns(store) == ["user: Where did I move?", 'assistant: answer: "To Lisbon"\n']


def events(texts: Sequence[str]) -> bytes:
    """The events of a stream that ends too early, without a reason."""
    said = (json.dumps({"choices": [{"delta": {"content": text}}]}) for text in texts)
    return b"".join(b"data: " + each.encode() + b"\n\n" for each in said)


@pytest.mark.parametrize(("fault", "status"), [(None, 502), ("500", 502), ("400", 422), ("dead", 502)])
def test_what_fails_before_the_first_word_is_a_status(reach: Reach, store: Store, fault: Any, status: int) -> None:
    _, client, _ = reach(lambda body: events(["[[ ## answer ## ]]\n"]), script=every(fault) if fault else None)
    with pytest.raises(openai.APIStatusError) as caught:
        chat(client)
    assert (caught.value.status_code, turns(store)) == (status, ["user: Where did I move?"])


def test_late_answer_ends_in_an_error_and_is_not_stored(reach: Reach, store: Store) -> None:
    left = threading.Event()
    answer = WORDS["chat"]("To Lisbon, in spring.")
    service, client, _ = reach(lambda body: answer, between=lambda n: n < 8 or left.wait(10), timeout=1.0)
    with pytest.raises(openai.APIError, match="request can be repeated"):
        words(chat(client))
    left.set()
    assert within(20, lambda: not service.service.model_pool.held.total())
    assert turns(store) == ["user: Where did I move?"]


BOTH = pytest.mark.parametrize("model", ["my-model", "my-model-chat"], ids=["program", "model"])


def words_of(model: str, text: str) -> str:
    return WORDS["chat"](text) if model == "my-model" else text


@BOTH
def test_repeated_request_gets_what_is_stored_and_costs_nothing(reach: Reach, store: Store, model: str) -> None:
    service, client, server = reach(lambda body: words_of(model, "To Lisbon."))
    for headers in ({}, {"x-stainless-retry-count": "1"}):
        more = {"extra_headers": headers, "stream_options": {"include_usage": True}}
        assert words(chat(client, model=model, **more)) == ["To", " Lisbon."]
    assert len(server.requests) == 1
    assert turns(store) == ["user: Where did I move?", "assistant: To Lisbon."]
    meter = service.service.lm.meter
    # What the model took is counted where its stream ends, which may be after its last word was handed on.
    assert within(20, lambda: meter.read().output_tokens > 0)
    used = meter.read()
    assert (used.calls["task"], used.failed, used.input_tokens > 0) == (1, 0, True)


@BOTH
def test_stream_that_breaks_off_ends_in_an_error_and_stores_no_half_of_an_answer(reach, store, model) -> None:
    said = ["To Lisbon", " and"] if model == "my-model-chat" else ["[[ ## answer ## ]]\n", "To Lisbon", " and"]
    _, client, _ = reach(lambda body: events(said))
    with pytest.raises(openai.APIError, match="does not answer"), chat(client, model=model) as found:
        list(found)
    assert turns(store) == ["user: Where did I move?"]


@BOTH
def test_client_that_leaves_a_stream_frees_its_place(reach: Reach, store: Store, model: str) -> None:
    left = threading.Event()
    most = 8 if model == "my-model" else 2
    service, client, _ = reach(
        lambda body: words_of(model, "To Lisbon, in spring."), between=lambda n: n < most or left.wait(10)
    )
    with chat(client, model=model) as found:
        next(iter(found))
    assert within(20, lambda: not service.service.model_pool.held.total())
    left.set()
    assert turns(store) == ["user: Where did I move?"]
