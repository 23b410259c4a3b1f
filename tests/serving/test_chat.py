"""The OpenAI-compatible chat: sessions, repeated requests, and streamed answers.

What the user says is stored before the model is asked, and the answer before the client has it. A
session is "open" while its chat goes on. When it has ended it is "queued": it waits to be written
into the memory of its user.

The service offers two models: the program ("my-model"), which answers questions from the memory in
few words, and the language model itself, whose prompt is completed by what was recalled
("my-model-chat").
"""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import openai
import pytest
from mempiler import Store, Turn, UserMemory
from mempiler.async_bridge import MAX_THREADS, in_thread
from mempiler.memory.incoming_items import utc_now
from mempiler.memory.store.database import Database
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.tables import open_turns
from mempiler.serving.worker.worker import Worker
from sqlalchemy import update

from ..stub_server import every
from .conftest import (
    ADA,
    TOKENS,
    Api,
    StartService,
    StartWithStubModel,
    fail_when,
    request_bodies,
    turns_of_ada,
    within,
)

PROGRAM = "my-model"
LANGUAGE_MODEL = "my-model-chat"

SECOND_WORD_HAS_COME = {
    (PROGRAM, "chat"): 8,
    (PROGRAM, "json"): 8,
    (LANGUAGE_MODEL, "chat"): 4,
}
"""An event of the model's stream before which its first two words have come, by model and adapter.

Event 0 is the role, and each further event is a word. A program reads its answer from output that
begins with the words `[[ ## answer ## ]]` (chat adapter) or `{"answer":` (JSON adapter).
"""

BOTH_MODELS = pytest.mark.parametrize(
    "model",
    [
        pytest.param(PROGRAM, id="program"),
        pytest.param(LANGUAGE_MODEL, id="language-model"),
    ],
)
STREAMED_OR_NOT = pytest.mark.parametrize(
    "stream",
    [
        pytest.param(False, id="completion"),
        pytest.param(True, id="stream"),
    ],
)


# Helpers


def ask(client: openai.OpenAI, text: str = "Where did I move?", **fields: Any) -> Any:
    """Ask the program a question as Ada, and return the stream of the answer.

    `fields` change the request: with `stream=False` the answer is one completion.
    """
    request: dict[str, Any] = {
        "model": PROGRAM,
        "user": "ada",
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        **fields,
    }
    return client.chat.completions.create(**request)


def read_words(stream: Any) -> list[str]:
    """Return the parts of the answer that a stream sends, in order."""
    with stream:
        contents = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    return [content for content in contents if content]


def read_extension(completion: Any) -> dict[str, Any]:
    """Return the field `mempiler` of a completion, or of the only event of a stream that has it."""
    if not isinstance(completion, openai.Stream):
        return completion.mempiler

    with completion:
        fields = [chunk.mempiler for chunk in completion if hasattr(chunk, "mempiler")]
    assert len(fields) == 1
    return fields[0]


def in_chat_format(answer: str) -> str:
    """Return an answer as a model writes it for DSPy's chat adapter."""
    return f"[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]"


def model_output(model: str, answer: str) -> str:
    """Return what the language model has to write so that `model` gives this answer."""
    return in_chat_format(answer) if model == PROGRAM else answer


