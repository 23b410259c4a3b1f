"""What comes over a connection before anybody looks at a token: framing, sizes, numbers of parts, odd paths."""

import http.client
import json
import re
import socket
import time
from typing import Any

import h11
import pytest
from mempiler.serving.http import connection

from .conftest import TOKENS, within

JSON = b'{"query": "Lisbon"}'
CHUNKED = b"13\r\n" + JSON + b"\r\n0\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
LENGTH = "Content-Length: 19"
IN_CHUNKS = "Transfer-Encoding: chunked"


@pytest.fixture
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets connections of refused requests be closed soon, for tests that wait for it."""
    monkeypatch.setattr(connection, "LINGER", 0.1)


SHORT_LINGER = pytest.mark.usefixtures("short_linger")


def request(
    *headers: str,
    body: bytes = JSON,
    line: str = "POST /v1/users/ada/search HTTP/1.1",
    host: str = "x",
) -> bytes:
    token = f"Authorization: Bearer {TOKENS['acme']}"
    hosts = [f"Host: {host}"] if host else []
    lines = [line, *hosts, token, "Content-Type: application/json", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def statuses(client: Any, sent: bytes) -> list[int]:
    """The statuses of all answers that come over a connection until it is closed."""
    received = b""
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=10) as client_socket:
        client_socket.sendall(sent)
        while part := client_socket.recv(65_536):
            received += part
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", received)]


WELL_FRAMED = {
    "length": request(LENGTH),
    "chunks": request(IN_CHUNKS, body=CHUNKED),
    "chunks, in capitals": request("TRANSFER-ENCODING: CHUNKED", body=CHUNKED),
    "a length told twice alike": request(LENGTH, LENGTH),
    "an extension of a chunk": request(IN_CHUNKS, body=CHUNKED.replace(b"13\r\n", b"13;a=b\r\n")),
}


@pytest.mark.parametrize("form", WELL_FRAMED)
def test_a_well_framed_body_is_read_and_so_is_the_request_behind_it(filled: Any, form: str) -> None:
    assert statuses(filled, WELL_FRAMED[form] + HEALTH) == [200, 200]


ILL_FRAMED = {
    "length and chunks": request(LENGTH, IN_CHUNKS, body=CHUNKED),
    "chunks and length": request(IN_CHUNKS, LENGTH, body=CHUNKED),
    "two lengths": request(LENGTH, "Content-Length: 20"),
    "a signed length": request("Content-Length: +19"),
    "a negative length": request("Content-Length: -19"),
    "a hexadecimal length": request("Content-Length: 0x13"),
    "a blank behind a name": request("Content-Length : 19"),
    "a blank behind the encoding's name": request("Transfer-Encoding : chunked", body=CHUNKED),
    "an unknown encoding": request("Transfer-Encoding: xchunked", body=CHUNKED),
    "two encodings": request("Transfer-Encoding: gzip, chunked", body=CHUNKED),
    "another encoding behind": request("Transfer-Encoding: chunked, identity", body=CHUNKED),
    "the encoding twice": request(IN_CHUNKS, IN_CHUNKS, body=CHUNKED),
    "a second encoding": request(IN_CHUNKS, "Transfer-Encoding: identity", body=CHUNKED),
    "a vertical tab": request("Transfer-Encoding: \x0bchunked", body=CHUNKED),
    "a zero byte": request("Transfer-Encoding: chunked\x00", body=CHUNKED),
    "quotes": request('Transfer-Encoding: "chunked"', body=CHUNKED),
    "chunks of HTTP/1.0": request(
        IN_CHUNKS, body=CHUNKED, line="POST /v1/users/ada/search HTTP/1.0"
    ),
    "trailers": request(IN_CHUNKS, body=CHUNKED[:-2] + b"Authorization: Bearer x\r\n\r\n"),
    "a chunk of 0x13": request(IN_CHUNKS, body=b"0x" + CHUNKED),
    "a chunk of +13": request(IN_CHUNKS, body=b"+" + CHUNKED),
    "a chunk of -1": request(IN_CHUNKS, body=b"-1\r\n" + JSON),
    "bare line feeds of chunks": request(IN_CHUNKS, body=CHUNKED.replace(b"\r\n", b"\n")),
    "no line end behind a chunk": request(IN_CHUNKS, body=CHUNKED.replace(b"\r\n0", b"XX0")),
    "no host": request(LENGTH, host=""),
    "two hosts": request(LENGTH, "Host: y"),
    "a header without a colon": request(LENGTH, "nonsense"),
    "a header without a name": request(LENGTH, ": x"),
    "a blank in a name": request(LENGTH, "X Y: x"),
    "a carriage return in a value": request(f"{LENGTH}\rX: y"),
    "a blank in the path": request(LENGTH, line="POST /v1/users/a b/search HTTP/1.1"),
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
}


@SHORT_LINGER
@pytest.mark.parametrize("form", ILL_FRAMED)
def test_an_ill_framed_request_is_refused_and_nothing_behind_it_is_read(
    filled: Any, form: str
) -> None:
    assert statuses(filled, ILL_FRAMED[form] + HEALTH) == [400]


PATHS = [
    *(
        "/v1/users",
        "/v1/users/",
        "/v1/users/ada",
        "/v1//users",
        "//v1/users",
        "///v1/users",
        "/v1/./users",
    ),
    *(
        "/v1/../v1/users",
        "/health/../v1/users",
        "/%76%31/users",
        "/v1%2fusers",
        "/v1/users%3f",
        "/V1/users",
    ),
    *(
        "/v1;/users",
        "/v1/users;a",
        "/v1/users?token=x",
        "/v1/users#",
        "/.//v1/users",
        "/v1\\users",
        "/docs/../v1/users",
    ),
    *("http://127.0.0.1/v1/users", "*"),
]


@SHORT_LINGER
@pytest.mark.parametrize("path", PATHS)
def test_no_spelling_of_a_path_leads_around_the_token(filled: Any, path: str) -> None:
    (status,) = statuses(
        filled, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    assert status in (400, 401, 404)


@SHORT_LINGER
@pytest.mark.parametrize(("number", "status"), [(100, 200), (101, 431)])
def test_a_request_has_at_most_a_hundred_headers(filled: Any, number: int, status: int) -> None:
    headers = "".join(f"X-{n}: x\r\n" for n in range(number - 2))
    sent = f"GET /health HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n"
    assert statuses(filled, sent.encode()) == [status]


def test_a_head_of_a_hundred_headers_may_come_in_pieces() -> None:
    """The first piece ends before the empty line that ends the head."""
    server = connection.BoundedConnection(max_body=1000)
    headers = "".join(f"X-{n}: x\r\n" for n in range(connection.MAX_HEADERS - 1))
    server.receive_data(f"GET / HTTP/1.1\r\nHost: x\r\n{headers}".encode())
    assert server.next_event() is h11.NEED_DATA
    server.receive_data(b"\r\n")
    assert len(server.next_event().headers) == connection.MAX_HEADERS


def in_chunks_of(size: int, body: bytes) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@SHORT_LINGER
@pytest.mark.parametrize(("size", "expected"), [(1, [413]), (100, [413]), (256, [200, 200])])
def test_chunks_may_be_small_but_not_all_of_them(
    filled: Any, size: int, expected: list[int]
) -> None:
    body = json.dumps({"query": "Lisbon " * 5_000}).encode()
    sent = request(IN_CHUNKS, body=in_chunks_of(size, body)) + HEALTH
    assert statuses(filled, sent) == expected


def test_a_few_tiny_chunks_are_no_reason_for_a_refusal(filled: Any) -> None:
    assert statuses(filled, request(IN_CHUNKS, body=in_chunks_of(1, JSON)) + HEALTH) == [200, 200]


@SHORT_LINGER
def test_the_frames_of_chunks_count_as_parts_of_the_body(connect: Any) -> None:
    client = connect(max_body=10_000)
    client.add("I moved to Lisbon.")
    extension = b"13;" + b"a" * 9_000 + b"\r\n"
    for times, status in ((1, 200), (2, 413)):
        body = (extension + b" " * 19 + b"\r\n") * (times - 1) + extension + CHUNKED[4:]
        assert statuses(client, request(IN_CHUNKS, "Connection: close", body=body)) == [status]


@SHORT_LINGER
def test_a_refused_request_whose_body_never_ends_is_read_no_further(filled: Any) -> None:
    with socket.create_connection(("127.0.0.1", filled.base_url.port), timeout=20) as client_socket:
        client_socket.sendall(
            b"POST /v1/users/ada/search HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert client_socket.recv(4096).startswith(b"HTTP/1.1 401")
        with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
            send_chunks(client_socket, seconds=15)


def send_chunks(client_socket: socket.socket, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        client_socket.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
        time.sleep(0.01)


def test_a_client_that_sends_a_large_body_reads_why_it_is_refused(connect: Any) -> None:
    client = connect(max_body=3_000_000)
    # A client of the standard library reads no answer once it could not send.
    sender = http.client.HTTPConnection("127.0.0.1", client.base_url.port, timeout=20)
    sender.request(
        "POST", "/v1/users/ada/search", b"x" * 2_900_000, {"Content-Type": "application/json"}
    )
    response = sender.getresponse()
    assert response.status == 401
    assert response.headers["Connection"] == "close"
    assert json.loads(response.read())["error"]["code"] == 401
    sender.close()


def test_half_a_body_is_no_request(connect: Any) -> None:
    client = connect()
    said = json.dumps({"messages": [{"role": "user", "content": "I moved."}]}).encode()
    sent = request(
        f"Content-Length: {len(said) + 1}", body=said, line="POST /v1/users/ada/sessions HTTP/1.1"
    )
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=10) as client_socket:
        client_socket.sendall(sent)
        assert within(10, lambda: client.service.request_pool.held["acme"] == 1)
    assert within(10, lambda: client.service.request_pool.held["acme"] == 0)
    assert client.get("/v1/users").json()["users"] == []


WEBSOCKET = (
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
TO_HTTP_2 = (
    "Upgrade: h2c",
    "Connection: Upgrade, HTTP2-Settings",
    "HTTP2-Settings: AAMAAABkAAQAAP__",
)


@SHORT_LINGER
@pytest.mark.parametrize(
    "spelling", ["websocket", "WebSocket", "h2c, websocket", "foo\r\nUpgrade: websocket"]
)
@pytest.mark.parametrize(
    "behind", [b"", HEALTH, b"\x81\x85abcdabcde"], ids=["nothing", "a request", "a frame"]
)
def test_a_websocket_is_refused_and_the_connection_ends(
    filled: Any, spelling: str, behind: bytes
) -> None:
    headers = ("Connection: Upgrade", f"Upgrade: {spelling}", *WEBSOCKET[1:])
    sent = request(*headers, line="GET /v1/users HTTP/1.1", body=b"")
    assert statuses(filled, sent + behind) == [400]


@SHORT_LINGER
@pytest.mark.parametrize("behind", [b"", HEALTH], ids=["nothing", "a request"])
def test_a_request_that_asks_for_http_2_is_answered_over_http_1_and_the_connection_ends(
    filled: Any, behind: bytes
) -> None:
    # `statuses` returns only when the service has closed the connection.
    answers = statuses(filled, request(*TO_HTTP_2, LENGTH) + behind)
    assert answers[0] == 200
    assert answers[1:] in ([], [400])


@SHORT_LINGER
def test_no_upgrade_leads_around_the_token(filled: Any) -> None:
    head = "\r\n".join(("POST /v1/users/ada/search HTTP/1.1", "Host: x", LENGTH, *TO_HTTP_2))
    assert statuses(filled, f"{head}\r\n\r\n".encode() + JSON) == [401]


@SHORT_LINGER
def test_nothing_is_tunnelled(filled: Any) -> None:
    assert statuses(filled, request(line="CONNECT 127.0.0.1:80 HTTP/1.1", body=b"")) == [404]


@SHORT_LINGER
def test_http_2_from_the_first_byte_is_not_spoken(filled: Any) -> None:
    answers = statuses(filled, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    assert answers[-1] == 400
    assert 200 not in answers


def test_only_the_request_that_asks_for_another_protocol_ends_its_connection(filled: Any) -> None:
    assert statuses(filled, request(LENGTH) + request(*TO_HTTP_2, LENGTH)) == [200, 200]
