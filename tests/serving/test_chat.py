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
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import openai
import pytest
from mempiler import Store, Turn
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
    FailingModel,
    ModelSaying,
    StartService,
    StartWithStubModel,
    only_request_body,
    turns_of_ada,
    within,
)

PROGRAM = "my-model"
LANGUAGE_MODEL = "my-model-chat"

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


def words_of(stream: Any) -> Generator[str]:
    """Yield the parts of the answer that a stream sends, as soon as they come."""
    with stream:
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content


def read_words(stream: Any) -> list[str]:
    """Return the parts of the answer that a stream sends, in order."""
    return list(words_of(stream))


def read_answer(completion: Any) -> str:
    """Return the answer of a completion or of a stream."""
    if isinstance(completion, openai.Stream):
        return "".join(read_words(completion))
    return completion.choices[0].message.content


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


class StreamPause:
    """Holds up the stream of a model once, before a word, until `end`; ten seconds at most.

        pause = StreamPause("To Lisbon in spring.", before_word="spring.")
        start_with_stub_model("To Lisbon in spring.", between=pause.before_event)

    Args:
        output: All that the model writes.
        before_word: A word of it.
    """

    def __init__(self, output: str, before_word: str) -> None:
        (position,) = [number for number, word in enumerate(output.split()) if before_word in word]
        # Event 0 of a stream is the role, and each further event is a word.
        self._event_of_word = 1 + position
        self._may_go_on = threading.Event()
        self.ended_in_time: bool | None = None
        """Whether `end` was called during the pause."""

    def end(self) -> None:
        self._may_go_on.set()

    def before_event(self, event_number: int) -> None:
        """Wait if it is time for the pause; the stub server calls this before each event."""
        if event_number == self._event_of_word:
            self.ended_in_time = self._may_go_on.wait(10)


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
    turns_when_model_was_asked: list[str] = []

    def note_turns_and_answer(field: str, prompt: str, call_number: int) -> dict[str, str]:
        turns_when_model_was_asked.extend(turns_of_ada(store))
        return {"answer": "fine"}

    client = start_service(scripted(note_turns_and_answer))

    client.chat("I moved.")

    assert turns_when_model_was_asked == ["user: I moved."]
    assert turns_of_ada(store) == ["user: I moved.", "assistant: fine"]


def test_a_message_whose_answer_failed_is_stored_once_when_the_client_tries_again(
    start_service: StartService, failing_model: FailingModel, store: Store
) -> None:
    client = start_service(failing_model(calls={1}, answer="fine"))

    failed_chat = client.chat("I moved.")
    assert failed_chat.status_code == 502
    assert turns_of_ada(store) == ["user: I moved."]

    repeated_chat = client.chat("I moved.")
    assert repeated_chat.status_code == 200
    assert turns_of_ada(store) == ["user: I moved.", "assistant: fine"]


def test_the_error_of_a_chat_does_not_show_what_the_model_said_of_its_failure(
    start_service: StartService, failing_model: FailingModel
) -> None:
    """The endpoint of the model fails with the text "down: SECRET-reason"."""
    client = start_service(failing_model())

    response = client.chat("I moved.")

    assert response.json()["error"]["type"] == "server_error"
    assert "SECRET" not in response.text


def test_a_conversation_that_is_sent_again_with_every_message_is_stored_once(
    start_service: StartService, model_saying: ModelSaying, store: Store
) -> None:
    """Clients of OpenAI send the whole conversation; what follows the last answer is new."""
    client = start_service(model_saying("I see."))

    client.chat("one")
    client.chat("one", "I see.", "two")

    assert turns_of_ada(store) == [
        "user: one",
        "assistant: I see.",
        "user: two",
        "assistant: I see.",
    ]


