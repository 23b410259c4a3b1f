"""Models that a user made are metered and limited like those that are made by name.

A user may give an object in the place of a name: a `dspy.LM`, or a class of their own.
`language_model` returns a metered model over it, whose meter counts its calls and whose guard
limits them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy.utils.callback import BaseCallback
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model, metered_model
from mempiler.engines.meter import Meter
from mempiler.engines.model_config import ModelConfig
from mempiler.errors import BudgetError, UserError
from mempiler.programs.adapter import adapter

from ..scripted_engine import chat_fields

WARNED_OF_BY_DSPY = pytest.mark.filterwarnings(
    "ignore:LegacyEngine and AsyncLegacyEngine:DeprecationWarning"
)
"""DSPy says that models which implement `forward` have to change before its version 3.5."""


class UserModel(dspy.BaseLM):
    """A model of the user's, which implements `forward` as DSPy documents it."""

    def __init__(self) -> None:
        super().__init__("own/model")
        self.prompts: list[Any] = []

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        self.prompts.append(messages)
        message = SimpleNamespace(content=chat_fields(answer="Lisbon"), tool_calls=None)
        # In the form of an answer of OpenAI.
        return SimpleNamespace(
            choices=[SimpleNamespace(message=message, finish_reason="stop")],
            usage={"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34},
            model="own/model",
        )


def ask(lm: dspy.BaseLM) -> str:
    """Return the answer of a model to a question, asked by a predictor."""
    with dspy.context(lm=lm):
        return dspy.Predict("question -> answer")(question="Where does Ada live?").answer


@WARNED_OF_BY_DSPY
def test_a_model_with_a_forward_of_its_own_is_counted_by_the_tokens_that_it_reports() -> None:
    meter = Meter()

    assert ask(language_model(UserModel(), meter=meter)) == "Lisbon"

    # `UserModel` reports thirty tokens and four.
    assert meter.read().calls["task"] == 1
    assert meter.read().input_tokens == 30
    assert meter.read().output_tokens == 4


def test_a_dspy_model_of_a_server_is_asked_at_its_address_with_its_key_and_settings(
    stub: Any,
) -> None:
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="a-key", temperature=0.3, cache=False)
    meter = Meter()

    ask(language_model(lm, meter=meter))

    (request,) = server.requests
    assert request.headers["Authorization"] == "Bearer a-key"
    assert request.body["temperature"] == 0.3
    assert meter.read().calls["task"] == 1


def test_a_limit_stops_a_dspy_model(stub: Any) -> None:
    """The guard allows one call."""
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="a-key", cache=False)
    metered_lm = language_model(lm, guard=BudgetGuard(Limits(max_calls=1)))
    ask(metered_lm)

    with pytest.raises(BudgetError):
        ask(metered_lm)
    assert len(server.requests) == 1


def test_the_users_model_is_left_as_it_was(stub: Any) -> None:
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="a-key", cache=False)
    settings_before = dict(lm.kwargs)

    ask(language_model(lm))

    assert lm.kwargs == settings_before
    assert lm.history == []


def test_the_timeout_of_the_users_model_wins_over_that_of_the_run() -> None:
    lm = dspy.LM("openai/any", api_key="none", timeout=3)
    assert language_model(lm, ModelConfig(timeout=60, retries=0)).engine.timeout == 3


class CountingCallback(BaseCallback):
    """Counts the calls that DSPy reports to it."""

    def __init__(self) -> None:
        self.calls = 0

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.calls += 1


# A model without headers is asked by its name, address and key; one with headers is asked itself.
PLAIN_OR_WITH_HEADERS = [
    pytest.param({}, id="plain"),
    pytest.param({"extra_headers": {"x-team": "a"}}, id="with headers"),
]


@pytest.mark.parametrize("settings", PLAIN_OR_WITH_HEADERS)
def test_callbacks_are_told_of_a_call_once(stub: Any, settings: dict[str, Any]) -> None:
    """Two models take part in a call: the user's, and the metered one over it.

    DSPy knows callbacks of a model and callbacks of all models.
    """
    server = stub()
    callback_of_model = CountingCallback()
    callback_of_all_models = CountingCallback()
    options = {"api_base": server.url, "api_key": "k", "cache": False, **settings}
    lm = dspy.LM(server.model, callbacks=[callback_of_model], **options)

    with dspy.context(callbacks=[callback_of_all_models]):
        ask(language_model(lm))

    assert callback_of_model.calls == 1
    assert callback_of_all_models.calls == 1


