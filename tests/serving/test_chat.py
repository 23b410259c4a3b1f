"""The OpenAI-compatible chat: sessions, repetitions, and answers as the model writes them.

What the user says is stored before the model is asked, and the answer before the client has it.
"""

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import openai
import pytest
from mempiler import Store, Turn, UserMemory
from mempiler.memory.store.database import Database
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.tables import open_turns
from mempiler.serving.worker.worker import Worker
from openai import OpenAI
from sqlalchemy import update

from ..stub_server import every
from .conftest import ADA, Reach, failing, turns, within


def test_a_message_is_stored_before_the_model_is_asked(
    connect: Any, scripted: Any, store: Store
) -> None:
    def fails(text: str, call_number: int) -> bool:
        assert turns(store) == ["user: I moved."]
        return call_number == 1

    client = connect(scripted(failing(fails, "fine")))
    response = client.chat("I moved.")
    assert response.status_code == 502
    assert response.json()["error"]["type"] == "server_error"
    assert "SECRET" not in response.text
    assert turns(store) == ["user: I moved."]

    assert client.chat("I moved.").status_code == 200
    assert turns(store) == ["user: I moved.", "assistant: fine"]


def test_only_what_follows_the_last_answer_is_new(
    connect: Any, scripted: Any, store: Store
) -> None:
    lm = scripted(lambda kind, text, call_number: {"answer": f"answer {call_number}"})
    client = connect(lm)
    client.chat("one")
    client.chat("one", "answer 1", "two")
    assert turns(store) == [
        "user: one",
        "assistant: answer 1",
        "user: two",
        "assistant: answer 2",
    ]
    prompt = lm.engine.prompts[-1][1]
    assert prompt.count("user: one") == 1
    assert prompt.count("assistant: answer 1") == 1
    assert "user: two" not in prompt


@pytest.mark.parametrize("model", ["my-model", "my-model-chat"])
@pytest.mark.parametrize("names", [{"user": "Ada"}, {"assistant": "Bot"}], ids=str)
def test_a_model_reads_messages_with_names_once(
    reach: Reach, store: Store, model: str, names: dict[str, str]
) -> None:
    statement, answer = "I moved to Lisbon.", "Noted: to Lisbon."
    layout = {"my-model": WORDS["chat"](answer), "my-model-chat": answer}
    client, _, server = reach(lambda body: layout[model])
    messages: list[dict[str, str]] = []
    for text in (statement, answer, "Where did I move, to Lisbon?"):
        role = "assistant" if text == answer else "user"
        message = {"role": role, "content": text}
        if role in names:
            message["name"] = names[role]
        messages.append(message)

    for count in (1, 3):
        body = {"model": model, "user": "ada", "messages": messages[:count]}
        assert client.post("/v1/chat/completions", json=body).status_code == 200
    prompt = server.texts[-1]
    assert (prompt.count(statement), prompt.count(answer)) == (1, 1)
    assert len(turns(store)) == 4


