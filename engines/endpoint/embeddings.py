"""Embedding models behind an address: any OpenAI-compatible server, and whatever litellm reaches by its name.

Requests run in the loop of the endpoints (`loop`), so they end at their own deadline and at that of the work that
wants the vectors.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
from dspy.clients.errors import error_boundary
from dspy.lm15 import LM15Error, ProviderError, TransportError
from dspy.lm15 import TimeoutError as EndpointTimeoutError
from dspy.utils.exceptions import LMAuthError, LMError, LMInvalidRequestError

from ...errors import EndpointError, MempilerError, UserError
from ...records import estimate_tokens, fewest_tokens
from ...secret_values import Secrets, secrets_of_address, secrets_of_environment
from ...text import one_line
from ..fair_semaphore import compute_slot
from ..prices import litellm_module, needed_prices, token_prices
from ..token_counts import believable_count
from ..usage import Usage, UsageReport
from .errors import AbandonedCallError, UnreachableError, error_of_status, retry_after_of
from .loop import run
from .retry import with_retries
from .waits import Waits

if TYPE_CHECKING:
    from ..limits import BudgetGuard
    from ..meter import Meter
    from .transport import Transport

BATCH = 64
"""Texts per request to an endpoint."""
PATIENCE = 5.0
"""Seconds that an endpoint has to say which models it has."""
RESERVED = 2
"""How many times their estimated tokens are reserved for texts: tokenizers differ."""
SMALLEST_WINDOW = 256
"""Tokens of a text that every embedder reads; what is behind them may be cut off, and is not counted then."""
MOST_BYTES = 64_000_000
"""Most bytes of a reply: 64 vectors of 8,192 numbers take 13 million."""
OPENAI = "https://api.openai.com/v1"
_ACCOUNT_HEADERS = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}
"""Headers that say which account of OpenAI's pays, by the variables that hold them."""
_NO_VECTORS = "answered no list of vectors"


@dataclass(frozen=True)
class Accounting:
    """Who counts the requests of an embedder, and may refuse them."""

    meter: Meter
    guard: BudgetGuard
    price: float | None
    """US dollars per token; None if it is not known."""


@dataclass(frozen=True)
class _Answer:
    """What an endpoint answered to one request."""

    vectors: list[Any]
    tokens: object
    """Those that the endpoint reports, of any kind; None if it reports none."""


