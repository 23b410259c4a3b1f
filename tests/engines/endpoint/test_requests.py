"""What a model sends to its endpoint, which answers it shares with other models, what it costs.

The fixture `ask` runs each test twice: it asks a model by a plain call, and under asyncio.
"""

import base64
import copy
import json
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import LMError
from mempiler import UserError
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.errors import BudgetError

from ...stub_server import StubServer, every
from .helpers import model_at


def new_model_name() -> str:
    """Return a name of which DSPy's cache knows no answers yet."""
    return f"openai/{uuid.uuid4().hex}"


# Copies and saved programs.


@pytest.mark.parametrize(
    "copy_model",
    [
        pytest.param(lambda lm: lm.copy(temperature=0.5), id="copy of DSPy"),
        pytest.param(copy.deepcopy, id="deepcopy"),
        pytest.param(lambda lm: pickle.loads(pickle.dumps(lm)), id="pickle"),
    ],
)
def test_a_copy_of_a_model_asks_the_same_endpoint_and_reads_no_more_bytes(
    copy_model: Callable[[Any], Any],
) -> None:
    """The server sends an answer that does not end, of which a model reads four million bytes."""
    sends_an_endless_answer = every("endless")
    with StubServer(sends_an_endless_answer) as server:
        lm_copy = copy_model(model_at(server))

        with pytest.raises(LMError, match="larger than 4000000 bytes"):
            lm_copy("question: Where?")
        assert len(server.texts) == 1


def test_a_program_with_a_model_is_saved_without_address_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    program = dspy.Predict("question -> answer")
    program.lm = language_model("openai/own", api_base="http://hidden:1/v1", max_tokens=7)

    program.save(tmp_path / "program.json")

    content = (tmp_path / "program.json").read_text()
    saved_lm = json.loads(content)["lm"]
    assert saved_lm["model"] == "openai/own"
    assert saved_lm["max_tokens"] == 7
    assert "hidden" not in content
    assert "sk-secret" not in content


# Settings.


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"temperature": 0.5, "top_p": 0.5, "seed": 3}, id="of OpenAI"),
        pytest.param({"reasoning_effort": "low", "metadata": {"who": "me"}}, id="of some models"),
        pytest.param(
            {"top_k": 5, "min_p": 0.1, "chat_template_kwargs": {"enable_thinking": False}},
            id="of own servers",
        ),
    ],
)
def test_every_setting_is_sent(ask: Callable[..., Any], settings: dict[str, Any]) -> None:
    with StubServer() as server:
        ask(model_at(server, **settings))

    (request,) = server.requests
    for name, value in settings.items():
        assert request.body[name] == value


def test_no_setting_is_sent_that_was_not_given(ask: Callable[..., Any]) -> None:
    with StubServer() as server:
        ask(model_at(server))

    (request,) = server.requests
    assert request.body.keys() == {"model", "messages"}


def test_models_with_other_settings_do_not_share_cached_answers(ask: Callable[..., Any]) -> None:
    different_settings = [{}, {"top_k": 5}, {"min_p": 0.1}, {"min_p": 0.2}]
    with StubServer() as server:
        for settings in different_settings:
            lm = model_at(server, cache=True, **settings)
            ask(lm)
            ask(lm.copy())  # answered by the cache

        assert len(server.texts) == 4


# Addresses. An answer is cached together with the address that gave it.


def test_servers_with_a_model_of_the_same_name_do_not_share_cached_answers(
    ask: Callable[..., Any],
) -> None:
    model = new_model_name()
    with (
        StubServer(answer=lambda body: "I am the first.") as first_server,
        StubServer(answer=lambda body: "I am the second.") as second_server,
    ):
        first_lm = language_model(model, api_base=first_server.url, meter=Meter())
        second_lm = language_model(model, api_base=second_server.url, meter=Meter())

        for _ in range(2):
            assert ask(first_lm, "Who are you?") == ["I am the first."]
            assert ask(second_lm, "Who are you?") == ["I am the second."]

        assert len(first_server.texts) == 1
        assert len(second_server.texts) == 1


def test_servers_whose_address_is_in_the_environment_do_not_share_cached_answers(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = new_model_name()
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with (
        StubServer(answer=lambda body: "I am the first.") as first_server,
        StubServer(answer=lambda body: "I am the second.") as second_server,
    ):
        monkeypatch.setenv("OPENAI_BASE_URL", first_server.url)
        assert ask(language_model(model), "Who are you?") == ["I am the first."]

        monkeypatch.setenv("OPENAI_BASE_URL", second_server.url)
        assert ask(language_model(model), "Who are you?") == ["I am the second."]


def test_all_spellings_of_an_address_share_cached_answers(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = new_model_name()
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with StubServer(answer=lambda body: "mine") as server:
        spellings = [
            server.url,
            f"{server.url}/",
            server.url.replace("http://", "HTTP://ann:secret@"),
        ]
        for address in spellings:
            ask(language_model(model, api_base=address), "Who are you?")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        ask(language_model(model), "Who are you?")

        assert len(server.texts) == 1


@pytest.mark.parametrize(
    "address", ["http://localhost:port/v1", "http://[::1/v1", "localhost:8000"]
)
def test_an_invalid_address_in_the_environment_is_refused_by_the_name_of_the_variable(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(UserError, match=r"^OPENAI_BASE_URL .* is no address"):
        language_model("openai/any")


def authorization_header(server: StubServer) -> str:
    """Return the header by which the only request to a server authorized itself."""
    (request,) = server.requests
    values = [value for name, value in request.headers.items() if name.lower() == "authorization"]
    assert len(values) == 1
    return values[0]


@pytest.mark.parametrize("key", [None, "sk-own"])
def test_a_name_and_a_password_in_the_address_are_sent_even_if_there_is_a_key(
    ask: Callable[..., Any], key: str | None
) -> None:
    """Many servers stand behind a proxy that asks for a password."""
    with StubServer() as server:
        address = server.url.replace("http://", "http://ann:secret@")
        assert ask(language_model(server.model, api_base=address, api_key=key, cache=False))

        credentials = base64.b64encode(b"ann:secret").decode()
        assert authorization_header(server) == f"Basic {credentials}"


def test_a_name_and_a_password_are_sent_as_utf8(ask: Callable[..., Any]) -> None:
    with StubServer() as server:
        # The password is the character 密, as addresses write it.
        address = server.url.replace("http://", "http://ānn:%E5%AF%86@")
        assert ask(language_model(server.model, api_base=address, cache=False))

        credentials = base64.b64encode("ānn:密".encode()).decode()
        assert authorization_header(server) == f"Basic {credentials}"


# Cached answers and costs.


def test_a_cached_answer_is_free_and_is_returned_even_after_a_limit_is_reached(
    ask: Callable[..., Any],
) -> None:
    guard = BudgetGuard(Limits(max_calls=1))
    with StubServer(answer=lambda body: "mine") as server:
        lm = language_model(new_model_name(), api_base=server.url, meter=Meter(), guard=guard)
        assert ask(lm, "Who are you?") == ["mine"]
        with pytest.raises(BudgetError):
            ask(lm, "Who else?")

        assert ask(lm, "Who are you?") == ["mine"]  # from the cache

        assert len(server.texts) == 1
        assert guard.spent().calls == 1
        assert lm.meter.read().cached == 1


def test_history_and_meter_have_the_cost_by_the_price_list(ask: Callable[..., Any]) -> None:
    # The prompt of 400 characters is 100 input tokens, the answer 1 output token. The server says
    # that half of the prompt was in its cache.
    with StubServer(answer=lambda body: "fine", reused=0.5) as server:
        lm = language_model("openai/gpt-4.1-mini", api_base=server.url, cache=False)
        with dspy.context(lm=lm):
            ask(lm, "x" * 400)

    # US dollars per token of gpt-4.1-mini.
    input_price = 4e-7
    cached_input_price = 1e-7
    output_price = 1.6e-6
    expected_cost = 50 * input_price + 50 * cached_input_price + 1 * output_price
    assert lm.history[-1]["cost"] == pytest.approx(expected_cost)
    assert lm.meter.read().cost == lm.history[-1]["cost"]
