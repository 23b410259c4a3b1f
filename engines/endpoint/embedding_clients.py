"""Clients of embedding endpoints: one for OpenAI-compatible servers, one that asks by litellm.

    client = OpenAIEmbeddings("bge-m3", "bge-m3", "http://localhost:8000/v1")
    client.embed(["Ann moved to Lisbon"], Waits()).vectors

A client sends one request, with its retries, in the loop of the endpoints (`loop`). So it ends at
its own deadline, and at that of the work that wants the vectors. Its errors are those of
`dspy.lm15`, and show no key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from dspy.lm15 import LM15Error, ProviderError, TransportError
from dspy.lm15 import TimeoutError as EndpointTimeoutError

from ...errors import EndpointError, UserError
from ...secret_values import Secrets, secrets_of_address, secrets_of_environment
from ...text import one_line
from ..prices import litellm_module, only_keys_are_missing
from .errors import UnreachableError, error_of_status, retry_after_of
from .loop import run
from .retry import with_retries
from .waits import Waits

if TYPE_CHECKING:
    from .transport import PlainRequest, Transport

OPENAI = "https://api.openai.com/v1"

_CHECK_SECONDS = 5.0
"""How long an endpoint has to say which models it has."""
_MAX_REPLY_BYTES = 64_000_000
"""The most bytes of a reply; 64 vectors of 8,192 numbers take 13 million."""
_ACCOUNT_HEADERS = {
    "OPENAI_ORG_ID": "OpenAI-Organization",
    "OPENAI_PROJECT_ID": "OpenAI-Project",
}
"""By environment variable, the header that says which account of OpenAI's pays."""

NO_VECTORS = "answered no list of vectors"
"""What is wrong with an answer that cannot be read."""


class EmbeddingAnswer(NamedTuple):
    """What an endpoint answered to one request."""

    vectors: list[Any]
    """One for each text, in the order of the texts; nobody has checked that they are numbers."""
    reported_tokens: object
    """The tokens that the endpoint reports, of any type; None if it reports none."""


class EmbeddingClient(Protocol):
    """Ask one embedding model."""

    @property
    def secrets(self) -> Secrets:
        """What the endpoint is sent and no error may show."""
        ...

    def check(self) -> None:
        """Refuse a model that could not be asked; nothing is embedded, so nothing is paid.

        Raises:
            UserError: Nobody provides it, or its key is not set.
            EndpointError: Its server cannot be reached.
        """
        ...

    def embed(self, texts: Sequence[str], waits: Waits) -> EmbeddingAnswer:
        """Send one request, and return its answer.

        Args:
            texts: What to embed.
            waits: How long the request may take, retries included.

        Raises:
            LM15Error: There is no answer.
            AbandonedCallError: The deadline of the work that wants the vectors has passed.
            UserError: There is no key.
        """
        ...

    def missing_keys(self) -> list[str]:
        """Return the environment variables that may be missing; called after a failure."""
        ...


class OpenAIEmbeddings:
    """Ask an OpenAI-compatible server, or OpenAI.

    Args:
        name: What errors call the embedder.
        model: What the server calls it.
        address: Of the server, up to and including its /v1; None is OpenAI's.
    """

    def __init__(self, name: str, model: str, address: str | None) -> None:
        self._name = name
        self._model = model
        self._own_address = address
        self._address = (address or OPENAI).rstrip("/")

    @property
    def secrets(self) -> Secrets:
        """What the endpoint is sent and no error may show."""
        return Secrets([*secrets_of_address(self._own_address), *secrets_of_environment()])

    def check(self) -> None:
        """See `EmbeddingClient.check`."""
        from .transport import PlainRequest, Transport

        request = PlainRequest("GET", f"{self._address}/models", self._headers())
        transport = Transport(_CHECK_SECONDS, self.secrets)
        try:
            run(_fetch(transport, request), _CHECK_SECONDS)
        except UnreachableError as error:
            reason = one_line(error, 200)
            raise EndpointError(
                f"embedder {self._name!r}: its server cannot be reached: {reason}"
            ) from error
        except LM15Error:
            # It answers late, has no list of models, or does not show it.
            return

    def embed(self, texts: Sequence[str], waits: Waits) -> EmbeddingAnswer:
        """Send one request, with its retries, and return its answer.

        Errors are those of `EmbeddingClient.embed`.
        """
        # Its import takes a tenth of a second, before the time of the request begins.
        from .transport import PlainRequest, Transport

        body = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        request = PlainRequest(
            "POST", f"{self._address}/embeddings", self._headers(), json.dumps(body).encode()
        )
        transport = Transport(waits.timeout, self.secrets, _MAX_REPLY_BYTES)

        # The deadline is enforced twice: `with_retries` begins no pause that would pass it, and
        # `run` cancels an attempt that does.
        attempt = partial(_fetch, transport, request)
        content = run(with_retries(attempt, waits.retries, waits.deadline), waits.deadline)

        try:
            answer = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _unreadable(error) from error
        return _parse(answer)

    def missing_keys(self) -> list[str]:
        """Return none: without a key nothing was sent."""
        return []

    def _headers(self) -> dict[str, str]:
        """Return the headers of every request.

        Raises:
            UserError: There is no key, and no address of a server that may want none.
        """
        headers = {"Content-Type": "application/json"}
        for variable, header in _ACCOUNT_HEADERS.items():
            value = os.environ.get(variable)
            if value:
                headers[header] = value

        # A name and password in the address are sent instead of a key.
        if urlsplit(self._address).username is None:
            headers["Authorization"] = f"Bearer {self._key()}"
        return headers

    def _key(self) -> str:
        """Return the key that is sent, which may be "none".

        Raises:
            UserError: There is none, and OpenAI's own server wants one.
        """
        key = os.environ.get("OPENAI_API_KEY")
        if key:
            return key
        if self._own_address is None:
            raise UserError(
                f"embedder {self._name!r} needs a key; set OPENAI_API_KEY, "
                "or give the api_base of another server"
            )
        # Most servers of one's own want no key.
        return "none"


