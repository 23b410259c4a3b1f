"""Answers of the program as the model writes them: through OpenAI's client, in every layout, and where they break."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import openai
import pytest
from mempiler import Store, build
from mempiler.engines.models import language_model
from mempiler.memory.stored import Owner
from mempiler.serving.breaker import Breaker

from ..stub_server import StubServer, every

ADA = Owner("ada", "acme")
WORDS = {
    "chat": lambda answer: f"[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]",
    "json": lambda answer: json.dumps({"answer": answer}),
}
Reach = Callable[..., tuple[openai.OpenAI, StubServer, Any]]


@pytest.fixture
def reach(connect: Any) -> Iterator[Reach]:
    """OpenAI's client of a service whose program asks a stub model, the stub, and the service itself."""
    with ExitStack() as stack:

        def started(
            answer: Any, adapter: str = "chat", task: str = "question-answering", lm: Any = None, **more: Any
        ) -> tuple[openai.OpenAI, StubServer, Any]:
            settings = {name: more.pop(name) for name in ("timeout", "threads") if name in more}
            server = stack.enter_context(StubServer(answer=answer, **more))
            options = {"guard": Breaker(), "cache": False, "retries": 0, "deadline": 10, **(lm or {})}
            program = build("turn-rag", task, adapter=adapter)
            client = connect(language_model(server.model, api_base=server.url, **options), program, **settings)
            key = client.headers["Authorization"].removeprefix("Bearer ")
            asking = openai.OpenAI(base_url=f"{client.address}/v1", api_key=key, timeout=20, max_retries=0)
            return stack.enter_context(asking), server, client

        yield started


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


def stored(store: Store) -> list[str]:
    items = [each.item for each in store.items(ADA)]
    return [f"{turn.speaker}: {turn.text}" for item in (*items, *store.read(ADA).open) for turn in item.turns]


@pytest.mark.parametrize("layout", WORDS)
def test_first_word_comes_before_the_model_has_ended(reach: Reach, store: Store, layout: str) -> None:
    heard, begun = threading.Event(), threading.Event()

    def answer(body: dict[str, Any]) -> str:
        return WORDS[layout]("To Lisbon & Porto, she said.")

    def between(n: int) -> None:
        # The words of an answer, and of what stands before it: at least "To" is there by now.
        if n == 8 and not begun.is_set():
            begun.set()
            assert heard.wait(10)

    client, server, _ = reach(answer, layout, between=between)
    said, end, last = [], None, None
    with chat(client, stream_options={"include_usage": True}) as found:
        for chunk in found:
            if chunk.choices and chunk.choices[0].delta.content:
                said.append(chunk.choices[0].delta.content)
                assert stored(store)[0] == "user: Where did I move?"
                heard.set()
            if chunk.choices and chunk.choices[0].finish_reason:
                assert stored(store)[1:] == ["assistant: To Lisbon & Porto, she said."]
                end = chunk
            last = chunk
    assert begun.is_set()
    assert "".join(said) == "To Lisbon & Porto, she said."
    assert len(said) > 3
    assert end is not None
    assert last is not None
    assert end.mempiler["session"]
    assert last.usage.completion_tokens > 0
    assert len({chunk.id for chunk in (end, last)}) == 1
    assert [body["stream"] for _, _, body in server.requests] == [True]


def test_answer_held_to_a_schema_comes_as_it_is_written(reach: Reach, store: Store) -> None:
    held: list[bool] = []

    def answer(body: dict[str, Any]) -> str:
        held.append("response_format" in body)
        properties = body["response_format"]["json_schema"]["schema"]["properties"]
        if "animal" in properties:
            return json.dumps({"animal": "lion", "wild": True})
        return json.dumps({name: f'{name}: "To Lisbon"\n' for name in properties})

    client, server, _ = reach(answer, "auto", "personal-response")
    assert words(chat(client)) == ["answer:", ' "To', ' Lisbon"\n']
    assert held == [True, True]
    assert [bool(body.get("stream")) for _, _, body in server.requests] == [False, True]
    assert stored(store) == ["user: Where did I move?", 'assistant: answer: "To Lisbon"\n']


def test_reasoning_is_not_sent(reach: Reach) -> None:
    text = "[[ ## reasoning ## ]]\nShe moved.\n\n[[ ## answer ## ]]\nTo Lisbon.\n\n[[ ## completed ## ]]"
    client, _, _ = reach(lambda body: text, "chat", "personal-response")
    assert words(chat(client)) == ["To", " Lisbon."]


def test_answer_without_a_layout_comes_when_it_is_whole(reach: Reach, store: Store) -> None:
    client, _, _ = reach(lambda body: "**Answer:** To Lisbon.")
    assert "".join(words(chat(client))) == "To Lisbon."
    assert stored(store)[1:] == ["assistant: To Lisbon."]


def test_repeated_request_gets_what_is_stored(reach: Reach, store: Store) -> None:
    client, server, _ = reach(lambda body: WORDS["chat"]("To Lisbon."))
    for headers in ({}, {"x-stainless-retry-count": "1"}):
        assert words(chat(client, extra_headers=headers)) == ["To", " Lisbon."]
    assert len(server.requests) == 1
    assert stored(store) == ["user: Where did I move?", "assistant: To Lisbon."]