@BOTH_MODELS
@pytest.mark.parametrize(
    ("name_of_user", "name_of_assistant"),
    [
        pytest.param(None, None, id="no names"),
        pytest.param("Ada", None, id="the user has a name"),
        pytest.param(None, "Bot", id="the assistant has a name"),
    ],
)
def test_a_prompt_shows_an_earlier_message_once_though_it_is_both_sent_and_stored(
    start_with_stub_model: StartWithStubModel,
    store: Store,
    model: str,
    name_of_user: str | None,
    name_of_assistant: str | None,
) -> None:
    """A client sends the whole conversation again, and the memory has it as well."""
    statement = "I moved to Lisbon."
    answer = "Noted: to Lisbon."
    first_message = {"role": "user", "name": name_of_user, "content": statement}
    answer_message = {"role": "assistant", "name": name_of_assistant, "content": answer}
    question = {"role": "user", "name": name_of_user, "content": "Where did I move, to Lisbon?"}
    api, _, model_server = start_with_stub_model(model_output(model, answer))

    for messages in ([first_message], [first_message, answer_message, question]):
        body = {"model": model, "user": "ada", "messages": messages}
        assert api.post("/v1/chat/completions", json=body).status_code == 200

    last_prompt = model_server.texts[-1]
    assert last_prompt.count(statement) == 1
    assert last_prompt.count(answer) == 1
    assert len(turns_of_ada(store)) == 4


def test_a_system_message_reaches_the_model_but_not_the_memory(
    start_service: StartService, model_saying: ModelSaying, store: Store
) -> None:
    lm = model_saying("Ahoy!")
    client = start_service(lm)
    messages = [
        {"role": "system", "content": "Be a pirate."},
        {"role": "user", "content": "Hi"},
    ]

    client.post("/v1/chat/completions", json={"user": "ada", "messages": messages})

    _, last_prompt = lm.engine.prompts[-1]
    assert "system: Be a pirate." in last_prompt
    assert turns_of_ada(store) == ["user: Hi", "assistant: Ahoy!"]


def test_a_session_that_was_ended_by_another_one_continues_under_a_new_name(client: Api) -> None:
    """A user has one open session, so the chat in "b" ends "a" for good ("queued")."""
    client.chat("hello", metadata={"session": "a"})
    client.chat("hello", metadata={"session": "b"})

    client.chat("hello", metadata={"session": "a"})
    client.chat("hello", metadata={"session": "a"})

    (new_name,) = set(client.sessions()) - {"a", "b"}
    assert new_name.startswith("a~")
    # Each chat has two turns: a message and its answer.
    assert client.sessions() == {
        "a": ("queued", 2),
        "b": ("queued", 2),
        new_name: ("open", 4),
    }


def test_a_question_that_states_a_fact_is_recalled(client: Api) -> None:
    """Stored questions that only ask the same again are recalled last, but this one says more."""
    client.chat("Did you know I moved to Lisbon?")
    for _ in range(9):
        client.chat("Where did I move?")

    completion = client.chat("Where did I move?").json()

    recalled_texts = [entry["text"] for entry in completion["mempiler"]["evidence"]]
    assert "user: Did you know I moved to Lisbon?" in recalled_texts


@pytest.fixture
def open_session_of_ada(store: Store) -> Callable[[timedelta], None]:
    """Store an open session of Ada's with two turns, which were said so long ago."""

    def store_session(age: timedelta) -> None:
        time = utc_now() - age
        turns = [
            Turn(id="", speaker="user", text="I moved to Lisbon.", time=time),
            Turn(id="", speaker="assistant", text="I see.", time=time),
        ]
        store.open_sessions.append(ADA, "earlier", turns)

    return store_session


def test_a_chat_after_a_short_pause_goes_on_with_the_session(
    start_service: StartService, open_session_of_ada: Callable[[timedelta], None]
) -> None:
    """A session ends when nothing was said in it for half an hour (`session_gap`)."""
    client = start_service(session_gap=30)
    open_session_of_ada(timedelta(minutes=29))

    client.chat("Where did I move?")

    # The two earlier turns, Ada's message, and its answer.
    assert client.sessions() == {"earlier": ("open", 4)}


