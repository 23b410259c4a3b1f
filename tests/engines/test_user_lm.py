"""Models that a user made are metered and limited like those that are made by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy.utils.dummies import DummyLM
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.engines.model_config import ModelConfig
from mempiler.errors import BudgetError

from ..conftest import chat_fields

WARNED_OF_BY_DSPY = pytest.mark.filterwarnings("ignore:LegacyEngine and AsyncLegacyEngine:DeprecationWarning")
"""DSPy says that models which implement `forward` have to change before its version 3.5."""


class OwnModel(dspy.BaseLM):
    """A model of the user's, which implements `forward` as DSPy documents it."""

    def __init__(self) -> None:
        super().__init__("own/model")
        self.prompts: list[Any] = []

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        self.prompts.append(messages)
        message = SimpleNamespace(content=chat_fields(answer="Lisbon"), tool_calls=None)
        return SimpleNamespace(
            choices=[SimpleNamespace(message=message, finish_reason="stop")],
            usage={"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34},
            model="own/model",
        )


def ask(lm: dspy.BaseLM) -> str:
    with dspy.context(lm=lm):
        return dspy.Predict("question -> answer")(question="Where does Ada live?").answer


@WARNED_OF_BY_DSPY
def test_a_model_with_a_forward_of_its_own_is_counted_by_the_tokens_that_it_reports() -> None:
    meter = Meter()
    assert ask(language_model(OwnModel(), meter=meter)) == "Lisbon"
    assert meter.read().calls["task"] == 1
    assert (meter.read().input_tokens, meter.read().output_tokens) == (30, 4)


def test_a_dspy_model_of_a_server_is_asked_at_its_address_with_its_key_and_settings(stub: Any) -> None:
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="a-key", temperature=0.3, cache=False)
    meter = Meter()
    assert ask(language_model(lm, meter=meter))
    ((_, headers, body),) = server.requests
    assert body["temperature"] == 0.3
    assert {name.lower(): value for name, value in headers.items()}["authorization"] == "Bearer a-key"
    assert meter.read().calls["task"] == 1


def test_a_limit_stops_a_dspy_model(stub: Any) -> None:
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="a-key", cache=False)
    metered = language_model(lm, guard=BudgetGuard(Limits(max_calls=1)))
    ask(metered)
    with pytest.raises(BudgetError):
        ask(metered)
    assert len(server.requests) == 1


def test_the_users_model_is_left_as_it_was(stub: Any) -> None:
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="a-key", cache=False)
    before = dict(lm.kwargs)
    ask(language_model(lm))
    assert lm.kwargs == before
    assert lm.history == []


@WARNED_OF_BY_DSPY
def test_a_dummy_model_of_dspy_works() -> None:
    meter = Meter()
    assert ask(language_model(DummyLM([{"answer": "blue"}]), meter=meter)) == "blue"
    assert meter.read().calls["task"] == 1


def test_the_timeout_of_the_users_model_holds_before_that_of_the_run():
    lm = dspy.LM("openai/any", api_key="none", timeout=3)
    assert language_model(lm, ModelConfig(timeout=60, retries=0)).engine.timeout == 3
