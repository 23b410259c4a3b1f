"""Embedding models behind an endpoint, under the same rules as language models.

    embedding = EndpointEmbedding("bge-m3", "http://localhost:8000/v1")
    embedding.open(meter, guard)            # from here on, requests are limited and counted
    embedding(["Ann moved to Lisbon"])      # [1, dimension]

An embedder that nobody has opened has the accounting of the call context, if there is one: a run
limits and counts the requests of an embedder that the user made, too.

The way of one request is that of a model's call (`engines.pipeline`):

    slot of the call context -> slot at the endpoint -> reservation -> guard
    -> endpoint -> meter and guard

What waits for a slot has asked for nothing yet. It is not counted if its deadline passes, and it is
refused if the guard finds the endpoint dead meanwhile.

Meter and guard count what is paid for. `measure_usage` does not count embeddings. It says what a
piece of work takes, which is always the same; but which texts still need a request depends on what
other work has embedded before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from dspy.clients.errors import error_boundary
from dspy.utils.exceptions import LMAuthError, LMError, LMInvalidRequestError

from ...errors import EndpointError, MempilerError, UserError
from ...records import estimate_tokens, fewest_tokens
from ...text import one_line
from ..call_context import Accounting, RequestGuard, UsageCounter, current_context
from ..fair_semaphore import compute_slot
from ..prices import needed_prices, token_prices
from ..token_counts import believable_count
from ..usage import Usage, UsageReport
from .embedding_clients import (
    NO_VECTORS,
    EmbeddingAnswer,
    EmbeddingClient,
    LitellmEmbeddings,
    OpenAIEmbeddings,
)
from .errors import AbandonedCallError
from .waits import Waits

TEXTS_PER_REQUEST = 64
RESERVED_FACTOR = 2
"""How many times their estimated tokens are reserved for texts: tokenizers differ."""
SMALLEST_WINDOW = 256
"""Tokens of a text that every model reads. A model may cut off the rest, and not count it."""

_OPENAI_PREFIX = "openai/"


class EndpointEmbedding:
    """Embed texts at an endpoint.

    Args:
        name: Of the model. A name that begins with `openai/`, and every name with an address, is
            that of an OpenAI-compatible server; any other is asked by litellm.
        address: Of an OpenAI-compatible server, up to and including its /v1.
    """

    def __init__(self, name: str, address: str | None = None) -> None:
        self._name = name
        self._endpoint = address or name.partition("/")[0]
        self._client = _client_for(name, address)

        self.waits = Waits()
        """How long a request may take; may be replaced."""
        self.accounting: Accounting | None = None
        """Who limits and counts the requests; None takes that of the call context."""

    def open(self, meter: UsageCounter, guard: RequestGuard) -> None:
        """Let a guard limit all further requests, and a meter count them.

        Raises:
            UserError: There is a limit of cost, and the model's price is not known.
        """
        # Raises the UserError now, before anything is paid for.
        self._price(guard)
        self.accounting = Accounting(meter, guard)

    def check(self) -> None:
        """Refuse a model that could not be asked; nothing is embedded, so nothing is paid.

        Raises:
            UserError: Nobody provides it, or its key is not set.
            EndpointError: Its server cannot be reached.
        """
        self._client.check()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embed distinct texts, none of them blank.

        Returns:
            float32 [texts, dimension].

        Raises:
            EndpointError: The endpoint cannot be reached or answers no vectors, or the guard
                refuses to ask it for a while.
            UserError: There is no key, or it is refused, or there is no such model.
            BudgetError: A limit is reached.
            AbandonedCallError: The deadline of the work that wants the vectors has passed.
        """
        rows: list[Any] = []
        try:
            for start in range(0, len(texts), TEXTS_PER_REQUEST):
                batch = texts[start : start + TEXTS_PER_REQUEST]
                with compute_slot():
                    vectors = self._embed_batch(batch)
                # Checked for each request: a lack in one and a surplus in the next would give texts
                # the vectors of other texts.
                if len(vectors) != len(batch):
                    raise EndpointError(
                        f"embedder {self._name!r} answered {len(vectors)} vectors for "
                        f"{len(batch)} texts"
                    )
                rows.extend(vectors)
        except AbandonedCallError:
            raise
        except LMError as error:
            raise self._explain(error) from error

        try:
            return np.array(rows, dtype=np.float32)
        except (TypeError, ValueError) as error:
            self._client.secrets.hide_in_error(error)  # it quotes what is no number
            reason = one_line(error, 200)
            raise EndpointError(f"embedder {self._name!r} {NO_VECTORS}: {reason}") from error

    def _embed_batch(self, texts: Sequence[str]) -> list[Any]:
        """Return the vectors of one request; limit and count it if there is an accounting.

        The request waits for a slot at the endpoint and for room in the budget.

        Raises:
            LMError: There is no answer.
            BudgetError, EndpointError, UserError: The guard refuses the request, or its price is
                needed and not known.
        """
        accounting = self.accounting or current_context().accounting
        if accounting is None:
            return self._ask(texts).vectors

        guard = accounting.guard
        try:
            price = self._price(guard)
        except UserError as error:
            # Optimizers would take it for a wrong answer, and go on paying.
            guard.stop(error)
            raise

        estimated_tokens = sum(map(estimate_tokens, texts))
        reserved_tokens = RESERVED_FACTOR * estimated_tokens
        reserved_cost = reserved_tokens * (price or 0.0)
        # No call is reserved: `admit` counts it before it is made.
        reservation = Usage(
            calls=0,
            input_tokens=reserved_tokens,
            cost=reserved_cost,
            unpriced=int(price is None),
        )

        with guard.slots(self._endpoint).slot(), guard.reserve(reservation):
            guard.admit()
            try:
                answer = self._ask(texts)
            except LMError as error:
                accounting.meter.include(UsageReport(failed=1))
                # If the failure ends the run, the guard raises an error. The error of this request
                # says more, so that is raised; the guard refuses the next request.
                with suppress(MempilerError):
                    guard.record_failure(error)
                raise

            tokens = _believed_tokens(texts, answer.reported_tokens)
            _count_answer(accounting, tokens, estimated_tokens, price)
        return answer.vectors

    def _price(self, guard: RequestGuard) -> float | None:
        """Return US dollars per token; None if the price is not known.

        Raises:
            UserError: It is not known, and the guard has a limit of cost.
        """
        prices = token_prices(self._name)
        if guard.limits.max_usd is not None:
            # Raises the UserError if the price is not known.
            prices = needed_prices(self._name, guard.limits.max_usd)
        return None if prices is None else prices.input

    def _ask(self, texts: Sequence[str]) -> EmbeddingAnswer:
        """Send one request, and wait for its answer, retries and waits included.

        Raises:
            LMError: There is no answer.
        """
        # Secrets are hidden at once: whoever counts the failure keeps what the error says.
        with error_boundary(self._name), self._client.secrets.hiding():
            return self._client.embed(texts, self.waits)

    def _explain(self, error: LMError) -> MempilerError:
        """Return the error for whoever wants the vectors: it names the embedder and the fix."""
        name = f"embedder {self._name!r}"
        status = f"status {error.status}: " if error.status else ""
        reason = f"{status}{one_line(error.message, 300)}"

        # Asked after a failure only: some providers take a key from elsewhere, e.g. AWS profiles.
        missing = self._client.missing_keys()
        if missing:
            variables = " or ".join(missing)
            return UserError(f"{name}: {reason}; set {variables} if the key is what is missing")
        if isinstance(error, LMAuthError):
            return UserError(f"{name}: the key was refused; check OPENAI_API_KEY or the provider's")
        if isinstance(error, LMInvalidRequestError):
            return UserError(f"{name} was refused, check its name: {reason}")
        return EndpointError(f"{name}: {reason}")


def _client_for(name: str, address: str | None) -> EmbeddingClient:
    """Return the client that asks a model."""
    if address is None and not name.startswith(_OPENAI_PREFIX):
        return LitellmEmbeddings(name)
    return OpenAIEmbeddings(name, name.removeprefix(_OPENAI_PREFIX), address)


def _believed_tokens(texts: Sequence[str], reported_tokens: object) -> int | None:
    """Return the tokens that an endpoint reports for texts; None if they cannot be true."""
    fewest = sum(min(fewest_tokens(text), SMALLEST_WINDOW) for text in texts)
    # A reported 0 means that the endpoint does not count.
    return believable_count(reported_tokens or None, fewest)


def _count_answer(
    accounting: Accounting,
    believed_tokens: int | None,
    estimated_tokens: int,
    price: float | None,
) -> None:
    """Tell the meter and the guard what an answered request used.

    Args:
        accounting: The meter and the guard.
        believed_tokens: The tokens that the endpoint reports, if that number can be true. None
            means that our estimate counts.
        estimated_tokens: Our estimate.
        price: US dollars per token; None if it is not known.
    """
    tokens = estimated_tokens if believed_tokens is None else believed_tokens
    cost = None if price is None else tokens * price
    report = UsageReport(
        calls=Counter(embedding=1),
        input_tokens=tokens,
        cost=cost or 0.0,
        # Numbers of requests: 1 for this one, or 0.
        unpriced=1 if cost is None else 0,
        estimated=1 if believed_tokens is None else 0,
    )
    accounting.meter.include(report)
    accounting.guard.record_success(tokens, cost)