@pytest.mark.parametrize("settings", PLAIN_OR_WITH_HEADERS)
def test_history_and_usage_tracker_of_dspy_have_a_call_once(
    stub: Any, settings: dict[str, Any]
) -> None:
    """Two models take part in a call: the user's, and the metered one over it."""
    server = stub()
    options = {"api_base": server.url, "api_key": "k", "cache": False, **settings}
    metered_lm = language_model(dspy.LM(server.model, **options))

    with dspy.track_usage() as tracker:
        ask(metered_lm)

    assert len(metered_lm.history) == 1
    (entries_of_model,) = tracker.usage_data.values()
    assert len(entries_of_model) == 1


@pytest.mark.parametrize("settings", PLAIN_OR_WITH_HEADERS)
def test_settings_given_to_language_model_win_over_those_of_the_users_model(
    stub: Any, settings: dict[str, Any]
) -> None:
    """None takes a setting of the user's model away."""
    server = stub()
    lm = dspy.LM(
        server.model, api_base=server.url, api_key="k", temperature=0.9, max_tokens=7, **settings
    )

    metered_lm = language_model(lm, cache=False, temperature=0.2, max_tokens=None)
    ask(metered_lm)

    (request,) = server.requests
    assert request.body["temperature"] == 0.2
    assert "max_tokens" not in request.body
    assert metered_lm.cache is False


@pytest.mark.parametrize("name", ["api_base", "api_key"])
def test_an_address_or_key_beside_an_object_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name}: a model that is an object has its own"):
        language_model(dspy.LM("openai/x"), **{name: "http://somewhere/v1"})


def test_an_object_that_is_no_model_is_refused() -> None:
    number: Any = 7
    with pytest.raises(UserError, match=r"expected a name or a dspy\.LM, got int"):
        language_model(number)


def test_metered_model_returns_a_metered_model_as_it_is() -> None:
    """`language_model` would return a copy of it."""
    lm = language_model("offline")
    assert metered_model(lm) is lm


def test_a_copy_of_a_metered_model_knows_its_window() -> None:
    lm = language_model("offline")
    lm.window = 4096  # the most tokens of prompt and answer
    assert language_model(lm).window == 4096


def test_a_copy_of_a_metered_model_keeps_its_meter_and_limits() -> None:
    meter = Meter()
    lm = language_model("offline", meter=meter, guard=BudgetGuard(Limits(max_calls=1)))
    lm_copy = language_model(lm)

    lm_copy("Who are you?")
    with pytest.raises(BudgetError):
        lm_copy("Who else?")

    assert meter.read().calls["task"] == 1


def test_a_copy_of_a_metered_model_may_have_other_limits() -> None:
    lm_without_calls = language_model("offline", guard=BudgetGuard(Limits(max_calls=0)))
    lm_copy = language_model(lm_without_calls, guard=BudgetGuard())
    assert lm_copy("Who may ask?")  # is answered


def test_a_setting_that_the_users_model_refuses_is_a_user_error() -> None:
    # DSPy lets reasoning models have no other temperature than 1.
    lm = dspy.LM("openai/gpt-5", headers={"a": "b"}, temperature=1.0, max_tokens=16000)
    with pytest.raises(UserError, match=r"^language model 'openai/gpt-5': .*reasoning models"):
        language_model(lm, temperature=0.2)


class AskingModel(UserModel):
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
def test_a_model_that_the_users_model_asks_in_plain_words_answers_in_plain_words(
    is_metered: bool,
) -> None:
    """The outer call asks for fields of a signature, but that does not hold for calls within it."""
    user_lm = AskingModel(language_model("offline"))
    lm = language_model(user_lm) if is_metered else user_lm
    program = dspy.Predict("context, question -> answer")

    with dspy.context(lm=lm, adapter=adapter("chat")):
        prediction = program(context="Ann is in Rome.", question="Where is Ann?")

    assert prediction.answer == "Lisbon"
    # The offline model answers the only sentence that it got, without fields.
    assert user_lm.answers == ["Bob likes tea."]
