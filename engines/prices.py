"""What tokens cost, by litellm's price table, which ships with the package and needs no network."""

from __future__ import annotations

import os
from typing import Any

from ..errors import UserError

_FREE = ("offline", "local:", "local/", "gguf:")


def litellm_module() -> Any:
    """Litellm itself, which otherwise fetches a price list over the network when it is imported, and advertises."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.suppress_debug_info = True
    return litellm


def token_prices(name: str) -> tuple[float, float] | None:
    """US dollars per input and per output token of a model; None where the table does not know it.

    Args:
        name: A model name as `language_model` takes it; engines of rules, local and GGUF models are free.
    """
    if name.startswith(_FREE):
        return 0.0, 0.0
    table = litellm_module().model_cost
    found = table.get(name) or table.get(name.partition("/")[2])
    if not found or found.get("input_cost_per_token") is None:
        return None
    return float(found["input_cost_per_token"]), float(found.get("output_cost_per_token") or 0.0)


def needed_prices(name: str, max_usd: float | None) -> tuple[float, float] | None:
    """`token_prices` where a cost limit is set, else None.

    Raises:
        UserError: The price is unknown: the limit could not be enforced.
    """
    prices = None if max_usd is None else token_prices(name)
    if max_usd is not None and prices is None:
        raise UserError(f"the price of {name} is not known, so --max-usd cannot hold; use --max-calls or --max-tokens")
    return prices
