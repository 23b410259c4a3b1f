"""Who is let in and sees what, how much they may send, how long it may take, and what `mempiler serve` can be told."""

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import httpx
import mempiler
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from mempiler import Client, MempilerError, Store, UserError
from mempiler.cli import app
from mempiler.serving.client.api_request import ApiRequest
from mempiler.serving.client.remote_memory import RemoteEntries, RemoteMemory
from mempiler.serving.http.token_file import TenantLimits, Tokens
from mempiler.serving.settings import Settings

from .conftest import TOKENS, service_over, serving, within

LONG = "a-long-enough-token"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


@pytest.mark.parametrize(("mark", "end"), [(b"", b"\n"), (b"\xef\xbb\xbf", b"\r\n")])
def test_tokens_may_be_given_as_digests(path: Path, mark: bytes, end: bytes) -> None:
    digest = f"acme sha256:{hashlib.sha256(LONG.encode()).hexdigest()}".encode()
    path.write_bytes(mark + end.join([b"# who", b"", digest, b""]))
    tokens = Tokens(path)
    assert tokens.tenant(LONG) == "acme"
    assert tokens.tenant("another") is None
    assert tokens.tenant("") is None


def test_a_line_may_limit_its_tenant(path: Path) -> None:
    limits = "usd-per-day=2.5 requests-per-minute=60"
    path.write_text(f"acme {LONG} {limits}\nglobex {LONG}-2\nacme {LONG}-3  {limits}\n")
    tokens = Tokens(path)
    assert tokens.tenant(f"{LONG}-3") == "acme"
    assert tokens.limits("acme") == TenantLimits(usd_per_day=2.5, requests_per_minute=60)
    assert tokens.limits("globex") == TenantLimits()
    assert tokens.has_budgets


def test_limits_change_with_the_file_and_hold_while_it_is_wrong(path: Path) -> None:
    path.write_text(f"acme {LONG}\n")
    tokens = Tokens(path)
    assert not tokens.has_budgets
    path.write_text(f"acme {LONG} usd-per-day=1\n")
    assert tokens.limits("acme") == TenantLimits(usd_per_day=1.0)
    path.write_text("nonsense\n")
    assert tokens.tenant(LONG) is None
    assert tokens.limits("acme") == TenantLimits(usd_per_day=1.0)


def test_the_operator_is_no_second_tenant(path: Path) -> None:
    path.write_text(f"acme {LONG}\nmetrics {LONG}-2\n")
    assert not Tokens(path).several
    path.write_text(f"acme {LONG}\nmetrics {LONG}-2\nglobex {LONG}-3\n")
    assert Tokens(path).several


