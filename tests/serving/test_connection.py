"""What is refused on a connection before a token is looked at.

That concerns how requests are framed, their sizes, the numbers of their parts, odd paths, and
requests for other protocols.
"""

import http.client
import json
import socket
import time

import h11
import pytest
from mempiler.serving.http import connection

from .conftest import TOKENS, Api, StartService, within
from .raw_requests import connect_socket, response_statuses

JSON = b'{"query": "Lisbon"}'
"""A body of 19 bytes, which is 13 in the hexadecimal digits in which a chunk tells its length."""
LENGTH = "Content-Length: 19"

IN_CHUNKS = "Transfer-Encoding: chunked"
LAST_CHUNK = b"0\r\n\r\n"
CHUNKED_JSON = b"13\r\n" + JSON + b"\r\n" + LAST_CHUNK

HEALTH_REQUEST = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
"""The service closes the connection after it."""


def request_bytes(
    *headers: str,
    body: bytes = JSON,
    line: str = "POST /v1/users/ada/search HTTP/1.1",
    host: str | None = "x",
) -> bytes:
    """Return the bytes of a request with a valid token, and with just these further headers.

    Args:
        *headers: Further headers, each as one line.
        body: What stands behind the head, as it is.
        line: The first line of the request.
        host: The value of the header `Host`; without that header if None.
    """
    lines = [line]
    if host is not None:
        lines.append(f"Host: {host}")
    lines.append(f"Authorization: Bearer {TOKENS['acme']}")
    lines.append("Content-Type: application/json")
    lines.extend(headers)
    return "\r\n".join([*lines, "", ""]).encode() + body


def in_chunks_of(size: int, body: bytes) -> bytes:
    """Return a body in chunks of so many bytes."""
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts]
    return b"".join(chunks) + LAST_CHUNK


