"""Who is let in, how much they may send, and how long it may take."""

import hashlib
import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from mempiler import Store, UserError
from mempiler.serving.auth import Tokens, read_tokens

from .conftest import ADA

LONG = "a-long-enough-token"


@pytest.mark.parametrize(("mark", "end"), [(b"", b"\n"), (b"\xef\xbb\xbf", b"\r\n")])
def test_tokens_may_be_given_as_digests(tmp_path: Path, mark: bytes, end: bytes) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(
        mark + end.join([b"# who", b"", f"acme sha256:{hashlib.sha256(LONG.encode()).hexdigest()}".encode(), b""])
    )
    tokens = Tokens(path)
    assert (tokens.tenant(LONG), tokens.tenant("another"), tokens.tenant("")) == ("acme", None, None)


def test_token_is_withdrawn_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"acme {LONG}\nglobex {LONG}-2\n")
    tokens = Tokens(path)
    path.write_text(f"globex {LONG}-2\n")
    assert (tokens.tenant(LONG), tokens.tenant(f"{LONG}-2")) == (None, "globex")
    path.write_text("nonsense\n")
    assert tokens.tenant(f"{LONG}-2") is None
    path.unlink()
    assert tokens.tenant(f"{LONG}-2") is None
    path.write_text(f"acme {LONG}\n")
    assert tokens.tenant(LONG) == "acme"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no token"),
        ("acme", "expected TENANT TOKEN"),
        (f"acme {LONG} more", "line 1: expected TENANT TOKEN"),
        ("acme tooshort", "at least 16 characters"),
        ("acme sha256:1234567890123456", "64 hexadecimal digits"),
        (f"acme {LONG}\nglobex {LONG}", "line 2: this token is bound to another tenant"),
        (None, "cannot be read"),
    ],
)
def test_wrong_token_file_is_one_line_without_tokens(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "tokens"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as raised:
        read_tokens(path)
    assert LONG not in str(raised.value)


WRONG = ("", "Bearer", "Bearer wrong-token-0123456", "Basic token-of-the-acme-tenant", "token-of-the-acme-tenant")


@pytest.mark.parametrize("header", WRONG)
@pytest.mark.parametrize("path", ["/v1/users/ada/memory", "/v1/models", "/v1/nothing"])
def test_wrong_token_is_refused_before_anything_else(filled: Any, header: str, path: str) -> None:
    response = httpx.get(filled.address + path, headers={"Authorization": header})
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    assert response.json()["error"]["type"] == "authentication_error"


def test_two_tokens_at_once_are_none(filled: Any) -> None:
    both = [
        ("Authorization", "Bearer token-of-the-acme-tenant"),
        ("Authorization", "Bearer token-of-the-globex-tenant"),
    ]
    assert httpx.get(f"{filled.address}/v1/users", headers=both).status_code == 401


def test_a_tenant_is_told_of_its_own_users_alone(connect: Any) -> None:
    client = connect()
    for tenant, user in (("acme", "ada"), ("globex", "ben")):
        client.as_tenant(tenant).add("I moved.", user=user)
    for tenant, user in (("acme", "ada"), ("globex", "ben")):
        assert [found["user"] for found in client.as_tenant(tenant).get("/v1/users").json()["users"]] == [user]


def test_service_without_tokens_answers_to_this_machine_only(connect: Any) -> None:
    client = connect(tokens=False).as_tenant(None)
    assert client.get("/v1/users").status_code == 200
    assert client.get("/v1/users", headers={"Host": "localhost:80"}).status_code == 200
    assert client.get("/v1/users", headers={"Host": "[::1]:80"}).status_code == 200
    assert client.get("/v1/users", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize("announced", [True, False])
def test_large_bodies_are_refused_announced_or_not(connect: Any, store: Store, announced: bool) -> None:
    client = connect(max_body=1000)
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 2000}]}).encode()
    sent: Any = body if announced else iter([body[:500], body[500:]])
    response = client.post("/v1/users/ada/sessions", content=sent, headers={"Content-Type": "application/json"})
    assert (response.status_code, store.users()) == (413, [])


def test_too_many_turns_are_refused(connect: Any, store: Store) -> None:
    client = connect(max_turns=3)
    messages = [{"role": "user", "content": "hi"}] * 4
    for path, body in (
        ("/v1/users/ada/sessions", {"messages": messages}),
        ("/v1/chat/completions", {"user": "ada", "messages": messages}),
    ):
        response = client.post(path, json=body)
        assert (response.status_code, "send at most 3" in response.text) == (413, True)
    assert store.users() == []


def test_late_answer_is_a_504_and_not_stored(connect: Any, scripted: Any, store: Store) -> None:
    go, done = threading.Event(), threading.Event()

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        go.wait(20)
        done.set()
        return {"answer": "late"}

    client = connect(scripted(reply), timeout=0.3)
    response = client.chat("I moved.")
    assert (response.status_code, response.json()["error"]["type"]) == (504, "server_error")
    go.set()
    assert done.wait(20)
    while client.service.asking.held.total():
        time.sleep(0.01)
    (session,) = store.read(ADA).open
    assert [turn.text for turn in session.turns] == ["I moved."]


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o640, False)])
def test_a_token_file_that_everybody_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    path = tmp_path / "tokens"
    path.write_text("acme a-long-random-token\n")
    path.chmod(mode)
    with caplog.at_level("WARNING", "mempiler.serving"):
        Tokens(path)
    assert ("chmod o-r" in caplog.text) is warned