@pytest.mark.parametrize(("second", "goes_on"), [("To Lisbon, in spring.", True), ("To Porto.", False)])
def test_answer_that_is_asked_for_again_goes_on_where_it_says_the_same(
    reach: Reach, store: Store, second: str, goes_on: bool
) -> None:
    client, server, _ = reach(replies(events(["[[ ## answer ## ]]\n", "To", " Lis"], "length"), WORDS["chat"](second)))
    if goes_on:
        assert "".join(words(chat(client))) == second
    else:
        with pytest.raises(openai.APIError, match="became another one"):
            words(chat(client))
    assert len(server.requests) == 2
    assert stored(store) == ["user: Where did I move?", *([f"assistant: {second}"] if goes_on else [])]


def replies(*said: Any) -> Callable[[dict[str, Any]], Any]:
    """An answer for each request, in order."""
    left = iter(said)
    return lambda body: next(left)


def events(texts: Sequence[str], reason: str | None = None) -> bytes:
    """The events of a stream; one that ends too early, without a reason."""
    deltas = [*({"delta": {"content": text}} for text in texts), *([{"finish_reason": reason}] if reason else [])]
    return b"".join(b"data: " + json.dumps({"choices": [delta]}).encode() + b"\n\n" for delta in deltas)


def test_stream_that_breaks_off_ends_in_an_error_and_stores_no_half_of_an_answer(reach: Reach, store: Store) -> None:
    client, _, _ = reach(lambda body: events(["[[ ## answer ## ]]\n", "To Lisbon", " and"]))
    said: list[str] = []
    with pytest.raises(openai.APIError, match="does not answer"), chat(client) as found:
        said += [chunk.choices[0].delta.content for chunk in found]
    assert stored(store) == ["user: Where did I move?"]


@pytest.mark.parametrize(
    ("answer", "script", "status"),
    [
        (lambda body: events(["[[ ## answer ## ]]\n"]), None, 502),
        (lambda body: "fine", every("500"), 502),
        (lambda body: "fine", every("400"), 422),
        (lambda body: "fine", every("dead"), 502),
    ],
)
def test_what_fails_before_the_first_word_is_a_status(
    reach: Reach, store: Store, answer: Any, script: Any, status: int
) -> None:
    client, _, _ = reach(answer, script=script)
    with pytest.raises(openai.APIStatusError) as caught:
        chat(client)
    assert caught.value.status_code == status
    assert stored(store) == ["user: Where did I move?"]


def test_call_that_fails_on_the_way_is_repeated_and_goes_on(reach: Reach, store: Store) -> None:
    fault = b'data: {"error": {"message": "overloaded", "code": "server_error"}}\n\n'
    failed = events(["[[ ## answer ## ]]\n", "To", " Lis"]) + fault
    client, server, _ = reach(replies(failed, WORDS["chat"]("To Lisbon.")), lm={"retries": 1})
    assert words(chat(client)) == ["To", " Lis", "bon."]
    assert len(server.requests) == 2
    assert stored(store)[1:] == ["assistant: To Lisbon."]


def test_late_answer_ends_in_an_error_and_is_not_stored(reach: Reach, store: Store) -> None:
    left = threading.Event()
    client, _, service = reach(
        lambda body: WORDS["chat"]("To Lisbon, in spring."), between=lambda n: n < 8 or left.wait(10), timeout=1.0
    )
    with pytest.raises(openai.APIError, match="request can be repeated"):
        words(chat(client))
    left.set()
    assert idle(service)
    assert stored(store) == ["user: Where did I move?"]


def test_client_that_leaves_a_stream_frees_its_place(reach: Reach, store: Store) -> None:
    left = threading.Event()
    client, _, service = reach(
        lambda body: WORDS["chat"]("To Lisbon, in spring."), between=lambda n: n < 8 or left.wait(10)
    )
    with chat(client) as found:
        next(iter(found))
    assert idle(service)
    left.set()
    assert stored(store) == ["user: Where did I move?"]


def idle(service: Any) -> bool:
    for _ in range(200):
        if not service.service.asking.busy:
            return True
        threading.Event().wait(0.02)
    return False


def test_tenants_and_users_stay_apart(reach: Reach) -> None:
    def answer(body: dict[str, Any]) -> str:
        return WORDS["chat"]("It is falcon." if "falcon" in str(body["messages"]) else "I do not know.")

    client, _, service = reach(answer)
    service.add("My marker is falcon.")
    found = {}
    for tenant, user in (("acme", "ada"), ("acme", "ben"), ("globex", "ada")):
        key = service.as_tenant(tenant).headers["Authorization"].removeprefix("Bearer ")
        asking = client.with_options(api_key=key)
        found[tenant, user] = "".join(words(chat(asking, "What is my marker?", user=user)))
    assert found == {
        ("acme", "ada"): "It is falcon.",
        ("acme", "ben"): "I do not know.",
        ("globex", "ada"): "I do not know.",
    }


def test_request_for_no_stream_asks_for_none(reach: Reach) -> None:
    client, server, _ = reach(lambda body: WORDS["chat"]("To Lisbon."))
    assert chat(client, stream=False).choices[0].message.content == "To Lisbon."
    assert [bool(body.get("stream")) for _, _, body in server.requests] == [False]


def test_calls_and_their_usage_are_counted(reach: Reach) -> None:
    client, _, service = reach(lambda body: WORDS["chat"]("To Lisbon."))
    words(chat(client))
    used = service.service.lm.meter.read()
    assert (used.calls["task"], used.failed, used.input_tokens > 0, used.output_tokens > 0) == (1, 0, True, True)