@pytest.mark.parametrize(
    "age",
    [
        pytest.param(timedelta(minutes=31), id="31 minutes ago"),
        pytest.param(timedelta(minutes=-31), id="in the future, because a clock was wrong"),
    ],
)
def test_a_chat_after_a_long_pause_ends_the_session_and_begins_a_new_one(
    start_service: StartService,
    open_session_of_ada: Callable[[timedelta], None],
    age: timedelta,
) -> None:
    """A session ends when nothing was said in it for half an hour (`session_gap`)."""
    client = start_service(session_gap=30)
    open_session_of_ada(age)

    client.chat("Where did I move?")

    earlier_session, new_session = client.sessions().values()
    assert earlier_session == ("queued", 2)
    assert new_session == ("open", 2)


def test_an_idle_session_is_ended_by_the_background_worker(client: Api) -> None:
    """With a gap of 0 minutes every session is idle for too long."""
    client.chat("one")
    memories = client.service.memories

    Worker(memories, session_gap=30).sweep()
    assert list(client.sessions().values()) == [("open", 2)]

    Worker(memories, session_gap=0).sweep()
    assert list(client.sessions().values()) == [("queued", 2)]


@pytest.fixture
def damaged_session_of_ada(store: Store) -> None:
    """Store an open session "chat" of Ada's about a falcon, and damage its row in the database."""
    turn = Turn(id="", speaker="Ada", text="the code is falcon")
    store.open_sessions.append(Owner("ada", "acme"), "chat", [turn])
    damage = update(open_turns).values(json='{"falcon": ')
    with closing(Database(store.url)) as database, database.write_transaction() as transaction:
        transaction.connection.execute(damage)


@pytest.mark.usefixtures("damaged_session_of_ada")
def test_a_damaged_session_does_not_keep_sessions_of_others_open(client: Api, store: Store) -> None:
    """A sweep of the worker ends the idle sessions of all users; Ada's cannot be read."""
    bob = Owner("bob", "acme")
    store.open_sessions.append(bob, "chat", [Turn(id="", speaker="Bob", text="Hello.")])

    Worker(client.service.memories, session_gap=0).sweep()

    (ended_session,) = store.items.list_all(bob)
    assert ended_session.item.id == "chat"


