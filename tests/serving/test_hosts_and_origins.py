"""Which `Host` and `Origin` a service without tokens answers: its own machine's (docs/production/security.md)."""

import re
import socket
from collections.abc import Iterator

import pytest
from mempiler import Store

from .conftest import TOKENS, Api, service_over, serving
from .test_connection import statuses


@pytest.fixture(scope="module")
def without_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service without tokens; shared by tests that change nothing."""
    folder = tmp_path_factory.mktemp("open")
    with (
        Store(folder / "memories.sqlite") as store,
        serving(service_over(store, folder, tokens=False)) as client,
    ):
        yield client.as_tenant(None)


def get(client: Api, *headers: str, version: str = "1.1") -> int:
    """The status of a request for all users with just these headers."""
    head = "\r\n".join((f"GET /v1/users HTTP/{version}", *headers, "Connection: close", "", ""))
    (status,) = statuses(client, head.encode())
    return status


OWN = [
    "127.0.0.1",
    "127.0.0.1:8000",
    "localhost",
    "localhost:65535",
    "LOCALHOST:80",
    "[::1]",
    "[::1]:8000",
]


@pytest.mark.parametrize("host", OWN)
def test_the_machines_own_names_are_answered(without_tokens: Api, host: str) -> None:
    assert get(without_tokens, f"Host: {host}") == 200


FOREIGN = [
    "evil.example",
    "evil.example:8000",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "127.0.0.1:80.evil.example",
    "127.0.0.1:80@evil.example",
    "localhost:x",
    "evil.example@127.0.0.1",
    "127.0.0.2",
    "0.0.0.0",
    "127.1",
    "2130706433",
    "::1",
    "[::1",
    "[::1].evil.example",
    "[::1]evil.example:80",
    "[::2]",
    "[::ffff:127.0.0.1]",
    "[fe80::1]:8000",
    "localhost, evil.example",
    "",
]


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_refused(without_tokens: Api, host: str) -> None:
    assert get(without_tokens, f"Host: {host}") == 403


def test_a_request_without_a_host_is_refused(without_tokens: Api) -> None:
    assert get(without_tokens, version="1.0") == 403


HOSTS_WITH_OWN_ORIGIN = [
    ("127.0.0.1:8000", "http://127.0.0.1:8000"),
    ("localhost", "https://localhost"),
    ("LOCALHOST", "http://localhost"),
    ("[::1]:8000", "http://[::1]:8000"),
]


@pytest.mark.parametrize(("host", "origin"), HOSTS_WITH_OWN_ORIGIN)
def test_a_page_of_the_service_itself_is_answered(
    without_tokens: Api, host: str, origin: str
) -> None:
    assert get(without_tokens, f"Host: {host}", f"Origin: {origin}") == 200


FOREIGN_ORIGINS = [
    "http://evil.example",
    "http://127.0.0.1",
    "http://127.0.0.1:8001",
    "http://localhost:8000",
    "http://[::1]:8000",
    "http://127.0.0.1:8000.evil.example",
    "http://127.0.0.1:8000@evil.example",
    "http://127.0.0.1:8000/",
    "ftp://127.0.0.1:8000",
    "null",
    "",
]


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_page_of_another_origin_is_refused(without_tokens: Api, origin: str) -> None:
    assert get(without_tokens, "Host: 127.0.0.1:8000", f"Origin: {origin}") == 403


def test_one_foreign_origin_beside_an_own_one_is_refused(without_tokens: Api) -> None:
    origins = ("Origin: http://127.0.0.1:8000", "Origin: http://evil.example")
    assert get(without_tokens, "Host: 127.0.0.1:8000", *origins) == 403
    assert get(without_tokens, "Host: 127.0.0.1:8000", *reversed(origins)) == 403


def test_a_foreign_page_is_refused_before_its_body_is_read(without_tokens: Api) -> None:
    lines = (
        "POST /v1/users/ada/sessions HTTP/1.1",
        "Host: evil.example",
        "Content-Length: 1000",
        "",
        "",
    )
    with socket.create_connection(
        ("127.0.0.1", without_tokens.base_url.port), timeout=10
    ) as connection:
        connection.sendall("\r\n".join(lines).encode())
        assert re.match(rb"HTTP/1\.1 403", connection.recv(4096))


@pytest.mark.parametrize(
    "headers", [("Host: evil.example",), ("Host: x", "Origin: http://evil.example")]
)
def test_with_tokens_the_token_decides(filled: Api, headers: tuple[str, ...]) -> None:
    assert get(filled, *headers) == 401
    assert get(filled, *headers, f"Authorization: Bearer {TOKENS['acme']}") == 200