class LitellmEmbeddings:
    """Ask a model by litellm.

    Args:
        name: Of the model, as litellm takes it.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def secrets(self) -> Secrets:
        """What the endpoint is sent and no error may show."""
        return Secrets(secrets_of_environment())

    def check(self) -> None:
        """Refuse a model that litellm cannot ask; nothing is sent to a server.

        Raises:
            UserError: litellm knows no provider for the name, or the provider's key is not set.
        """
        litellm = litellm_module()
        try:
            litellm.get_llm_provider(self._name)
        except litellm.exceptions.BadRequestError:
            raise UserError(
                f"embedder {self._name!r}: no provider is known for it; write PROVIDER/MODEL, "
                "or openai/NAME with --embedder-api-base for an OpenAI-compatible server"
            ) from None

        missing_variables = self.missing_keys()
        if only_keys_are_missing(missing_variables):
            variables = " and ".join(missing_variables)
            raise UserError(f"embedder {self._name!r}: there is no key; set {variables}")
        # Other settings, such as a region, may come from elsewhere, so nothing is said about them.

    def embed(self, texts: Sequence[str], waits: Waits) -> EmbeddingAnswer:
        """See `EmbeddingClient.embed`."""
        litellm = litellm_module()  # imported here, since its import would hold up the loop
        response = run(self._ask(litellm, list(texts), waits), waits.deadline)
        return _parse(response.model_dump())

    def missing_keys(self) -> list[str]:
        """See `EmbeddingClient.missing_keys`."""
        return litellm_module().validate_environment(self._name)["missing_keys"]

    async def _ask(self, litellm: Any, texts: list[str], waits: Waits) -> Any:
        """Return litellm's answer to one request, in the form of OpenAI's embeddings.

        Raises:
            LM15Error: There is no answer. The error shows no key.
        """
        import openai

        try:
            return await litellm.aembedding(
                model=self._name, input=texts, max_retries=waits.retries, timeout=waits.timeout
            )
        except openai.OpenAIError as error:  # litellm derives its errors from OpenAI's
            self.secrets.hide_in_error(error)
            raise _lm15_error(error) from error


async def _fetch(transport: Transport, request: PlainRequest) -> bytes:
    """Send a request once, and return the body of the answer.

    Raises:
        LM15Error: There is no answer, or the endpoint refuses the request.
    """
    async with transport.stream(request) as reply:
        content = await reply.read()
    if not 200 <= reply.status < 300:
        raise _refusal(reply.status, content, reply.headers)
    return content


def _parse(answer: Any) -> EmbeddingAnswer:
    """Read an answer in the form of OpenAI's embeddings.

    Raises:
        ProviderError: It holds no list of vectors.
    """
    try:
        # A server may return the rows in any order.
        rows = sorted(answer["data"], key=lambda row: row["index"])
        vectors = [row["embedding"] for row in rows]
        usage = answer.get("usage")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _unreadable(error) from error

    reported_tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return EmbeddingAnswer(vectors, reported_tokens)


def _unreadable(error: Exception) -> ProviderError:
    reason = f"{type(error).__name__}: {one_line(error, 200)}"
    return ProviderError(f"{NO_VECTORS}: {reason}")


def _refusal(status: int, content: bytes, headers: Sequence[tuple[str, str]]) -> LM15Error:
    """Return the error for a reply that is no answer, with what the server says.

    Args:
        status: The HTTP status.
        content: The body.
        headers: Names and values.
    """
    try:
        message = json.loads(content)["error"]["message"]
    except (KeyError, TypeError, ValueError, RecursionError):
        message = content.decode(errors="replace")
    headers_by_name = {name.lower(): value for name, value in headers}
    return error_of_status(status, one_line(message, 200), retry_after_of(headers_by_name))


def _lm15_error(error: Any) -> LM15Error:
    """Return the error of `dspy.lm15` for an error of OpenAI's client."""
    import openai

    message = one_line(error, 300)
    if isinstance(error, openai.APITimeoutError):
        return EndpointTimeoutError(message)
    if isinstance(error, openai.APIConnectionError):
        return TransportError(message)
    if isinstance(error, openai.APIStatusError):
        return error_of_status(error.status_code, message)
    return ProviderError(message)