@pytest.mark.usefixtures("damaged_session_of_ada")
def test_a_damaged_session_is_logged_once_and_without_its_words(
    client: Api, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(client.service.memories, session_gap=0)

    worker.sweep()
    worker.sweep()

    assert caplog.text.count("user 'ada', session 'chat': the row is damaged") == 1
    assert "falcon" not in caplog.text


def test_an_answer_is_stored_though_its_session_ended_while_the_model_was_asked(
    start_service: StartService, scripted: Any, store: Store
) -> None:
    """The model of this test ends the session before it answers, as another request could."""

    def end_session_and_answer(field: str, prompt: str, call_number: int) -> dict[str, str]:
        assert store.open_sessions.end(ADA, "a") is not None
        return {"answer": "fine"}

    client = start_service(scripted(end_session_and_answer))

    client.chat("I moved.", metadata={"session": "a"})

    assert turns_of_ada(store) == ["user: I moved.", "assistant: fine"]


# Fields of requests


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
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
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
def test_an_unsupported_chat_is_refused_with_the_name_of_the_wrong_field(
    client: Api, store: Store, fields: dict[str, Any], message: str
) -> None:
    body = {"user": "ada", "messages": [{"role": "user", "content": "hi"}], **fields}

    response = client.post("/v1/chat/completions", json=body)

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert store.users.list_all() == []


@STREAMED_OR_NOT
def test_the_official_client_gains_a_memory(client: Api, stream: bool) -> None:
    """It gets an answer from an earlier session; the offline model copies the fitting sentence."""
    client.add("My sister is called Grace.")

    with openai.OpenAI(base_url=f"{client.address}/v1", api_key=TOKENS["acme"]) as openai_client:
        completion = ask(openai_client, "What is my sister called?", stream=stream)
        assert read_answer(completion) == "My sister is called Grace."


def test_a_chat_is_answered_from_sessions_whose_metadata_meet_its_condition(client: Api) -> None:
    """The offline model copies the sentence that fits the question best."""
    client.add("My sister is called Grace.", metadata={"paid": True})
    client.add("My sister is called Ruth.", metadata={"paid": False})

    completion = client.chat("What is my sister called?", mempiler={"where": {"paid": True}}).json()

    assert completion["choices"][0]["message"]["content"] == "My sister is called Grace."


def test_a_chat_gives_its_session_a_name_and_metadata(client: Api) -> None:
    client.chat("Hello.", metadata={"session": "phone"}, mempiler={"metadata": {"paid": True}})

    assert client.sessions() == {"phone": ("open", 2)}
    search = {"query": "Hello", "where": {"paid": True}}
    # Turns of an open session are not in the memory yet ("waiting").
    hits = client.post("/v1/users/ada/search", json=search).json()["waiting"]
    assert "phone:1" in [hit["id"] for hit in hits]


@STREAMED_OR_NOT
def test_settings_that_the_program_ignores_are_named_in_its_reply(
    start_with_stub_model: StartWithStubModel, stream: bool
) -> None:
    """A program chooses the settings of its model itself, and ignores those of a request."""
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
    client = start_with_stub_model(in_chat_format("To Lisbon.")).openai_client

    completion = ask(client, model=PROGRAM, stream=stream, extra_body=settings)

    assert read_extension(completion)["ignored"] == list(settings)


def test_metadata_that_the_program_ignores_are_named_in_its_reply(client: Api) -> None:
    """The service knows what `session` is for, and does not know `team`."""
    completion = client.chat("Hi", metadata={"session": "a", "team": "red"}).json()

    assert completion["mempiler"]["ignored"] == ["metadata.team"]


def test_settings_with_their_default_values_are_not_named_as_ignored(client: Api) -> None:
    """A setting with its default value asks for nothing."""
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
    request_body = only_request_body(model_server)
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


@pytest.mark.parametrize(
    ("model", "adapter", "output"),
    [
        pytest.param(
            PROGRAM,
            "chat",
            "[[ ## answer ## ]]\nTo Lisbon & Porto, she said, and then to Faro in spring.\n\n"
            "[[ ## completed ## ]]",
            id="program with the chat adapter",
        ),
        pytest.param(
            PROGRAM,
            "json",
            '{"answer": "To Lisbon & Porto, she said, and then to Faro in spring."}',
            id="program with the JSON adapter",
        ),
        pytest.param(
            LANGUAGE_MODEL,
            "chat",
            "To Lisbon & Porto, she said, and then to Faro in spring.",
            id="language model",
        ),
    ],
)
def test_the_first_word_of_a_stream_comes_before_the_model_has_ended(
    start_with_stub_model: StartWithStubModel, model: str, adapter: str, output: str
) -> None:
    """The model pauses before its word "spring." until the client has read the first word."""
    pause = StreamPause(output, before_word="spring.")
    client = start_with_stub_model(output, adapter, between=pause.before_event).openai_client

    words: list[str] = []
    for word in words_of(ask(client, model=model)):
        words.append(word)
        pause.end()

    assert pause.ended_in_time is True
    assert words[0] == "To"
    assert "".join(words) == "To Lisbon & Porto, she said, and then to Faro in spring."


@BOTH_MODELS
def test_a_stream_begins_after_the_question_is_stored(
    start_with_stub_model: StartWithStubModel, store: Store, model: str
) -> None:
    client = start_with_stub_model(model_output(model, "To Lisbon.")).openai_client

    words = words_of(ask(client, "Where did I move?", model=model))
    next(words)

    assert "user: Where did I move?" in turns_of_ada(store)
    words.close()


@BOTH_MODELS
def test_a_stream_says_that_the_answer_has_ended_after_the_answer_is_stored(
    start_with_stub_model: StartWithStubModel, store: Store, model: str
) -> None:
    """A client that reads `finish_reason` may leave at once, and the answer is not lost."""
    client = start_with_stub_model(model_output(model, "To Lisbon.")).openai_client

    with ask(client, "Where did I move?", model=model) as stream:
        for chunk in stream:
            if chunk.choices[0].finish_reason:
                break

        assert turns_of_ada(store) == ["user: Where did I move?", "assistant: To Lisbon."]


@BOTH_MODELS
def test_the_last_chunk_of_a_stream_has_its_usage_and_the_one_before_its_session(
    start_with_stub_model: StartWithStubModel, model: str
) -> None:
    """With `include_usage` a client asks for the numbers of tokens."""
    client = start_with_stub_model(model_output(model, "To Lisbon, in spring.")).openai_client

    with ask(client, model=model, stream_options={"include_usage": True}) as stream:
        *_, chunk_with_finish, last_chunk = stream

    assert chunk_with_finish.choices[0].finish_reason == "stop"
    assert chunk_with_finish.mempiler["session"]
    assert last_chunk.usage.completion_tokens > 0
    assert last_chunk.id == chunk_with_finish.id


def test_of_an_answer_that_follows_a_schema_only_the_answer_is_streamed(
    start_with_stub_model: StartWithStubModel, store: Store
) -> None:
    """The schema has the fields `reasoning` and `answer`."""
    output = json.dumps({"reasoning": "She said so.", "answer": "To Lisbon, in spring.\n"})
    _, client, model_server = start_with_stub_model(
        output, adapter="auto", task="personal-response"
    )

    words = read_words(ask(client, "Where did I move?"))

    assert len(words) > 1
    assert "".join(words) == "To Lisbon, in spring.\n"
    assert turns_of_ada(store)[-1] == "assistant: To Lisbon, in spring.\n"
    assert "response_format" in only_request_body(model_server)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        pytest.param("500", 502, id="the model fails"),
        pytest.param("400", 422, id="the model refuses the request"),
        pytest.param("dead", 502, id="the model is gone"),
    ],
)
def test_a_model_that_fails_before_its_first_word_gives_a_stream_the_status_of_an_error(
    start_with_stub_model: StartWithStubModel, store: Store, fault: str, status: int
) -> None:
    """Once a stream has begun, its status is 200 for good. So it begins with the first word."""
    client = start_with_stub_model(script=every(fault)).openai_client

    with pytest.raises(openai.APIStatusError) as raised:
        ask(client, "Where did I move?")

    assert raised.value.status_code == status
    assert turns_of_ada(store) == ["user: Where did I move?"]


