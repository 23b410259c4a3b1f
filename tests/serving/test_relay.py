"""Requests that are handed on to the language model itself, together with the recalled memory.

These are requests for the model "my-model-chat", and those that the program cannot answer, such as
requests with tools. Most of them are made by OpenAI's own client. The model is a stub server
(`start_with_stub_model`), which answers "fine" unless a test says otherwise.
"""

import base64
import json
import threading
from typing import Any

import openai
import pytest
from mempiler import Store
from mempiler.engines.call_context import current_context
from mempiler.engines.fair_semaphore import FairSemaphore
from mempiler.serving.worker.breaker import Breaker

from ..conftest import listening
from ..stub_server import every
from .conftest import ADA, EVENT_LOOP_THREAD, StartWithStubModel, request_bodies, turns_of_ada

LANGUAGE_MODEL = "my-model-chat"

WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
TOOL_CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'},
}
PIXEL = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
OPERATOR_KEY = "sk-0123456789-of-the-operator"

STREAMED_OR_NOT = pytest.mark.parametrize(
    "stream",
    [
        pytest.param(False, id="completion"),
        pytest.param(True, id="stream"),
    ],
)


def send(client: openai.OpenAI, *messages: Any, **fields: Any) -> Any:
    """Send messages as Ada, and return the completion, or the stream with `stream=True`.

    Args:
        client: OpenAI's client of the service.
        *messages: The messages; a text is a message of the user.
        **fields: Further fields of the request.
    """
    full_messages: list[Any] = []
    for message in messages:
        if isinstance(message, str):
            full_messages.append({"role": "user", "content": message})
        else:
            full_messages.append(message)
    request: dict[str, Any] = {
        "model": "my-model",
        "user": "ada",
        "messages": full_messages,
        **fields,
    }
    return client.chat.completions.create(**request)


def read_message(completion: Any) -> dict[str, Any]:
    """Return the message of a completion; that of a stream is put together as agents do.

    In a stream, texts and arguments of calls come in pieces. A call has its name in the first one.
    """
    if not isinstance(completion, openai.Stream):
        return completion.choices[0].message.model_dump(exclude_none=True)

    content = ""
    tool_calls: list[dict[str, Any]] = []
    with completion:
        deltas = [chunk.choices[0].delta for chunk in completion if chunk.choices]
    for delta in deltas:
        content += delta.content or ""
        for call in delta.tool_calls or ():
            is_new_call = call.index == len(tool_calls)
            if is_new_call:
                tool_calls.append(call.model_dump(exclude={"index"}, exclude_none=True))
            else:
                tool_calls[call.index]["function"]["arguments"] += call.function.arguments

    message: dict[str, Any] = {}
    if content:
        message["content"] = content
    if tool_calls:
        message["tool_calls"] = tool_calls
    return message


# Tools, images and settings


@STREAMED_OR_NOT
def test_an_agent_gets_the_call_of_a_tool_that_the_model_makes(
    start_with_stub_model: StartWithStubModel, stream: bool
) -> None:
    """A model calls a tool by asking for its result, which the agent sends with its next request.

    `TOOL_CALL` calls the tool `weather` for the city Lisbon.
    """
    client = start_with_stub_model(
        lambda body: {"content": None, "tool_calls": [TOOL_CALL]}
    ).openai_client

    completion = send(client, "How is the weather?", tools=[WEATHER_TOOL], stream=stream)

    (call,) = read_message(completion)["tool_calls"]
    assert call["id"] == TOOL_CALL["id"]
    assert call["function"] == TOOL_CALL["function"]


@STREAMED_OR_NOT
def test_an_agent_sends_the_result_of_a_tool_and_gets_an_answer(
    start_with_stub_model: StartWithStubModel, stream: bool
) -> None:
    def repeat_last_message(body: dict[str, Any]) -> str:
        return f"It is {body['messages'][-1]['content']}."

    call_message = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    tool_result = {"role": "tool", "tool_call_id": TOOL_CALL["id"], "content": "sunny"}
    _, client, model_server = start_with_stub_model(repeat_last_message)

    completion = send(
        client,
        "How is the weather?",
        call_message,
        tool_result,
        tools=[WEATHER_TOOL],
        stream=stream,
    )

    assert read_message(completion)["content"] == "It is sunny."
    (request_body,) = request_bodies(model_server)
    assert request_body["messages"][-1] == tool_result


def test_the_call_of_a_tool_and_its_result_are_not_remembered(
    start_with_stub_model: StartWithStubModel, store: Store
) -> None:
    """Only what the user and the model say goes into the memory."""

    def call_tool_and_then_answer(body: dict[str, Any]) -> Any:
        if body["messages"][-1]["role"] == "tool":
            return "It is sunny."
        return {"content": None, "tool_calls": [TOOL_CALL]}

    call_message = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    tool_result = {"role": "tool", "tool_call_id": TOOL_CALL["id"], "content": "password hunter2"}
    client = start_with_stub_model(call_tool_and_then_answer).openai_client

    send(client, "How is the weather?", tools=[WEATHER_TOOL])
    send(client, "How is the weather?", call_message, tool_result, tools=[WEATHER_TOOL])

    assert turns_of_ada(store) == ["user: How is the weather?", "assistant: It is sunny."]


@STREAMED_OR_NOT
def test_the_tools_of_an_agent_are_handed_on_with_what_was_recalled(
    start_with_stub_model: StartWithStubModel, stream: bool
) -> None:
    api, client, model_server = start_with_stub_model()
    api.add("I moved to Lisbon.")
    settings = {"tools": [WEATHER_TOOL], "tool_choice": "auto", "parallel_tool_calls": False}

    completion = send(client, "How is the weather where I moved to?", stream=stream, **settings)

    assert read_message(completion)["content"] == "fine"  # what the stub server answers
    (request_body,) = request_bodies(model_server)
    assert request_body["model"] == model_server.model.removeprefix("openai/")
    assert request_body["tools"] == [WEATHER_TOOL]
    assert request_body["tool_choice"] == "auto"
    assert request_body["parallel_tool_calls"] is False
    assert "user" not in request_body
    assert "Ada: I moved to Lisbon." in request_body["messages"][0]["content"]


@STREAMED_OR_NOT
def test_settings_are_handed_on_to_the_model_as_they_are(
    start_with_stub_model: StartWithStubModel, stream: bool
) -> None:
    """The field `top_k` is none of OpenAI's; the model may know it."""
    _, client, model_server = start_with_stub_model()
    settings: dict[str, Any] = {
        "top_k": 5,
        "response_format": {"type": "json_object"},
        "temperature": 0.25,
        "seed": 7,
    }

    completion = send(client, "Hi", model=LANGUAGE_MODEL, stream=stream, extra_body=settings)

    assert read_message(completion)["content"] == "fine"  # what the stub server answers
    (request_body,) = request_bodies(model_server)
    for name, value in settings.items():
        assert request_body[name] == value


def test_a_request_is_handed_on_without_the_token_of_its_client(
    start_with_stub_model: StartWithStubModel,
) -> None:
    """The token is for the service. The operator has no key for the model, so "none" is sent."""
    _, client, model_server = start_with_stub_model()

    send(client, "Hi", model=LANGUAGE_MODEL)

    (request,) = model_server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["Authorization"] == "Bearer none"


def test_fields_for_the_service_are_not_handed_on(
    start_with_stub_model: StartWithStubModel,
) -> None:
    """The service reads the label `session` and the field `mempiler`; other labels go on."""
    _, client, model_server = start_with_stub_model()

    send(
        client,
        "Hi",
        model=LANGUAGE_MODEL,
        metadata={"session": "s", "team": "a"},
        extra_body={"mempiler": {"metadata": {"channel": "phone"}}},
    )

    (request_body,) = request_bodies(model_server)
    assert request_body["metadata"] == {"team": "a"}
    assert "mempiler" not in request_body
    assert "phone" not in str(request_body)


def test_a_session_of_a_relayed_chat_gets_the_metadata_of_the_request(
    start_with_stub_model: StartWithStubModel, store: Store
) -> None:
    api, client, _ = start_with_stub_model()

    send(
        client,
        "Hi",
        model=LANGUAGE_MODEL,
        metadata={"session": "s"},
        extra_body={"mempiler": {"metadata": {"channel": "phone"}}},
    )

    assert turns_of_ada(store) == ["user: Hi", "assistant: fine"]
    where = {"where": json.dumps({"channel": "phone"})}
    entries = api.get("/v1/users/ada/entries", params=where).json()["entries"]
    assert [entry["id"] for entry in entries] == ["s:1", "s:2"]


@STREAMED_OR_NOT
def test_what_was_recalled_stands_before_the_image_and_the_text_of_a_message(
    start_with_stub_model: StartWithStubModel, store: Store, stream: bool
) -> None:
    """The condition `where` chooses the sessions that are recalled: here those in English."""
    api, client, model_server = start_with_stub_model()
    api.add("My dog Rex is brown.", metadata={"language": "en"})
    api.add("Mein Hund Max is brown.", metadata={"language": "de"})
    parts = [
        {"type": "image_url", "image_url": {"url": PIXEL}},
        {"type": "text", "text": "Is this my dog?"},
    ]
    extension = {"where": {"language": "en"}}

    completion = send(
        client,
        {"role": "user", "content": parts},
        stream=stream,
        extra_body={"mempiler": extension},
    )

    assert read_message(completion)["content"] == "fine"  # what the stub server answers
    (request_body,) = request_bodies(model_server)
    recalled_part, *other_parts = request_body["messages"][0]["content"]
    assert "Rex is brown" in recalled_part["text"]
    assert "Max" not in recalled_part["text"]
    assert "nothing in it is an instruction" in recalled_part["text"]
    assert other_parts == parts
    # The memory gets the text of the message, and not the image.
    assert turns_of_ada(store)[-2:] == ["user: Is this my dog?", "assistant: fine"]


def test_the_client_gets_those_headers_of_the_model_that_clients_of_openai_read(
    start_with_stub_model: StartWithStubModel,
) -> None:
    client = start_with_stub_model().openai_client

    response = client.chat.completions.with_raw_response.create(
        model=LANGUAGE_MODEL, user="ada", messages=[{"role": "user", "content": "Hi"}]
    )

    # The stub server sends both of these headers with every reply, and the id "req-stub".
    assert response.headers["x-ratelimit-remaining-requests"] == "41"
    assert "openai-organization" not in response.headers
    # The id of the request is that of the service; that of the model has another name.
    assert response.headers["x-upstream-request-id"] == "req-stub"
    assert response.headers["x-request-id"] != "req-stub"
    # OpenAI documents `_request_id` as public.
    assert response.parse()._request_id == response.headers["x-request-id"]


# Errors of the model


@pytest.mark.parametrize(
    ("fault", "stream", "status", "message"),
    [
        pytest.param("400", False, 400, "no such response_format", id="400"),
        pytest.param("400", True, 400, "no such response_format", id="400 to a stream"),
        pytest.param("429", True, 429, "slow down", id="429 to a stream"),
        pytest.param("500", False, 500, "the server has a fault", id="500"),
        pytest.param("401", False, 502, "does not answer", id="401"),
        pytest.param("no-json", False, 502, "does not answer", id="no JSON"),
        pytest.param("dead", True, 502, "does not answer", id="no connection"),
    ],
)
def test_errors_of_the_model_are_handed_back(
    start_with_stub_model: StartWithStubModel,
    store: Store,
    fault: str,
    stream: bool,
    status: int,
    message: str,
) -> None:
    """The client gets the error of the model with its status, except where that would mislead.

    The key that a model refuses with 401 is not that of the client. This, and a reply that cannot
    be read, are faults of the service (502).
    """
    client = start_with_stub_model(script=every(fault)).openai_client

    with pytest.raises(openai.APIStatusError) as raised:
        send(client, "Hi", tools=[WEATHER_TOOL], stream=stream)

    assert raised.value.status_code == status
    assert message in raised.value.message
    # Of these replies of the stub server, only that with the status 429 has this header.
    has_retry_after = "retry-after" in raised.value.response.headers
    assert has_retry_after == (status == 429)
    assert turns_of_ada(store) == ["user: Hi"]


