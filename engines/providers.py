"""Whether anybody provides a model of some name: asked before any work, without asking an endpoint."""

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