def test_token_is_withdrawn_without_a_restart(path: Path) -> None:
    path.write_text(f"acme {LONG}\nglobex {LONG}-2\n")
    tokens = Tokens(path)
    path.write_text(f"globex {LONG}-2\n")
    assert tokens.tenant(LONG) is None
    assert tokens.tenant(f"{LONG}-2") == "globex"
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
        (f"acme {LONG} more", "line 1: expected TENANT TOKEN"),
        ("acme tooshort", "at least 16 characters"),
        ("acme requests-per-minute=60", "line 1: expected TENANT TOKEN"),
        ("acme sha256:1234567890123456", "64 hexadecimal digits"),
        (
            f"acme {LONG} usd-per-day=five",
            "line 1: usd-per-day: give US dollars, e.g. usd-per-day=2.50",
        ),
        (f"acme {LONG} usd-per-day=", "line 1: usd-per-day: give US dollars"),
        (
            f"acme {LONG} requests-per-minute=1.5",
            "line 1: requests-per-minute: give a whole number",
        ),
        (f"acme {LONG} usd-per-day=1 usd-per-day=1", "line 1: usd-per-day is there twice"),
        (
            f"acme {LONG} {LONG}=",
            "line 1: unknown limit; choose usd-per-day=... or requests-per-minute=...",
        ),
        (
            f"metrics {LONG} usd-per-day=1",
            "line 1: the tenant metrics only reads metrics; it has no limits",
        ),
        (
            f"acme {LONG} usd-per-day=5\n\nglobex {LONG}-2\nacme {LONG}-3",
            "line 4: other limits than in line 1, which is of tenant 'acme', too; give the same in all lines",
        ),
        (f"acme {LONG}\nglobex {LONG}", "line 2: this token is bound to another tenant"),
        (None, "token file .*: no such file"),
    ],
)
def test_wrong_token_file_is_one_line_without_tokens(
    path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as raised:
        Tokens(path)
    assert LONG not in str(raised.value)


def test_a_token_file_that_is_rewritten_with_the_same_size_and_times_is_read_again(
    path: Path,
) -> None:
    path.write_text(f"acme {LONG}-1\n")
    written = path.stat()
    tokens = Tokens(path)
    assert tokens.tenant(f"{LONG}-1") == "acme"
    path.write_text(f"acme {LONG}-2\n")
    os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert path.stat().st_size == written.st_size
    assert tokens.tenant(f"{LONG}-1") is None
    assert tokens.tenant(f"{LONG}-2") == "acme"


def test_a_second_change_within_one_tick_of_the_clock_is_read_later(
    path: Path, monkeypatch: Any
) -> None:
    real, now = Path.stat, time.time_ns()
    names = ("st_dev", "st_ino", "st_size", "st_mode")

    def stat_with_a_coarse_clock(file: Path, **how: Any) -> Any:
        found = real(file, **how)
        return SimpleNamespace(
            **{name: getattr(found, name) for name in names}, st_mtime_ns=now, st_ctime_ns=now
        )

    monkeypatch.setattr(Path, "stat", stat_with_a_coarse_clock)
    path.write_text(f"acme {LONG}-1\n")
    tokens = Tokens(path)
    path.write_text(f"acme {LONG}-2\n")
    monkeypatch.setattr(time, "time_ns", lambda: now + 60 * 10**9)
    assert tokens.tenant(f"{LONG}-1") is None
    assert tokens.tenant(f"{LONG}-2") == "acme"


def test_a_token_file_that_becomes_a_pipe_or_a_device_refuses_all_and_blocks_nothing(
    path: Path,
) -> None:
    path.write_text(f"acme {LONG}\n")
    tokens = Tokens(path)
    path.unlink()
    os.mkfifo(path)
    assert tokens.tenant(LONG) is None
    for unreadable in (path, Path("/dev/zero")):
        with pytest.raises(UserError, match="it is a pipe or a device"):
            Tokens(unreadable)


def test_a_token_file_that_everybody_can_read_is_warned_of(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("acme a-long-random-token\n")
    for mode, warned in ((0o640, False), (0o644, True)):
        path.chmod(mode)
        with caplog.at_level("WARNING", "mempiler.serving"):
            Tokens(path)
        assert ("chmod o-r" in caplog.text) is warned


WRONG = [
    *(
        [name]
        for name in ("", "Bearer", "Bearer wrong-token-0123456", "Basic token-of-the-acme-tenant")
    ),
    [f"Bearer {token}" for token in TOKENS.values()],
]


@pytest.mark.parametrize("given", WRONG, ids=str)
@pytest.mark.parametrize("target", ["/v1/users/ada/memory", "/v1/models", "/v1/nothing"])
def test_wrong_token_is_refused_before_anything_else(
    filled: Any, given: list[str], target: str
) -> None:
    response = httpx.get(
        filled.address + target, headers=[("Authorization", each) for each in given]
    )
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"]["type"] == "authentication_error"


ORIGINS: list[tuple[dict[str, str], bool]] = [
    ({}, True),
    ({"Host": "localhost:80"}, True),
    ({"Host": "[::1]:80"}, True),
    ({"Sec-Fetch-Site": "same-origin"}, True),
    ({"Host": "evil.example"}, False),
    ({"Origin": "https://evil.example"}, False),
    ({"Origin": "http://localhost:3000"}, False),
    ({"Sec-Fetch-Site": "cross-site"}, False),
]


def test_without_tokens_this_machine_is_served_and_no_page_of_another_origin(
    connect: Any, store: Store
) -> None:
    client = connect(tokens=False).as_tenant(None)
    said = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    for headers, served in ORIGINS:
        statuses = [
            client.get(path, headers=headers).status_code for path in ("/v1/users", "/metrics")
        ]
        statuses.append(client.delete("/v1/users/nobody", headers=headers).status_code)
        assert statuses == ([200, 200, 404] if served else [403, 403, 403]), headers
        kind = {"Content-Type": "application/json" if served else "text/plain"}
        posted = client.post("/v1/users/ada/sessions", content=said, headers={**kind, **headers})
        assert posted.status_code == (201 if served else 403), headers
    assert client.get("/v1/users", headers={"Origin": client.address}).status_code == 200
    assert [one.sessions for one in store.users.list_all()] == [4]


@pytest.mark.parametrize("announced", [True, False])
def test_large_requests_are_refused_announced_or_not(
    connect: Any, store: Store, announced: bool
) -> None:
    client = connect(max_body=1000, max_turns=3)
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 2000}]}).encode()
    sent: Any = body if announced else iter([body[:500], body[500:]])
    response = client.post(
        "/v1/users/ada/sessions", content=sent, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 413
    for path in ("/v1/users/ada/sessions", "/v1/chat/completions"):
        messages = [{"role": "user", "content": "hi"}] * 4
        response = client.post(
            path, json={"messages": messages, **({"user": "ada"} if "chat" in path else {})}
        )
        assert response.status_code == 413
        assert "send at most 3" in response.text
    assert store.users.list_all() == []


def test_texts_that_are_too_long_are_refused(connect: Any, store: Store) -> None:
    client = connect(max_text=100)
    long = "x" * 101
    refused = [
        client.add(long),
        client.ask(long),
        client.post("/v1/users/ada/ask", json={"question": "Which?", "options": ["this", long]}),
        client.post("/v1/users/ada/search", json={"query": long}),
        client.chat("Hello.", long, "And?"),
    ]
    assert [response.status_code for response in refused] == [413] * 5
    assert all(
        "101 characters" in response.text and "at most 100" in response.text for response in refused
    )
    assert store.users.list_all() == []
    assert client.add("x" * 100).status_code == 201


PAGE = (Path(__file__).parents[2] / "docs" / "production" / "http.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Limits and timeouts")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (`--.+?) \| (.+?) \|", SECTION, re.MULTILINE)


def test_the_page_has_the_defaults_of_all_settings() -> None:
    serve = app.get_command(click.Context(app), "serve")
    assert serve is not None
    known = {str(parameter.name): parameter.default for parameter in serve.params}
    assert {name: known[name] for name in Settings.model_fields} == Settings().model_dump()
    told = set[str]()
    for names, said in ROWS:
        options = [name.replace("-", "_") for name in re.findall(r"`--([\w-]+)`", names)]
        numbers = [
            float(number.replace(",", "")) for number in re.findall(r"\d[\d,.]*(?<!,)", said)
        ]
        assert numbers == [known[name] for name in options if known[name] is not None], names
        told.update(options)
    assert Settings.model_fields.keys() - told <= {"session_gap", "mcp"}


def test_settings_that_cannot_work_are_refused_at_the_start(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    mempiler.save(mempiler.build("turn-rag"), tmp_path / "program")
    command = ["serve", tmp_path / "program", "--store", tmp_path / "memories.sqlite"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, said in (
            (["--port", port], "cannot listen at 127.0.0.1"),
            (["--port", "0", "--lm", "openai/gpt-4.1-mini"], "set OPENAI_API_KEY"),
            (
                [
                    *(
                        "--port",
                        "0",
                        "--lm",
                        "openai/unknown",
                        "--api-base",
                        "http://127.0.0.1:9/v1",
                    ),
                    *("--tenant-max-usd-per-day", "1"),
                ],
                "the price of openai/unknown is not known, so --tenant-max-usd-per-day",
            ),
            (["--port", "0", "--tenant-max-usd-per-day", "-1"], "--tenant-max-usd-per-day"),
        ):
            code, out, err = cli(*command, *words)
            assert code == 2
            assert out == ""
            assert said in err.splitlines()[-1]
            assert "Traceback" not in err


MARKS = {"acme": "anemone", "globex": "gladiolus"}
"""A word of each tenant, in all that it says, in the metadata and in the names of some of its sessions."""


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    folder = tmp_path_factory.mktemp("apart")
    with (
        Store(folder / "memories.sqlite") as store,
        serving(service_over(store, folder, writers=2)) as api,
    ):
        made = {tenant: Client(api.address, token) for tenant, token in TOKENS.items()}
        yield made
        for client in made.values():
            client.close()


class Step:
    """What one tenant does: with a user, a session, and a mark by which sessions are chosen."""

    def __init__(self, client: Client, user: str, mark: str, id: str, chosen: str) -> None:
        self.client, self.memory, self.user, self.mark, self.id = (
            client,
            client.memory(user),
            user,
            mark,
            id,
        )
        self.entry, self.said = f"{id}:1", {"mark": mark, "n": 1}
        self.messages = [
            {"role": "user", "name": "Ada", "content": f"The flower of the day is the {mark}."}
        ]
        self.chosen: dict[str, Any] = {"where": {"mark": chosen}, "since": datetime(2020, 1, 1)}

    def chat(self, own: Any = None) -> str:
        body = {"user": self.user, "messages": [CHAT], "mempiler": own}
        return self.client.send(
            ApiRequest("POST", "/v1/chat/completions", json.dumps, body, is_repeatable=False)
        )


FLOWER = "Which flower is it today?"
CHAT = {"role": "user", "content": "Which flower of the day is it?"}
TELLING: dict[str, Callable[[Step], Any]] = {
    "ask": lambda of: of.memory.ask(FLOWER),
    "ask, chosen": lambda of: of.memory.ask(FLOWER, **of.chosen),
    "search": lambda of: of.memory.search("flower of the day", k=50),
    "search, chosen": lambda of: of.memory.search("flower of the day", k=50, **of.chosen),
    "list": lambda of: of.memory.entries.list(),
    "list, chosen": lambda of: of.memory.entries.list(**of.chosen),
    "get": lambda of: of.memory.entries.get(of.entry),
    "history": lambda of: of.memory.entries.history(of.entry),
    "read": lambda of: of.memory.read(),
    "sessions": lambda of: of.memory.sessions(),
    "chat": lambda of: of.chat(),
    "chat, chosen": lambda of: of.chat({"metadata": of.said, "where": of.chosen["where"]}),
    "update": lambda of: of.memory.entries.update(
        of.entry, f"Rather the {of.mark} of {datetime.now()}.", by=of.mark
    ),
    "delete": lambda of: of.memory.entries.delete(of.entry, by=of.mark),
    "undo": lambda of: of.memory.entries.undo(of.entry, by=of.mark),
}
"""Verbs whose result holds the word of a tenant, and must not hold the other's."""
VERBS: dict[str, Callable[[Step], Any]] = {
    "add": lambda of: of.memory.add(of.messages, id=f"{of.id}-{of.mark}", metadata=of.said),
    "add under the same id": lambda of: of.memory.add(of.messages, id=of.id, metadata=of.said),
    **TELLING,
    "status": lambda of: of.memory.status(),
    "users": lambda of: of.client.users(),
    "end": lambda of: of.memory.end(of.id),
    "forget_session": lambda of: of.memory.forget_session(of.id),
    "forget": lambda of: of.memory.forget(),
}
STEP = some.tuples(
    some.sampled_from(sorted(TOKENS)),
    some.sampled_from(("ada", "ben")),
    some.sampled_from(list(VERBS)),
    some.sampled_from(("s1", "s2")),
    some.sampled_from(sorted(MARKS.values())),
)


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=some.lists(STEP, min_size=12, max_size=25))
def test_no_verb_tells_a_tenant_of_another(clients: dict[str, Client], steps: Any) -> None:
    for tenant, user, verb, id, chosen in steps:
        foreign = next(mark for name, mark in MARKS.items() if name != tenant)
        try:
            told = repr(VERBS[verb](Step(clients[tenant], user, MARKS[tenant], id, chosen)))
        except MempilerError as error:
            told = str(error)
        assert foreign not in told, (tenant, user, verb)


def test_two_tenants_with_the_same_names_see_only_their_own(clients: dict[str, Client]) -> None:
    verbs = {
        name
        for part in (RemoteMemory, RemoteEntries)
        for name in vars(part)
        if not name.startswith("_")
    }
    assert verbs - {"entries"} <= VERBS.keys()
    both = [Step(clients[tenant], "cleo", mark, "s1", mark) for tenant, mark in MARKS.items()]
    for verb in ("add", "add under the same id"):
        for of in both:
            VERBS[verb](of)
    assert within(20, lambda: not any(of.memory.status().queued for of in both))
    # Twice, for the second time there are changes of entries.
    for verb, does in (*TELLING.items(), *TELLING.items()):
        for of in both:
            told = repr(does(of))
            assert [mark for mark in MARKS.values() if mark in told] == [of.mark], verb
