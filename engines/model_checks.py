"""Checks of a language model before it is asked, and what a failed call is turned into."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

from dspy.lm15 import Config, LM15Error, Message, Request, UnsupportedModelError
from dspy.utils.exceptions import LMError

from ..errors import EndpointError, UserError
from ..secret_values import Secrets, secrets_of_address
from ..text import one_line
from .endpoint.engine import ADDRESS_OPTION, Engine
from .endpoint.errors import UnreachableError
from .endpoint.loop import run
from .metered_lm import MeteredLM
from .prices import litellm_module, only_keys_are_missing

_CHECK_SECONDS = 5.0
"""Seconds that a server has to answer a check."""


def check_provider(name: str, engine: Engine) -> None:
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


def check_key(lm: MeteredLM) -> None:
    """Refuse a named model whose provider's key is not set; its endpoint is not asked.

    Args:
        lm: A model, as `language_model` returns it.

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


def check_endpoint(lm: MeteredLM) -> None:
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
