"""Whether anybody provides a model of some name, and its key is there: found out before any work and any call."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from typing import Any

from ..errors import UserError


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
    from dspy.lm15 import LM15Error, LMRouter, RouterConfig

    if not isinstance(lm.engine, str):
        return
    selected: Any = select_backend(lm)
    key, base = selected.clients.get("api_key"), selected.clients.get("api_base")
    if not selected.native:
        _check_key(lm.model, key, base)
        return
    provider = selected.resolution.provider
    keys, bases = {provider: key} if key else None, {provider: base} if base else None
    try:
        LMRouter(RouterConfig(api_keys=keys, base_urls=bases)).lm(f"{provider}:{selected.resolution.model}")
    except LM15Error as error:
        names = " or ".join(getattr(error, "env_keys", ()))
        reason = f"there is no key; set {names}" if names else str(error).partition("\n")[0]
        raise UserError(f"language model {lm.model!r}: {reason}") from error


def _check_key(model: str, key: str | None, base: str | None) -> None:
    import litellm

    with redirect_stdout(io.StringIO()):
        missing = litellm.validate_environment(model, api_key=key, api_base=base)["missing_keys"]
    # Other settings may come from elsewhere, e.g. the rights of a machine in a cloud.
    if missing and not base and all(name.endswith("_API_KEY") for name in missing):
        raise UserError(f"language model {model!r}: there is no key; set {' and '.join(missing)}")
