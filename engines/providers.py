"""Whether anybody provides a model of some name, and its key is there: found out before any work and any paid call."""

from __future__ import annotations

import difflib
import io
import os
from contextlib import closing, redirect_stdout
from typing import Any

from ..errors import UserError

_PATIENCE = 5.0
"""Seconds that a provider has to say which models it has."""


def check_provider(lm: Any, api_base: str | None = None) -> None:
    """Refuses a named model of which DSPy would find out only with the first call that nobody provides it.

    Args:
        lm: A `dspy.LM`.
        api_base: Address of its server.

    Raises:
        UserError: The message says how models are named.
    """
    from dspy.clients.backend_selection import select_backend

    selected: Any = select_backend(lm)
    if selected.native:
        return
    # It otherwise fetches a price list over the network when it is imported.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    try:
        with redirect_stdout(io.StringIO()):  # it prints an advertisement
            litellm.get_llm_provider(lm.model, api_base=api_base)
    except litellm.exceptions.BadRequestError:
        raise UserError(
            f"language model {lm.model!r}: no provider is known for it; write PROVIDER/MODEL, e.g. "
            "openai/gpt-4.1-mini, or openai/NAME with --api-base for an OpenAI-compatible server"
        ) from None


def check_askable(lm: Any) -> None:
    """Refuses a named model that cannot be asked as this process is set up; its endpoint is not asked.

    Args:
        lm: A `dspy.LM`, whose name is known (`check_provider`).

    Raises:
        UserError: The provider's key is not set.
    """
    from dspy.clients.backend_selection import select_backend

    if not isinstance(lm.engine, str):
        return
    selected: Any = select_backend(lm)
    if selected.native:
        _router(lm, selected)
    else:
        _check_key(lm.model, selected.clients.get("api_key"), selected.clients.get("api_base"))


def check_known(lm: Any) -> None:
    """Refuses a named model that its provider does not have.

    The provider's list is asked for, which costs nothing. Some lists lack names that work, so a model that is not in it
    is asked for one token, and refused where the provider then says that there is none. A provider that does not
    answer, or has no list, is no reason to refuse anything.

    Args:
        lm: A `dspy.LM` that can be asked (`check_askable`).

    Raises:
        UserError: There is no such model; the message names those that are called much the same.
    """
    from dspy.clients.backend_selection import select_backend
    from dspy.lm15 import Config, LM15Error, Message, Request, UnsupportedModelError

    selected: Any = select_backend(lm) if isinstance(lm.engine, str) else None
    if selected is None or not selected.native:
        return
    model, router = selected.resolution.model, _router(lm, selected)
    with closing(router):
        provider = router.lm(f"{selected.resolution.provider}:{model}")
        listed: list[str] = []
        try:
            listed = [found.id for found in provider.list_models()]
            if listed and not any(name == model or name.endswith((f"/{model}", f":{model}")) for name in listed):
                provider.complete(Request(model=model, messages=(Message.user("Hi"),), config=Config(max_tokens=1)))
        except UnsupportedModelError as error:
            near = difflib.get_close_matches(model, listed, 3, 0.5) or listed[:3]
            told = f"its provider has no such model; it has {', '.join(near)}"
            raise UserError(
                f"language model {lm.model!r}: {told}{', ...' if len(listed) > len(near) else ''}"
            ) from error
        except (LM15Error, OSError, ValueError):
            return


def _router(lm: Any, selected: Any) -> Any:
    """What reaches the provider of a model, with its key.

    Raises:
        UserError: The key is not set.
    """
    from dspy.lm15 import LM15Error, LMRouter, RouterConfig, Timeouts

    provider, clients = selected.resolution.provider, selected.clients
    keys, bases = ({provider: clients[name]} if clients.get(name) else None for name in ("api_key", "api_base"))
    waits = Timeouts(connect=_PATIENCE, read=_PATIENCE)
    router = LMRouter(RouterConfig(api_keys=keys, base_urls=bases, timeouts=waits))
    try:
        router.lm(f"{provider}:{selected.resolution.model}")
    except LM15Error as error:
        names = " or ".join(getattr(error, "env_keys", ()))
        reason = f"there is no key; set {names}" if names else str(error).partition("\n")[0]
        raise UserError(f"language model {lm.model!r}: {reason}") from error
    return router


def _check_key(model: str, key: str | None, base: str | None) -> None:
    import litellm

    with redirect_stdout(io.StringIO()):
        missing = litellm.validate_environment(model, api_key=key, api_base=base)["missing_keys"]
    # Other settings may come from elsewhere, e.g. the rights of a machine in a cloud.
    if missing and not base and all(name.endswith("_API_KEY") for name in missing):
        raise UserError(f"language model {model!r}: there is no key; set {' and '.join(missing)}")
