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
def test_a_failed_attempt_frees_its_connection_without_the_garbage_collector(retries: int) -> None:
    """An error holds the variables of the function that raised it, here the connection.

    The error of an attempt is kept while the next attempt runs. It must let go of the connection.
    """
    connections: list[weakref.ref[Connection]] = []

    async def fail_with_a_connection() -> None:
        connection = Connection()
        connections.append(weakref.ref(connection))
        # The endpoint may charge for an attempt that timed out, so its error is kept for later.
        raise EndpointTimeoutError("silent", retry_after=0.0)

    async def count_living_connections() -> int:
        gc.disable()
        try:
            with contextlib.suppress(EndpointTimeoutError):
                await with_retries(fail_with_a_connection, retries, seconds=30)
            return sum(connection() is not None for connection in connections)
        finally:
            gc.enable()

    assert asyncio.run(count_living_connections()) == 0
    assert len(connections) == retries + 1
