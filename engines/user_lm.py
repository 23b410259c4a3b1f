"""Language models that the user made: a `dspy.LM`, or another `dspy.BaseLM`.

`language_model` takes such an object in the place of a name. What is ordinary about it becomes a
model as a name would make it (`plain_config`); any other object is asked itself (`forwarding_lm`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import dspy
from dspy.clients.engines import AsyncLegacyEngine, LegacyEngine
from dspy.lm15 import Request, Response
from dspy.utils.exceptions import LMConfigurationError

from ..errors import UserError
from ..secret_values import Secrets, secrets_of_environment, secrets_of_settings
from ..text import one_line
from .async_models import can_be_awaited
from .dspy_internals import async_engine_of
from .endpoint import RemoteEngine
from .endpoint.address import endpoint_digest
from .limits import BudgetGuard
from .meter import Meter
from .metered_lm import MeteredLM, Metering
from .model_config import ModelConfig

ADDRESS_SETTINGS = ("api_base", "base_url")
"""What `dspy.LM` calls the address of a server."""
ENDPOINT_SETTINGS = frozenset(
    (*ADDRESS_SETTINGS, "api_key", "headers", "extra_headers", "extra_query")
)
"""Settings of a `dspy.LM` that say where a request goes and how, not what is asked."""


def is_plain(lm: dspy.BaseLM) -> bool:
    """Tell whether a model is an ordinary chat endpoint: name, address, key and settings alone."""
    if type(lm) is not dspy.LM or lm.model_type != "chat" or not isinstance(lm.engine, str):
        return False
    return not any(
        name in lm.kwargs for name in ("headers", "extra_headers", "extra_query", "extra_body")
    )


def plain_config(lm: dspy.BaseLM, config: ModelConfig) -> ModelConfig:
    """Return how a plain model is asked by its name.

    Address, key and timeout are those of the model. Its cache and settings hold where `config` has
    none.

    Args:
        lm: A model that `is_plain`.
        config: How models are asked otherwise.
    """
    own_settings = _settings(lm)
    config_of_model = replace(
        config,
        api_base=_address(lm.kwargs),
        api_key=lm.kwargs.get("api_key"),
        cache=lm.cache if config.cache is None else config.cache,
        settings={},
    ).with_options(own_settings)
    settings = {**config_of_model.settings, **config.settings}
    return replace(config_of_model, settings=settings)


def forwarding_lm(lm: dspy.BaseLM, config: ModelConfig, metering: Metering) -> MeteredLM:
    """Return a metered model that asks `lm` itself, with the settings of both.

    Args:
        lm: The user's model; it is not changed.
        config: Its cache, repetition and settings hold before those of the model.
        metering: How calls are counted and limited.

    Raises:
        UserError: The model does not take a setting.
    """
    settings = _settings(lm)
    for name, value in config.settings.items():
        # As for `dspy.LM.copy`, None takes a setting away.
        if value is None:
            settings.pop(name, None)
        else:
            settings[name] = value
    if config.repeat and settings.get("temperature") != 0:
        settings["rollout_id"] = config.repeat

    # DSPy caches answers of its own class only: two other models may have one name.
    cache = False
    if isinstance(lm, dspy.LM):
        cache = lm.cache if config.cache is None else config.cache
    try:
        metered = MeteredLM(
            lm.model,
            metering,
            engine=_engine(lm),
            async_engine=_async_engine(lm),
            model_type=lm.model_type,
            cache=cache,
            callbacks=lm.callbacks,
            **settings,
        )
    except (ValueError, LMConfigurationError) as error:
        raise UserError(f"language model {lm.model!r}: {one_line(error, 300)}") from error
    if isinstance(lm, MeteredLM):
        metered.window = lm.window
    return metered


def _settings(lm: dspy.BaseLM) -> dict[str, Any]:
    """Return the settings of every request, without those of the endpoint."""
    return {name: value for name, value in lm.kwargs.items() if name not in ENDPOINT_SETTINGS}


def _address(settings: Mapping[str, Any]) -> str | None:
    return next((settings[name] for name in ADDRESS_SETTINGS if settings.get(name)), None)


def _engine(lm: dspy.BaseLM) -> Any:
    """Return the object that answers a request in the place of an endpoint of ours."""
    if not isinstance(lm, dspy.LM):
        return _ForwardMethodEngine(lm)
    if not isinstance(lm.engine, str):
        return lm.engine
    return _ForwardingEngine(lm)


def _async_engine(lm: dspy.BaseLM) -> Any:
    """Return what answers in the place of `_engine` under asyncio; None if nothing can."""
    if not can_be_awaited(lm):
        return None
    if not isinstance(lm, dspy.LM):
        return _AsyncForwardMethodEngine(lm)
    if not isinstance(lm.engine, str):
        return async_engine_of(lm)
    return _AsyncForwardingEngine(lm)


def _secrets(lm: dspy.BaseLM) -> Secrets:
    return Secrets([*secrets_of_settings(lm.kwargs), *secrets_of_environment()])


def _counted_once() -> AbstractContextManager[Any]:
    """Return a context in which DSPy does not count a call: the metered model makes it known."""
    return dspy.context(callbacks=[], usage_tracker=None, disable_history=True)


def _forwarded_copy(lm: dspy.LM) -> dspy.LM:
    """Return a copy that a metered model asks, and that does nothing but ask.

    The metered model reads the cache, tells the callbacks, counts and limits. If the copy did so
    too, each call would count twice.
    """
    copy = lm.copy(cache=False, callbacks=[])
    if isinstance(copy, MeteredLM):
        copy.meter = Meter()
        copy.guard = BudgetGuard()
        copy.answers = None
    return copy


class _ForwardingEngine(RemoteEngine):
    """Answer requests by a `dspy.LM` with settings of its own, e.g. headers or another API."""

    def __init__(self, lm: dspy.LM) -> None:
        self.lm = _forwarded_copy(lm)

    @property
    def digest(self) -> str | None:
        address = _address(self.lm.kwargs)
        return None if address is None else endpoint_digest(self.lm.model_type, address)

    def complete(self, request: Request) -> Response:
        with _secrets(self.lm).hiding(), _counted_once():
            return self.lm(request)


class _AsyncForwardingEngine:
    """Do for asyncio what `_ForwardingEngine` does."""

    def __init__(self, lm: dspy.LM) -> None:
        self.lm = _forwarded_copy(lm)

    async def complete(self, request: Request) -> Response:
        with _secrets(self.lm).hiding(), _counted_once():
            return await self.lm.acall(request)


class _ForwardMethodEngine:
    """Answer requests by a `dspy.BaseLM` that implements `forward`, which DSPy allows until 3.5.

    Of DSPy's own wrapper only `complete` is used: its other method returns answers that cannot be
    kept.
    """

    def __init__(self, lm: dspy.BaseLM) -> None:
        self._wrapper = LegacyEngine(_JsonResponses(lm))
        self._lm = lm

    def complete(self, request: Request) -> Response:
        with _secrets(self._lm).hiding():
            return self._wrapper.complete(request)


class _AsyncForwardMethodEngine:
    """Answer requests by a `dspy.BaseLM` that implements `aforward`."""

    def __init__(self, lm: dspy.BaseLM) -> None:
        self._wrapper = AsyncLegacyEngine(_JsonResponses(lm))
        self._lm = lm

    async def complete(self, request: Request) -> Response:
        with _secrets(self._lm).hiding():
            return await self._wrapper.complete(request)


class _JsonResponses(dspy.BaseLM):
    """Ask another model by its methods, and turn plain objects that it returns into JSON."""

    def __init__(self, lm: dspy.BaseLM) -> None:
        super().__init__(lm.model, lm.model_type)
        self.kwargs = dict(lm.kwargs)
        self._lm = lm

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        return _as_json(self._lm.forward(prompt=prompt, messages=messages, **kwargs))

    async def aforward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        return _as_json(await self._lm.aforward(prompt=prompt, messages=messages, **kwargs))


def _as_json(response: Any) -> Any:
    """Return a response that DSPy can read: as it is, or plain objects as JSON."""
    if isinstance(response, dict) or hasattr(response, "model_dump"):
        return response
    return json.loads(json.dumps(response, default=vars))
