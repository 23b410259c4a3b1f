"""Metered language models, by their names or of objects that the user made.

    lm = language_model("openai/gpt-4.1-mini", temperature=0.2)
    lm = language_model(dspy.LM("openai/gpt-4.1-mini", temperature=0.2), guard=guard)

`model_names` says which kind of model a name means.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy
from dspy.clients.call_result import CallResult
from dspy.utils.exceptions import LMConfigurationError

from ..errors import UserError
from ..text import one_line
from ..validation import check_address
from .call import Call
from .dspy_internals import BODY_FIELDS
from .endpoint.engine import Engine, engines
from .limits import BudgetGuard
from .meter import Meter
from .metered_lm import MeteredLM, Metering
from .model_checks import check_provider
from .model_config import ModelConfig
from .model_names import GGUF, LOCAL, OFFLINE, is_local
from .pipeline import AnswerStore
from .request_settings import request_settings
from .usage import Role
from .user_lm import forwarding_lm, is_plain, plain_config
from .weights import check_digest, gguf_file

if TYPE_CHECKING:
    from .gguf import GgufServer
    from .local.model import LocalModel

GGUF_TIMEOUT = 600.0
"""Shortest timeout of a GGUF model, in seconds: on few cores a long prompt takes minutes."""
GGUF_TOKENS = 1024
"""Most tokens of a GGUF model's answer by default: a small model may repeat itself for ever."""
_IN_PROCESS_SETTINGS = ("temperature", "max_tokens", "seed")
"""Settings that the offline engine and local models take."""


@dataclass(frozen=True)
class LoadedModels:
    """Models that this process has loaded, by the names that `language_model` takes."""

    local: dict[str, LocalModel] = field(default_factory=dict)
    """Weights that torch runs."""
    gguf: dict[str, GgufServer] = field(default_factory=dict)
    """Servers of llama.cpp."""


def language_model(
    model: str | dspy.BaseLM = OFFLINE,
    config: ModelConfig | None = None,
    *,
    meter: Meter | None = None,
    role: Role | None = None,
    guard: BudgetGuard | None = None,
    answers: AnswerStore | None = None,
    replay: Callable[[Call], CallResult] | None = None,
    loaded: LoadedModels | None = None,
    **options: Any,
) -> MeteredLM:
    """Return a metered language model.

        lm = language_model("offline")
        lm = language_model("openai/qwen3", api_base="http://localhost:8000/v1", temperature=0.2)
        lm = language_model("openai/qwen3", ModelConfig(timeout=30), guard=guard)
        lm = language_model(dspy.LM("openai/qwen3", api_key="..."), meter=meter)

    Args:
        model: `offline`, `gguf:` and a name or path, `local:` and a folder or hub id, or any name
            that `dspy.LM` takes. Or a `dspy.LM` or other `dspy.BaseLM`: a copy is returned, which
            asks the same model at the same address. The object itself is not changed. If it is a
            `MeteredLM`, its meter, role, guard, prices, answers and replay hold where none are
            given.
        config: How the model is asked. Timeout, deadline and retries of an object stay its own,
            unless it is a plain `dspy.LM`, with a name, an address, a key and settings alone.
        meter: Where its calls are counted; a new one if None.
        role: What it is used for; "task" if None.
        guard: Refuses calls over budget or to an unreachable endpoint; without limits if None.
        answers: The answers of earlier calls of the same run.
        replay: Gives the answers of a finished run. `model` is then the name that the model had in
            it, and neither weights nor a key are needed.
        loaded: Models of this process. One that is there is not loaded again; one that is loaded is
            added.
        **options: Changes of `config`, by the names of its fields; any other name is a setting of
            every request. See `ModelConfig.with_options`.

    Raises:
        UserError: DSPy does not take the name, there is no such local model, the model does not
            take a setting, or an address or key is given for an object.
        MissingDependencyError: A local model needs the `local` extra, a GGUF model `models`.
    """
    config = (config or ModelConfig()).with_options(options)
    if config.api_base:
        check_address("--api-base", config.api_base)
    # litellm otherwise fetches a price list over the network when it is imported.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

    if isinstance(model, MeteredLM):
        meter = meter or model.meter
        role = role or model.role
        guard = guard or model.guard
        answers = answers or model.answers
        config = replace(config, prices=config.prices or model.prices)
        replay = replay or model.replay
    metering = Metering(
        meter=meter or Meter(),
        role=role or "task",
        guard=guard or BudgetGuard(),
        answers=answers,
        prices=config.prices,
        replay=replay,
        uses_shared_cache=config.uses_shared_cache,
    )
    if loaded is None:
        loaded = LoadedModels()

    if isinstance(model, str):
        return _model_by_name(model, config, loaded, metering)
    if not isinstance(model, dspy.BaseLM):
        kind = type(model).__name__
        raise UserError(f"language model: expected a name or a dspy.LM, got {kind}")
    _check_no_address(config)
    if is_plain(model):
        lm = _model_by_name(model.model, plain_config(model, config), loaded, metering)
        lm.callbacks = list(model.callbacks)
        return lm
    # Only for its errors: the object has its own form of them.
    request_settings(_without_none(config.settings))
    return forwarding_lm(model, config, metering)


def metered_model(model: str | dspy.BaseLM) -> MeteredLM:
    """Return a model that is metered: itself if it is, and else what `language_model` makes of it.

    Raises:
        UserError: As `language_model`.
    """
    if isinstance(model, MeteredLM):
        return model
    return language_model(model)


