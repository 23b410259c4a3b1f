"""Language models by name.

| name | model |
|---|---|
| `offline` | rules, no language model: for tests and demonstrations |
| `gguf:NAME` | a GGUF file by its path, or known weights; llama.cpp runs it in this process |
| `local:NAME` | a folder or hub id; torch runs it in this process, and it can be trained |
| any other | what `dspy.LM` takes, e.g. `openai/gpt-4.1-mini` |
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspy.clients.call_result import CallResult
from dspy.lm15 import (
    Config,
    LM15Error,
    Message,
    Request,
    UnsupportedFeatureError,
    UnsupportedModelError,
    request_from_openai_chat,
)
from dspy.utils.exceptions import LMConfigurationError, LMError

from ..errors import EndpointError, UserError
from ..secret_values import Secrets, secrets_of_address
from ..text import one_line
from ..validation import check_address
from .call import Call
from .dspy_internals import BODY_FIELDS
from .endpoint.engine import ADDRESS_OPTION, Engine, engines
from .endpoint.errors import UnreachableError
from .endpoint.loop import run
from .limits import BudgetGuard
from .meter import Meter, MeteredLM
from .model_config import ModelConfig
from .pipeline import AnswerStore
from .prices import litellm_module, only_keys_are_missing
from .usage import Role
from .weights import check_digest, gguf_file

if TYPE_CHECKING:
    from .gguf import GgufServer

OFFLINE = "offline"
GGUF = "gguf:"
"""What the name of a model begins with that llama.cpp runs in this process."""
LOCAL = "local:"
"""What the name of a model begins with that torch runs in this process."""
GGUF_TIMEOUT = 600.0
"""Shortest timeout of a GGUF model, in seconds: on few cores a long prompt takes minutes."""
GGUF_TOKENS = 1024
"""Most tokens of a GGUF model's answer by default: a small model may repeat itself for ever."""
_CHECK_SECONDS = 5.0
"""Seconds that a server has to answer a check."""
_IN_PROCESS_SETTINGS = ("temperature", "max_tokens", "seed")
"""Settings that the offline engine and local models take."""

_SET_PER_CALL = {
    "api_base",
    "api_key",
    "base_url",
    "cache",
    "extra_headers",
    "extra_query",
    "function_call",
    "functions",
    "headers",
    "messages",
    "model",
    "n",
    "parallel_tool_calls",
    "response_format",
    "rollout_id",
    "stream",
    "stream_options",
    "timeout",
    "tool_choice",
    "tools",
}
"""Fields of a request that are no settings of a model: they differ from call to call."""
_OPTIONS_OF_DSPY = {BODY_FIELDS, "provider"}
"""Fields of a body that DSPy would take for options of its own."""


