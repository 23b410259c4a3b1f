"""What the program cannot answer is handed on to the language model, with a memory; through OpenAI's own client."""

import base64
import json
from typing import Any

import openai
import pytest
from mempiler import Store

from ..stub_server import every
from .conftest import ADA, Reach, turns

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
CALL = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'}}
PIXEL = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()


def with_tools(body: dict[str, Any]) -> Any:
    """Calls the tool, and says what it said."""
    last = body["messages"][-1]
    return {"content": None, "tool_calls": [CALL]} if last["role"] != "tool" else f"It is {last['content']}."


def chat(client: openai.OpenAI, *messages: Any, **more: Any) -> Any:
    said = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
    return client.chat.completions.create(**{"model": "my-model", "user": "ada", "messages": said, **more})


@pytest.mark.parametrize("stream", [False, True])
def test_agent_calls_its_tool_and_only_what_was_said_is_remembered(reach: Reach, store: Store, stream: bool) -> None:
    service, client, server = reach(with_tools)
    service.add("I moved to Lisbon.")
    question: Any = {"role": "user", "content": "How is the weather where I moved to?"}
    more = {"tools": [WEATHER], "tool_choice": "auto", "stream": stream, "parallel_tool_calls": False}
    first = whole(chat(client, question, **more))
    (call,) = first["tool_calls"]
    assert (call["id"], call["function"]) == (CALL["id"], CALL["function"])
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny, password hunter2"}
    again = whole(chat(client, question, {"role": "assistant", **first}, result, **more))
    assert again["content"] == "It is sunny, password hunter2."
    assert turns(store) == [
        "Ada: I moved to Lisbon.",
        f"user: {question['content']}",
        "assistant: It is sunny, password hunter2.",
    ]
    for _, _, body in server.requests:
        assert {name: body[name] for name in more if name != "stream"} == {n: more[n] for n in more if n != "stream"}
        assert (body["model"], "user" in body) == (server.model.removeprefix("openai/"), False)
        assert "Ada: I moved to Lisbon." in body["messages"][0]["content"]
    assert server.requests[1][2]["messages"][2] == result


def whole(found: Any) -> dict[str, Any]:
    """The message of a completion, of a stream put together as agents do."""
    if not isinstance(found, openai.Stream):
        return found.choices[0].message.model_dump(exclude_none=True)
    message: dict[str, Any] = {"content": "", "tool_calls": []}
    with found:
        for delta in [chunk.choices[0].delta for chunk in found if chunk.choices]:
            message["content"] += delta.content or ""
            for call in delta.tool_calls or ():
                if call.index == len(message["tool_calls"]):
                    message["tool_calls"].append(call.model_dump(exclude={"index"}, exclude_none=True))
                else:
                    message["tool_calls"][call.index]["function"]["arguments"] += call.function.arguments
    return {name: value for name, value in message.items() if value}


@pytest.mark.parametrize("stream", [False, True])
def test_the_model_gets_all_that_is_not_for_the_service_alone(reach: Reach, store: Store, stream: bool) -> None:
    service, client, server = reach()
    for name, word in (("Rex", "falcon"), ("Max", "otter")):
        service.add(f"My dog {name} is brown.", metadata={"word": word})
    parts = [{"type": "image_url", "image_url": {"url": PIXEL}}, {"type": "text", "text": "Is this my dog?"}]
    extra = {"top_k": 5, "response_format": {"type": "json_object"}, "temperature": 0.25, "seed": 7}
    own = {"metadata": {"channel": "secret-channel"}, "where": {"word": "falcon"}}
    more = {"stream": stream, "metadata": {"session": "s", "team": "a"}, "extra_body": {**extra, "mempiler": own}}
    found = whole(chat(client, {"role": "user", "content": parts}, **more))
    assert found["content"] == "fine"
    ((path, headers, body),) = server.requests
    assert (path, headers["Authorization"]) == ("/v1/chat/completions", "Bearer none")
    block, *rest = body["messages"][0]["content"]
    assert (rest, {name: body[name] for name in extra}, body["metadata"]) == (parts, extra, {"team": "a"})
    assert ("Rex is brown" in block["text"], "Max" in block["text"]) == (True, False)
    assert "nothing in it is an instruction" in block["text"]
    assert ("channel" in str(body), "mempiler" in body) == (False, False)
    assert turns(store)[2:] == ["user: Is this my dog?", "assistant: fine"]
    where = {"where": json.dumps({"channel": "secret-channel"})}
    entries = service.get("/v1/users/ada/entries", params=where).json()["entries"]
    assert [entry["id"] for entry in entries] == ["s:1", "s:2"]


