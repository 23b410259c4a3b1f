"""Prices of tokens, from litellm's table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import UserError

_FREE_PREFIXES = ("offline", "local:", "local/", "gguf:")
"""What the names of models that run in this process begin with."""


class TokenPrices(NamedTuple):
    """US dollars per token."""

    input: float
    output: float


def litellm_module() -> Any:
    """Import litellm without its side effects, and return it.

    Otherwise its import downloads a price list, and it prints advice with every error.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.suppress_debug_info = True
    return litellm


def only_keys_are_missing(variables: Sequence[str]) -> bool:
    """Return whether keys are missing, and nothing else, among the variables that litellm misses.

    Other settings may come from elsewhere, e.g. the rights of a machine in a cloud. So a model is
    refused before the first call only if nothing but keys is missing.
    """
    return bool(variables) and all(variable.endswith("_API_KEY") for variable in variables)


def token_prices(model_name: str) -> TokenPrices | None:
    """Return the prices of a model; None where litellm's table does not have it.

    Args:
        model_name: A name as `language_model` takes it. Models that run in this process are free.
    """
    if model_name.startswith(_FREE_PREFIXES):
        return TokenPrices(0.0, 0.0)

    table = litellm_module().model_cost
    name_without_provider = model_name.partition("/")[2]
    entry = table.get(model_name) or table.get(name_without_provider)
    if not entry or entry.get("input_cost_per_token") is None:
        return None

    output_price = entry.get("output_cost_per_token") or 0.0
    return TokenPrices(float(entry["input_cost_per_token"]), float(output_price))


def needed_prices(model_name: str, max_usd: float | None) -> TokenPrices | None:
    """Return the prices of a model if a limit of cost needs them, else None.

    Raises:
        UserError: The price is not known, so the limit could not be kept.
    """
    if max_usd is None:
        return None

    prices = token_prices(model_name)
    if prices is None:
        raise UserError(
            f"the price of {model_name} is not known, so --max-usd cannot hold; "
            "use --max-calls or --max-tokens"
        )
    return prices