def language_model(
    name: str = OFFLINE,
    config: ModelConfig | None = None,
    *,
    meter: Meter | None = None,
    role: Role = "task",
    guard: BudgetGuard | None = None,
    answers: AnswerStore | None = None,
    replay: Callable[[Call], CallResult] | None = None,
    loaded: dict[str, Any] | None = None,
    **options: Any,
) -> MeteredLM:
    """Make a metered language model.

        lm = language_model("offline")
        lm = language_model("openai/qwen3", api_base="http://localhost:8000/v1", temperature=0.2)
        lm = language_model("openai/qwen3", ModelConfig(timeout=30), guard=guard)

    Args:
        name: `offline`, `gguf:` and a name or path, `local:` and a folder or hub id, or any name
            that `dspy.LM` takes.
        config: How the model is asked.
        meter: Where its calls are counted; a new one if None.
        role: What it is used for.
        guard: Refuses calls over budget or to an unreachable endpoint.
        answers: The answers of earlier calls of the same run.
        replay: Gives the answers of a finished run. `name` is then the one that the model had in
            it, and neither weights nor a key are needed.
        loaded: Models of this process by name. One that is there is not loaded again; one that is
            loaded is added.
        **options: Changes of `config`, by the names of its fields; any other name is a setting of
            every request. See `ModelConfig.with_options`.

    Raises:
        UserError: DSPy does not take the name, there is no such local model, or the model does not
            take a setting.
        MissingDependencyError: A local model needs the `local` extra, a GGUF model `models`.
    """
    config = (config or ModelConfig()).with_options(options)
    if config.api_base:
        check_address("--api-base", config.api_base)
    # litellm otherwise fetches a price list over the network when it is imported.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    settings = request_settings(_without_none(config.settings))

    # How `MeteredLM` counts, limits and answers the calls, whatever model it is.
    metering: dict[str, Any] = {
        "meter": meter or Meter(),
        "role": role,
        "guard": guard,
        "answers": answers,
        "prices": config.prices,
        "replay": replay,
    }
    if loaded is None:
        loaded = {}

    if name == OFFLINE:
        return _offline_model(config, settings, metering)
    if name.startswith(LOCAL):
        return _local_model(name, config, settings, loaded, metering)
    if name.startswith(GGUF) and replay is None:
        return _gguf_model(name, config, settings, loaded, metering)
    return _endpoint_model(name, config, settings, metering)


def _offline_model(
    config: ModelConfig, settings: Mapping[str, Any], metering: Mapping[str, Any]
) -> MeteredLM:
    """Make the model that answers by rules."""
    from .offline.engine import OfflineEngine

    _check_in_process_settings(OFFLINE, settings)
    sampling = {"temperature": 0.0, **settings}
    return MeteredLM(
        "offline/extractive-1",
        engine=OfflineEngine(),
        cache=bool(config.cache),
        **metering,
        **sampling,
    )


def _local_model(
    name: str,
    config: ModelConfig,
    settings: Mapping[str, Any],
    loaded: dict[str, Any],
    metering: Mapping[str, Any],
) -> MeteredLM:
    """Make a model that torch runs, from weights that are loaded already where possible."""
    from .local.engine import local_lm
    from .local.model import LocalModel

    _check_in_process_settings(name, settings)
    if name not in loaded:
        loaded[name] = LocalModel.load(name.removeprefix(LOCAL))

    sampling = dict(settings)
    if config.repeat and settings.get("temperature"):
        sampling["rollout_id"] = config.repeat
    return local_lm(loaded[name], **metering, **sampling)


def _gguf_model(
    name: str,
    config: ModelConfig,
    settings: Mapping[str, Any],
    loaded: dict[str, Any],
    metering: Mapping[str, Any],
) -> MeteredLM:
    """Make a model that asks llama.cpp's server in this process, which is started once per file."""
    if name not in loaded:
        loaded[name] = _gguf_server(name.removeprefix(GGUF), config.slots)
    server: GgufServer = loaded[name]

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
    metering: Mapping[str, Any],
    server: GgufServer | None = None,
) -> MeteredLM:
    """Make a model that asks an endpoint; no call is made.

    Args:
        name: As `dspy.LM` takes it.
        config: How the endpoint is asked.
        settings: Of every request.
        metering: Arguments of `MeteredLM`.
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
        lm = MeteredLM(name, **metering, **sampling, **engines(engine))
    except (ValueError, LMConfigurationError) as error:
        raise UserError(f"language model {name!r}: {one_line(error, 300)}") from error

    if lm.replay is None:
        engine.check_address()
        _check_provider(name, engine)
    return lm


def _gguf_server(name: str, slots: int) -> GgufServer:
    """Start llama.cpp's server for a GGUF file, by its path or the name of known weights."""
    from .gguf import GgufServer, gguf_digest

    path = gguf_file(name)
    digest = gguf_digest(path)
    check_digest(name, path, digest)
    return GgufServer(path, digest, slots)


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _check_in_process_settings(model_name: str, settings: Mapping[str, Any]) -> None:
    """Refuse a setting that a model without an endpoint does not take."""
    names = [*settings, *settings.get(BODY_FIELDS, {})]
    for name in names:
        if name != BODY_FIELDS and name not in _IN_PROCESS_SETTINGS:
            known = ", ".join(_IN_PROCESS_SETTINGS)
            raise UserError(f"--lm-set {name}: {model_name} does not take it; it takes {known}")


