"""Which names of models are refused before anything is asked."""

import pytest
from mempiler import UserError
from mempiler.engines.models import language_model
from mempiler.engines.providers import check_askable

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "MISTRAL_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch", "no provider is known"),
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
    assert "\n" not in str(raised.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "base", "environment"),
    [
        ("offline", None, {}),
        ("openai/gpt-4.1-mini", None, {"OPENAI_API_KEY": "k"}),
        ("openai/anything", "http://127.0.0.1:9/v1", {}),
        ("hosted_vllm/m", "http://127.0.0.1:9/v1", {}),
        ("ollama_chat/m", None, {}),
        ("mistral/x", None, {"MISTRAL_API_KEY": "k"}),
        ("bedrock/x", None, {}),
        ("openai/x", None, {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "k"}),
    ],
)
def test_a_model_that_may_be_asked_is_not_refused(
    name: str, base: str | None, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    check_askable(language_model(name, api_base=base))