@pytest.fixture
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the service close the connections of refused requests after 0.1 instead of 2 seconds."""
    monkeypatch.setattr(connection, "LINGER", 0.1)


SHORT_LINGER = pytest.mark.usefixtures("short_linger")


# Framing: where the body of a request ends, and the next request begins


WELL_FRAMED_REQUESTS = {
    "length": request_bytes(LENGTH),
    "chunks": request_bytes(IN_CHUNKS, body=CHUNKED_JSON),
    "chunks, in capitals": request_bytes("TRANSFER-ENCODING: CHUNKED", body=CHUNKED_JSON),
    "the same length twice": request_bytes(LENGTH, LENGTH),
    "an extension of a chunk": request_bytes(
        IN_CHUNKS, body=CHUNKED_JSON.replace(b"13\r\n", b"13;a=b\r\n")
    ),
}


@pytest.mark.parametrize("form", WELL_FRAMED_REQUESTS)
def test_a_well_framed_request_is_answered_and_so_is_the_request_behind_it(
    client_with_session: Api, form: str
) -> None:
    """The service finds the end of the body, and so the beginning of the next request."""
    two_requests = WELL_FRAMED_REQUESTS[form] + HEALTH_REQUEST

    assert response_statuses(client_with_session, two_requests) == [200, 200]


ILL_FRAMED_REQUESTS = {
    # Two ways of framing
    "length and chunks": request_bytes(LENGTH, IN_CHUNKS, body=CHUNKED_JSON),
    "chunks and length": request_bytes(IN_CHUNKS, LENGTH, body=CHUNKED_JSON),
    # Lengths
    "two lengths": request_bytes(LENGTH, "Content-Length: 20"),
    "a signed length": request_bytes("Content-Length: +19"),
    "a negative length": request_bytes("Content-Length: -19"),
    "a hexadecimal length": request_bytes("Content-Length: 0x13"),
    "a blank behind a name": request_bytes("Content-Length : 19"),
    # Encodings
    "a blank behind the encoding's name": request_bytes(
        "Transfer-Encoding : chunked", body=CHUNKED_JSON
    ),
    "an unknown encoding": request_bytes("Transfer-Encoding: xchunked", body=CHUNKED_JSON),
    "two encodings": request_bytes("Transfer-Encoding: gzip, chunked", body=CHUNKED_JSON),
    "another encoding behind": request_bytes(
        "Transfer-Encoding: chunked, identity", body=CHUNKED_JSON
    ),
    "the encoding twice": request_bytes(IN_CHUNKS, IN_CHUNKS, body=CHUNKED_JSON),
    "a second encoding": request_bytes(IN_CHUNKS, "Transfer-Encoding: identity", body=CHUNKED_JSON),
    "a vertical tab": request_bytes("Transfer-Encoding: \x0bchunked", body=CHUNKED_JSON),
    "a zero byte": request_bytes("Transfer-Encoding: chunked\x00", body=CHUNKED_JSON),
    "quotes": request_bytes('Transfer-Encoding: "chunked"', body=CHUNKED_JSON),
    "chunks of HTTP/1.0": request_bytes(
        IN_CHUNKS, body=CHUNKED_JSON, line="POST /v1/users/ada/search HTTP/1.0"
    ),
    # Chunks
    "trailers": request_bytes(
        IN_CHUNKS, body=CHUNKED_JSON[:-2] + b"Authorization: Bearer x\r\n\r\n"
    ),
    "a chunk of 0x13": request_bytes(IN_CHUNKS, body=b"0x" + CHUNKED_JSON),
    "a chunk of +13": request_bytes(IN_CHUNKS, body=b"+" + CHUNKED_JSON),
    "a chunk of -1": request_bytes(IN_CHUNKS, body=b"-1\r\n" + JSON),
    "bare line feeds of chunks": request_bytes(
        IN_CHUNKS, body=CHUNKED_JSON.replace(b"\r\n", b"\n")
    ),
    "no line end behind a chunk": request_bytes(
        IN_CHUNKS, body=CHUNKED_JSON.replace(b"\r\n0", b"XX0")
    ),
    # Headers
    "no host": request_bytes(LENGTH, host=None),
    "two hosts": request_bytes(LENGTH, "Host: y"),
    "a header without a colon": request_bytes(LENGTH, "nonsense"),
    "a header without a name": request_bytes(LENGTH, ": x"),
    "a blank in a name": request_bytes(LENGTH, "X Y: x"),
    "a carriage return in a value": request_bytes(f"{LENGTH}\rX: y"),
    # Other first lines
    "a blank in the path": request_bytes(LENGTH, line="POST /v1/users/a b/search HTTP/1.1"),
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
}


@SHORT_LINGER
@pytest.mark.parametrize("form", ILL_FRAMED_REQUESTS)
def test_an_ill_framed_request_is_refused_and_nothing_behind_it_is_read(
    client_with_session: Api, form: str
) -> None:
    """A proxy before the service might see another request in the same bytes, and let it pass."""
    two_requests = ILL_FRAMED_REQUESTS[form] + HEALTH_REQUEST

    assert response_statuses(client_with_session, two_requests) == [400]


@SHORT_LINGER
@pytest.mark.parametrize(
    "path",
    [
        "/v1/users",
        "/v1/users/",
        "/v1/users/ada",
        "/v1//users",
        "//v1/users",
        "///v1/users",
        "/v1/./users",
        "/v1/../v1/users",
        "/health/../v1/users",
        "/%76%31/users",
        "/v1%2fusers",
        "/v1/users%3f",
        "/V1/users",
        "/v1;/users",
        "/v1/users;a",
        "/v1/users?token=x",
        "/v1/users#",
        "/.//v1/users",
        "/v1\\users",
        "/docs/../v1/users",
        "http://127.0.0.1/v1/users",
        "*",
    ],
)
def test_no_spelling_of_a_path_leads_around_the_token(client_with_session: Api, path: str) -> None:
    """The paths are odd spellings of `/v1/users`, and the requests have no token.

    A proxy and the service may read such a path in different ways.
    """
    request_data = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()

    (status,) = response_statuses(client_with_session, request_data)

    assert status in (400, 401, 404)


# Sizes and numbers


def health_request_with_headers(count: int) -> bytes:
    """Return a request with so many headers; `Host` and `Connection` are two of them."""
    further_headers = "".join(f"X-{number}: x\r\n" for number in range(count - 2))
    head = f"GET /health HTTP/1.1\r\nHost: x\r\n{further_headers}Connection: close\r\n\r\n"
    return head.encode()


@SHORT_LINGER
def test_a_request_with_more_than_a_hundred_headers_is_refused(client_with_session: Api) -> None:
    """The status 431 says that a request has too many headers."""
    request_data = health_request_with_headers(101)

    assert response_statuses(client_with_session, request_data) == [431]


def test_a_head_of_a_hundred_headers_may_come_in_pieces() -> None:
    """The first piece ends before the empty line that ends the head."""
    server = connection.BoundedConnection(max_body=1000)
    head = health_request_with_headers(100)

    server.receive_data(head[:-2])
    assert server.next_event() is h11.NEED_DATA

    server.receive_data(head[-2:])
    assert len(server.next_event().headers) == 100


BODY_OF_25_600_BYTES = JSON.ljust(25_600)
"""White space behind JSON has no meaning."""


@SHORT_LINGER
@pytest.mark.parametrize("chunk_size", [1, 100])
def test_a_large_body_in_tiny_chunks_is_refused(client_with_session: Api, chunk_size: int) -> None:
    """Parsing chunks takes time, so a body may have a hundred, and one more for each 256 bytes.

    This one has 25,600 bytes, so it may have 200 chunks.
    """
    body = in_chunks_of(chunk_size, BODY_OF_25_600_BYTES)
    two_requests = request_bytes(IN_CHUNKS, body=body) + HEALTH_REQUEST

    # The second request is not read any more.
    assert response_statuses(client_with_session, two_requests) == [413]


def test_a_large_body_may_have_more_than_a_hundred_chunks(client_with_session: Api) -> None:
    """A body of 25,600 bytes may have 200 chunks, and this one has 160."""
    body = in_chunks_of(160, BODY_OF_25_600_BYTES)
    request_data = request_bytes(IN_CHUNKS, "Connection: close", body=body)

    assert response_statuses(client_with_session, request_data) == [200]


LONG_EXTENSION = b";" + b"a" * 9_000
"""An extension stands behind the length of a chunk, and is no part of its content."""


@SHORT_LINGER
def test_the_extensions_of_chunks_count_in_the_size_of_the_body(
    start_service: StartService,
) -> None:
    """A body may have 10,000 bytes. The two extensions of 9,000 bytes are more than that."""
    client = start_service(max_body=10_000)
    blank_chunk = b"1" + LONG_EXTENSION + b"\r\n \r\n"
    json_chunk = b"13" + LONG_EXTENSION + b"\r\n" + JSON + b"\r\n"
    body = blank_chunk + json_chunk + LAST_CHUNK
    request_data = request_bytes(IN_CHUNKS, "Connection: close", body=body)

    assert response_statuses(client, request_data) == [413]


@SHORT_LINGER
def test_a_refused_request_whose_body_never_ends_is_read_no_further(
    client_with_session: Api,
) -> None:
    """The service closes the connection, so sending more fails."""
    # It is refused because it has no token.
    head = b"POST /v1/users/ada/search HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    with connect_socket(client_with_session, timeout=20) as client_socket:
        client_socket.sendall(head)
        assert client_socket.recv(4096).startswith(b"HTTP/1.1 401")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_chunks(client_socket, seconds=15)


def send_chunks(client_socket: socket.socket, seconds: float) -> None:
    """Send chunks of a body for some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        client_socket.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
        time.sleep(0.01)