def request_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of every request as `dspy.LM` takes them.

    Those that DSPy refuses become fields of the body, which the endpoint gets as they are.

    Raises:
        UserError: A name is set by each call itself, or may not have its value.
    """
    known: dict[str, Any] = {}
    body_fields: dict[str, Any] = {}
    for name, value in settings.items():
        if _is_known_to_dspy(name, value):
            known[name] = value
        else:
            body_fields[name] = value

    if isinstance(known.get("temperature"), int):
        known["temperature"] = float(known["temperature"])  # 0 and 0.0 are one request
    if body_fields:
        known[BODY_FIELDS] = body_fields
    return known


def _is_known_to_dspy(name: str, value: Any) -> bool:
    """Tell whether DSPy takes a setting; otherwise it is a field of the body.

    Raises:
        UserError: As `request_settings`.
    """
    if name in _SET_PER_CALL:
        reason = "is no setting of a model; it is set by Mempiler for each call"
        raise UserError(f"--lm-set {name}: {reason}")

    message = {"role": "user", "content": "Hi"}
    try:
        request_from_openai_chat({"model": "any", "messages": [message], name: value})
    except UnsupportedFeatureError:
        return False
    except (TypeError, ValueError) as error:
        raise UserError(f"--lm-set {name}={value}: {one_line(error, 200)}") from error
    return name not in _OPTIONS_OF_DSPY


def _check_provider(name: str, engine: Engine) -> None:
    """Refuse a name that nobody provides; DSPy would find that out only with the first call."""
    if engine.route(name):
        return

    litellm = litellm_module()
    try:
        litellm.get_llm_provider(name, api_base=engine.address)
    except litellm.exceptions.BadRequestError:
        raise UserError(
            f"language model {name!r}: no provider is known for it; write PROVIDER/MODEL, e.g. "
            "openai/gpt-4.1-mini, or openai/NAME with --api-base for an OpenAI-compatible server"
        ) from None


def check_askable(lm: Any) -> None:
    """Refuse a named model whose provider's key is not set; its endpoint is not asked.

    Args:
        lm: A language model, as `language_model` makes it.

    Raises:
        UserError: The key is not set.
    """
    engine = lm.engine
    if not isinstance(engine, Engine):
        return

    try:
        if engine.route(lm.model):
            engine.client(lm.model)
            return
    except LM15Error as error:
        variables = " or ".join(getattr(error, "env_keys", ()))
        reason = str(error).partition("\n")[0]
        if variables:
            reason = f"there is no key; set {variables}"
        raise UserError(f"language model {lm.model!r}: {reason}") from error

    environment = litellm_module().validate_environment(lm.model, engine.key, engine.address)
    missing = environment["missing_keys"]
    if only_keys_are_missing(missing) and not engine.address:
        reason = f"there is no key; set {' and '.join(missing)}"
        raise UserError(f"language model {lm.model!r}: {reason}")


def check_known(lm: Any) -> None:
    """Refuse a named model whose server cannot be reached, or whose provider has no such model.

    The provider's list of models costs nothing, but may lack names that work. So a model that is
    not listed is asked for one token. A server that answers late, has no list, or does not show it,
    is no reason to refuse anything.

    Raises:
        EndpointError: No connection to the server can be made.
        UserError: There is no such model; the message names similar ones.
    """
    engine = lm.engine
    if not isinstance(engine, Engine):
        return
    if not engine.route(lm.model):
        # litellm asks this provider and has no list of models. Only an address can be tried.
        if engine.address:
            _check_reachable(lm.model, engine.address)
        return

    client = engine.client(lm.model)
    listed: list[str] = []
    try:
        listed = [model.id for model in run(client.lm.list_models(), _CHECK_SECONDS)]
        if listed and not _is_listed(client.model, listed):
            question = (Message.user("Hi"),)
            one_token = Config(max_tokens=1)
            request = Request(model=client.model, messages=question, config=one_token)
            run(client.lm.complete(request), _CHECK_SECONDS)
    except UnsupportedModelError as error:
        raise _unknown_model(lm.model, client.model, listed) from error
    except UnreachableError as error:
        raise _unreachable(lm.model, error, has_address=engine.address is not None) from error
    except (LM15Error, OSError, ValueError):
        return


def _is_listed(model: str, listed: list[str]) -> bool:
    """Tell whether a list has a model; it may put an owner or a kind before the name."""
    endings = (f"/{model}", f":{model}")
    return any(name == model or name.endswith(endings) for name in listed)


def _unknown_model(name: str, model: str, listed: list[str]) -> UserError:
    """Return the error for a model that its provider does not have."""
    similar = difflib.get_close_matches(model, listed, 3, 0.5) or listed[:3]
    others = ", ..." if len(listed) > len(similar) else ""
    problem = f"its provider has no such model; it has {', '.join(similar)}{others}"
    return UserError(f"language model {name!r}: {problem}")


def _check_reachable(name: str, address: str) -> None:
    """Refuse an address to which no connection can be made; whatever it answers is good enough.

    Raises:
        EndpointError: It cannot be reached.
    """
    from .endpoint.transport import PlainRequest, Transport

    async def connect() -> None:
        request = PlainRequest("GET", address)
        transport = Transport(_CHECK_SECONDS, Secrets(secrets_of_address(address)))
        async with transport.stream(request):
            pass

    try:
        run(connect(), _CHECK_SECONDS)
    except UnreachableError as error:
        raise _unreachable(name, error, has_address=True) from error
    except LM15Error:
        return


def _unreachable(name: str, error: Exception, has_address: bool) -> EndpointError:
    """Return the error for a server that cannot be reached."""
    reason = f"its server cannot be reached: {one_line(error, 300)}"
    hint = f"; check the address ({ADDRESS_OPTION})" if has_address else ""
    return EndpointError(f"language model {name!r}: {reason}{hint}")


@contextmanager
def endpoint_errors() -> Iterator[None]:
    """Turn a failed call inside the block into an error of Mempiler's.

    Raises:
        EndpointError: A call inside the block failed.
    """
    try:
        yield
    except LMError as error:
        raise EndpointError(f"the model could not be asked: {one_line(error, 300)}") from error


def is_offline(name: str) -> bool:
    """Tell whether a name means the offline engine, whose scores say nothing about models."""
    return name == OFFLINE or name.startswith("offline/")


def display_name(name: str) -> str:
    """Return what tables call a model: the offline engine by the name that `--lm` takes."""
    return OFFLINE if is_offline(name) else name


def keep(lm: MeteredLM, folder: Path) -> str:
    """Return the name by which `language_model` finds a model again.

    Args:
        lm: The model.
        folder: Where the weights of a local model are written for that.
    """
    if not is_local(lm.model):
        return lm.model
    engine: Any = lm.engine
    return f"{LOCAL}{engine.model.save(folder)}"


def is_local(name: str) -> bool:
    """Tell whether a name means a model that torch runs in this process."""
    return name.startswith((LOCAL, "local/"))


def runs_here(name: str) -> bool:
    """Tell whether a model needs no server elsewhere: offline, local, or one of llama.cpp's."""
    return is_offline(name) or is_local(name) or name.startswith(GGUF)


def provider_of(name: str) -> str:
    """Return the provider that a name begins with, e.g. "openai"; "" where it names none."""
    provider, slash, _ = name.partition("/")
    return provider if slash else ""
