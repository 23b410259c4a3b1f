"""Send bytes to a service that no HTTP client would send."""

import re
import socket

from .conftest import Api


def connect_socket(api: Api, timeout: float = 10) -> socket.socket:
    """Open a connection to a service."""
    return socket.create_connection(("127.0.0.1", api.port), timeout=timeout)


def response_statuses(api: Api, data: bytes) -> list[int]:
    """Send bytes over a connection of their own, and return the statuses of all responses.

    The bytes may hold several requests, one behind the other: `[200, 404]` means that the service
    has read two. The service has to close the connection, otherwise this fails after ten seconds.
    """
    received = b""
    with connect_socket(api) as connection:
        connection.sendall(data)
        while part := connection.recv(65_536):
            received += part
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", received)]
