"""What replies report of usage, made readable: a client of `dspy.lm15` refuses a whole answer for one odd number in it.

Such an answer has been paid for. So numbers of tokens that are none are taken out of a reply before the client reads
it; `token_counts` then estimates what is missing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from dspy.lm15 import ProviderError

from ..token_counts import token_number
from .http import Reply, Transport

_EVENT = b"data:"


class UsageFilter:
    """A transport of `dspy.lm15` whose replies report tokens as numbers, or not at all.

    Args:
        transport: What sends the requests.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @asynccontextmanager
    async def stream(self, request: Any) -> AsyncIterator[FilteredReply]:
        """Send a request as `Transport.stream` does."""
        async with self._transport.stream(request) as reply:
            yield FilteredReply(reply)


class FilteredReply:
    """A reply while it is read, with readable usage only."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.status = reply.status
        self.reason = reply.reason
        self.headers = reply.headers
        self.http_version = reply.http_version

    async def read(self) -> bytes:
        """Return the whole body.

        Raises:
            ProviderError: It is an answer that is nested too deeply to be read.
        """
        content = await self._reply.read()
        if self.status >= 400:
            return content
        try:
            return with_readable_usage(content)
        except ValueError:
            # Whoever reads it says what is wrong with it, and quotes its beginning.
            return self._reply.secrets.hide_in_bytes(content)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the lines of a stream of events."""
        async for line in _lines(self._reply):
            if b'"error"' in line:
                line = self._reply.secrets.hide_in_bytes(line)
            if line.startswith(_EVENT) and b'"usage"' in line:
                with suppress(ValueError):
                    line = _EVENT + with_readable_usage(line.removeprefix(_EVENT))
            yield line


def with_readable_usage(content: bytes) -> bytes:
    """Return a JSON text without numbers of tokens that are none.

    Raises:
        ValueError: It is no JSON.
        ProviderError: It is nested too deeply.
    """
    try:
        reply = json.loads(content)
    except RecursionError as error:
        raise ProviderError("the reply is nested too deeply") from error
    if not isinstance(reply, dict) or "usage" not in reply:
        return content

    usage = _readable(reply["usage"])
    if usage == reply["usage"]:
        return content
    return json.dumps({**reply, "usage": usage}).encode() + b"\n"


def _readable(usage: Any) -> dict[str, Any] | None:
    """Return the fields of a usage that can be read; None where it is no object."""
    if not isinstance(usage, dict):
        return None

    fields: dict[str, Any] = {}
    for name, value in usage.items():
        if name.endswith("_tokens"):
            number = token_number(value)
            if number is not None:
                fields[name] = number
        elif name.endswith("_details"):
            fields[name] = _readable(value)
        else:
            fields[name] = value
    return fields


async def _lines(chunks: AsyncIterator[bytes] | Reply) -> AsyncIterator[bytes]:
    """Cut what comes behind its newlines."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest
