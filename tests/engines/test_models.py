"""Models by name: names that are refused before anything is asked, and configs.

A name is "PROVIDER/MODEL", such as "openai/gpt-4.1-mini". The checks run before a run begins, so
that a mistake in a name or a missing key does not end it halfway.
"""

import pytest
from mempiler.engines.lm import language_model
from mempiler.engines.model_checks import check_endpoint, check_key
from mempiler.engines.model_config import ModelConfig
from mempiler.errors import UserError

from ..stub_server import StubServer, every


@pytest.fixture(autouse=True)
def no_keys_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "MISTRAL_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
    )
    for variable in variables:
        monkeypatch.delenv(variable, raising=False)


# Keys.


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch/model", "no provider is known"),
        ("openai/gpt-4.1-mini", "set OPENAI_API_KEY"),
        ("anthropic/claude-x", "set ANTHROPIC_API_KEY"),
        ("mistral/x", "set MISTRAL_API_KEY"),
    ],
)
def test_a_model_without_provider_or_key_is_refused(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=message) as error:
        check_key(language_model(name))
    assert repr(name) in str(error.value)
    # LiteLLM would print advice.
    assert capsys.readouterr().out == ""


ADDRESS = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("name", "api_base", "environment"),
    [
        pytest.param("offline", None, {}, id="needs no key"),
        pytest.param("openai/gpt-4.1-mini", None, {"OPENAI_API_KEY": "a key"}, id="has its key"),
        pytest.param("hosted_vllm/m", ADDRESS, {}, id="at an address"),
        pytest.param("bedrock/x", None, {}, id="may have keys elsewhere"),
        pytest.param(
            "openai/x",
            None,
            {"OPENAI_BASE_URL": ADDRESS, "OPENAI_API_KEY": "a key"},
            id="at an address in the environment",
        ),
    ],
)
def test_a_model_that_could_be_asked_is_not_refused(
    name: str,
    api_base: str | None,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    check_key(language_model(name, api_base=api_base))


# Lists of the models that a provider has. `check_endpoint` reads the list, and asks a model only if
# it is not there.


@pytest.mark.parametrize(
    ("name", "models", "suggestion"),
    [
        pytest.param(
            "gpt-4.1-minni",
            ["gpt-4.1-mini", "gpt-4.1", "o9", "models/gemini-3"],
            "it has gpt-4.1-mini, gpt-4.1, ...",
            id="some names are similar",
        ),
        pytest.param(
            "another",
            ["o9", "models/gemini-3"],
            "it has o9, models/gemini-3",
            id="no name is similar",
        ),
    ],
)
def test_a_model_that_is_not_listed_and_does_not_answer_is_refused_with_similar_names(
    name: str, models: list[str], suggestion: str
) -> None:
    has_no_such_model = every("404")
    with StubServer(has_no_such_model, models=models) as server:
        lm = language_model(f"openai/{name}", api_base=server.url)
        with pytest.raises(UserError) as error:
            check_endpoint(lm)

    message = str(error.value)
    assert f"'openai/{name}': its provider has no such model" in message
    assert message.endswith(suggestion)
    assert len(server.requests) == 1


def test_a_model_that_is_not_listed_but_answers_is_not_refused() -> None:
    """Some servers take any name, and some lists are not complete."""
    with StubServer(models=["gpt-4.1", "o9"]) as server:
        check_endpoint(language_model("openai/whatever", api_base=server.url))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("name", "models"),
    [
        pytest.param("gemini-3", ["o9", "models/gemini-3"], id="listed with a prefix"),
        pytest.param("whatever", [], id="an empty list"),
        pytest.param("whatever", None, id="no list"),
        pytest.param("whatever", b"[" * 100_000, id="a list that cannot be read"),
    ],
)
def test_a_model_that_is_listed_or_whose_provider_has_no_list_is_not_asked(
    name: str, models: list[str] | bytes | None
) -> None:
    has_no_such_model = every("404")  # so the check would fail if it asked the model
    with StubServer(has_no_such_model, models=models) as server:
        check_endpoint(language_model(f"openai/{name}", api_base=server.url))
    assert server.requests == []


# Configs.


def test_the_options_of_a_model_can_be_given_as_a_config() -> None:
    config = ModelConfig(
        api_base="http://elsewhere:1/v1",
        timeout=3,
        retries=0,
        deadline=9,
        cache=False,
        settings={"temperature": 0.5},
    )

    lm = language_model("openai/any", config)

    assert lm.engine.address == "http://elsewhere:1/v1"
    assert lm.engine.timeout == 3
    assert lm.engine.retries == 0
    assert lm.engine.seconds == 9  # the deadline
    assert lm.kwargs["temperature"] == 0.5
    assert lm.cache is False


def test_keywords_change_a_config_for_one_model() -> None:
    config = ModelConfig(timeout=3, retries=0, settings={"temperature": 0.5, "max_tokens": 7})

    lm = language_model("openai/any", config, timeout=5, max_tokens=9)

    assert lm.engine.timeout == 5
    assert lm.engine.retries == 0
    assert lm.kwargs["temperature"] == 0.5
    assert lm.kwargs["max_tokens"] == 9
    # The config itself stays as it was.
    assert config.timeout == 3
    assert config.settings == {"temperature": 0.5, "max_tokens": 7}


def test_a_config_does_not_show_its_key() -> None:
    assert "secret" not in repr(ModelConfig(api_key="secret"))