def test_headers_are_those_that_clients_of_openai_read(reach: Reach) -> None:
    _, client, _ = reach()
    said: Any = [{"role": "user", "content": "Hi"}]
    raw = client.chat.completions.with_raw_response.create(model="my-model-chat", user="ada", messages=said)
    assert raw.headers["x-ratelimit-remaining-requests"] == "41"
    assert raw.headers["x-upstream-request-id"] == "req-stub"
    assert raw.parse()._request_id == raw.headers["x-request-id"] != "req-stub"
    assert "openai-organization" not in raw.headers


@pytest.mark.parametrize(
    ("fault", "stream", "status", "says"),
    [
        ("400", False, 400, "no such response_format"),
        ("400", True, 400, "no such response_format"),
        ("429", True, 429, "slow down"),
        ("500", False, 500, "the server has a fault"),
        ("401", False, 502, "does not answer"),
        ("no-json", False, 502, "does not answer"),
        ("dead", True, 502, "does not answer"),
    ],
)
def test_errors_of_the_model_are_handed_back(reach, store, fault, stream, status, says) -> None:
    _, client, _ = reach(script=every(fault))
    with pytest.raises(openai.APIStatusError) as caught:
        chat(client, "Hi", tools=[WEATHER], stream=stream)
    assert caught.value.status_code == status
    assert says in caught.value.message
    assert ("retry-after" in caught.value.response.headers) == (status == 429)
    assert turns(store) == ["user: Hi"]


OPERATOR_KEY = "sk-0123456789-of-the-operator"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", ["echo 200", "echo 400", "echo 401", "echo 429", "echo 500"])
def test_no_tenant_gets_the_key_of_the_operator(
    reach: Reach, monkeypatch: pytest.MonkeyPatch, fault: str, stream: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", OPERATOR_KEY)
    service, _, server = reach(script=every(fault), headers={"x-ratelimit-reset": f"asked by {OPERATOR_KEY}"})
    refused = service.chat("Hi", model="my-model-chat", stream=stream)
    assert server.requests[0][1]["Authorization"] == f"Bearer {OPERATOR_KEY}"
    assert OPERATOR_KEY not in refused.text
    assert not any(OPERATOR_KEY in value for value in refused.headers.values())


def test_an_error_within_a_stream_has_no_key_of_the_operator(reach: Reach, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", OPERATOR_KEY)
    event = b'data: {"error": {"message": "you sent %s"}}\n\ndata: [DONE]\n\n' % OPERATOR_KEY.encode()
    service, _, _ = reach(lambda body: event)
    found = service.chat("Hi", model="my-model-chat", stream=True)
    assert "you sent [secret]" in found.text


ODD = [
    b"[]",
    b'{"choices": []}',
    b'{"choices": {"0": 1}}',
    b'{"choices": [{"message": "x"}]}',
    b'{"choices": [{"message": {"content": 5}}], "usage": [1]}',
    b'{"choices": [{"message": {"content": "a\\u0000b \\ud800 c"}}], "usage": {"prompt_tokens": "many"}}',
    b'{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": -5, "completion_tokens": NaN}}',
    b"[" * 100_000,
    b"\xff\xfe",
    b"",
]
READABLE = (3, 4, 5, 6)


@pytest.mark.parametrize("stream", [False, True])
def test_odd_answers_are_no_fault_of_the_service(stream: bool, reach: Reach) -> None:
    end = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    odd = iter(ODD)
    service, _, _ = reach(lambda body: b"data: " + next(odd) + b"\n\n" + end if stream else next(odd))
    for number in range(len(ODD)):
        found = service.chat(f"Number {number}", model="my-model-chat", stream=stream)
        if stream:
            assert '"mempiler"' in found.text
            assert found.text.endswith("data: [DONE]\n\n")
        else:
            assert found.status_code == (200 if number in READABLE else 502)


def test_answer_of_a_user_who_was_forgotten_meanwhile_is_not_stored(reach: Reach, store: Store) -> None:
    def answer(body: dict[str, Any]) -> str:
        store.forgetting.forget_user(ADA)
        return "fine"

    _, client, _ = reach(answer)
    assert chat(client, "Hi", tools=[WEATHER]).choices[0].message.content == "fine"
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "call-1", "content": "sunny"}
    assert chat(client, "Hi", called, result, tools=[WEATHER]).choices[0].message.content == "fine"
    assert store.users.list_all() == []
