"""Whether anybody provides a model of some name, and its key is there: found out before any work and any paid call."""

from __future__ import annotations

import difflib
from typing import Any

from dspy.lm15 import Config, LM15Error, Message, Request, UnsupportedModelError

from ...errors import UserError
from ..prices import litellm_module
from .endpoint import Client, Endpoint
from .engine import Engine
from .loop import run

_PATIENCE = 5.0
"""Seconds that a provider has to say which models it has."""


def check_provider(name: str, endpoint: Endpoint) -> None:
    """Refuses a name of which DSPy would find out only with the first call that nobody provides it.

    Raises:
        UserError: The message says how models are named.
    """
    if endpoint.route(name):
        return
    litellm = litellm_module()
    try:
        litellm.get_llm_provider(name, api_base=endpoint.address)
    except litellm.exceptions.BadRequestError:
        raise UserError(
            f"language model {name!r}: no provider is known for it; write PROVIDER/MODEL, e.g. "
            "openai/gpt-4.1-mini, or openai/NAME with --api-base for an OpenAI-compatible server"
        ) from None


def check_askable(lm: Any) -> None:
    """Refuses a named model that cannot be asked as this process is set up; its endpoint is not asked.

    Args:
        lm: A language model, whose name is known (`check_provider`).

    Raises:
        UserError: The provider's key is not set.
    """
    if not isinstance(lm.engine, Engine):
        return
    name, endpoint = lm.model, lm.engine.endpoint
    if endpoint.route(name):
        _client(name, endpoint)
        return
    found = litellm_module().validate_environment(name, api_key=endpoint.key, api_base=endpoint.address)
    missing = found["missing_keys"]
    # Other settings may come from elsewhere, e.g. the rights of a machine in a cloud.
    if missing and not endpoint.address and all(each.endswith("_API_KEY") for each in missing):
        raise UserError(f"language model {name!r}: there is no key; set {' and '.join(missing)}")


def check_known(lm: Any) -> None:
    """Refuses a named model that its provider does not have.

    The provider's list is asked for, which costs nothing. Some lists lack names that work, so a model that is not in it
    is asked for one token, and refused where the provider then says that there is none. A provider that does not
    answer, or has no list, is no reason to refuse anything.

    Args:
        lm: A language model that can be asked (`check_askable`).

    Raises:
        UserError: There is no such model; the message names those that are called much the same.
    """
    if not isinstance(lm.engine, Engine) or not lm.engine.endpoint.route(lm.model):
        return
    client = _client(lm.model, lm.engine.endpoint)
    listed: list[str] = []
    try:
        listed = [found.id for found in run(client.lm.list_models(), _PATIENCE)]
        ends = (f"/{client.model}", f":{client.model}")
        if listed and not any(name == client.model or name.endswith(ends) for name in listed):
            asked = Request(model=client.model, messages=(Message.user("Hi"),), config=Config(max_tokens=1))
            run(client.lm.complete(asked), _PATIENCE)
    except UnsupportedModelError as error:
        near = difflib.get_close_matches(client.model, listed, 3, 0.5) or listed[:3]
        more = ", ..." if len(listed) > len(near) else ""
        told = f"its provider has no such model; it has {', '.join(near)}{more}"
        raise UserError(f"language model {lm.model!r}: {told}") from error
    except (LM15Error, OSError, ValueError):
        return


def _client(name: str, endpoint: Endpoint) -> Client:
    try:
        return endpoint.client(name)
    except LM15Error as error:
        names = " or ".join(getattr(error, "env_keys", ()))
        reason = f"there is no key; set {names}" if names else str(error).partition("\n")[0]
        raise UserError(f"language model {name!r}: {reason}") from error