def test_a_system_message_reaches_the_model_and_no_memory(
    connect: Any, scripted: Any, store: Store
) -> None:
    lm = scripted(lambda kind, text, call_number: {"answer": "Ahoy!"})
    messages = [
        {"role": "system", "content": "Be a pirate."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    body = {"user": "ada", "messages": messages}
    connect(lm).post("/v1/chat/completions", json=body)
    assert "system: Be a pirate." in lm.engine.prompts[-1][1]
    assert turns(store) == ["user: Hi", "assistant: Ahoy!"]


def test_another_name_ends_a_session_which_goes_on_under_a_name_of_its_own(client: Any) -> None:
    client.chat("hello", metadata={"session": "a"})
    client.chat("hello again")
    for name in ("b", "a", "a"):
        client.chat("hello", metadata={"session": name})

    continuations = [name for name in client.sessions() if name.startswith("a~")]
    assert len(continuations) == 1
    assert client.sessions() == {
        "a": ("queued", 4),
        "b": ("queued", 2),
        continuations[0]: ("open", 4),
    }


@pytest.mark.parametrize(
    "question",
    ["Where do I live?", "Where did I move to?"],
    ids=["other words", "same words"],
)
@pytest.mark.parametrize(
    "reply",
    ["I do not know.", "I do not know, {0} times."],
    ids=["the same", "another"],
)
@pytest.mark.parametrize("is_remembered", [False, True], ids=["waiting", "remembered"])
def test_a_fact_is_recalled_however_often_the_question_was_asked(
    connect: Any, scripted: Any, question: str, reply: str, is_remembered: bool
) -> None:
    lm = scripted(lambda kind, text, call_number: {"answer": reply.format(call_number)})
    client = connect(lm)
    client.add("I moved to Lisbon in spring.")
    memory = UserMemory(client.service.memories, ADA)
    for number in range(11):
        if is_remembered:
            memory.remember()
        completion = client.chat(question, metadata={"session": f"chat-{number}"}).json()
        for answer in (completion["mempiler"], client.ask(question).json()):
            evidence = [entry["text"] for entry in answer["evidence"]]
            assert "Ada: I moved to Lisbon in spring." in evidence


def test_a_question_that_tells_something_is_recalled(client: Any) -> None:
    client.chat("Did you know I moved to Lisbon?")
    for _ in range(10):
        completion = client.chat("Where did I move?").json()
    evidence = [entry["text"] for entry in completion["mempiler"]["evidence"]]
    assert "user: Did you know I moved to Lisbon?" in evidence


def test_session_ends_after_the_gap(
    connect: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(session_gap=30)
    start = datetime(2025, 3, 5, 12)
    monkeypatch.setattr("mempiler.serving.memories.user_memory.utc_now", lambda: start)
    for minutes, sessions in (
        (0, [("open", 2)]),
        (29, [("open", 4)]),
        (31, [("queued", 4), ("open", 2)]),
        (-31, [("queued", 4), ("queued", 2), ("open", 2)]),  # turns lie in the future
    ):
        now = start + timedelta(minutes=minutes)
        monkeypatch.setattr("mempiler.serving.http.conversation.utc_now", lambda now=now: now)
        client.chat(f"in {minutes} minutes")
        assert list(client.sessions().values()) == sessions


def test_idle_session_is_ended_by_the_worker(client: Any, store: Store) -> None:
    client.chat("one")
    memories = client.service.memories
    assert Worker(memories, session_gap=30).sweep() == 0
    assert Worker(memories, session_gap=0).sweep() == 1
    assert list(client.sessions().values()) == [("queued", 2)]


def test_a_damaged_idle_session_does_not_keep_sessions_of_others_open(
    client: Any, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    turn = [Turn(id="", speaker="Ada", text="the code is falcon")]
    for user in ("ada", "bob"):
        store.open_sessions.append(Owner(user, "acme"), "chat", turn)
    rows = open_turns.c.user == "ada"
    damage = update(open_turns).where(rows).values(json='{"falcon": ')
    with closing(Database(store.url)) as database, database.write_transaction() as transaction:
        transaction.connection.execute(damage)
    worker = Worker(client.service.memories, session_gap=0)

    assert worker.sweep() == 1
    assert worker.sweep() == 0
    bobs_items = store.items.list_all(Owner("bob", "acme"))
    assert [stored.item.id for stored in bobs_items] == ["chat"]
    # It is logged once, and not what the session says.
    assert caplog.text.count("user 'ada', session 'chat': the row is damaged") == 1
    assert "falcon" not in caplog.text


def test_answer_of_a_session_that_ended_meanwhile_is_kept(
    connect: Any, scripted: Any, store: Store
) -> None:
    def end_session(kind: str, text: str, call_number: int) -> dict[str, str]:
        added = store.open_sessions.end(ADA, "a")
        assert added is not None
        return {"answer": f"position {added.position}"}

    client = connect(scripted(end_session))
    client.chat("I moved.", metadata={"session": "a"})
    assert turns(store) == ["user: I moved.", "assistant: position 1"]


IMAGE_PART = {"type": "image_url", "image_url": {}}

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"user": None}, "user: "),
    ({"messages": [{"role": "assistant", "content": "hi"}]}, "role user"),
    ({"messages": [{"role": "user", "content": [IMAGE_PART]}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content: Input should be"),
    ({"n": 2}, "n: "),
    ({"tools": [{"type": "function"}]}, "tools: only a language model can do this"),
    ({"metadata": {"session": "../etc"}}, "metadata.session: "),
    ({"mempiler": {"metadata": {"a b": 1}}}, "mempiler.metadata.a b.[key]: the name 'a b'"),
    ({"mempiler": {"session": "a"}}, "mempiler.session: Extra"),
]
"""Changes of a request, and what the error says."""


def test_an_unsupported_request_is_refused_and_changes_nothing(client: Any, store: Store) -> None:
    for change, message in REFUSED:
        body = {"user": "ada", "messages": [{"role": "user", "content": "hi"}], **change}
        response = client.post("/v1/chat/completions", json=body)
        assert response.status_code == 400, change
        assert message in response.json()["error"]["message"], change
    assert store.users.list_all() == []


@pytest.mark.parametrize("stream", [False, True])
def test_official_client_gains_a_memory(client: Any, stream: bool) -> None:
    for name, paid in (("Grace", True), ("Ruth", False)):
        client.add(f"My sister is called {name}.", metadata={"paid": paid})
    key = client.headers["Authorization"].removeprefix("Bearer ")
    with OpenAI(base_url=f"{client.address}/v1", api_key=key, timeout=20) as openai_client:
        (model,) = openai_client.models.list().data
        completion: Any = openai_client.chat.completions.create(
            model=model.id,
            user="ada",
            stream=stream,
            messages=[{"role": "user", "content": "What is my sister called?"}],
            metadata={"session": "phone"},
            extra_body={
                "mempiler": {"metadata": {"paid": True, "n": 1.5}, "where": {"paid": True}}
            },
        )
        text = "".join(words(completion)) if stream else completion.choices[0].message.content

    assert text == "My sister is called Grace."
    assert client.sessions()["phone"] == ("open", 2)
    search = {"query": "sister", "where": {"paid": True, "n": 1.5}}
    found = client.post("/v1/users/ada/search", json=search).json()
    assert {hit["id"] for hit in found["waiting"]} == {"phone:1", "phone:2"}


SETTINGS: dict[str, Any] = {
    "temperature": 0,
    "top_p": 0.5,
    "max_tokens": 5,
    "max_completion_tokens": 5,
    "stop": ["Lisbon"],
    "seed": 0,
    "presence_penalty": 1,
    "frequency_penalty": 1,
    "logit_bias": {"50256": -100},
    "reasoning_effort": "low",
    "best_of": 3,
}
"""Fields that ask for something which the program does not do."""


@pytest.mark.parametrize("stream", [False, True])
def test_settings_that_the_program_ignores_are_named(reach: Reach, stream: bool) -> None:
    _, client, _ = reach(lambda body: WORDS["chat"]("To Lisbon."))

    assert extension(chat(client, stream=stream, extra_body=SETTINGS))["ignored"] == list(SETTINGS)
    labels = {"session": "a", "team": "red"}
    ignored = extension(chat(client, stream=stream, metadata=labels))["ignored"]
    assert ignored == ["metadata.team"]


def test_settings_that_ask_for_nothing_are_not_named(client: Any) -> None:
    settings = {
        "temperature": 1.0,
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "logit_bias": {},
        "max_tokens": None,
        "stop": None,
        "seed": None,
        "n": 1,
        "tools": [],
        "response_format": {"type": "text"},
        "parallel_tool_calls": True,
        "stream_options": {"include_usage": True},
    }
    assert client.chat("Hi", **settings).json()["mempiler"]["ignored"] == []


def test_the_language_model_ignores_nothing(reach: Reach) -> None:
    _, client, server = reach()
    completion = chat(client, model="my-model-chat", stream=False, temperature=0, seed=7)
    assert extension(completion)["ignored"] == []
    assert server.requests[0][2]["temperature"] == 0


def test_models_are_listed_with_what_they_are_for(reach: Reach) -> None:
    _, client, _ = reach()
    program, language_model = client.models.list().data
    assert program.id == "my-model"
    assert language_model.id == "my-model-chat"
    descriptions = [model.model_dump()["description"] for model in (program, language_model)]
    assert "in its own short words" in descriptions[0]
    assert "a chat client wants" in descriptions[1]


def test_a_program_without_an_endpoint_is_listed_alone(client: Any) -> None:
    models = client.get("/v1/models").json()["data"]
    assert [model["id"] for model in models] == ["my-model"]


def extension(completion: Any) -> dict[str, Any]:
    """The field `mempiler` of a completion, or of the one event of a stream that has it."""
    if not isinstance(completion, openai.Stream):
        return completion.mempiler
    with completion:
        fields = [chunk.mempiler for chunk in completion if hasattr(chunk, "mempiler")]
    assert len(fields) == 1
    return fields[0]


WORDS = {
    "chat": lambda answer: f"[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]",
    "json": lambda answer: json.dumps({"answer": answer}),
}
"""What a model says for an answer, by the adapter that reads it."""


def chat(client: openai.OpenAI, text: str = "Where did I move?", **fields: Any) -> Any:
    """Ask a question, and return the stream of the answer; further fields change the request."""
    request: dict[str, Any] = {
        "model": "my-model",
        "user": "ada",
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        **fields,
    }
    return client.chat.completions.create(**request)


def words(stream: Any) -> list[str]:
    """The words of the answer in the chunks of a stream."""
    with stream:
        contents = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    return [content for content in contents if content]


@pytest.mark.parametrize(
    ("layout", "model", "pause"),
    [("chat", "my-model", 8), ("json", "my-model", 8), ("chat", "my-model-chat", 4)],
)
def test_first_word_comes_before_the_model_has_ended(
    reach: Reach, store: Store, layout: str, model: str, pause: int
) -> None:
    """The model pauses behind some characters, until the client has heard the first word."""
    text = "To Lisbon & Porto, she said."
    has_heard = threading.Event()
    has_paused = threading.Event()

    def answer(body: dict[str, Any]) -> str:
        return text if model == "my-model-chat" else WORDS[layout](text)

    def between(piece_number: int) -> None:
        # At least "To" is there by now, behind what stands before the answer.
        if piece_number == pause and not has_paused.is_set():
            has_paused.set()
            assert has_heard.wait(10)

    _, client, server = reach(answer, layout, between=between)
    parts: list[str] = []
    last_chunk: Any = None
    finish_chunk: Any = None
    with chat(client, model=model, stream_options={"include_usage": True}) as stream:
        for chunk in stream:
            last_chunk = chunk
            if not chunk.choices:
                continue
            if chunk.choices[0].delta.content:
                parts.append(chunk.choices[0].delta.content)
                assert turns(store)[0] == "user: Where did I move?"
                has_heard.set()
            if chunk.choices[0].finish_reason:
                assert turns(store)[1:] == [f"assistant: {text}"]
                finish_chunk = chunk

    assert has_paused.is_set()
    assert "".join(parts) == text
    assert len(parts) > 3
    assert finish_chunk.mempiler["session"]
    assert finish_chunk.id == last_chunk.id
    assert last_chunk.usage.completion_tokens > 0
    assert [body["stream"] for _, _, body in server.requests] == [True]


def test_answer_held_to_a_schema_comes_as_it_is_written(reach: Reach, store: Store) -> None:
    has_schema: list[bool] = []

    def answer(body: dict[str, Any]) -> str:
        has_schema.append("response_format" in body)
        properties = body["response_format"]["json_schema"]["schema"]["properties"]
        return json.dumps({name: f'{name}: "To Lisbon"\n' for name in properties})

    _, client, server = reach(answer, "auto", "personal-response")
    # Its reasoning is not sent.
    assert words(chat(client)) == ["answer:", ' "To', ' Lisbon"\n']
    assert has_schema == [True]
    assert [bool(body.get("stream")) for _, _, body in server.requests] == [True]
    assert turns(store) == ["user: Where did I move?", 'assistant: answer: "To Lisbon"\n']


def broken_stream(texts: Sequence[str]) -> bytes:
    """The events of a stream that ends too early, without a reason."""
    events: list[bytes] = []
    for text in texts:
        chunk = {"choices": [{"delta": {"content": text}}]}
        events.append(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    return b"".join(events)


@pytest.mark.parametrize(
    ("fault", "status"), [(None, 502), ("500", 502), ("400", 422), ("dead", 502)]
)
def test_a_failure_before_the_first_word_is_a_status(
    reach: Reach, store: Store, fault: str | None, status: int
) -> None:
    script = every(fault) if fault else None
    _, client, _ = reach(lambda body: broken_stream(["[[ ## answer ## ]]\n"]), script=script)
    with pytest.raises(openai.APIStatusError) as caught:
        chat(client)
    assert caught.value.status_code == status
    assert turns(store) == ["user: Where did I move?"]


def test_late_answer_ends_in_an_error_and_is_not_stored(reach: Reach, store: Store) -> None:
    may_end = threading.Event()
    answer = WORDS["chat"]("To Lisbon, in spring.")

    def between(piece_number: int) -> None:
        if piece_number >= 8:
            may_end.wait(10)

    service, client, _ = reach(lambda body: answer, between=between, timeout=1.0)
    with pytest.raises(openai.APIError, match="request can be repeated"):
        words(chat(client))
    may_end.set()
    assert within(20, lambda: not service.service.model_pool.held.total())
    assert turns(store) == ["user: Where did I move?"]


BOTH = pytest.mark.parametrize("model", ["my-model", "my-model-chat"], ids=["program", "model"])


def words_of(model: str, text: str) -> str:
    """What the language model says, so that the answer of a model of the service is this text."""
    return WORDS["chat"](text) if model == "my-model" else text


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_no_thread_waits_for_a_model(
    reach: Reach, monkeypatch: pytest.MonkeyPatch, model: str, stream: bool
) -> None:
    both_are_asked = threading.Barrier(2, timeout=10)

    def answer(body: dict[str, Any]) -> str:
        both_are_asked.wait()
        return words_of(model, "To Lisbon.")

    _, client, server = reach(answer)
    with ThreadPoolExecutor(1) as only_thread, ThreadPoolExecutor(2) as clients:
        monkeypatch.setattr("mempiler.async_bridge._threads", lambda level: only_thread)
        chats = [
            clients.submit(chat, client, model=model, user=user, stream=stream)
            for user in ("ada", "bob")
        ]
        for each_chat in chats:
            assert extension(each_chat.result())["session"]
    assert len(server.requests) == 2


@BOTH
def test_repeated_request_gets_what_is_stored_and_costs_nothing(
    reach: Reach, store: Store, model: str
) -> None:
    service, client, server = reach(lambda body: words_of(model, "To Lisbon."))
    for headers in ({}, {"x-stainless-retry-count": "1"}):
        stream = chat(
            client,
            model=model,
            extra_headers=headers,
            stream_options={"include_usage": True},
        )
        assert words(stream) == ["To", " Lisbon."]
    assert len(server.requests) == 1
    assert turns(store) == ["user: Where did I move?", "assistant: To Lisbon."]

    meter = service.service.lm.meter
    # What the model took is counted where its stream ends, perhaps after its last word was sent.
    assert within(20, lambda: meter.read().output_tokens > 0)
    usage = meter.read()
    assert usage.calls["task"] == 1
    assert usage.failed == 0
    assert usage.input_tokens > 0


@BOTH
def test_stream_that_breaks_off_ends_in_an_error_and_stores_no_half_of_an_answer(
    reach: Reach, store: Store, model: str
) -> None:
    texts = ["To Lisbon", " and"]
    if model == "my-model":
        texts.insert(0, "[[ ## answer ## ]]\n")
    _, client, _ = reach(lambda body: broken_stream(texts))
    with (
        pytest.raises(openai.APIError, match="does not answer"),
        chat(client, model=model) as stream,
    ):
        list(stream)
    assert turns(store) == ["user: Where did I move?"]


@BOTH
def test_client_that_leaves_a_stream_frees_its_place(
    reach: Reach, store: Store, model: str
) -> None:
    may_end = threading.Event()
    pause = 8 if model == "my-model" else 2

    def between(piece_number: int) -> None:
        if piece_number >= pause:
            may_end.wait(10)

    service, client, _ = reach(
        lambda body: words_of(model, "To Lisbon, in spring."), between=between
    )
    with chat(client, model=model) as stream:
        next(iter(stream))
    assert within(20, lambda: not service.service.model_pool.held.total())
    may_end.set()
    assert turns(store) == ["user: Where did I move?"]
