"""What tokens cost, by litellm's price table, which ships with the package and needs no network."""

from __future__ import annotations

from ..errors import UserError
from .litellm_module import litellm_module
from .models import GGUF, is_local, is_offline


def token_prices(name: str) -> tuple[float, float] | None:
    """US dollars per input and per output token of a model; None where the table does not know it.

    Args:
        name: A model name as `language_model` takes it; engines of rules, local and GGUF models are free.
    """
    if is_offline(name) or is_local(name) or name.startswith(GGUF):
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
