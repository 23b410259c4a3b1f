"""Which names of models are refused before anything is asked."""

import re

import pytest
from mempiler import UserError
from mempiler.engines.models import check_askable, check_known, language_model


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "MISTRAL_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE")
    for name in keys:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch/model", "no provider is known"),
        ("openai/gpt-4.1-mini", "set OPENAI_API_KEY"),
        ("anthropic/claude-x", "set ANTHROPIC_API_KEY"),
        ("mistral/x", "set MISTRAL_API_KEY"),
    ],
)
def test_a_model_that_cannot_be_asked_is_one_line(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=message) as raised:
        check_askable(language_model(name))
    assert repr(name) in str(raised.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "base", "keys"),
    [
        ("offline", None, ()),
        ("openai/gpt-4.1-mini", None, ("OPENAI_API_KEY",)),
        ("hosted_vllm/m", "http://127.0.0.1:9/v1", ()),
        ("bedrock/x", None, ()),
        ("openai/x", None, ("OPENAI_BASE_URL", "OPENAI_API_KEY")),
    ],
)
def test_a_model_that_may_be_asked_is_not_refused(name, base, keys, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in keys:
        monkeypatch.setenv(variable, "http://127.0.0.1:9/v1")
    check_askable(language_model(name, api_base=base))


HAS = ["gpt-4.1-mini", "gpt-4.1", "o9", "models/gemini-3"]


@pytest.mark.parametrize(
    ("model", "models", "fault", "asked", "said"),
    [
        ("gemini-3", HAS, "404", 0, None),
        ("gpt-4.1-minni", HAS, "404", 1, "has no such model; it has gpt-4.1-mini, gpt-4.1, ..."),
        ("another", HAS[2:], "404", 1, "has no such model; it has o9, models/gemini-3"),
        # Some servers take any name, and some lists are not whole.
        ("whatever", HAS, None, 1, None),
        ("whatever", [], "404", 0, None),
        ("whatever", None, "404", 0, None),
    ],
)
def test_a_model_is_refused_only_where_its_provider_says_that_there_is_none(stub, model, models, fault, asked, said):
    server = stub(lambda n, text: fault, models=models)
    lm = language_model(f"openai/{model}", api_base=server.url)
    if said is None:
        check_known(lm)
    else:
        with pytest.raises(UserError, match=f"'openai/{model}': its provider {re.escape(said)}$"):
            check_known(lm)
    assert len(server.requests) == asked
