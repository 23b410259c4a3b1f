"""Repeated attempts of a call leave nothing behind."""

import asyncio
import contextlib
import gc
import weakref

import pytest
from dspy.lm15 import TimeoutError as EndpointTimeoutError
from mempiler.engines.endpoint.retry import with_retries


class Connection:
    """Stands for what an attempt holds while it lasts."""


@pytest.mark.parametrize("retries", [0, 1])
def test_what_a_charged_attempt_held_is_freed_without_the_garbage_collector(
    retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[weakref.ref[Connection]] = []
    monkeypatch.setattr("mempiler.engines.endpoint.retry._pause_before", lambda *_: 0.0)

    async def attempt() -> None:
        connection = Connection()
        connections.append(weakref.ref(connection))
        raise EndpointTimeoutError("silent")

    async def ask() -> list[Connection | None]:
        gc.disable()
        try:
            with contextlib.suppress(EndpointTimeoutError):
                await with_retries(attempt, retries, seconds=30)
            return [connection() for connection in connections]
        finally:
            gc.enable()

    assert asyncio.run(ask()) == [None] * (retries + 1)