def _model_by_name(
    name: str, config: ModelConfig, loaded: LoadedModels, metering: Metering
) -> MeteredLM:
    """Return the model that a name means."""
    settings = request_settings(_without_none(config.settings))
    if name == OFFLINE:
        return _offline_model(config, settings, metering)
    if name.startswith(LOCAL):
        return _local_model(name, config, settings, loaded, metering)
    if name.startswith(GGUF) and metering.replay is None:
        return _gguf_model(name, config, settings, loaded, metering)
    return _endpoint_model(name, config, settings, metering)


def _offline_model(
    config: ModelConfig, settings: Mapping[str, Any], metering: Metering
) -> MeteredLM:
    """Return the model that answers by rules."""
    from .offline.engine import OfflineEngine

    _check_in_process_settings(OFFLINE, settings)
    sampling = {"temperature": 0.0, **settings}
    return MeteredLM(
        "offline/extractive-1",
        metering,
        engine=OfflineEngine(),
        cache=bool(config.cache),
        **sampling,
    )


def _local_model(
    name: str,
    config: ModelConfig,
    settings: Mapping[str, Any],
    loaded: LoadedModels,
    metering: Metering,
) -> MeteredLM:
    """Return a model that torch runs; its weights are loaded once."""
    from .local.engine import local_lm
    from .local.model import LocalModel

    _check_in_process_settings(name, settings)
    if name not in loaded.local:
        loaded.local[name] = LocalModel.load(name.removeprefix(LOCAL))

    sampling = dict(settings)
    if config.repeat and settings.get("temperature"):
        sampling["rollout_id"] = config.repeat
    return local_lm(loaded.local[name], metering, **sampling)


def _gguf_model(
    name: str,
    config: ModelConfig,
    settings: Mapping[str, Any],
    loaded: LoadedModels,
    metering: Metering,
) -> MeteredLM:
    """Return a model that asks llama.cpp's server in this process, started once per file."""
    if name not in loaded.gguf:
        loaded.gguf[name] = _start_gguf_server(name.removeprefix(GGUF), config.slots)
    server = loaded.gguf[name]

    server_config = replace(
        config,
        api_base=server.url,
        api_key=server.key,
        timeout=max(config.timeout, GGUF_TIMEOUT),
    )
    settings = {"max_tokens": GGUF_TOKENS, **settings}
    lm = _endpoint_model(f"openai/{server.model}", server_config, settings, metering, server)
    lm.window = server.context
    return lm


def _endpoint_model(
    name: str,
    config: ModelConfig,
    settings: Mapping[str, Any],
    metering: Metering,
    server: GgufServer | None = None,
) -> MeteredLM:
    """Return a model that asks an endpoint; no call is made.

    Args:
        name: As `dspy.LM` takes it.
        config: How the endpoint is asked.
        settings: Of every request.
        metering: How its calls are counted and limited.
        server: What answers there, if it runs in this process.
    """
    key = config.api_key or None
    if key is None and config.api_base and "OPENAI_API_KEY" not in os.environ:
        # Servers of one's own mostly want no key.
        key = "none"
    engine = Engine(
        name,
        address=config.api_base,
        key=key,
        timeout=config.timeout,
        seconds=config.deadline,
        retries=config.retries,
        server=server,
    )

    sampling = dict(settings)
    sampling["cache"] = config.cache is not False
    if config.repeat and settings.get("temperature") != 0:
        sampling["rollout_id"] = config.repeat

    try:
        lm = MeteredLM(name, metering, **sampling, **engines(engine))
    except (ValueError, LMConfigurationError) as error:
        raise UserError(f"language model {name!r}: {one_line(error, 300)}") from error

    if lm.replay is None:
        engine.check_address()
        check_provider(name, engine)
    return lm


def save_model(lm: MeteredLM, folder: Path) -> str:
    """Save the weights of a local model, and return the name that `language_model` takes.

    Any other model has nothing to save; its name is returned.

    Args:
        lm: The model.
        folder: Where weights are written.
    """
    if not is_local(lm.model):
        return lm.model
    engine: Any = lm.engine
    return f"{LOCAL}{engine.model.save(folder)}"


def _start_gguf_server(name: str, slots: int) -> GgufServer:
    """Start llama.cpp's server for a GGUF file, by its path or the name of known weights."""
    from .gguf import GgufServer, gguf_digest

    path = gguf_file(name)
    digest = gguf_digest(path)
    check_digest(name, path, digest)
    return GgufServer(path, digest, slots)


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _check_no_address(config: ModelConfig) -> None:
    """Refuse an address or key for a model that is an object, which has its own."""
    for name in ("api_base", "api_key"):
        if getattr(config, name) is not None:
            raise UserError(f"{name}: a model that is an object has its own; set it in dspy.LM")


def _check_in_process_settings(model_name: str, settings: Mapping[str, Any]) -> None:
    """Refuse a setting that a model without an endpoint does not take."""
    names = [*settings, *settings.get(BODY_FIELDS, {})]
    for name in names:
        if name != BODY_FIELDS and name not in _IN_PROCESS_SETTINGS:
            known = ", ".join(_IN_PROCESS_SETTINGS)
            raise UserError(f"--lm-set {name}: {model_name} does not take it; it takes {known}")
