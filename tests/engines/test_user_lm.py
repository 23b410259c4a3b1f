"""Models that a user made are metered and limited like those that are made by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy.utils.callback import BaseCallback
from dspy.utils.dummies import DummyLM
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model, metered_model
from mempiler.engines.meter import Meter
from mempiler.engines.model_config import ModelConfig
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.errors import BudgetError, UserError
from mempiler.programs.adapter import adapter

from ..conftest import chat_fields

WARNED_OF_BY_DSPY = pytest.mark.filterwarnings(
    "ignore:LegacyEngine and AsyncLegacyEngine:DeprecationWarning"
)
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
    assert meter.read().input_tokens == 30
    assert meter.read().output_tokens == 4


def test_a_dspy_model_of_a_server_is_asked_at_its_address_with_its_key_and_settings(
    stub: Any,
) -> None:
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="a-key", temperature=0.3, cache=False)
    meter = Meter()
    assert ask(language_model(lm, meter=meter))
    ((_, headers, body),) = server.requests
    assert body["temperature"] == 0.3
    assert {name.lower(): value for name, value in headers.items()}[
        "authorization"
    ] == "Bearer a-key"
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


class CountingCallback(BaseCallback):
    """Counts the calls that it hears of."""

    def __init__(self) -> None:
        self.calls = 0

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.calls += 1


@pytest.mark.parametrize(
    "settings", [{}, {"extra_headers": {"x-team": "a"}}], ids=["plain", "with headers"]
)
def test_callbacks_and_dspys_own_counters_hear_of_every_call_once(
    stub: Any, settings: dict[str, Any]
) -> None:
    server = stub()
    of_model, of_settings = CountingCallback(), CountingCallback()
    lm = dspy.LM(
        server.model,
        api_base=server.url,
        api_key="k",
        cache=False,
        callbacks=[of_model],
        **settings,
    )
    with dspy.context(callbacks=[of_settings]), dspy.track_usage() as tracker:
        metered = language_model(lm)
        ask(metered)
    assert of_model.calls == 1
    assert of_settings.calls == 1
    assert len(metered.history) == 1
    assert [len(entries) for entries in tracker.usage_data.values()] == [1]


@pytest.mark.parametrize(
    "settings", [{}, {"extra_headers": {"x-team": "a"}}], ids=["plain", "with headers"]
)
def test_settings_of_the_call_hold_before_those_of_the_users_model(
    stub: Any, settings: dict[str, Any]
) -> None:
    server = stub()
    lm = dspy.LM(
        server.model, api_base=server.url, api_key="k", temperature=0.9, max_tokens=7, **settings
    )
    metered = language_model(lm, cache=False, temperature=0.2, max_tokens=None)
    ask(metered)
    ((_, _, body),) = server.requests
    assert body["temperature"] == 0.2
    assert "max_tokens" not in body
    assert metered.cache is False


@pytest.mark.parametrize("name", ["api_base", "api_key"])
def test_an_address_or_key_beside_an_object_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name}: a model that is an object has its own"):
        language_model(dspy.LM("openai/x"), **{name: "http://somewhere/v1"})


def test_an_object_that_is_no_model_is_refused_in_one_line() -> None:
    wrong: Any = 7
    with pytest.raises(UserError, match=r"expected a name or a dspy\.LM, got int"):
        language_model(wrong)


def test_a_metered_model_is_taken_as_it_is() -> None:
    lm = language_model("offline")
    assert metered_model(lm) is lm
    assert metered_model("offline").model == lm.model
    assert metered_model(dspy.LM("any/thing", engine=OfflineEngine())).meter.read().calls == {}


def test_a_copy_of_a_metered_model_knows_its_window() -> None:
    lm = language_model("offline")
    lm.window = 4096
    assert language_model(lm).window == 4096


def test_a_copy_of_a_metered_model_keeps_its_limits_unless_others_are_given() -> None:
    meter = Meter()
    lm = language_model("offline", meter=meter, guard=BudgetGuard(Limits(max_calls=1)))
    copy = language_model(lm)
    copy("Who are you?")
    with pytest.raises(BudgetError):
        copy("Who else?")
    assert meter.read().calls["task"] == 1

    copy = language_model(lm, guard=BudgetGuard())
    assert copy("Who else?")


def test_a_setting_that_an_object_refuses_is_one_line() -> None:
    lm = dspy.LM("openai/gpt-5", headers={"a": "b"}, temperature=1.0, max_tokens=16000)
    with pytest.raises(UserError, match=r"^language model 'openai/gpt-5': .*reasoning models"):
        language_model(lm, temperature=0.2)


class AskingModel(OwnModel):
    """A model of the user's, which asks another one in plain words."""

    def __init__(self, other: dspy.BaseLM) -> None:
        super().__init__()
        self.other = other
        self.answers: list[str] = []

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        self.answers.extend(self.other("Bob likes tea."))
        return super().forward(prompt, messages, **kwargs)


@WARNED_OF_BY_DSPY
@pytest.mark.filterwarnings("ignore:Implementing custom LMs:DeprecationWarning")
@pytest.mark.parametrize("is_metered", [True, False])
def test_a_model_that_another_one_asks_in_plain_words_answers_these(is_metered: bool) -> None:
    own_model = AskingModel(language_model("offline"))
    lm = language_model(own_model) if is_metered else own_model
    with dspy.context(lm=lm, adapter=adapter("chat")):
        answer = dspy.Predict("context, question -> answer")(
            context="Ann is in Rome.", question="Where is Ann?"
        )
    assert answer.answer == "Lisbon"
    assert own_model.answers == ["Bob likes tea."]