def broken_stream(texts: Sequence[str]) -> bytes:
    """Return the events of a stream that breaks off after some texts: `[DONE]` does not come."""
    events: list[bytes] = []
    for text in texts:
        chunk = {"choices": [{"delta": {"content": text}}]}
        events.append(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    return b"".join(events)


@contextmanager
def all_threads_but_one_busy() -> Iterator[None]:
    """Occupy, for the block, all but one of the threads in which services make blocking calls."""
    busy_threads = MAX_THREADS - 1
    may_end = threading.Event()
    # Those who wait for it are the busy threads and the thread of the test.
    all_are_busy = threading.Barrier(busy_threads + 1, timeout=20)

    def stay_busy() -> None:
        all_are_busy.wait()
        may_end.wait(60)

    async def occupy_threads() -> None:
        await asyncio.gather(*(in_thread(stay_busy) for _ in range(busy_threads)))

    occupier = threading.Thread(target=lambda: asyncio.run(occupy_threads()))
    occupier.start()
    try:
        all_are_busy.wait()
        yield
    finally:
        may_end.set()
        occupier.join(20)


# Sessions


def test_a_message_is_stored_before_the_model_is_asked(
    start_service: StartService, scripted: Any, store: Store
) -> None:
    turns_when_model_was_asked: list[list[str]] = []

    def note_turns_and_answer(field: str, prompt: str, call_number: int) -> dict[str, str]:
        turns_when_model_was_asked.append(turns_of_ada(store))
        return {"answer": "fine"}

    client = start_service(scripted(note_turns_and_answer))

    assert client.chat("I moved.").status_code == 200

    assert turns_when_model_was_asked == [["user: I moved."]]
    assert turns_of_ada(store) == ["user: I moved.", "assistant: fine"]


def test_a_message_whose_answer_failed_is_stored_once_when_the_client_tries_again(
    start_service: StartService, scripted: Any, store: Store
) -> None:
    lm = scripted(fail_when(lambda prompt, call_number: call_number == 1, answer="fine"))
    client = start_service(lm)

    failed = client.chat("I moved.")
    assert failed.status_code == 502
    assert failed.json()["error"]["type"] == "server_error"
    assert "SECRET" not in failed.text
    assert turns_of_ada(store) == ["user: I moved."]

    repeated = client.chat("I moved.")
    assert repeated.status_code == 200
    assert turns_of_ada(store) == ["user: I moved.", "assistant: fine"]


def test_only_messages_after_the_last_answer_are_new(
    start_service: StartService, scripted: Any, store: Store
) -> None:
    """Clients of OpenAI send the whole conversation with every request; it is stored once."""
    lm = scripted(lambda field, prompt, call_number: {"answer": f"answer {call_number}"})
    client = start_service(lm)

    client.chat("one")
    client.chat("one", "answer 1", "two")

    assert turns_of_ada(store) == [
        "user: one",
        "assistant: answer 1",
        "user: two",
        "assistant: answer 2",
    ]
    # The prompt shows each earlier turn once. The new one is the question, not a turn before it.
    _, last_prompt = lm.engine.prompts[-1]
    assert last_prompt.count("user: one") == 1
    assert last_prompt.count("assistant: answer 1") == 1
    assert "user: two" not in last_prompt


@BOTH_MODELS
@pytest.mark.parametrize(
    ("user_fields", "assistant_fields"),
    [
        pytest.param({"name": "Ada"}, {}, id="the user has a name"),
        pytest.param({}, {"name": "Bot"}, id="the assistant has a name"),
    ],
)
def test_a_prompt_shows_messages_once_if_their_speakers_have_names(
    start_with_stub_model: StartWithStubModel,
    store: Store,
    model: str,
    user_fields: dict[str, str],
    assistant_fields: dict[str, str],
) -> None:
    """The conversation of the request is stored as well, and a prompt does not show it twice."""
    statement = "I moved to Lisbon."
    answer = "Noted: to Lisbon."
    question = "Where did I move, to Lisbon?"

    first_message = {"role": "user", "content": statement, **user_fields}
    answer_message = {"role": "assistant", "content": answer, **assistant_fields}
    second_message = {"role": "user", "content": question, **user_fields}
    conversations = [
        [first_message],
        [first_message, answer_message, second_message],
    ]
    api, _, model_server = start_with_stub_model(lambda body: model_output(model, answer))

    for messages in conversations:
        body = {"model": model, "user": "ada", "messages": messages}
        assert api.post("/v1/chat/completions", json=body).status_code == 200

    last_prompt = model_server.texts[-1]
    assert last_prompt.count(statement) == 1
    assert last_prompt.count(answer) == 1
    assert len(turns_of_ada(store)) == 4


def test_a_system_message_reaches_the_model_but_not_the_memory(
    start_service: StartService, scripted: Any, store: Store
) -> None:
    lm = scripted(lambda field, prompt, call_number: {"answer": "Ahoy!"})
    client = start_service(lm)
    messages = [
        {"role": "system", "content": "Be a pirate."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]

    client.post("/v1/chat/completions", json={"user": "ada", "messages": messages})

    _, last_prompt = lm.engine.prompts[-1]
    assert "system: Be a pirate." in last_prompt
    assert turns_of_ada(store) == ["user: Hi", "assistant: Ahoy!"]


def test_a_session_that_was_ended_by_another_one_continues_under_a_new_name(client: Api) -> None:
    """A user has one open session. Whoever begins another one ends it, and an end is final."""
    client.chat("hello", metadata={"session": "a"})
    # A chat that names no session goes on with the open one.
    client.chat("hello again")
    # This ends "a".
    client.chat("hello", metadata={"session": "b"})
    # This ends "b", and both chats come into one new session.
    client.chat("hello", metadata={"session": "a"})
    client.chat("hello", metadata={"session": "a"})

    sessions = client.sessions()
    continuations = [name for name in sessions if name.startswith("a~")]
    assert len(continuations) == 1
    # Each chat has two turns, a message and its answer.
    assert sessions == {
        "a": ("queued", 4),
        "b": ("queued", 2),
        continuations[0]: ("open", 4),
    }


@pytest.mark.parametrize(
    "question",
    [
        pytest.param("Where do I live?", id="other words than the fact"),
        pytest.param("Where did I move to?", id="words of the fact"),
    ],
)
@pytest.mark.parametrize(
    "answer_template",
    [
        pytest.param("I do not know.", id="always the same answer"),
        pytest.param("I do not know, {0} times.", id="a new answer each time"),
    ],
)
@pytest.mark.parametrize(
    "is_remembered",
    [
        pytest.param(False, id="sessions wait in the queue"),
        pytest.param(True, id="sessions are remembered"),
    ],
)
def test_a_fact_is_recalled_however_often_the_question_was_asked(
    start_service: StartService,
    scripted: Any,
    question: str,
    answer_template: str,
    is_remembered: bool,
) -> None:
    """Ten hits are recalled, and ten stored copies of the question do not push out the fact."""
    lm = scripted(
        lambda field, prompt, call_number: {"answer": answer_template.format(call_number)}
    )
    client = start_service(lm)
    client.add("I moved to Lisbon in spring.")
    memory = UserMemory(client.service.memories, ADA)

    # More chats than hits; each stores its question and its answer in a session of its own.
    for number in range(11):
        if is_remembered:
            memory.remember()
        completion = client.chat(question, metadata={"session": f"chat-{number}"}).json()
        prediction = client.ask(question).json()

        chat_evidence = [entry["text"] for entry in completion["mempiler"]["evidence"]]
        assert "Ada: I moved to Lisbon in spring." in chat_evidence
        ask_evidence = [entry["text"] for entry in prediction["evidence"]]
        assert "Ada: I moved to Lisbon in spring." in ask_evidence


def test_a_question_that_states_a_fact_is_recalled(client: Api) -> None:
    """Stored questions that only ask the same again come last, but this one says something new."""
    client.chat("Did you know I moved to Lisbon?")
    for _ in range(9):
        client.chat("Where did I move?")

    completion = client.chat("Where did I move?").json()

    evidence = [entry["text"] for entry in completion["mempiler"]["evidence"]]
    assert "user: Did you know I moved to Lisbon?" in evidence


@pytest.mark.parametrize(
    ("minutes_since_last_turn", "sessions"),
    [
        pytest.param(29, [("open", 4)], id="within the gap"),
        pytest.param(31, [("queued", 2), ("open", 2)], id="after the gap"),
        pytest.param(-31, [("queued", 2), ("open", 2)], id="the last turn lies in the future"),
    ],
)
def test_a_chat_after_a_long_pause_begins_a_new_session(
    start_service: StartService,
    store: Store,
    minutes_since_last_turn: int,
    sessions: list[tuple[str, int]],
) -> None:
    """A session ends when nothing was said in it for half an hour (`session_gap`).

    Ada's session has two turns of an earlier time, and her chat adds two: her message and its
    answer.
    """
    client = start_service(session_gap=30)
    last_time = utc_now() - timedelta(minutes=minutes_since_last_turn)
    earlier_turns = [
        Turn(id="", speaker="user", text="I moved to Lisbon.", time=last_time),
        Turn(id="", speaker="assistant", text="I see.", time=last_time),
    ]
    store.open_sessions.append(ADA, "earlier", earlier_turns)

    client.chat("Where did I move?")

    assert list(client.sessions().values()) == sessions


def test_an_idle_session_is_ended_by_the_background_worker(client: Api) -> None:
    """A sweep of the worker ends all sessions that were idle for longer than the gap."""
    client.chat("one")
    memories = client.service.memories

    ended_sessions = Worker(memories, session_gap=30).sweep()
    assert ended_sessions == 0
    assert list(client.sessions().values()) == [("open", 2)]

    ended_sessions = Worker(memories, session_gap=0).sweep()
    assert ended_sessions == 1
    assert list(client.sessions().values()) == [("queued", 2)]


def test_a_damaged_idle_session_does_not_keep_sessions_of_others_open(
    client: Api, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A sweep ends idle sessions of all users.

    The stored session of Ada is damaged, and Bob's is not.
    """
    for user in ("ada", "bob"):
        turn = Turn(id="", speaker="Ada", text="the code is falcon")
        store.open_sessions.append(Owner(user, "acme"), "chat", [turn])
    damage = update(open_turns).where(open_turns.c.user == "ada").values(json='{"falcon": ')
    with closing(Database(store.url)) as database, database.write_transaction() as transaction:
        transaction.connection.execute(damage)
    # With this gap every session is idle.
    worker = Worker(client.service.memories, session_gap=0)

    sessions_ended_by_first_sweep = worker.sweep()
    sessions_ended_by_second_sweep = worker.sweep()

    assert sessions_ended_by_first_sweep == 1
    assert sessions_ended_by_second_sweep == 0
    items_of_bob = store.items.list_all(Owner("bob", "acme"))
    assert [stored.item.id for stored in items_of_bob] == ["chat"]
    # The damage is logged once, without the words of the session.
    assert caplog.text.count("user 'ada', session 'chat': the row is damaged") == 1
    assert "falcon" not in caplog.text


def test_an_answer_is_stored_though_its_session_ended_while_the_model_was_asked(
    start_service: StartService, scripted: Any, store: Store
) -> None:
    """The model of this test ends the session before it answers, as another request could."""
    ended_sessions: list[Any] = []

    def end_session_and_answer(field: str, prompt: str, call_number: int) -> dict[str, str]:
        ended_sessions.append(store.open_sessions.end(ADA, "a"))
        return {"answer": "fine"}

    client = start_service(scripted(end_session_and_answer))

    client.chat("I moved.", metadata={"session": "a"})

    (ended_session,) = ended_sessions
    assert ended_session.position == 1
    assert turns_of_ada(store) == ["user: I moved.", "assistant: fine"]


# Fields of requests


IMAGE_PART = {"type": "image_url", "image_url": {}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"user": None}, "user: ", id="no user"),
        pytest.param(
            {"messages": [{"role": "assistant", "content": "hi"}]},
            "role user",
            id="no message of the user",
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": [IMAGE_PART]}]},
            "messages.0.content",
            id="an image without an address",
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": 5}]},
            "messages.0.content: Input should be",
            id="a number as content",
        ),
        pytest.param({"n": 2}, "n: ", id="two answers"),
        pytest.param(
            {"tools": [{"type": "function"}]},
            "tools: only a language model can do this",
            id="tools",
        ),
        pytest.param(
            {"metadata": {"session": "../etc"}}, "metadata.session: ", id="a path as session"
        ),
        pytest.param(
            {"mempiler": {"metadata": {"a b": 1}}},
            "mempiler.metadata.a b.[key]: the name 'a b'",
            id="metadata with a malformed name",
        ),
        pytest.param(
            {"mempiler": {"session": "a"}}, "mempiler.session: Extra", id="an unknown field"
        ),
    ],
)
def test_an_unsupported_request_is_refused_and_changes_nothing(
    client: Api, store: Store, fields: dict[str, Any], message: str
) -> None:
    """`message` is a part of the error, which names the wrong field."""
    body = {"user": "ada", "messages": [{"role": "user", "content": "hi"}], **fields}

    response = client.post("/v1/chat/completions", json=body)

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert store.users.list_all() == []


@STREAMED_OR_NOT
def test_the_official_client_gains_a_memory(client: Api, stream: bool) -> None:
    """OpenAI's client gets an answer from what was said in an earlier session."""
    client.add("My sister is called Grace.")

    with openai.OpenAI(
        base_url=f"{client.address}/v1", api_key=TOKENS["acme"], timeout=20
    ) as openai_client:
        completion = ask(openai_client, "What is my sister called?", stream=stream)
        if stream:
            answer = "".join(read_words(completion))
        else:
            answer = completion.choices[0].message.content

    assert answer == "My sister is called Grace."


def test_a_chat_is_answered_from_the_sessions_that_it_chooses(client: Api) -> None:
    """The field `mempiler` of a request may have a condition on the metadata of sessions."""
    client.add("My sister is called Grace.", metadata={"paid": True})
    client.add("My sister is called Ruth.", metadata={"paid": False})

    only_paid = {"where": {"paid": True}}
    completion = client.chat("What is my sister called?", mempiler=only_paid).json()

    assert completion["choices"][0]["message"]["content"] == "My sister is called Grace."


def test_a_chat_gives_its_session_a_name_and_metadata(client: Api) -> None:
    metadata = {"paid": True, "n": 1.5}
    client.chat("Hello.", metadata={"session": "phone"}, mempiler={"metadata": metadata})

    # The session goes on, so its turns wait to be written into the memory.
    search = {"query": "Hello", "where": {"paid": True, "n": 1.5}}
    hits = client.post("/v1/users/ada/search", json=search).json()["waiting"]
    assert "phone:1" in [hit["id"] for hit in hits]
    assert client.sessions() == {"phone": ("open", 2)}


@STREAMED_OR_NOT
def test_settings_that_the_program_ignores_are_named_in_its_reply(
    start_with_stub_model: StartWithStubModel, stream: bool
) -> None:
    """A program chooses the settings of its model itself, and ignores those of a request.

    Its reply names them in the field `mempiler`.
    """
    settings: dict[str, Any] = {
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
    client = start_with_stub_model(lambda body: in_chat_format("To Lisbon.")).openai_client

    completion = ask(client, stream=stream, extra_body=settings)

    assert read_extension(completion)["ignored"] == list(settings)


@STREAMED_OR_NOT
def test_labels_that_the_program_ignores_are_named_in_its_reply(
    start_with_stub_model: StartWithStubModel, stream: bool
) -> None:
    """Labels are the field `metadata` of a request of OpenAI's protocol."""
    client = start_with_stub_model(lambda body: in_chat_format("To Lisbon.")).openai_client

    # The session is used by the service, but another label is of no use to the program.
    completion = ask(client, stream=stream, metadata={"session": "a", "team": "red"})

    assert read_extension(completion)["ignored"] == ["metadata.team"]


def test_settings_with_their_default_values_are_not_named_as_ignored(client: Api) -> None:
    """Such a setting asks for nothing, so nothing is ignored."""
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

    completion = client.chat("Hi", **settings).json()

    assert completion["mempiler"]["ignored"] == []


def test_the_language_model_gets_all_settings_and_its_reply_names_none_as_ignored(
    start_with_stub_model: StartWithStubModel,
) -> None:
    """Only a program ignores settings. The language model itself follows them."""
    _, client, model_server = start_with_stub_model()

    completion = ask(client, model=LANGUAGE_MODEL, stream=False, temperature=0, seed=7)

    assert read_extension(completion)["ignored"] == []
    (request_body,) = request_bodies(model_server)
    assert request_body["temperature"] == 0
    assert request_body["seed"] == 7


def test_models_are_listed_with_what_they_are_for(
    start_with_stub_model: StartWithStubModel,
) -> None:
    client = start_with_stub_model().openai_client

    program, language_model = client.models.list().data

    assert program.id == PROGRAM
    assert "in its own short words" in program.model_dump()["description"]
    assert language_model.id == LANGUAGE_MODEL
    assert "a chat client wants" in language_model.model_dump()["description"]


def test_a_service_whose_model_has_no_endpoint_lists_only_the_program(client: Api) -> None:
    """The offline engine is no server, so no chat can be passed on to it."""
    models = client.get("/v1/models").json()["data"]

    assert [model["id"] for model in models] == [PROGRAM]


# Streams


ANSWER = "To Lisbon & Porto, she said."
IN_CHAT_FORMAT = "[[ ## answer ## ]]\nTo Lisbon & Porto, she said.\n\n[[ ## completed ## ]]"
IN_JSON_FORMAT = '{"answer": "To Lisbon & Porto, she said."}'


@pytest.mark.parametrize(
    ("adapter", "model", "output"),
    [
        pytest.param("chat", PROGRAM, IN_CHAT_FORMAT, id="program with the chat adapter"),
        pytest.param("json", PROGRAM, IN_JSON_FORMAT, id="program with the JSON adapter"),
        pytest.param("chat", LANGUAGE_MODEL, ANSWER, id="language model"),
    ],
)
def test_the_first_word_comes_before_the_model_has_ended(
    start_with_stub_model: StartWithStubModel, adapter: str, model: str, output: str
) -> None:
    """The model pauses after two words of its answer until the client has read the first one.

    If the client got nothing before the end, the pause would last ten seconds.
    """
    pause_before_event = SECOND_WORD_HAS_COME[model, adapter]
    first_word_was_read = threading.Event()
    was_read_during_pause: list[bool] = []

    def pause_once(event_number: int) -> None:
        if event_number == pause_before_event and not was_read_during_pause:
            was_read_during_pause.append(first_word_was_read.wait(10))

    _, client, model_server = start_with_stub_model(
        lambda body: output, adapter, between=pause_once
    )

    words: list[str] = []
    with ask(client, model=model) as stream:
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                words.append(chunk.choices[0].delta.content)
                first_word_was_read.set()

    assert was_read_during_pause == [True]
    assert words[0] == "To"
    assert "".join(words) == "To Lisbon & Porto, she said."
    (request_body,) = request_bodies(model_server)
    assert request_body["stream"] is True


@BOTH_MODELS
def test_a_stream_begins_when_the_question_is_stored_and_ends_when_the_answer_is(
    start_with_stub_model: StartWithStubModel, store: Store, model: str
) -> None:
    """The client learns from `finish_reason` that the answer has ended."""
    client = start_with_stub_model(lambda body: model_output(model, "To Lisbon.")).openai_client
    turns_at_first_word: list[str] = []
    turns_at_finish: list[str] = []

    with ask(client, model=model) as stream:
        for chunk in stream:
            choice = chunk.choices[0]
            if choice.delta.content and not turns_at_first_word:
                turns_at_first_word = turns_of_ada(store)
            if choice.finish_reason:
                turns_at_finish = turns_of_ada(store)

    assert "user: Where did I move?" in turns_at_first_word
    assert turns_at_finish == ["user: Where did I move?", "assistant: To Lisbon."]


@BOTH_MODELS
def test_the_last_chunk_of_a_stream_has_its_usage_and_the_one_before_its_session(
    start_with_stub_model: StartWithStubModel, model: str
) -> None:
    """By `include_usage` a client asks for the numbers of tokens."""
    client = start_with_stub_model(
        lambda body: model_output(model, "To Lisbon, in spring.")
    ).openai_client

    with ask(client, model=model, stream_options={"include_usage": True}) as stream:
        *_, chunk_with_finish, last_chunk = stream

    assert chunk_with_finish.choices[0].finish_reason == "stop"
    assert chunk_with_finish.mempiler["session"]
    assert last_chunk.usage.completion_tokens > 0
    assert last_chunk.id == chunk_with_finish.id


def test_an_answer_that_follows_a_schema_is_streamed(
    start_with_stub_model: StartWithStubModel, store: Store
) -> None:
    """The model has to fill the fields `reasoning` and `answer`; only the latter is sent."""

    def fill_schema(body: dict[str, Any]) -> str:
        properties = body["response_format"]["json_schema"]["schema"]["properties"]
        return json.dumps({name: f'{name}: "To Lisbon"\n' for name in properties})

    _, client, model_server = start_with_stub_model(
        fill_schema, adapter="auto", task="personal-response"
    )

    words = read_words(ask(client))

    assert words == ["answer:", ' "To', ' Lisbon"\n']
    assert turns_of_ada(store) == [
        "user: Where did I move?",
        'assistant: answer: "To Lisbon"\n',
    ]
    (request_body,) = request_bodies(model_server)
    assert "response_format" in request_body
    assert request_body["stream"] is True


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        pytest.param(None, 502, id="the stream breaks off"),
        pytest.param("500", 502, id="the model fails"),
        pytest.param("400", 422, id="the model refuses the request"),
        pytest.param("dead", 502, id="the model is gone"),
    ],
)
def test_a_stream_that_fails_before_its_first_word_gets_the_status_of_an_error(
    start_with_stub_model: StartWithStubModel, store: Store, fault: str | None, status: int
) -> None:
    """Once a stream has begun, its status is 200 for good, so it begins with the first word."""
    without_a_word = broken_stream(["[[ ## answer ## ]]\n"])
    script = every(fault) if fault else None
    client = start_with_stub_model(lambda body: without_a_word, script=script).openai_client

    with pytest.raises(openai.APIStatusError) as raised:
        ask(client)

    assert raised.value.status_code == status
    assert turns_of_ada(store) == ["user: Where did I move?"]


def test_a_stream_that_takes_too_long_ends_in_an_error_and_its_answer_is_not_stored(
    start_with_stub_model: StartWithStubModel, store: Store
) -> None:
    """A request has a second (`timeout`).

    The model begins its answer, and then pauses for longer.
    """
    may_go_on = threading.Event()

    def pause_within_answer(event_number: int) -> None:
        if event_number >= SECOND_WORD_HAS_COME[PROGRAM, "chat"]:
            may_go_on.wait(10)

    api, client, _ = start_with_stub_model(
        lambda body: in_chat_format("To Lisbon, in spring."),
        between=pause_within_answer,
        timeout=1.0,
    )

    with pytest.raises(openai.APIError, match="request can be repeated"):
        read_words(ask(client))

    may_go_on.set()
    assert within(20, lambda: api.service.model_pool.held.total() == 0)
    assert turns_of_ada(store) == ["user: Where did I move?"]


@BOTH_MODELS
@STREAMED_OR_NOT
def test_a_chat_that_waits_for_its_model_holds_no_thread(
    start_with_stub_model: StartWithStubModel, model: str, stream: bool
) -> None:
    """With one thread left, two chats wait for the model at the same time."""
    both_are_asked = threading.Barrier(2, timeout=10)

    def answer(body: dict[str, Any]) -> str:
        # If a chat held the last free thread, the other one would not come so far, and this wait
        # would fail after ten seconds.
        both_are_asked.wait()
        return model_output(model, "To Lisbon.")

    _, client, model_server = start_with_stub_model(answer)
    with all_threads_but_one_busy(), ThreadPoolExecutor(2) as clients:
        chats = [
            clients.submit(ask, client, model=model, user=user, stream=stream)
            for user in ("ada", "bob")
        ]
        for chat in chats:
            assert read_extension(chat.result())["session"]

    assert len(model_server.requests) == 2


@BOTH_MODELS
def test_a_repeated_request_gets_the_stored_answer_and_costs_nothing(
    start_with_stub_model: StartWithStubModel, store: Store, model: str
) -> None:
    """A client repeats a request whose answer did not reach it."""
    api, client, model_server = start_with_stub_model(
        lambda body: model_output(model, "To Lisbon.")
    )
    options = {"model": model, "stream_options": {"include_usage": True}}

    first_stream = ask(client, **options)
    assert read_words(first_stream) == ["To", " Lisbon."]
    # OpenAI's client marks a request that it repeats with this header.
    repeated_stream = ask(client, extra_headers={"x-stainless-retry-count": "1"}, **options)
    assert read_words(repeated_stream) == ["To", " Lisbon."]

    assert len(model_server.requests) == 1
    assert turns_of_ada(store) == ["user: Where did I move?", "assistant: To Lisbon."]

    meter = api.service.lm.meter
    # A call is counted when its stream ends, perhaps after its last word was sent.
    assert within(20, lambda: meter.read().output_tokens > 0)
    usage = meter.read()
    assert usage.calls["task"] == 1
    assert usage.failed == 0
    assert usage.input_tokens > 0


@BOTH_MODELS
def test_a_stream_that_breaks_off_ends_in_an_error_and_stores_no_half_of_an_answer(
    start_with_stub_model: StartWithStubModel, store: Store, model: str
) -> None:
    """The model sends some words of its answer, and not the `[DONE]` that ends a stream."""
    texts = ["To Lisbon", " and"]
    if model == PROGRAM:
        texts.insert(0, "[[ ## answer ## ]]\n")
    client = start_with_stub_model(lambda body: broken_stream(texts)).openai_client

    with pytest.raises(openai.APIError, match="does not answer"):
        read_words(ask(client, model=model))

    assert turns_of_ada(store) == ["user: Where did I move?"]


@BOTH_MODELS
def test_a_client_that_leaves_a_stream_frees_its_place(
    start_with_stub_model: StartWithStubModel, store: Store, model: str
) -> None:
    """The service works on a request no longer once its client has gone, and stores no answer."""
    may_go_on = threading.Event()

    def pause_within_answer(event_number: int) -> None:
        if event_number >= SECOND_WORD_HAS_COME[model, "chat"]:
            may_go_on.wait(10)

    api, client, _ = start_with_stub_model(
        lambda body: model_output(model, "To Lisbon, in spring."), between=pause_within_answer
    )
    with ask(client, model=model) as stream:
        for _first_chunk in stream:
            break

    # The model still pauses.
    assert within(20, lambda: api.service.model_pool.held.total() == 0)
    may_go_on.set()
    assert turns_of_ada(store) == ["user: Where did I move?"]
