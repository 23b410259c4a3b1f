"""What tests of endpoints share: models at a stub server, raw responses, open connections."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from mempiler.engines.call_context import call_context
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.engines.metered_lm import MeteredLM

from ...conftest import within
from ...stub_server import StubServer


def model_at(server: StubServer, **options: Any) -> MeteredLM:
    """Return the model of a server, with a new meter, without a cache and without retries.

    Args:
        server: The server.
        **options: Other options of `language_model`; they change these.
    """
    defaults: dict[str, Any] = {"cache": False, "retries": 0, "deadline": 30, "timeout": 20}
    all_options = {**defaults, **options}
    return language_model(server.model, meter=Meter(), api_base=server.url, **all_options)


def http_head(header: str, status: str = "200 OK") -> bytes:
    """Return the head of an HTTP response with one more header, as it is sent."""
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{header}\r\n\r\n".encode()


def server_that_sends(response: bytes) -> StubServer:
    """Return a server that answers every request with these bytes.

    They are a whole HTTP response, or the body of one.
    """
    return StubServer(answer=lambda body: response)


@contextmanager
def record_pieces() -> Iterator[list[list[str]]]:
    """Have models stream their answers in the block; yield the pieces that came, by attempt."""
    pieces_by_attempt: list[list[str]] = []

    def begin_attempt() -> Any:
        pieces: list[str] = []
        pieces_by_attempt.append(pieces)
        return pieces.append

    with call_context(on_text=begin_attempt):
        yield pieces_by_attempt


def open_connections(server: StubServer) -> list[Any]:
    """Return the connections that this process has to a server."""
    port = int(server.url.removesuffix("/v1").rpartition(":")[2])
    connections = psutil.Process().net_connections("tcp4")
    return [
        connection
        for connection in connections
        if connection.status == "ESTABLISHED" and connection.raddr.port == port
    ]


def all_connections_close(server: StubServer) -> bool:
    """Wait until this process has no connection to a server; return False after 20 seconds."""
    return within(20, lambda: not open_connections(server))


def all_slots_are_free(lm: MeteredLM) -> bool:
    """Tell whether no call holds a slot at the endpoint of a model.

    The guard has `in_flight` slots for each endpoint, and a call holds one while it lasts.
    """
    slots_at_endpoint = lm.guard.slots(lm.endpoint)
    return slots_at_endpoint.free == lm.guard.in_flight
