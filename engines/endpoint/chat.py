"""The endpoint behind a language model, asked in OpenAI's own form: what it is sent and what it says stay as they are.

The bounds are those of every call, see `endpoint`. There are no retries: clients make their own, and see the
endpoint's answer. Only endpoints that speak OpenAI's chat are asked so.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from dspy.lm15 import ProviderError, TransportError
from dspy.lm15 import TimeoutError as EndpointTimeoutError
from dspy.utils.exceptions import LMAuthError, LMTimeoutError, LMTransportError

from ...errors import one_line
from ..call import MOST_TOLD
from ..meter import MeteredLM
from ..prices import litellm_module
from .engine import Engine
from .http import Transport
from .loop import iterate

OPENAI = "https://api.openai.com/v1"


@dataclass(frozen=True)
class Reply:
    """What an endpoint answers, while it is read."""

    status: int
    headers: Mapping[str, str]
    """Names in small letters."""
    lines: Iterator[bytes]
    """The body as it comes, cut behind newlines."""


@dataclass(frozen=True)
class Upstream:
    """An endpoint that speaks OpenAI's chat.

    Args:
        address: Up to and including its /v1.
        model: What the endpoint calls the model.
        key: What it is shown; never in any answer.
        lm: Whose guard, meter and bounds hold.
    """

    address: str
    model: str
    key: str = field(repr=False)
    lm: MeteredLM = field(repr=False)

    @contextmanager
    def ask(self, body: Mapping[str, Any]) -> Generator[Reply]:
        """Sends a request of chat completions.

        Args:
            body: As the endpoint takes it; its `model` is replaced.

        Raises:
            LMError: It cannot be reached, is cut off, silent, or refuses the key; what it says of that is not told.
            EndpointError: It has failed again and again, and is not asked for a while.
        """
        engine: Any = self.lm.engine
        guard, endpoint = self.lm.guard, engine.endpoint
        with (
            guard.lane(self.lm.endpoint).place(),
            self.lm.admitted(),
            self._named_errors(),
            closing(iterate(self._parts(body, endpoint.silence), endpoint.seconds)) as parts,
        ):
            status, headers = next(parts)
            yield Reply(status, headers, _lines(parts))
        if status >= 500:
            guard.failed(LMTransportError(f"status {status}", model=self.model))

    def count(self, usage: Any) -> None:
        """Counts a call by the usage that its answer tells, if it tells one."""
        told = usage if isinstance(usage, dict) else {}
        counted = ((name, told.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        tokens = {name: value if isinstance(value, int) and 0 <= value < MOST_TOLD else 0 for name, value in counted}
        cost = self.lm.priced(None, *tokens.values())
        self.lm.meter.add(self.lm.role, tokens, cost)
        self.lm.guard.worked(sum(tokens.values()), cost)

    async def _parts(self, body: Mapping[str, Any], silence: float) -> AsyncGenerator[Any]:
        headers = [("Authorization", f"Bearer {self.key}"), ("Content-Type", "application/json")]
        headers += [("Accept", "text/event-stream" if body.get("stream") else "application/json")]
        content = json.dumps({**body, "model": self.model}).encode()
        url = f"{self.address.rstrip('/')}/chat/completions"
        request = SimpleNamespace(method="POST", url=url, headers=headers, body=content)
        async with Transport(silence).stream(request) as reply:
            if reply.status in (401, 403):
                raise LMAuthError(f"the endpoint refuses the key ({reply.status})", model=self.model)
            yield reply.status, {name.lower(): value for name, value in reply.headers}
            async for chunk in reply:
                yield chunk

    @contextmanager
    def _named_errors(self) -> Generator[None]:
        try:
            yield
        except (TransportError, ProviderError, EndpointTimeoutError) as error:
            kind = LMTimeoutError if isinstance(error, EndpointTimeoutError) else LMTransportError
            raise kind(one_line(error, 300) or type(error).__name__, model=self.model) from error


def upstream_of(lm: Any) -> Upstream | None:
    """The endpoint of a language model; None for one of this process, or one that speaks otherwise than OpenAI's chat.

    Args:
        lm: A `MeteredLM`.
    """
    if not isinstance(lm, MeteredLM) or not isinstance(lm.engine, Engine):
        return None
    provider, _, model = lm.model.partition("/")
    base, key = lm.engine.endpoint.address, lm.engine.endpoint.key
    if provider == "openai":
        base = base or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE") or OPENAI
        return Upstream(base, model, key or os.environ.get("OPENAI_API_KEY", "none"), lm)
    litellm = litellm_module()
    model, provider, found_key, found_base = litellm.get_llm_provider(lm.model, api_base=base, api_key=key)
    if provider not in litellm.openai_compatible_providers or not found_base:
        return None
    return Upstream(found_base, model, key or found_key or "none", lm)


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest
