"""Drop what a reply reports of usage and cannot be read, before a client reads the reply.

A client of `dspy.lm15` refuses a whole answer for one odd number in its usage. But such an answer
has been paid for. What is missing then, `token_counts` estimates.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from dspy.lm15 import ProviderError

from ..token_counts import token_number
from .line_buffer import LineBuffer

if TYPE_CHECKING:
    from .transport import HttpRequest, Reply, Transport

_EVENT = b"data:"
"""What a line of a stream of events begins with that holds data."""


class UsageFilter:
    """A transport for clients of `dspy.lm15`, with replies of readable usage only.

    Args:
        transport: What sends the requests.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[FilteredReply]:
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
        buffer = LineBuffer()
        async for chunk in self._reply:
            for line in buffer.add(chunk):
                yield self._filter_line(line)
        if buffer.rest:
            yield self._filter_line(buffer.rest)

    def _filter_line(self, line: bytes) -> bytes:
        """Return a line without secrets if it is an error, and with readable usage."""
        if b'"error"' in line:
            line = self._reply.secrets.hide_in_bytes(line)
        if line.startswith(_EVENT) and b'"usage"' in line:
            with suppress(ValueError):
                return _EVENT + with_readable_usage(line.removeprefix(_EVENT))
        return line


def with_readable_usage(content: bytes) -> bytes:
    """Return a JSON text without those numbers of tokens that are no numbers.

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


def _readable(usage: object) -> dict[str, object] | None:
    """Return the fields of a usage that can be read; None if it is no JSON object."""
    if not isinstance(usage, dict):
        return None

    fields: dict[str, object] = {}
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
