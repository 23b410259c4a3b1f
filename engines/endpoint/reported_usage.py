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
        """Return the whole body, without counts of tokens that the client could not read.

        Raises:
            ProviderError: It is JSON, and nested too deeply (from `with_readable_usage`).
        """
        content = await self._reply.read()
        is_refusal = self.status >= 400
        if is_refusal:
            # It reports no usage, and its secrets are hidden already.
            return content

        try:
            return with_readable_usage(content)
        except ValueError:
            # It is no JSON. The client will quote its beginning in an error, which must not show a
            # key that the endpoint has repeated.
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
        """Return a line of a stream of events as the client may read it.

        Secrets are hidden in a line that tells of an error, which the client quotes. Counts of
        tokens that the client could not read are dropped.
        """
        if b'"error"' in line:
            line = self._reply.secrets.hide_in_bytes(line)
        if line.startswith(_EVENT) and b'"usage"' in line:
            with suppress(ValueError):  # no JSON: the client says what is wrong with it
                return _EVENT + with_readable_usage(line.removeprefix(_EVENT))
        return line


def with_readable_usage(content: bytes) -> bytes:
    """Drop from the `usage` of a JSON reply the counts of tokens that are not numbers.

    A client of `dspy.lm15` would refuse the whole reply because of one.

    Args:
        content: The body of a reply, or the data of one event, which ends with a newline.

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

    usage = _readable_fields(reply["usage"])
    if usage == reply["usage"]:
        return content
    # In a stream of events, a newline must end the line.
    return json.dumps({**reply, "usage": usage}).encode() + b"\n"


def _readable_fields(usage: object) -> dict[str, object] | None:
    """Return a usage without the counts of tokens that are not numbers; None if it is no object.

    Counts are called `..._tokens`. Objects called `..._details` hold further counts.
    """
    if not isinstance(usage, dict):
        return None

    fields: dict[str, object] = {}
    for name, value in usage.items():
        if name.endswith("_tokens"):
            number = token_number(value)
            if number is not None:
                fields[name] = number
        elif name.endswith("_details"):
            fields[name] = _readable_fields(value)
        else:
            fields[name] = value
    return fields