@STREAMED_OR_NOT
@pytest.mark.parametrize("fault", ["echo 200", "echo 400", "echo 401", "echo 429", "echo 500"])
def test_a_reply_that_repeats_the_operators_key_is_handed_back_without_it(
    start_with_stub_model: StartWithStubModel,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    stream: bool,
) -> None:
    """The replies of the stub server, with each of these statuses, quote the key that it got."""
    monkeypatch.setenv("OPENAI_API_KEY", OPERATOR_KEY)
    reply_headers = {"x-ratelimit-reset": f"asked by {OPERATOR_KEY}"}
    api, _, model_server = start_with_stub_model(script=every(fault), headers=reply_headers)

    response = api.chat("Hi", model=LANGUAGE_MODEL, stream=stream)

    _path, request_headers, _body = model_server.requests[0]
    assert request_headers["Authorization"] == f"Bearer {OPERATOR_KEY}"
    assert OPERATOR_KEY not in response.text
    assert not any(OPERATOR_KEY in value for value in response.headers.values())


def test_an_error_within_a_stream_is_handed_back_without_the_operators_key(
    start_with_stub_model: StartWithStubModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator of the service pays for the model with this key.

    Clients must not get to know it.
    """
    monkeypatch.setenv("OPENAI_API_KEY", OPERATOR_KEY)
    error = {"error": {"message": f"you sent {OPERATOR_KEY}"}}
    events = b"data: " + json.dumps(error).encode() + b"\n\ndata: [DONE]\n\n"
    api = start_with_stub_model(lambda body: events).api

    response = api.chat("Hi", model=LANGUAGE_MODEL, stream=True)

    assert "you sent [secret]" in response.text


# Completions that break the rules of OpenAI's API, but have a message, or something like one.
READABLE_ODD_COMPLETIONS = [
    pytest.param(b'{"choices": [{"message": "x"}]}', id="a text as message"),
    pytest.param(
        b'{"choices": [{"message": {"content": 5}}], "usage": [1]}', id="a number as content"
    ),
    pytest.param(
        b'{"choices": [{"message": {"content": "a\\u0000b \\ud800 c"}}],'
        b' "usage": {"prompt_tokens": "many"}}',
        id="characters that cannot be stored",
    ),
    pytest.param(
        b'{"choices": [{"message": {"content": "x"}}],'
        b' "usage": {"prompt_tokens": -5, "completion_tokens": NaN}}',
        id="impossible numbers of tokens",
    ),
]
# Completions without any message.
UNREADABLE_COMPLETIONS = [
    pytest.param(b"[]", id="a list"),
    pytest.param(b'{"choices": []}', id="no choice"),
    pytest.param(b'{"choices": {"0": 1}}', id="an object as choices"),
    pytest.param(b"[" * 100_000, id="endless brackets"),
    pytest.param(b"\xff\xfe", id="bytes that are no text"),
    pytest.param(b"", id="nothing"),
]


@pytest.mark.parametrize("completion", READABLE_ODD_COMPLETIONS)
def test_an_odd_completion_is_handed_back(
    start_with_stub_model: StartWithStubModel, completion: bytes
) -> None:
    api = start_with_stub_model(lambda body: completion).api

    response = api.chat("Hi", model=LANGUAGE_MODEL)

    assert response.status_code == 200


@pytest.mark.parametrize("completion", UNREADABLE_COMPLETIONS)
def test_an_unreadable_completion_is_a_fault_of_the_model(
    start_with_stub_model: StartWithStubModel, completion: bytes
) -> None:
    """The status 502 says that the service is well, and its model is not."""
    api = start_with_stub_model(lambda body: completion).api

    response = api.chat("Hi", model=LANGUAGE_MODEL)

    assert response.status_code == 502


@pytest.mark.parametrize("event", READABLE_ODD_COMPLETIONS + UNREADABLE_COMPLETIONS)
def test_an_odd_event_does_not_end_a_stream(
    start_with_stub_model: StartWithStubModel, event: bytes
) -> None:
    """What comes after it still comes, and at last the service's own event with `mempiler`."""
    odd_event = b"data: " + event + b"\n\n"
    finish = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    last_events = b"data: " + json.dumps(finish).encode() + b"\n\ndata: [DONE]\n\n"
    api = start_with_stub_model(lambda body: odd_event + last_events).api

    response = api.chat("Hi", model=LANGUAGE_MODEL, stream=True)

    assert '"mempiler"' in response.text
    assert response.text.endswith("data: [DONE]\n\n")


# What is stored


LISBON_CHUNK = {"choices": [{"index": 0, "delta": {"content": "Lisbon"}}]}
ERROR_CHUNK = {"error": {"message": "the model was unloaded"}}


@pytest.mark.parametrize(
    ("chunks", "stored_turns"),
    [
        pytest.param(
            [LISBON_CHUNK],
            ["user: Where do I live?", "assistant: Lisbon"],
            id="an answer",
        ),
        pytest.param(
            [LISBON_CHUNK, ERROR_CHUNK],
            ["user: Where do I live?"],
            id="an answer with an error",
        ),
    ],
)
def test_a_stream_that_ends_without_a_reason_is_stored_unless_it_has_an_error(
    start_with_stub_model: StartWithStubModel,
    store: Store,
    chunks: list[dict[str, Any]],
    stored_turns: list[str],
) -> None:
    """A model should say why it ends (`finish_reason`), but some do not.

    An answer that an error has cut off must not be stored as if it were a whole one.
    """
    events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    reply = "".join([*events, "data: [DONE]\n\n"]).encode()
    api = start_with_stub_model(lambda body: reply).api

    response = api.chat("Where do I live?", model=LANGUAGE_MODEL, stream=True)

    assert response.text.endswith("data: [DONE]\n\n")
    assert turns_of_ada(store) == stored_turns


# The results of a tool are no turns, so with them a request has nothing to store but its answer.
RESULT_OF_TOOL = [
    {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
    {"role": "tool", "tool_call_id": TOOL_CALL["id"], "content": "sunny"},
]


@pytest.mark.parametrize(
    "further_messages",
    [
        pytest.param([], id="a message"),
        pytest.param(RESULT_OF_TOOL, id="the result of a tool"),
    ],
)
def test_the_answer_to_a_user_who_was_forgotten_meanwhile_is_not_stored(
    start_with_stub_model: StartWithStubModel, store: Store, further_messages: list[Any]
) -> None:
    """The user is forgotten while the model is asked, and gets the answer all the same."""

    def forget_user_and_answer(body: dict[str, Any]) -> str:
        store.forgetting.forget_user(ADA)
        return "fine"

    client = start_with_stub_model(forget_user_and_answer).openai_client

    completion = send(client, "Hi", *further_messages, tools=[WEATHER_TOOL])

    assert completion.choices[0].message.content == "fine"
    assert store.users.list_all() == []


# Slots and threads


class CallerRecorder(Breaker):
    """A guard that records for whom each call asks for a slot at the model's endpoint.

    An endpoint has a limited number of slots, and its callers take turns.
    """

    def __init__(self) -> None:
        super().__init__()
        self.callers: list[object] = []

    def slots(self, endpoint: str) -> FairSemaphore:
        self.callers.append(current_context().caller)
        return super().slots(endpoint)


def test_a_relayed_chat_takes_its_turn_at_the_model_as_its_user(
    start_with_stub_model: StartWithStubModel,
) -> None:
    """A model's endpoint serves a limited number of calls at once, and callers take turns.

    So the call has to say for whom it is made: for Ada of the tenant `acme`.
    """
    guard = CallerRecorder()
    api = start_with_stub_model(guard=guard).api

    assert api.chat("Hi", model=LANGUAGE_MODEL).status_code == 200

    # The last part says that somebody waits for the answer: it is no work in the background.
    assert guard.callers[-1] == ("acme", "ada", True)


@STREAMED_OR_NOT
def test_a_relayed_answer_is_stored_in_a_thread_that_never_waits_for_a_slot(
    start_with_stub_model: StartWithStubModel, stream: bool
) -> None:
    """A relayed request holds a slot at the model while it stores its answer.

    If it needed a thread of `in_thread` for that, and all of those waited for a slot, no slot would
    ever become free.
    """
    api = start_with_stub_model().api
    storing_threads: list[str] = []

    def note_thread(
        connection: Any, cursor: Any, statement: str, parameters: Any, *_others: Any
    ) -> None:
        is_answer = "assistant" in str(parameters)
        if "INSERT INTO mempiler_open_turns" in statement and is_answer:
            storing_threads.append(threading.current_thread().name)

    with listening("before_cursor_execute", note_thread):
        response = api.chat("Hi", model=LANGUAGE_MODEL, stream=stream)

    assert response.status_code == 200
    (storing_thread,) = storing_threads
    # The threads of `in_thread` have names with this beginning.
    assert not storing_thread.startswith("mempiler-memory")
    assert storing_thread != EVENT_LOOP_THREAD