class EndpointEmbedding:
    """Embeds texts at an endpoint, and counts its requests once a run or a service has opened it.

    Args:
        name: Of the model, with `openai/` or without where there is an address.
        base: Address of an OpenAI-compatible server, up to and including its /v1.
    """

    def __init__(self, name: str, base: str | None = None) -> None:
        self._name, self._base = name, base
        # What an OpenAI-compatible server calls it; other models are asked by litellm.
        self._model = name.removeprefix("openai/") if base or name.startswith("openai/") else None
        self.waits = Waits()
        """How long a request may take; whoever opens or makes it may set others."""
        self.accounting: Accounting | None = None
        """Who counts the requests; None before it was opened."""

    def open(self, meter: Meter, guard: BudgetGuard) -> None:
        """Count each request as a call from here on, and let the guard refuse it.

        Raises:
            UserError: There is a limit of cost, and the model's price is not known.
        """
        prices = needed_prices(self._name, guard.limits.max_usd) or token_prices(self._name)
        self.accounting = Accounting(meter, guard, prices and prices.input)

    def check(self) -> None:
        """Refuse a model that could not be asked; nothing is embedded, and nothing is paid.

        Raises:
            UserError: Nobody provides it, or its key is not set.
            EndpointError: No connection to its server can be made.
        """
        if self._model is None:
            self._check_provider()
            return

        from .transport import Transport

        request = SimpleNamespace(method="GET", url=f"{self._address}/models", headers=self._headers(), body=b"")
        try:
            run(_fetch(Transport(PATIENCE, self._secrets), request), PATIENCE)
        except UnreachableError as error:
            raise EndpointError(
                f"embedder {self._name!r}: its server cannot be reached: {one_line(error, 200)}"
            ) from error
        except LM15Error:
            # It answers late, has no list of models, or does not show it.
            return

    def _check_provider(self) -> None:
        """Refuse a model that litellm does not know whom to ask for, or has no key for."""
        litellm = litellm_module()
        try:
            litellm.get_llm_provider(self._name)
        except litellm.exceptions.BadRequestError:
            fix = "write PROVIDER/MODEL, or openai/NAME with --embedder-api-base for an OpenAI-compatible server"
            raise UserError(f"embedder {self._name!r}: no provider is known for it; {fix}") from None
        missing = litellm.validate_environment(self._name)["missing_keys"]
        # Other settings may come from elsewhere, e.g. the rights of a machine in a cloud.
        if missing and all(name.endswith("_API_KEY") for name in missing):
            raise UserError(f"embedder {self._name!r}: there is no key; set {' and '.join(missing)}")

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embed distinct texts, none of them blank, as [n, dimension].

        Raises:
            EndpointError: It cannot be reached, or answers no vectors, or its guard refuses to ask it for a while.
            UserError: There is no key, or it is refused, or there is no such model.
            AbandonedCallError: The deadline of the work that wants the vectors passed.
        """
        rows: list[Any] = []
        try:
            for start in range(0, len(texts), BATCH):
                rows.extend(self._embed_batch(list(texts[start : start + BATCH])))
        except AbandonedCallError:
            raise
        except LMError as error:
            raise self._explain(error) from error

        try:
            return np.array(rows, dtype=np.float32)
        except (TypeError, ValueError) as error:
            self._secrets.hide_in_error(error)  # it quotes what is no number
            raise EndpointError(f"embedder {self._name!r} {_NO_VECTORS}: {one_line(error, 200)}") from error

    def _embed_batch(self, texts: list[str]) -> list[Any]:
        """Return the vectors of one request, which is counted where somebody counts.

        Raises:
            LMError: There are none.
        """
        if self.accounting is None:
            return self._ask(texts).vectors
        meter, guard, price = self.accounting.meter, self.accounting.guard, self.accounting.price
        estimated_tokens = sum(map(estimate_tokens, texts))
        most_tokens = RESERVED * estimated_tokens

        with guard.reserve(Usage(0, most_tokens, cost=most_tokens * (price or 0.0))):
            guard.admit()
            try:
                answer = self._ask(texts)
            except LMError as error:
                meter.include(UsageReport(failed=1))
                # The guard raises what ends a run. The error of this request says more; the guard refuses the next one.
                with suppress(MempilerError):
                    guard.record_failure(error)
                raise

            reported_tokens = believable_count(answer.tokens or None, sum(map(_fewest_tokens, texts)))
            tokens = estimated_tokens if reported_tokens is None else reported_tokens
            cost = None if price is None else tokens * price
            used = UsageReport(
                Counter(embedding=1),
                input_tokens=tokens,
                cost=cost or 0.0,
                unpriced=int(cost is None),
                estimated=int(reported_tokens is None),
            )
            meter.include(used)
            guard.record_success(tokens, cost)
        return answer.vectors

    @compute_slot()
    def _ask(self, texts: list[str]) -> _Answer:
        """Send one request, and wait for its answer, retries and waits included.

        Raises:
            LMError: There is none.
        """
        # Hidden at once: whoever counts the failure keeps what it says.
        with error_boundary(self._name), self._secrets.hiding():
            if self._model is None:
                litellm = litellm_module()  # here, lest its import hold up the loop
                return _parse(run(self._ask_by_litellm(litellm, texts), self.waits.deadline))

            from .transport import Transport  # takes a tenth of a second, before the request's own time begins

            transport = Transport(self.waits.timeout, self._secrets, MOST_BYTES)
            return _parse(run(self._ask_server(transport, self._request(texts)), self.waits.deadline))

    async def _ask_server(self, transport: Transport, request: Any) -> bytes:
        return await with_retries(lambda: _fetch(transport, request), self.waits.retries, self.waits.deadline)

    async def _ask_by_litellm(self, litellm: Any, texts: list[str]) -> Any:
        import openai

        waits = {"max_retries": self.waits.retries, "timeout": self.waits.timeout}
        try:
            return await litellm.aembedding(model=self._name, input=texts, **waits)
        except openai.OpenAIError as error:  # litellm derives its errors from OpenAI's
            self._secrets.hide_in_error(error)
            raise _litellm_error(error) from error

    def _request(self, texts: list[str]) -> Any:
        """Make a request as `Transport` takes it."""
        body = json.dumps({"model": self._model, "input": texts, "encoding_format": "float"})
        url = f"{self._address}/embeddings"
        return SimpleNamespace(method="POST", url=url, headers=self._headers(), body=body.encode())

    @property
    def _address(self) -> str:
        return (self._base or OPENAI).rstrip("/")

    def _headers(self) -> dict[str, str]:
        """Return the headers of every request.

        Raises:
            UserError: There is no key, and no address of a server that may want none.
        """
        headers = {"Content-Type": "application/json"}
        for variable, header in _ACCOUNT_HEADERS.items():
            if os.environ.get(variable):
                headers[header] = os.environ[variable]
        # A name and password of the address are sent in the place of a key.
        if urlsplit(self._address).username is None:
            headers["Authorization"] = f"Bearer {self._key()}"
        return headers

    def _key(self) -> str:
        key = os.environ.get("OPENAI_API_KEY")
        if not key and not self._base:
            remedy = "set OPENAI_API_KEY, or give the api_base of another server"
            raise UserError(f"embedder {self._name!r} needs a key; {remedy}")
        # Servers of one's own mostly want no key.
        return key or "none"

    @property
    def _secrets(self) -> Secrets:
        """What the endpoint is sent, and no error may show."""
        return Secrets([*secrets_of_address(self._base), *secrets_of_environment()])

    def _explain(self, error: LMError) -> MempilerError:
        """Return the error that whoever wants the vectors gets: with the embedder's name, and the fix where known."""
        status = f"status {error.status}: " if error.status else ""
        reason, named = f"{status}{one_line(error.message, 300)}", f"embedder {self._name!r}"
        # Asked only after a failure: some providers take credentials from elsewhere, such as AWS profiles.
        missing = [] if self._model else litellm_module().validate_environment(self._name)["missing_keys"]
        if missing:
            return UserError(f"{named}: {reason}; set {' or '.join(missing)} if the key is what is missing")
        if isinstance(error, LMAuthError):
            return UserError(f"{named}: the key was refused; check OPENAI_API_KEY or the provider's")
        if isinstance(error, LMInvalidRequestError):
            return UserError(f"{named} was refused, check its name: {reason}")
        return EndpointError(f"{named}: {reason}")


