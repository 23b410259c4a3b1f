"""Language models by name: `offline`, `gguf:...` and `local:...` run here; other names go to DSPy unchanged."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
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
from .endpoint import DEADLINE, RETRIES, TIMEOUT
from .endpoint.endpoint import ADDRESS_OPTION, BODY, Engine, engines
from .endpoint.loop import run
from .limits import BudgetGuard
from .meter import Meter, MeteredLM, Role
from .prices import TokenPrices, litellm_module
from .weights import check_digest, gguf_file

if TYPE_CHECKING:
    from .gguf import GgufServer

OFFLINE = "offline"
GGUF = "gguf:"
"""What the name of a model begins with that llama.cpp runs in this process."""
LOCAL = "local:"
"""What the name of a model begins with that runs in this process."""
GGUF_TIMEOUT = 600.0
"""The same of a GGUF model, which reads a long prompt for minutes on few cores."""
_PATIENCE = 5.0
"""Seconds that a provider has to say which models it has."""
GGUF_TOKENS = 1024
"""Most tokens of an answer of it, unless said: a small model may repeat itself until its context is full."""


def language_model(
    name: str = OFFLINE,
    meter: Meter | None = None,
    role: Role = "task",
    api_base: str | None = None,
    guard: BudgetGuard | None = None,
    answers: Any = None,
    prices: TokenPrices | None = None,
    cache: bool | None = None,
    api_key: str | None = None,
    timeout: float = TIMEOUT,
    retries: int = RETRIES,
    deadline: float = DEADLINE,
    repeat: int = 0,
    loaded: dict[str, Any] | None = None,
    slots: int = 1,
    replay: Callable[[Call], CallResult] | None = None,
    **settings: Any,
) -> MeteredLM:
    """Makes a metered language model.

    Args:
        name: `offline`, `gguf:` and a name or path, `local:` and a folder or hub id, or any name `dspy.LM` takes.
        meter: Where its calls are counted; a new one if None.
        role: What it is used for.
        guard: Refuses calls over budget or to an unreachable endpoint.
        answers: Answers of earlier calls of the same run.
        prices: US dollars per input and output token, for answers that come without a cost.
        api_base: Address of an OpenAI-compatible server.
        cache: Whether DSPy's LM cache is used; None means: not for the engines of rules, which are faster than a cache.
            Never for local models, whose weights may change.
        api_key: Shown to the server; None takes the provider's environment variable.
        timeout: Seconds without a byte from the server after which a call has failed.
        retries: How often a call is repeated that could not reach its model.
        deadline: Seconds for a call, its retries and waits included.
        repeat: Which repetition of the same run: from 1 on, a model that samples answers anew instead of from a cache.
        loaded: Models of this process by name: one that is there is not loaded again, one that is not is added.
        slots: Prompts that a GGUF model works on at the same time.
        replay: Gives the answers of a run; `name` is then the one that the model had in it, and neither weights
            nor a key are needed.
        **settings: Of every request: temperature (0 for models in this process), max_tokens, top_p, seed,
            reasoning_effort, or any other field of the body that the endpoint takes, e.g. top_k, chat_template_kwargs.

    Raises:
        UserError: The name is not one DSPy takes, there is no such local model, or it does not take a setting.
        MissingDependencyError: A local model needs the `local` extra, a GGUF model the `models` extra.
    """
    if api_base:
        check_address("--api-base", api_base)
    # litellm otherwise fetches a price list over the network when it is imported.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    shared: dict[str, Any] = {"role": role, "guard": guard, "answers": answers, "prices": prices, "replay": replay}
    live, meter, loaded = replay is None, meter or Meter(), {} if loaded is None else loaded
    settings = request_settings({key: value for key, value in settings.items() if value is not None})
    temperature = settings.get("temperature")
    if name == OFFLINE or name.startswith(LOCAL):
        taken = ("temperature", "max_tokens", "seed")
        if unknown := [each for each in {**settings, **settings.get(BODY, {})} if each not in (*taken, BODY)]:
            raise UserError(f"--lm-set {unknown[0]}: {name} does not take it; it takes {', '.join(taken)}")
    if name == OFFLINE:
        from .offline.engine import OfflineEngine

        sampling = {"temperature": 0.0, **settings, "cache": bool(cache)}
        return MeteredLM("offline/extractive-1", meter, engine=OfflineEngine(), **shared, **sampling)
    if name.startswith(LOCAL):
        from .local.engine import local_lm
        from .local.model import LocalModel

        if name not in loaded:
            loaded[name] = LocalModel.load(name.removeprefix(LOCAL))
        sampling = {"rollout_id": repeat} if repeat and temperature else {}
        return local_lm(loaded[name], meter, **shared, **sampling, **settings)
    settings["cache"] = cache is not False
    if repeat and temperature != 0:
        settings["rollout_id"] = repeat
    server = None
    if name.startswith(GGUF) and live:
        if name not in loaded:
            loaded[name] = _gguf_server(name.removeprefix(GGUF), slots)
        server = loaded[name]
        name, api_base, key = f"openai/{server.model}", server.url, server.key
        timeout = max(timeout, GGUF_TIMEOUT)
        settings.setdefault("max_tokens", GGUF_TOKENS)
    else:
        # Servers of one's own mostly want no key.
        key = api_key or ("none" if api_base and "OPENAI_API_KEY" not in os.environ else None)
    engine = Engine(name, api_base, key, timeout, deadline, retries, server)
    try:
        lm = MeteredLM(name, meter, **shared, **settings, **engines(engine))
    except (ValueError, LMConfigurationError) as error:
        raise UserError(f"language model {name!r}: {one_line(error, 300)}") from error
    if live:
        engine.check_address()
        _check_provider(name, engine)
    lm.window = server and server.context
    return lm


def _gguf_server(name: str, slots: int) -> GgufServer:
    """Start llama.cpp's server for a GGUF file, by its path or the name of known weights."""
    from .gguf import GgufServer, gguf_digest

    path = gguf_file(name)
    digest = gguf_digest(path)
    check_digest(name, path, digest)
    return GgufServer(path, digest, slots)