def test_a_stream_that_breaks_off_before_its_first_word_gets_the_status_of_an_error(
    start_with_stub_model: StartWithStubModel, store: Store
) -> None:
    """The model sends the marker that begins an answer, no word of it, and not `[DONE]`."""
    marker_without_answer = broken_stream(["[[ ## answer ## ]]\n"])
    client = start_with_stub_model(marker_without_answer).openai_client

    with pytest.raises(openai.APIStatusError) as raised:
        ask(client, "Where did I move?")

    assert raised.value.status_code == 502
    assert turns_of_ada(store) == ["user: Where did I move?"]


def test_a_stream_that_takes_too_long_ends_in_an_error_and_its_answer_is_not_stored(
    start_with_stub_model: StartWithStubModel, store: Store
) -> None:
    """A chat has a second (`timeout`). Before its last word, the model pauses for longer."""
    output = in_chat_format("To Lisbon, in spring.")
    pause = StreamPause(output, before_word="spring.")
    api, client, _ = start_with_stub_model(output, between=pause.before_event, timeout=1.0)

    with pytest.raises(openai.APIError, match="request can be repeated"):
        read_words(ask(client, "Where did I move?"))

    pause.end()
    assert within(20, lambda: api.requests_in_progress() == 0)
    assert turns_of_ada(store) == ["user: Where did I move?"]


