"""Chats in OpenAI's own form, handed on to the endpoint behind a language model; its answer is handed back as it is.

The bounds are those of every call. There are no retries: clients make their own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from dspy.clients.errors import error_boundary
from dspy.lm15 import AsyncOpenAIChatLM, LM15Error
from dspy.utils.exceptions import LMAuthError, LMTransportError

from ..call import MOST_TOLD
from ..meter import MeteredLM
from .endpoint import Client, Engine
from .loop import iterate


@dataclass(frozen=True)
class Reply:
    """What an endpoint answers, while it is read."""

    status: int
    headers: Mapping[str, str]
    """Names in small letters."""
    lines: Iterator[bytes]
    """The body as it comes, cut behind newlines."""


class Upstream:
    """An endpoint that speaks OpenAI's chat.

    Args:
        lm: Whose guard, meter and bounds hold.
        client: What reaches it; its key is never in any answer.
    """

    def __init__(self, lm: MeteredLM, client: Client) -> None:
        self.lm, self.model = lm, client.model
        """What the endpoint calls the model."""
        self._client = client.lm

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
        guard = self.lm.guard
        with (
            guard.lane(self.lm.endpoint).place(),
            self.lm.admitted(),
            error_boundary(self.model),
            closing(iterate(self._parts(body), engine.seconds)) as parts,
        ):
            status, headers = next(parts)
            yield Reply(status, headers, _lines(parts))
        if status >= 500:
            guard.failed(LMTransportError(f"status {status}", model=self.model))

    def count(self, usage: Any) -> None:
        """Counts a call by the usage that its answer tells, if it tells one."""
        told = usage if isinstance(usage, dict) else {}
        counted = (told.get(name) for name in ("prompt_tokens", "completion_tokens"))
        sent, generated = (n if isinstance(n, int) and 0 <= n < MOST_TOLD else 0 for n in counted)
        self.lm.count(sent, generated)

    async def _parts(self, body: Mapping[str, Any]) -> AsyncGenerator[Any]:
        headers = [("Authorization", f"Bearer {self._client.api_key or 'none'}"), ("Content-Type", "application/json")]
        headers += [("Accept", "text/event-stream" if body.get("stream") else "application/json")]
        content = json.dumps({**body, "model": self.model}).encode()
        url = f"{self._client.base_url.rstrip('/')}/chat/completions"
        request = SimpleNamespace(method="POST", url=url, headers=headers, body=content)
        async with self._client.transport.stream(request) as reply:
            if reply.status in (401, 403):
                raise LMAuthError(f"the endpoint refuses the key ({reply.status})", model=self.model)
            yield reply.status, {name.lower(): value for name, value in reply.headers}
            async for chunk in reply:
                yield chunk


def upstream_of(lm: Any) -> Upstream | None:
    """The endpoint of a language model; None for one of this process, or that does not speak OpenAI's chat."""
    if not isinstance(lm, MeteredLM) or not isinstance(lm.engine, Engine):
        return None
    try:
        client = lm.engine.client(lm.model)
    except LM15Error:  # there is no key
        return None
    return Upstream(lm, client) if isinstance(client.lm, AsyncOpenAIChatLM) else None


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest
