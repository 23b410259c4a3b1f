"""Embedding models behind an address: any OpenAI-compatible server, and whatever litellm reaches by its name."""

from __future__ import annotations

import functools
import os
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import EndpointError, UserError, one_line
from ...records import estimate_tokens
from ..spending import Spending, Usage, computing, litellm_module, needed_prices, token_prices

if TYPE_CHECKING:
    from ..guard import Guard
    from ..meter import Meter

BATCH = 64
"""Texts per request to an endpoint."""
RETRIES = 3
"""Further attempts of the client library when an endpoint is busy or away."""
RESERVED = 2
"""How many times their estimated tokens are reserved for texts: tokenizers differ."""


class EndpointEmbedding:
    """Embeds texts at an endpoint, and counts its requests once a run has opened it.

    Args:
        name: Of the model, with `openai/` or without where there is an address.
        base: Address of an OpenAI-compatible server, up to and including its /v1.
    """

    def __init__(self, name: str, base: str | None = None) -> None:
        self._name, self._base = name, base
        # What OpenAI's client calls it; other models are asked by litellm.
        self._model = name.removeprefix("openai/") if base or name.startswith("openai/") else None
        self._run: tuple[Meter, Guard, float | None] | None = None

    def open(self, meter: Meter, guard: Guard) -> None:
        """From here on the meter counts each request as a call, which the guard refuses where a limit is reached.

        Raises:
            UserError: There is a limit of cost, and the model's price is not known.
        """
        prices = needed_prices(self._name, guard.limits.max_usd) or token_prices(self._name)
        self._run = meter, guard, prices and prices[0]

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds distinct texts, none of them blank, as [n, dimension]; errors of litellm derive from openai's.

        Raises:
            EndpointError: It cannot be reached, or answers no vectors.
            UserError: There is no key, or it is refused, or there is no such model.
        """
        import openai

        rows: list[Any] = []
        try:
            for start in range(0, len(texts), BATCH):
                data = self._counted(list(texts[start : start + BATCH])).data
                plain = [row if isinstance(row, dict) else row.model_dump() for row in data]
                rows += [row["embedding"] for row in sorted(plain, key=lambda row: row["index"])]
            return np.array(rows, dtype=np.float32)
        except (openai.OpenAIError, AttributeError, KeyError, TypeError, ValueError) as error:
            said, named = f"{type(error).__name__}: {one_line(error, 300)}", f"embedder {self._name!r}"
            # Asked only after a failure: some providers take credentials from elsewhere, such as AWS profiles.
            missing = [] if self._model else litellm_module().validate_environment(self._name)["missing_keys"]
            if missing:
                raise UserError(f"{named}: {said}; set {' or '.join(missing)} if the key is what is missing") from error
            if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
                raise UserError(f"{named}: the key was refused; check OPENAI_API_KEY or the provider's") from error
            if isinstance(error, openai.BadRequestError | openai.NotFoundError):
                raise UserError(f"{named} was refused, check its name: {said}") from error
            if isinstance(error, openai.OpenAIError):
                raise EndpointError(f"{named}: {said}") from error
            raise EndpointError(f"{named} answered no list of vectors: {said}") from error

    def _counted(self, texts: list[str]) -> Any:
        if self._run is None:
            return self._asked(texts)
        meter, guard, price = self._run
        estimated = sum(map(estimate_tokens, texts))
        most = RESERVED * estimated
        with guard.reserving(Spending(0, most, cost=most * (price or 0.0))):
            guard.admit()
            answer = self._asked(texts)
            told = getattr(getattr(answer, "usage", None), "prompt_tokens", 0)
            tokens = told or estimated
            cost = None if price is None else tokens * price
            paid = {"cost": cost or 0.0, "unpriced": int(cost is None), "estimated": int(not told)}
            meter.include(Usage(Counter(embedding=1), input_tokens=tokens, **paid))
            guard.worked(tokens, cost)
        return answer

    @computing()
    def _asked(self, texts: list[str]) -> Any:
        if self._model is None:
            return litellm_module().embedding(model=self._name, input=texts, max_retries=RETRIES)
        return self._client.embeddings.create(model=self._model, input=texts, encoding_format="float")

    @functools.cached_property
    def _client(self) -> Any:
        import openai

        key = os.environ.get("OPENAI_API_KEY")
        if not key and not self._base:
            told = "set OPENAI_API_KEY, or give the api_base of another server"
            raise UserError(f"embedder {self._name!r} needs a key; {told}")
        # Servers of one's own mostly want no key, but the client insists on one.
        connections = openai.DefaultHttpxClient()
        made = openai.OpenAI(base_url=self._base, api_key=key or "none", max_retries=RETRIES, http_client=connections)
        # It refers to itself: left to the collector, its sockets might go before what closes them.
        weakref.finalize(made, connections.close)
        return made