def test_a_client_that_sends_a_large_body_reads_why_it_is_refused(
    start_service: StartService,
) -> None:
    """The request has no token, so it could be refused before its body is read.

    But the client of Python's standard library reads no response if the connection is closed before
    the whole body was sent.
    """
    client = start_service(max_body=3_000_000)
    sender = http.client.HTTPConnection("127.0.0.1", client.port, timeout=20)

    sender.request(
        "POST", "/v1/users/ada/search", b"x" * 2_900_000, {"Content-Type": "application/json"}
    )
    response = sender.getresponse()

    assert response.status == 401
    assert response.headers["Connection"] == "close"
    assert json.loads(response.read())["error"]["code"] == 401
    sender.close()


def test_a_request_whose_body_is_cut_off_stores_nothing(start_service: StartService) -> None:
    """Its header announces one byte more than the client sends."""
    client = start_service()
    body = json.dumps({"messages": [{"role": "user", "content": "I moved."}]}).encode()
    request_data = request_bytes(
        f"Content-Length: {len(body) + 1}",
        body=body,
        line="POST /v1/users/ada/sessions HTTP/1.1",
    )
    requests_in_progress = client.service.request_pool.held

    with connect_socket(client) as client_socket:
        client_socket.sendall(request_data)
        assert within(10, lambda: requests_in_progress["acme"] == 1)

    # The client has closed the connection.
    assert within(10, lambda: requests_in_progress["acme"] == 0)
    assert client.get("/v1/users").json()["users"] == []