async def _fetch(transport: Transport, request: Any) -> bytes:
    """Send a request once, and return the body of the answer.

    Raises:
        LM15Error: There is none, or it is a refusal.
    """
    async with transport.stream(request) as reply:
        content = await reply.read()
    if not 200 <= reply.status < 300:
        raise _refusal(reply.status, content, reply.headers)
    return content


def _parse(content: Any) -> _Answer:
    """Read the vectors of an answer, in the order of the texts: a JSON text, or an object of litellm's.

    Raises:
        ProviderError: It holds no list of vectors.
    """
    try:
        answer = json.loads(content) if isinstance(content, bytes) else content.model_dump()
        rows = sorted(answer["data"], key=lambda row: row["index"])
        vectors = [row["embedding"] for row in rows]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ProviderError(f"{_NO_VECTORS}: {type(error).__name__}: {one_line(error, 200)}") from error

    usage = answer.get("usage")
    return _Answer(vectors, usage.get("prompt_tokens") if isinstance(usage, dict) else None)


def _fewest_tokens(text: str) -> int:
    """Return the fewest tokens that an embedder takes for a text; models cut long ones."""
    return min(fewest_tokens(text), SMALLEST_WINDOW)


def _refusal(status: int, content: bytes, headers: Sequence[tuple[str, str]]) -> LM15Error:
    """Return the error of a reply that is no answer, with what the server says."""
    try:
        message = json.loads(content)["error"]["message"]
    except (KeyError, TypeError, ValueError, RecursionError):
        message = content.decode(errors="replace")
    small = {name.lower(): value for name, value in headers}
    return error_of_status(status, one_line(message, 200), retry_after_of(small))


def _litellm_error(error: Any) -> LM15Error:
    """Return the error of `dspy.lm15` for one of OpenAI's client, from which litellm derives its own."""
    import openai

    message = one_line(error, 300)
    if isinstance(error, openai.APITimeoutError):
        return EndpointTimeoutError(message)
    if isinstance(error, openai.APIConnectionError):
        return TransportError(message)
    if isinstance(error, openai.APIStatusError):
        return error_of_status(error.status_code, message)
    return ProviderError(message)
