"""Models behind servers that fail, and what is left of a call to them."""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psutil
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model

from ..stub_server import StubServer, every


def named(server: Any, **more: Any) -> Any:
    settings: dict[str, Any] = {"cache": False, "retries": 0, "deadline": 30, "timeout": 20, **more}
    return language_model(server.model, meter=Meter(), api_base=server.url, **settings)


class Sending:
    """A server that sends the same bytes to whoever asks, headers included, and closes."""

    model = "openai/sending"

    def __init__(self, sent: bytes) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:  # noqa: N805
                handler.rfile.read(int(handler.headers["Content-Length"]))
                self.texts.append("")
                handler.wfile.write(sent)

            def log_message(self, format: str, *args: Any) -> None: ...

        self.texts: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> "Sending":
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def head(more: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}\r\n\r\n".encode()


def failing(fault: str | bytes) -> Any:
    """A server with a fault of `StubServer`, or that answers with some bytes, with or without the headers."""
    if isinstance(fault, str):
        return StubServer(every(fault))
    return Sending(fault) if fault.startswith(b"HTTP") else StubServer(answer=lambda body: fault)


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