# Other protocols


TO_HTTP_2 = (
    "Upgrade: h2c",
    "Connection: Upgrade, HTTP2-Settings",
    "HTTP2-Settings: AAMAAABkAAQAAP__",
)
"""Headers by which a client asks to go on with HTTP/2."""


@SHORT_LINGER
@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param("websocket", id="websocket"),
        pytest.param("WebSocket", id="WebSocket"),
        pytest.param("h2c, websocket", id="HTTP/2 or websocket"),
        pytest.param("foo\r\nUpgrade: websocket", id="two headers"),
    ],
)
@pytest.mark.parametrize(
    "data_behind_request",
    [
        pytest.param(HEALTH_REQUEST, id="a request"),
        pytest.param(b"\x81\x85abcdabcde", id="a frame of a websocket"),
    ],
)
def test_a_websocket_is_refused_and_nothing_behind_the_request_is_read(
    client_with_session: Api, protocol: str, data_behind_request: bytes
) -> None:
    request_data = request_bytes(
        "Connection: Upgrade",
        f"Upgrade: {protocol}",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        line="GET /v1/users HTTP/1.1",
        body=b"",
    )

    assert response_statuses(client_with_session, request_data + data_behind_request) == [400]


@SHORT_LINGER
@pytest.mark.parametrize(
    "data_behind_request",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(HEALTH_REQUEST, id="a request"),
    ],
)
def test_a_request_that_asks_for_http_2_is_answered_over_http_1_and_the_connection_ends(
    client_with_session: Api, data_behind_request: bytes
) -> None:
    request_data = request_bytes(*TO_HTTP_2, LENGTH) + data_behind_request

    # `response_statuses` returns only when the service has closed the connection.
    status, *further_statuses = response_statuses(client_with_session, request_data)

    assert status == 200
    # What stands behind it is not answered as a request of HTTP/1. It may be refused.
    assert 200 not in further_statuses


@SHORT_LINGER
def test_no_upgrade_leads_around_the_token(client_with_session: Api) -> None:
    """A request that asks for HTTP/2 needs a token like any other."""
    lines = ["POST /v1/users/ada/search HTTP/1.1", "Host: x", LENGTH, *TO_HTTP_2]
    head_without_token = "\r\n".join([*lines, "", ""])

    assert response_statuses(client_with_session, head_without_token.encode() + JSON) == [401]


@SHORT_LINGER
def test_the_service_is_no_proxy_to_other_servers(client_with_session: Api) -> None:
    """By `CONNECT` a client asks a proxy for a connection to another server."""
    request_data = request_bytes(line="CONNECT 127.0.0.1:80 HTTP/1.1", body=b"")

    assert response_statuses(client_with_session, request_data) == [404]


@SHORT_LINGER
def test_a_client_that_speaks_http_2_from_the_first_byte_is_refused(
    client_with_session: Api,
) -> None:
    http_2_preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    empty_settings_frame = b"\0\0\0\4\0\0\0\0\0"

    statuses = response_statuses(client_with_session, http_2_preface + empty_settings_frame)

    assert statuses[-1] == 400
    assert 200 not in statuses


def test_a_request_before_one_that_asks_for_another_protocol_is_answered(
    client_with_session: Api,
) -> None:
    """The first request is an ordinary one, and the second one asks for HTTP/2."""
    first_request = request_bytes(LENGTH)
    upgrade_request = request_bytes(*TO_HTTP_2, LENGTH)

    assert response_statuses(client_with_session, first_request + upgrade_request) == [200, 200]
