"""Keys of models stay secret: in caches, and where an endpoint repeats a request in its errors.

The fixture `ask` runs each test twice: it asks a model by a plain call, and under asyncio.
"""

from collections.abc import Callable
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import LMError
from mempiler import UserError
from mempiler.engines.lm import language_model

from ...stub_server import StubServer, every
from .helpers import http_head, model_at, record_pieces, server_that_sends

KEY = "sk-0123456789-of-the-operator"


def logged_text(error: BaseException) -> str:
    """Return what a log could show of an error and of all the errors that it came from."""
    chain = [error]
    parts: list[str] = []
    for link in chain:  # grows in the loop
        parts.append(repr(link))
        parts.append(str(link))
        parts.append(repr(vars(link)))
        for cause in (link.__cause__, link.__context__):
            if cause is not None and cause not in chain:
                chain.append(cause)
    return "\n".join(parts)


def shows_half_of_key(text: str) -> bool:
    """Tell whether a text shows half of the key or more, at one piece."""
    half = len(KEY) // 2
    starts = range(len(KEY) - half + 1)
    return any(KEY[start : start + half] in text for start in starts)


def server_that_repeats_the_key(status: int) -> StubServer:
    """Return a server that answers with a status; its message repeats the headers of the request.

    So the message has the key, which is in the header `Authorization`.
    """
    return StubServer(every(f"echo {status}"))


STATUSES = [200, 400, 401, 403, 404, 429, 500]


@pytest.mark.parametrize("status", STATUSES)
def test_an_error_hides_the_key_that_the_endpoint_repeats(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The guard of a model keeps an error that ends the run as its `fatal_error`."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with server_that_repeats_the_key(status) as server:
        lm = model_at(server)
        with pytest.raises((LMError, UserError)) as caught:
            ask(lm)

    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert not shows_half_of_key(logged_text(caught.value))
    assert not shows_half_of_key(str(lm.guard.fatal_error))


@pytest.mark.parametrize("status", STATUSES)
def test_an_error_hides_the_key_that_the_endpoint_repeats_if_a_stream_was_asked_for(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Models ask for streams in a block of `record_pieces`."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with server_that_repeats_the_key(status) as server:
        lm = model_at(server)
        with record_pieces(), pytest.raises((LMError, UserError)) as caught:
            ask(lm)

    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert not shows_half_of_key(logged_text(caught.value))
    assert not shows_half_of_key(str(lm.guard.fatal_error))


def test_an_error_within_a_stream_hides_the_key(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    event = f'data: {{"error": {{"message": "you sent {KEY}"}}}}\n\n'.encode()
    with server_that_sends(event) as server:
        with record_pieces(), pytest.raises(LMError, match="you sent") as caught:
            ask(model_at(server))
        assert not shows_half_of_key(logged_text(caught.value))


# With so much text before the key, the end of what an error shows cuts it at many different places.
@pytest.mark.parametrize("length_before_key", range(100, 520, 10))
@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error"])
def test_an_error_hides_a_key_of_which_it_would_show_the_beginning(
    monkeypatch: pytest.MonkeyPatch, length_before_key: int, status: str
) -> None:
    """An error shows only the beginning of a long body. Half a key is a secret, too."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    body = b"x" * length_before_key + KEY.encode() + b"y" * 1000
    response = http_head(f"Content-Length: {len(body)}", status) + body
    with server_that_sends(response) as server:
        with pytest.raises(LMError) as caught:
            model_at(server)("question: Where?")
        assert not shows_half_of_key(logged_text(caught.value))


@pytest.mark.parametrize(
    "settings",
    [{"api_key": KEY}, {"api_key": "none", "extra_headers": {"X-Api-Key": KEY}}],
    ids=["as api_key", "as a header"],
)
def test_an_error_hides_the_key_of_a_model_that_the_user_made(settings: dict[str, Any]) -> None:
    with server_that_repeats_the_key(status=500) as server:
        lm = dspy.LM(server.model, api_base=server.url, num_retries=0, cache=False, **settings)
        with pytest.raises(LMError) as caught:
            language_model(lm, retries=0)("question: Where?")

        sent_headers = server.requests[0].headers
        assert any(KEY in value for value in sent_headers.values())
        assert not shows_half_of_key(str(caught.value))


def test_an_error_hides_the_key_of_a_provider_that_litellm_asks(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", KEY)
    with server_that_repeats_the_key(status=500) as server:
        lm = language_model("mistral/any", api_base=server.url, cache=False, retries=0)
        with pytest.raises(LMError) as caught:
            ask(lm)
        assert "you sent" in str(caught.value)
        assert not shows_half_of_key(str(caught.value))


def test_neither_address_nor_key_is_put_into_dspys_cache(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DSPy's cache is on disk, in a folder that all programs of a user share."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    calls_of_put: list[Any] = []

    def record_put(*args: Any, **kwargs: Any) -> None:
        calls_of_put.append((args, kwargs))

    monkeypatch.setattr(dspy.cache, "put", record_put)
    with StubServer(answer=lambda body: "fine") as server:
        ask(language_model(server.model, api_base=server.url), "Who are you?")
        port_and_path = server.url.rpartition(":")[2]

    assert len(calls_of_put) == 1
    cached_text = repr(calls_of_put)
    assert not shows_half_of_key(cached_text)
    assert "127.0.0.1" not in cached_text
    assert port_and_path not in cached_text
