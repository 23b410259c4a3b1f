"""Which `Host` and `Origin` a service without tokens answers: those of its own machine alone.

A page of the web that somebody on this machine looks at may send requests to the service. Its
browser tells the page's name in these headers. docs/production/security.md explains more.
"""

from collections.abc import Iterator

import pytest
from mempiler import Store

from .conftest import TOKENS, Api, service_over, serving
from .raw_requests import connect_socket, response_statuses


@pytest.fixture(scope="module")
def without_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client of a service without tokens; shared by tests that change nothing."""
    folder = tmp_path_factory.mktemp("open")
    with (
        Store(folder / "memories.sqlite") as store,
        serving(service_over(store, folder, tokens=False)) as client,
    ):
        yield client.as_tenant(None)


def get_users(client: Api, *headers: str, version: str = "1.1") -> int:
    """Ask for all users with just these headers, such as "Host: x", and return the status."""
    lines = [f"GET /v1/users HTTP/{version}", *headers, "Connection: close", "", ""]
    (status,) = response_statuses(client, "\r\n".join(lines).encode())
    return status


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8000",
        "localhost",
        "localhost:65535",
        "LOCALHOST:80",
        "[::1]",
        "[::1]:8000",
    ],
)
def test_a_request_for_one_of_the_machines_own_names_is_answered(
    without_tokens: Api, host: str
) -> None:
    assert get_users(without_tokens, f"Host: {host}") == 200


@pytest.mark.parametrize(
    "host",
    [
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
    ],
)
def test_a_foreign_host_is_refused(without_tokens: Api, host: str) -> None:
    assert get_users(without_tokens, f"Host: {host}") == 403


def test_a_request_without_a_host_is_refused(without_tokens: Api) -> None:
    # HTTP/1.1 requires the header, HTTP/1.0 does not.
    assert get_users(without_tokens, version="1.0") == 403


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("localhost", "https://localhost"),
        ("LOCALHOST", "http://localhost"),
        ("[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_a_page_of_the_service_itself_is_answered(
    without_tokens: Api, host: str, origin: str
) -> None:
    assert get_users(without_tokens, f"Host: {host}", f"Origin: {origin}") == 200


@pytest.mark.parametrize(
    "origin",
    [
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
    ],
)
def test_a_page_of_another_origin_is_refused(without_tokens: Api, origin: str) -> None:
    assert get_users(without_tokens, "Host: 127.0.0.1:8000", f"Origin: {origin}") == 403


@pytest.mark.parametrize(
    "origins",
    [
        pytest.param(["http://127.0.0.1:8000", "http://evil.example"], id="foreign origin last"),
        pytest.param(["http://evil.example", "http://127.0.0.1:8000"], id="foreign origin first"),
    ],
)
def test_a_foreign_origin_beside_the_services_own_is_refused(
    without_tokens: Api, origins: list[str]
) -> None:
    headers = [f"Origin: {origin}" for origin in origins]

    assert get_users(without_tokens, "Host: 127.0.0.1:8000", *headers) == 403


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(["Host: evil.example"], id="foreign host"),
        pytest.param(["Host: 127.0.0.1", "Origin: http://evil.example"], id="foreign origin"),
    ],
)
def test_a_foreign_page_is_refused_before_its_body_is_read(
    without_tokens: Api, headers: list[str]
) -> None:
    lines = ["POST /v1/users/ada/sessions HTTP/1.1", *headers, "Content-Length: 1000"]
    head = "\r\n".join([*lines, "", ""])

    with connect_socket(without_tokens) as connection:
        connection.sendall(head.encode())
        # The body is never sent.
        first_bytes = connection.recv(4096)

    assert first_bytes.startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(["Host: evil.example"], id="foreign host"),
        pytest.param(["Host: x", "Origin: http://evil.example"], id="foreign origin"),
    ],
)
def test_a_service_with_tokens_checks_the_token_alone(
    client_with_session: Api, headers: list[str]
) -> None:
    """A page of the web knows no token, so its `Host` and `Origin` do not matter."""
    token = f"Authorization: Bearer {TOKENS['acme']}"

    assert get_users(client_with_session, *headers) == 401
    assert get_users(client_with_session, *headers, token) == 200