def request_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of every request as `dspy.LM` takes them; those that it refuses become fields of the body.

    Raises:
        UserError: A name is what each call sets by itself, or a value is none that it may have.
    """
    known, fields = {}, {}
    for name, value in settings.items():
        if name in _PER_CALL:
            raise UserError(f"--lm-set {name}: is no setting of a model; it is set by Mempiler for each call")
        try:
            request_from_openai_chat({"model": "any", "messages": [{"role": "user", "content": "Hi"}], name: value})
        except UnsupportedFeatureError:
            fields[name] = value
        except (TypeError, ValueError) as error:
            raise UserError(f"--lm-set {name}={value}: {one_line(error, 200)}") from error
        else:
            (fields if name in _LIKE_OPTIONS_OF_DSPY else known)[name] = value
    if isinstance(known.get("temperature"), int):
        known["temperature"] = float(known["temperature"])  # 0 and 0.0 are one request
    return {**known, BODY: fields} if fields else known


_PER_CALL = {"model", "messages", "stream", "stream_options", "n", "response_format", "cache", "rollout_id", "timeout"}
_PER_CALL |= {"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"}
_PER_CALL |= {"api_key", "api_base", "base_url", "headers", "extra_headers", "extra_query"}
_LIKE_OPTIONS_OF_DSPY = {BODY, "provider"}


def _check_provider(name: str, engine: Engine) -> None:
    """Refuses a name of which DSPy would find out only with the first call that nobody provides it."""
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
    """Refuses a named model whose provider's key is not set; its endpoint is not asked.

    Args:
        lm: A language model, as `language_model` makes it.

    Raises:
        UserError: The key is not set.
    """
    if not isinstance(lm.engine, Engine):
        return
    engine, told = lm.engine, f"language model {lm.model!r}: "
    try:
        if engine.route(lm.model):
            engine.client(lm.model)
            return
    except LM15Error as error:
        names = " or ".join(getattr(error, "env_keys", ()))
        reason = f"there is no key; set {names}" if names else str(error).partition("\n")[0]
        raise UserError(told + reason) from error
    missing = litellm_module().validate_environment(lm.model, engine.key, engine.address)["missing_keys"]
    # Other settings may come from elsewhere, e.g. the rights of a machine in a cloud.
    if missing and not engine.address and all(each.endswith("_API_KEY") for each in missing):
        raise UserError(f"{told}there is no key; set {' and '.join(missing)}")


def check_known(lm: Any) -> None:
    """Refuse a named model whose server cannot be reached, or whose provider says that it has no such model.

    Lists of models cost nothing, but some lack names that work: a model that is not listed is asked for one token. A
    server that answers late, has no list, or refuses to show it is no reason to refuse anything.

    Raises:
        EndpointError: No connection to the server can be made.
        UserError: There is no such model; the message names those that are called much the same.
    """
    if not isinstance(lm.engine, Engine):
        return
    if not lm.engine.route(lm.model):
        # Asked by litellm, which has no list of models; only an address of one's own can be tried.
        if lm.engine.address:
            _check_reachable(lm.model, lm.engine.address)
        return

    from .endpoint.http import UnreachableError

    client = lm.engine.client(lm.model)
    listed: list[str] = []
    try:
        listed = [model.id for model in run(client.lm.list_models(), _PATIENCE)]
        endings = (f"/{client.model}", f":{client.model}")
        is_listed = any(name == client.model or name.endswith(endings) for name in listed)
        if listed and not is_listed:
            request = Request(model=client.model, messages=(Message.user("Hi"),), config=Config(max_tokens=1))
            run(client.lm.complete(request), _PATIENCE)
    except UnsupportedModelError as error:
        near = difflib.get_close_matches(client.model, listed, 3, 0.5) or listed[:3]
        others = ", ..." if len(listed) > len(near) else ""
        problem = f"its provider has no such model; it has {', '.join(near)}{others}"
        raise UserError(f"language model {lm.model!r}: {problem}") from error
    except UnreachableError as error:
        raise _unreachable(lm.model, error, has_address=lm.engine.address is not None) from error
    except (LM15Error, OSError, ValueError):
        return


def _check_reachable(name: str, address: str) -> None:
    """Refuse the address of a model to which no connection can be made; whatever it answers is good enough.

    Raises:
        EndpointError: It cannot be reached.
    """
    from .endpoint.http import Transport, UnreachableError

    async def connect() -> None:
        request = SimpleNamespace(method="GET", url=address, headers={}, body=b"")
        async with Transport(_PATIENCE, Secrets(secrets_of_address(address))).stream(request):
            pass

    try:
        run(connect(), _PATIENCE)
    except UnreachableError as error:
        raise _unreachable(name, error, has_address=True) from error
    except LM15Error:
        return


def _unreachable(name: str, error: Exception, has_address: bool) -> EndpointError:
    reason = f"its server cannot be reached: {one_line(error, 300)}"
    hint = f"; check the address ({ADDRESS_OPTION})" if has_address else ""
    return EndpointError(f"language model {name!r}: {reason}{hint}")


@contextmanager
def endpoint_errors() -> Iterator[None]:
    """Converts an uncounted failed call into one of Mempiler's errors.

    Raises:
        EndpointError: A call inside the block failed.
    """
    try:
        yield
    except LMError as error:
        raise EndpointError(f"the model could not be asked: {one_line(error, 300)}") from error


def is_offline(name: str) -> bool:
    """Whether a model name means the offline engine, whose scores say nothing about language models."""
    return name == OFFLINE or name.startswith("offline/")


def display_name(name: str) -> str:
    """What tables call a model: the offline engine by the name that `--lm` takes."""
    return OFFLINE if is_offline(name) else name


def keep(lm: MeteredLM, folder: Path) -> str:
    """The name by which `language_model` finds an LM again; the weights of a local one are written for that.

    Args:
        lm: The LM.
        folder: Where weights are written to.
    """
    if not is_local(lm.model):
        return lm.model
    engine: Any = lm.engine
    return f"{LOCAL}{engine.model.save(folder)}"


def is_local(name: str) -> bool:
    """Whether a model name means a model that runs in this process."""
    return name.startswith((LOCAL, "local/"))


def runs_here(name: str) -> bool:
    """Whether a model name needs no server: the offline engine, a model of this process, or one of llama.cpp."""
    return is_offline(name) or is_local(name) or name.startswith(GGUF)


def provider_of(name: str) -> str:
    """The provider that a model name begins with, e.g. "openai"; "" where it names none."""
    provider, slash, _ = name.partition("/")
    return provider if slash else ""