@BOTH_MODELS
@STREAMED_OR_NOT
def test_a_chat_that_waits_for_its_model_holds_no_thread(
    start_with_stub_model: StartWithStubModel, model: str, stream: bool
) -> None:
    """Only one thread is free. The model answers when two chats wait for it at the same time."""
    both_are_asked = threading.Barrier(2, timeout=10)

    def answer_when_both_are_asked(body: dict[str, Any]) -> str:
        both_are_asked.wait()
        return model_output(model, "To Lisbon.")

    client = start_with_stub_model(answer_when_both_are_asked).openai_client
    with all_threads_but_one_busy(), ThreadPoolExecutor(2) as clients:
        chat_of_ada = clients.submit(ask, client, model=model, user="ada", stream=stream)
        chat_of_bob = clients.submit(ask, client, model=model, user="bob", stream=stream)

        assert read_answer(chat_of_ada.result()) == "To Lisbon."
        assert read_answer(chat_of_bob.result()) == "To Lisbon."


REPEATED = {"x-stainless-retry-count": "1"}
"""The header by which OpenAI's client marks a request that it sends again."""


@BOTH_MODELS
def test_a_repeated_request_gets_the_stored_answer_and_the_model_is_not_asked_again(
    start_with_stub_model: StartWithStubModel, store: Store, model: str
) -> None:
    """A client repeats a request whose answer did not reach it."""
    _, client, model_server = start_with_stub_model(model_output(model, "To Lisbon."))
    read_words(ask(client, "Where did I move?", model=model))

    repeated_stream = ask(client, "Where did I move?", model=model, extra_headers=REPEATED)

    assert read_words(repeated_stream) == ["To", " Lisbon."]
    assert len(model_server.requests) == 1
    assert turns_of_ada(store) == ["user: Where did I move?", "assistant: To Lisbon."]


@BOTH_MODELS
def test_a_streamed_chat_counts_as_one_call_with_its_tokens(
    start_with_stub_model: StartWithStubModel, model: str
) -> None:
    api, client, _ = start_with_stub_model(model_output(model, "To Lisbon."))

    read_words(ask(client, model=model, stream_options={"include_usage": True}))

    meter = api.service.lm.meter
    # A call is counted when its stream ends, perhaps after its last word was sent.
    assert within(20, lambda: meter.read().output_tokens > 0)
    usage = meter.read()
    assert usage.calls["task"] == 1
    assert usage.failed == 0
    assert usage.input_tokens > 0


@pytest.mark.parametrize(
    ("model", "texts"),
    [
        pytest.param(PROGRAM, ["[[ ## answer ## ]]\n", "To Lisbon", " and"], id="program"),
        pytest.param(LANGUAGE_MODEL, ["To Lisbon", " and"], id="language-model"),
    ],
)
def test_a_stream_that_breaks_off_ends_in_an_error_and_stores_no_half_of_an_answer(
    start_with_stub_model: StartWithStubModel, store: Store, model: str, texts: list[str]
) -> None:
    """The model sends "To Lisbon and", and not the `[DONE]` that ends a stream."""
    client = start_with_stub_model(broken_stream(texts)).openai_client

    with pytest.raises(openai.APIError, match="does not answer"):
        read_words(ask(client, "Where did I move?", model=model))

    assert turns_of_ada(store) == ["user: Where did I move?"]


@BOTH_MODELS
def test_a_request_ends_when_its_client_leaves_the_stream_and_no_answer_is_stored(
    start_with_stub_model: StartWithStubModel, store: Store, model: str
) -> None:
    """The client leaves after the first chunk, while the model pauses before its last word."""
    output = model_output(model, "To Lisbon, in spring.")
    pause = StreamPause(output, before_word="spring.")
    api, client, _ = start_with_stub_model(output, between=pause.before_event)

    with ask(client, "Where did I move?", model=model) as stream:
        next(iter(stream))

    assert within(20, lambda: api.requests_in_progress() == 0)
    pause.end()
    assert turns_of_ada(store) == ["user: Where did I move?"]
