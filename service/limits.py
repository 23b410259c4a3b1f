"""What keeps a service standing: bodies of bounded size, a bounded number of threads, and a time limit.

    request ──> body limit ──> a place in the queue ──> a thread ──> answer
                 408, 413           503, at once        504, after the time limit

Language models and the store are called in threads. A request that runs out of time gets its 504, and its thread goes
on until the call it waits for returns: a place is free when its work has really ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from .refusals import LATE, OVERLOADED, SLOW_BODY, TOO_LARGE, Refusal

T = TypeVar("T")


@dataclass(frozen=True)
class Deadline:
    """When a request will have been answered with 504, in seconds of `time.monotonic`."""

    at: float

    @property
    def passed(self) -> bool:
        """Whether the client has stopped waiting."""
        return time.monotonic() >= self.at


class Threads:
    """A bounded pool of threads with a bounded queue.

    Args:
        threads: Calls that run at the same time.
        queue: Calls that wait for a thread.
        timeout: Seconds for each, the wait included.
    """

    def __init__(self, threads: int, queue: int, timeout: float) -> None:
        self._places = threads + queue
        self._timeout = timeout
        self._taken = 0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="mempiler-request")

    async def run(self, call: Callable[[Deadline], T]) -> T:
        """Runs a call in a thread.

        Raises:
            Refusal: There is no place (503), or the time is over (504).
        """
        deadline = Deadline(time.monotonic() + self._timeout)
        with self._lock:
            if self._taken >= self._places:
                raise OVERLOADED()
            self._taken += 1
        context = contextvars.copy_context()
        try:
            future = self._pool.submit(lambda: context.run(call, deadline))
        except RuntimeError:
            self._leave()
            raise OVERLOADED() from None
        future.add_done_callback(self._leave)
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({waiting}, timeout=self._timeout)
        if not done:
            waiting.cancel()
            raise LATE()
        return waiting.result()

    @property
    def busy(self) -> int:
        """Calls that run or wait."""
        return self._taken

    def close(self) -> None:
        """Takes no further calls, and drops those that have no thread yet."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _leave(self, future: Future[Any] | None = None) -> None:
        with self._lock:
            self._taken -= 1


class BodyLimit:
    """ASGI middleware that refuses bodies that are large, announced or not, or slow, before they are parsed.

    Args:
        app: The application behind it.
        most: Bytes.
        seconds: Time for the whole body to come.
    """

    def __init__(self, app: Any, most: int, seconds: float) -> None:
        self._app, self._most, self._seconds = app, most, seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes a request on, with its whole body read; or refuses it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        too_large = announced.isdigit() and int(announced[:20]) > self._most
        try:
            async with asyncio.timeout(self._seconds):
                body = None if too_large else await self._read(receive)
        except TimeoutError:
            await send_refusal(send, SLOW_BODY())
            return
        if body is None:
            await send_refusal(send, TOO_LARGE())
            return
        # Read once more, the body is the whole one; a wait for more is a wait for the client to leave.
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Any:
            message = next(messages, None)
            return message if message is not None else await receive()

        await self._app(scope, replay, send)

    async def _read(self, receive: Any) -> bytes | None:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b"".join(parts)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most:
                return None
            if not message.get("more_body"):
                return b"".join(parts)


async def send_refusal(send: Any, refusal: Refusal) -> None:
    """Sends a refusal from a middleware."""
    body = json.dumps(refusal.body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
