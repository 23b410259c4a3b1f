"""Embedding models behind an address: any OpenAI-compatible server, and whatever litellm reaches by its name.

Both clients are imported, and keys looked for, with the first text. Errors of both become ours, in one line.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import EndpointError, MempilerError, UserError, one_line
from ...records import estimate_tokens
from ..litellm_module import litellm_module

if TYPE_CHECKING:
    from ..guard import Guard
    from ..meter import Meter

BATCH = 64
"""Texts per request to an endpoint."""
RETRIES = 3
"""Further attempts of the client library when an endpoint is busy or away."""

Compute = Callable[[Sequence[str]], np.ndarray]
"""Embeds distinct texts, none of them blank, as [n, dimension]."""


class Account:
    """Counts the requests to an embedding model's endpoint, once a run has opened it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._run: tuple[Meter, Guard, float | None] | None = None

    def open(self, meter: Meter, guard: Guard) -> None:
        """From here on the meter counts each request as a call, which the guard refuses where a limit is reached.

        Raises:
            UserError: There is a limit of cost, and the model's price is not known.
        """
        from ..prices import needed_prices, token_prices

        prices = needed_prices(self._name, guard.limits.max_usd) or token_prices(self._name)
        self._run = meter, guard, prices and prices[0]

    def ask(self, texts: list[str], request: Callable[[list[str]], Any]) -> Any:
        """The answer of the endpoint; tokens are estimated where it does not tell them."""
        from ..meter import PROMPT
        from ..spending import Spending

        if self._run is None:
            return request(texts)
        meter, guard, price = self._run
        estimated = sum(map(estimate_tokens, texts))
        with guard.reserving(Spending(0, PROMPT * estimated, cost=PROMPT * estimated * (price or 0.0))):
            guard.admit()
            answer = request(texts)
            told = getattr(getattr(answer, "usage", None), "prompt_tokens", 0)
            tokens = told or estimated
            cost = None if price is None else tokens * price
            meter.add("embedding", {"prompt_tokens": tokens}, cost, estimated=not told)
            guard.worked(tokens, cost)
        return answer


def openai_compatible(name: str, base: str | None, account: Account) -> Compute:
    """Asks an OpenAI-compatible server, OpenAI itself where no address is given.

    Args:
        name: Of the model, with `openai/` or without.
        base: Address, up to and including its /v1.
        account: Counts the requests.
    """

    @lru_cache(maxsize=1)
    def client() -> Any:
        import openai

        key = os.environ.get("OPENAI_API_KEY")
        if not key and not base:
            raise UserError(
                f"embedder {name!r} needs a key; set OPENAI_API_KEY, or give the api_base of another server"
            )
        # Servers of one's own mostly want no key, but the client insists on one.
        connections = openai.DefaultHttpxClient()
        made = openai.OpenAI(base_url=base, api_key=key or "none", max_retries=RETRIES, http_client=connections)
        # It refers to itself: left to the collector, its sockets might go before what closes them.
        weakref.finalize(made, connections.close)
        return made

    model = name.removeprefix("openai/")
    ask = lambda batch: client().embeddings.create(model=model, input=batch, encoding_format="float")  # noqa: E731
    return lambda texts: _batches(name, texts, lambda batch: account.ask(batch, ask))


def any_litellm(name: str, account: Account) -> Compute:
    """Asks any embedding model of litellm by its name."""

    def compute(texts: Sequence[str]) -> np.ndarray:
        litellm = litellm_module()
        # It otherwise prints advertisements to stdout with every error.
        litellm.suppress_debug_info = True
        embedding: Callable[..., Any] = litellm.embedding
        ask = lambda batch: embedding(model=name, input=batch, max_retries=RETRIES)  # noqa: E731
        try:
            return _batches(name, texts, lambda batch: account.ask(batch, ask))
        except MempilerError as error:
            # Asked only now: some providers take credentials from elsewhere, such as AWS profiles.
            missing = litellm.validate_environment(name)["missing_keys"]
            if missing:
                raise UserError(f"{error}; set {' or '.join(missing)} if the key is what is missing") from error
            raise

    return compute


def _batches(name: str, texts: Sequence[str], request: Callable[[list[str]], Any]) -> np.ndarray:
    """Asks for `BATCH` texts at a time; errors of both clients (litellm's derive from openai's) become ours."""
    import openai

    rows: list[Any] = []
    try:
        for start in range(0, len(texts), BATCH):
            data = request(list(texts[start : start + BATCH])).data
            plain = [row if isinstance(row, dict) else row.model_dump() for row in data]
            rows += [row["embedding"] for row in sorted(plain, key=lambda row: row["index"])]
        return np.array(rows, dtype=np.float32)
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        raise UserError(f"embedder {name!r}: the key was refused; check OPENAI_API_KEY or the provider's") from error
    except (openai.OpenAIError, AttributeError, KeyError, TypeError, ValueError) as error:
        told = f"{type(error).__name__}: {one_line(error, 300)}"
        if isinstance(error, openai.BadRequestError | openai.NotFoundError):
            raise UserError(f"embedder {name!r} was refused, check its name: {told}") from error
        if isinstance(error, openai.OpenAIError):
            raise EndpointError(f"embedder {name!r}: {told}") from error
        raise EndpointError(f"embedder {name!r} answered no list of vectors: {told}") from error
