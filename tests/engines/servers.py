"""Models behind servers that fail, and what is left of a call to them."""

import time
from collections.abc import Callable
from typing import Any

import psutil
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model

from ..stub_server import StubServer, every


def named(server: Any, **more: Any) -> Any:
    settings: dict[str, Any] = {"cache": False, "retries": 0, "deadline": 30, "timeout": 20, **more}
    return language_model(server.model, meter=Meter(), api_base=server.url, **settings)


def head(more: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}\r\n\r\n".encode()


def failing(fault: str | bytes) -> Any:
    """A server with a fault of `StubServer`, or that answers with some bytes, with or without the headers."""
    return StubServer(every(fault)) if isinstance(fault, str) else StubServer(answer=lambda body: fault)


def connections(server: Any) -> list[Any]:
    """Those that this process has to a server."""
    port = int(server.url.removesuffix("/v1").rpartition(":")[2])
    found = psutil.Process().net_connections("tcp4")
    return [each for each in found if each.raddr and each.raddr.port == port and each.status == "ESTABLISHED"]


def until(check: Callable[[], bool], seconds: float = 5) -> bool:
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
