"""Tokens, limits of requests, settings of `mempiler serve`, and the separation of tenants.

A tenant is a customer of the service, and has users. Each line of the token file names a tenant,
and a token by which its clients prove that they belong to it. The service reads the file again when
it changes.
"""

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

from .conftest import TOKENS, StartService, service_over, serving, within

# The token file.

TOKEN = "a-long-enough-token"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """Where the tests write a token file."""
    return tmp_path / "tokens"


def test_a_token_may_be_written_as_its_digest(token_file: Path) -> None:
    """So nobody who reads the file learns the token."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    token_file.write_text(f"acme sha256:{digest}\n")

    tokens = Tokens(token_file)

    assert tokens.tenant(TOKEN) == "acme"
    assert tokens.tenant("another") is None
    assert tokens.tenant("") is None


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(f"# a comment\n\nacme {TOKEN}\n".encode(), id="unix"),
        pytest.param(f"\ufeff# a comment\r\n\r\nacme {TOKEN}\r\n".encode(), id="windows"),
    ],
)
def test_a_token_file_may_have_comments_and_empty_lines(token_file: Path, content: bytes) -> None:
    """An editor of Windows begins a file with a byte order mark, and ends lines with `\\r\\n`."""
    token_file.write_bytes(content)

    assert Tokens(token_file).tenant(TOKEN) == "acme"


def test_a_line_may_limit_its_tenant(token_file: Path) -> None:
    token_file.write_text(
        f"acme {TOKEN} usd-per-day=2.5 requests-per-minute=60\nglobex {TOKEN}-2\n"
    )

    tokens = Tokens(token_file)

    assert tokens.limits("acme") == TenantLimits(usd_per_day=2.5, requests_per_minute=60)
    assert tokens.limits("globex") == TenantLimits()
    assert tokens.has_budgets


def test_a_tenant_may_have_two_tokens_with_the_same_limits(token_file: Path) -> None:
    """So a token can be replaced while clients still use the old one."""
    token_file.write_text(f"acme {TOKEN}-old usd-per-day=1\nacme {TOKEN}-new usd-per-day=1\n")

    tokens = Tokens(token_file)

    assert tokens.tenant(f"{TOKEN}-old") == "acme"
    assert tokens.tenant(f"{TOKEN}-new") == "acme"
    assert tokens.limits("acme") == TenantLimits(usd_per_day=1.0)


def test_limits_change_with_the_file(token_file: Path) -> None:
    token_file.write_text(f"acme {TOKEN}\n")
    tokens = Tokens(token_file)
    assert not tokens.has_budgets

    token_file.write_text(f"acme {TOKEN} usd-per-day=1\n")

    assert tokens.limits("acme") == TenantLimits(usd_per_day=1.0)


def test_limits_hold_while_the_file_is_wrong(token_file: Path) -> None:
    """All tokens are invalid meanwhile."""
    token_file.write_text(f"acme {TOKEN} usd-per-day=1\n")
    tokens = Tokens(token_file)

    token_file.write_text("nonsense\n")

    assert tokens.tenant(TOKEN) is None
    assert tokens.limits("acme") == TenantLimits(usd_per_day=1.0)


def test_the_operator_who_reads_metrics_is_no_second_tenant(token_file: Path) -> None:
    """The name `metrics` is not that of a tenant: by its token the operator reads metrics.

    With several tenants, failures of one tenant's calls must not stop those of the others.
    """
    token_file.write_text(f"acme {TOKEN}\nmetrics {TOKEN}-2\n")

    assert not Tokens(token_file).several

    token_file.write_text(f"acme {TOKEN}\nglobex {TOKEN}-2\n")
    assert Tokens(token_file).several


def test_a_token_is_withdrawn_without_a_restart(token_file: Path) -> None:
    token_file.write_text(f"acme {TOKEN}-1\nglobex {TOKEN}-2\n")
    tokens = Tokens(token_file)

    token_file.write_text(f"globex {TOKEN}-2\n")

    assert tokens.tenant(f"{TOKEN}-1") is None
    assert tokens.tenant(f"{TOKEN}-2") == "globex"


def test_all_tokens_are_withdrawn_while_the_file_is_wrong_or_missing(token_file: Path) -> None:
    token_file.write_text(f"acme {TOKEN}\n")
    tokens = Tokens(token_file)

    token_file.write_text("nonsense\n")
    assert tokens.tenant(TOKEN) is None

    token_file.unlink()
    assert tokens.tenant(TOKEN) is None

    token_file.write_text(f"acme {TOKEN}\n")
    assert tokens.tenant(TOKEN) == "acme"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no token"),
        (f"acme {TOKEN} more", "line 1: expected TENANT TOKEN"),
        ("acme tooshort", "at least 16 characters"),
        ("acme requests-per-minute=60", "line 1: expected TENANT TOKEN"),
        ("acme sha256:1234567890123456", "64 hexadecimal digits"),
        (f"acme {TOKEN}\nglobex {TOKEN}", "line 2: this token is bound to another tenant"),
    ],
)
def test_a_token_file_with_a_wrong_token_is_refused_without_showing_one(
    token_file: Path, text: str, message: str
) -> None:
    token_file.write_text(text)

    with pytest.raises(UserError) as raised:
        Tokens(token_file)

    assert message in str(raised.value)
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ("usd-per-day=five", "line 1: usd-per-day: give US dollars, e.g. usd-per"),
        ("usd-per-day=", "line 1: usd-per-day: give US dollars"),
        ("requests-per-minute=1.5", "line 1: requests-per-minute: give a whole"),
        ("usd-per-day=1 usd-per-day=1", "line 1: usd-per-day is there twice"),
        ("feedback=yes", "line 1: feedback: give feedback=on or feedback=off"),
        (f"{TOKEN}=", "line 1: unknown limit; choose usd-per-day=..., requests-"),
    ],
)
def test_a_token_file_with_a_wrong_limit_is_refused_without_showing_a_token(
    token_file: Path, limits: str, message: str
) -> None:
    token_file.write_text(f"acme {TOKEN} {limits}")

    with pytest.raises(UserError) as raised:
        Tokens(token_file)

    assert message in str(raised.value)
    assert TOKEN not in str(raised.value)


def test_the_token_of_the_operator_has_no_limits(token_file: Path) -> None:
    token_file.write_text(f"metrics {TOKEN} usd-per-day=1")

    with pytest.raises(UserError, match="line 1: the tenant metrics only reads metrics"):
        Tokens(token_file)


def test_two_lines_of_a_tenant_must_have_the_same_limits(token_file: Path) -> None:
    token_file.write_text(f"acme {TOKEN}-1 usd-per-day=5\nacme {TOKEN}-2\n")

    with pytest.raises(
        UserError, match="line 2: other limits than in line 1, which is of tenant 'acme', too"
    ):
        Tokens(token_file)


def test_a_missing_token_file_is_refused(token_file: Path) -> None:
    with pytest.raises(UserError, match=r"token file .*: no such file"):
        Tokens(token_file)


def test_a_token_file_that_is_rewritten_with_the_same_size_and_time_is_read_again(
    token_file: Path,
) -> None:
    """A program may set `st_mtime`, the time of a file, but not `st_ctime`."""
    token_file.write_text(f"acme {TOKEN}-1\n")
    status = token_file.stat()
    tokens = Tokens(token_file)
    assert tokens.tenant(f"{TOKEN}-1") == "acme"

    token_file.write_text(f"acme {TOKEN}-2\n")
    os.utime(token_file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert token_file.stat().st_mtime_ns == status.st_mtime_ns
    assert token_file.stat().st_size == status.st_size

    assert tokens.tenant(f"{TOKEN}-1") is None
    assert tokens.tenant(f"{TOKEN}-2") == "acme"


def set_time_of_every_change(monkeypatch: pytest.MonkeyPatch, nanoseconds: int) -> None:
    """Let all files look as if they were last changed at a time.

    No file system lets a test set the time of the last change.
    """
    true_stat = Path.stat

    def stat_with_a_coarse_clock(path: Path, **options: Any) -> Any:
        status = true_stat(path, **options)
        return SimpleNamespace(
            st_dev=status.st_dev,
            st_ino=status.st_ino,
            st_size=status.st_size,
            st_mode=status.st_mode,
            st_mtime_ns=nanoseconds,
            st_ctime_ns=nanoseconds,
        )

    monkeypatch.setattr(Path, "stat", stat_with_a_coarse_clock)


def test_a_second_change_within_one_tick_of_the_clock_is_read_later(
    token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both changes have the same time, so the times of the file do not show the second one.

    A file that has just changed is therefore read once more, when it is older.
    """
    now = time.time_ns()
    set_time_of_every_change(monkeypatch, now)
    token_file.write_text(f"acme {TOKEN}-1\n")
    tokens = Tokens(token_file)
    token_file.write_text(f"acme {TOKEN}-2\n")

    a_minute_later = now + 60 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: a_minute_later)
    assert tokens.tenant(f"{TOKEN}-1") is None
    assert tokens.tenant(f"{TOKEN}-2") == "acme"


def test_a_token_file_that_becomes_a_pipe_withdraws_all_tokens_and_blocks_nothing(
    token_file: Path,
) -> None:
    """To read a pipe is to wait until somebody writes to it, so it is not read."""
    token_file.write_text(f"acme {TOKEN}\n")
    tokens = Tokens(token_file)

    token_file.unlink()
    os.mkfifo(token_file)

    assert tokens.tenant(TOKEN) is None


def test_a_pipe_is_refused_as_token_file(token_file: Path) -> None:
    os.mkfifo(token_file)

    with pytest.raises(UserError, match="it is a pipe or a device"):
        Tokens(token_file)


def test_a_warning_is_logged_if_everybody_can_read_the_token_file(
    token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token_file.write_text(f"acme {TOKEN}\n")
    token_file.chmod(0o644)  # rw-r--r--

    with caplog.at_level("WARNING", "mempiler.serving"):
        Tokens(token_file)

    assert "chmod o-r" in caplog.text


# Who is let in.


@pytest.mark.parametrize(
    "authorization_headers",
    [
        pytest.param([""], id="empty"),
        pytest.param(["Bearer"], id="no token"),
        pytest.param(["Bearer wrong-token-0123456"], id="unknown token"),
        pytest.param(["Basic token-of-the-acme-tenant"], id="another scheme"),
        pytest.param([f"Bearer {token}" for token in TOKENS.values()], id="two tokens"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/users/ada/memory", "/v1/models", "/v1/nothing"])
def test_a_wrong_token_is_refused_before_anything_else(
    client_with_session: Any, authorization_headers: list[str], path: str
) -> None:
    """Without a token nobody learns whether a user, or a page, is there."""
    headers = [("Authorization", value) for value in authorization_headers]

    response = httpx.get(client_with_session.address + path, headers=headers)

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"]["type"] == "authentication_error"


def add_session(client: Any, headers: dict[str, str]) -> int:
    """Store a session of Ada's with these headers and no others, and return the status."""
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    return client.post("/v1/users/ada/sessions", content=body, headers=headers).status_code


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="none"),
        pytest.param({"Host": "localhost:80"}, id="localhost"),
        pytest.param({"Host": "[::1]:80"}, id="address of this machine"),
        pytest.param({"Sec-Fetch-Site": "same-origin"}, id="same origin"),
    ],
)
def test_without_tokens_this_machine_is_served(
    start_service: StartService, headers: dict[str, str]
) -> None:
    """A service without tokens serves its own machine. Browsers tell in these headers who asks."""
    client = start_service(tokens=False).as_tenant(None)

    assert client.get("/v1/users", headers=headers).status_code == 200
    assert client.get("/metrics", headers=headers).status_code == 200
    assert client.delete("/v1/users/nobody", headers=headers).status_code == 404
    assert add_session(client, {"Content-Type": "application/json", **headers}) == 201


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Host": "evil.example"}, id="other host"),
        pytest.param({"Origin": "https://evil.example"}, id="other origin"),
        pytest.param({"Origin": "http://localhost:3000"}, id="other port"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, id="cross-site"),
    ],
)
def test_without_tokens_no_page_of_another_origin_is_served(
    start_service: StartService, store: Store, headers: dict[str, str]
) -> None:
    """Any page that is open in a browser could otherwise read and change the memories."""
    client = start_service(tokens=False).as_tenant(None)

    assert client.get("/v1/users", headers=headers).status_code == 403
    assert client.get("/metrics", headers=headers).status_code == 403
    assert client.delete("/v1/users/nobody", headers=headers).status_code == 403
    # A page may send plain text to any server: browsers do not ask the server before.
    assert add_session(client, {"Content-Type": "text/plain", **headers}) == 403
    assert store.users.list_all() == []


# How much may be sent.


TOO_LARGE_BODY = json.dumps({"messages": [{"role": "user", "content": "x" * 2000}]}).encode()
"""More than a thousand bytes."""


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(TOO_LARGE_BODY, id="its length is announced"),
        pytest.param([TOO_LARGE_BODY[:500], TOO_LARGE_BODY[500:]], id="in chunks"),
    ],
)
def test_a_body_that_is_too_large_is_refused(
    start_service: StartService, store: Store, content: bytes | list[bytes]
) -> None:
    client = start_service(max_body=1000)

    response = client.post(
        "/v1/users/ada/sessions", content=content, headers={"Content-Type": "application/json"}
    )

    assert response.status_code == 413
    assert store.users.list_all() == []


@pytest.mark.parametrize("path", ["/v1/users/ada/sessions", "/v1/chat/completions"])
def test_too_many_messages_are_refused(
    start_service: StartService, store: Store, path: str
) -> None:
    client = start_service(max_turns=3)
    messages = [{"role": "user", "content": "hi"}] * 4
    user = {"user": "ada"} if path == "/v1/chat/completions" else {}

    response = client.post(path, json={"messages": messages, **user})

    assert response.status_code == 413
    assert "send at most 3" in response.text
    assert store.users.list_all() == []


TOO_LONG = "x" * 101


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(
            "/v1/users/ada/sessions",
            {"messages": [{"role": "user", "content": TOO_LONG}]},
            id="message",
        ),
        pytest.param("/v1/users/ada/ask", {"question": TOO_LONG}, id="question"),
        pytest.param(
            "/v1/users/ada/ask",
            {"question": "Which?", "options": ["this", TOO_LONG]},
            id="option of a question",
        ),
        pytest.param("/v1/users/ada/search", {"query": TOO_LONG}, id="query"),
        pytest.param(
            "/v1/chat/completions",
            {
                "user": "ada",
                "messages": [
                    {"role": "user", "content": "Hello."},
                    {"role": "assistant", "content": TOO_LONG},
                    {"role": "user", "content": "And?"},
                ],
            },
            id="earlier message of a chat",
        ),
    ],
)
def test_a_text_that_is_too_long_is_refused(
    start_service: StartService, store: Store, path: str, body: dict[str, Any]
) -> None:
    """`TOO_LONG` has 101 characters. With `max_text=100` a text may have a hundred."""
    client = start_service(max_text=100)

    response = client.post(path, json=body)

    assert response.status_code == 413
    assert "101 characters" in response.text
    assert "at most 100" in response.text
    assert store.users.list_all() == []


def test_a_text_of_the_largest_length_is_stored(start_service: StartService) -> None:
    client = start_service(max_text=100)

    assert client.add("x" * 100).status_code == 201


# Settings of `mempiler serve`.


@dataclass(frozen=True)
class DocumentedRow:
    """A row of the table of limits on the page about HTTP."""

    options: list[str]
    """The options that it is about, as Python spells them."""
    numbers: list[float]
    """The numbers in the column of defaults."""


def documented_rows() -> list[DocumentedRow]:
    """Return the rows of the table of limits on the page about HTTP."""
    path = Path(__file__).parents[2] / "docs" / "production" / "http.md"
    page = path.read_text(encoding="utf-8")
    section = page.partition("## Limits and timeouts")[2].partition("\n## ")[0]

    rows: list[DocumentedRow] = []
    for line in section.splitlines():
        if not line.startswith("| `--"):
            continue
        option_cell, default_cell = line.split("|")[1:3]
        options = re.findall(r"`--([\w-]+)`", option_cell)
        # A number may have commas between its digits, and one may follow it: "1,000, or".
        numbers = re.findall(r"\d[\d,.]*(?<!,)", default_cell)
        rows.append(
            DocumentedRow(
                options=[option.replace("-", "_") for option in options],
                numbers=[float(number.replace(",", "")) for number in numbers],
            )
        )
    return rows


def option_defaults() -> dict[str, Any]:
    """Return the defaults of the options of `mempiler serve`, by name."""
    command = app.get_command(click.Context(app), "serve")
    assert command is not None
    return {str(parameter.name): parameter.default for parameter in command.params}


def test_the_options_have_the_defaults_of_the_settings() -> None:
    """Each field of `Settings` is an option of `mempiler serve`."""
    defaults = option_defaults()
    for setting, default in Settings().model_dump().items():
        assert defaults[setting] == default, setting


def test_the_documentation_has_the_defaults_of_all_settings() -> None:
    """The page docs/production/http.md has a table of options and their defaults."""
    defaults = option_defaults()
    documented_options: set[str] = set()
    for row in documented_rows():
        numbers = [defaults[option] for option in row.options if defaults[option] is not None]
        assert row.numbers == numbers, row.options
        documented_options.update(row.options)

    # These are explained elsewhere.
    explained_elsewhere = {"session_gap", "mcp", "feedback"}
    assert Settings.model_fields.keys() - documented_options <= explained_elsewhere


FailToServe = Callable[..., str]
"""The type of the fixture `fail_to_serve`."""


@pytest.fixture
def fail_to_serve(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailToServe:
    """Run `mempiler serve` with options that it refuses, and return the last line of its errors.

    No key for OpenAI is in the environment.
    """
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    program = tmp_path / "program"
    mempiler.save(mempiler.build("turn-rag"), program)

    def serve(*options: str) -> str:
        code, output, errors = cli("serve", program, "--store", tmp_path / "m.sqlite", *options)
        assert code == 2
        assert output == ""
        assert "Traceback" not in errors
        return errors.splitlines()[-1]

    return serve


def test_a_port_that_is_taken_is_refused_at_the_start(fail_to_serve: FailToServe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other_server:
        port = other_server.getsockname()[1]
        assert "cannot listen at 127.0.0.1" in fail_to_serve("--port", str(port))


def test_a_model_without_its_key_is_refused_at_the_start(fail_to_serve: FailToServe) -> None:
    """OpenAI's model needs a key, and no key is in the environment."""
    error = fail_to_serve("--port", "0", "--lm", "openai/gpt-4.1-mini")
    assert "set OPENAI_API_KEY" in error


def test_a_budget_for_a_model_without_a_price_is_refused_at_the_start(
    fail_to_serve: FailToServe,
) -> None:
    """Without a price nobody knows what a call costs, so no budget could hold."""
    model = ["--lm", "openai/unknown", "--api-base", "http://127.0.0.1:9/v1"]
    error = fail_to_serve("--port", "0", *model, "--tenant-max-usd-per-day", "1")
    assert "the price of openai/unknown is not known, so --tenant-max-usd-per-day" in error


def test_a_negative_budget_is_refused_at_the_start(fail_to_serve: FailToServe) -> None:
    error = fail_to_serve("--port", "0", "--tenant-max-usd-per-day", "-1")
    assert "--tenant-max-usd-per-day" in error


# Tenants see nothing of each other.

FLOWERS = {"acme": "anemone", "globex": "gladiolus"}
"""A word of each tenant: in all that its users say, in metadata, and in ids of sessions."""
QUESTION = "Which flower is it today?"
CHAT_QUESTION = {"role": "user", "content": "Which flower of the day is it?"}


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    """Clients of one service by their tenants; the tests of this module share its store."""
    folder = tmp_path_factory.mktemp("tenants")
    with (
        Store(folder / "memories.sqlite") as store,
        serving(service_over(store, folder, writers=2, feedback=True)) as api,
    ):
        clients = {tenant: Client(api.address, token) for tenant, token in TOKENS.items()}
        yield clients
        for client in clients.values():
            client.close()


class TenantUser:
    """A user of a tenant; each method sends one request, and returns its result.

    Args:
        client: A client of the tenant.
        user: The name of the user.
        flower: The word of the tenant.
        session_id: The session that the requests are about.
        chosen_flower: The word in the metadata of the sessions that are chosen.
    """

    def __init__(
        self, client: Client, user: str, flower: str, session_id: str, chosen_flower: str
    ) -> None:
        self.client = client
        self.memory = client.memory(user)
        self.user = user
        self.flower = flower
        self.session_id = session_id
        self.entry_id = f"{session_id}:1"
        self.metadata = {"flower": flower, "n": 1}
        self.where = {"flower": chosen_flower}
        self.since = datetime(2020, 1, 1)

    def add_session(self, session_id: str) -> Any:
        content = f"The flower of the day is the {self.flower}."
        messages = [{"role": "user", "name": "Ada", "content": content}]
        return self.memory.add(messages, id=session_id, metadata=self.metadata)

    def add(self) -> Any:
        return self.add_session(f"{self.session_id}-{self.flower}")

    def add_under_the_same_id(self) -> Any:
        """Add a session under an id that the other tenant uses as well."""
        return self.add_session(self.session_id)

    def ask(self) -> Any:
        return self.memory.ask(QUESTION)

    def ask_about_chosen(self) -> Any:
        return self.memory.ask(QUESTION, where=self.where, since=self.since)

    def feedback(self) -> Any:
        answer_id = self.memory.ask(QUESTION).answer_id
        return self.memory.feedback(answer_id, correction=f"the {self.flower}")

    def search(self) -> Any:
        return self.memory.search("flower of the day", k=50)

    def search_chosen(self) -> Any:
        return self.memory.search("flower of the day", k=50, where=self.where, since=self.since)

    def list_entries(self) -> Any:
        return self.memory.entries.list()

    def list_chosen_entries(self) -> Any:
        return self.memory.entries.list(where=self.where, since=self.since)

    def get_entry(self) -> Any:
        return self.memory.entries.get(self.entry_id)

    def history_of_entry(self) -> Any:
        return self.memory.entries.history(self.entry_id)

    def update_entry(self) -> Any:
        text = f"Rather the {self.flower} of {datetime.now()}."
        return self.memory.entries.update(self.entry_id, text, by=self.flower)

    def delete_entry(self) -> Any:
        return self.memory.entries.delete(self.entry_id, by=self.flower)

    def undo_change(self) -> Any:
        return self.memory.entries.undo(self.entry_id, by=self.flower)

    def read(self) -> Any:
        return self.memory.read()

    def sessions(self) -> Any:
        return self.memory.sessions()

    def chat(self, extension: dict[str, Any] | None = None) -> Any:
        body = {"user": self.user, "messages": [CHAT_QUESTION], "mempiler": extension}
        return self.client.send(
            ApiRequest("POST", "/v1/chat/completions", json.dumps, body, is_repeatable=False)
        )

    def chat_about_chosen(self) -> Any:
        return self.chat({"metadata": self.metadata, "where": self.where})

    def status(self) -> Any:
        return self.memory.status()

    def users(self) -> Any:
        return self.client.users()

    def end(self) -> Any:
        return self.memory.end(self.session_id)

    def forget_session(self) -> Any:
        return self.memory.forget_session(self.session_id)

    def forget(self) -> Any:
        return self.memory.forget()


VERBS_THAT_SHOW_TEXTS: dict[str, Callable[[TenantUser], Any]] = {
    "ask": TenantUser.ask,
    "ask, chosen": TenantUser.ask_about_chosen,
    "feedback": TenantUser.feedback,
    "search": TenantUser.search,
    "search, chosen": TenantUser.search_chosen,
    "list": TenantUser.list_entries,
    "list, chosen": TenantUser.list_chosen_entries,
    "get": TenantUser.get_entry,
    "history": TenantUser.history_of_entry,
    "read": TenantUser.read,
    "sessions": TenantUser.sessions,
    "chat": TenantUser.chat,
    "chat, chosen": TenantUser.chat_about_chosen,
    "update": TenantUser.update_entry,
    "delete": TenantUser.delete_entry,
    "undo": TenantUser.undo_change,
}
"""Requests whose result holds the word of the tenant, and must not hold that of the other."""
ALL_VERBS: dict[str, Callable[[TenantUser], Any]] = {
    "add": TenantUser.add,
    "add under the same id": TenantUser.add_under_the_same_id,
    **VERBS_THAT_SHOW_TEXTS,
    "status": TenantUser.status,
    "users": TenantUser.users,
    "end": TenantUser.end,
    "forget_session": TenantUser.forget_session,
    "forget": TenantUser.forget,
}


@dataclass(frozen=True)
class Step:
    """A request of a tenant, as hypothesis draws it."""

    tenant: str
    user: str
    verb: str
    session_id: str
    chosen_flower: str


STEPS = some.builds(
    Step,
    tenant=some.sampled_from(sorted(TOKENS)),
    user=some.sampled_from(("ada", "ben")),
    verb=some.sampled_from(list(ALL_VERBS)),
    session_id=some.sampled_from(("s1", "s2")),
    chosen_flower=some.sampled_from(sorted(FLOWERS.values())),
)


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=some.lists(STEPS, min_size=12, max_size=25))
def test_no_request_shows_a_tenant_what_users_of_another_one_said(
    clients: dict[str, Client], steps: list[Step]
) -> None:
    """Both tenants have users and sessions with the same names, and each has a flower.

    Users of a tenant say its flower in all their texts, so it must not come to the other tenant.
    """
    for step in steps:
        other_tenant = "globex" if step.tenant == "acme" else "acme"
        user = TenantUser(
            client=clients[step.tenant],
            user=step.user,
            flower=FLOWERS[step.tenant],
            session_id=step.session_id,
            chosen_flower=step.chosen_flower,
        )
        try:
            result = repr(ALL_VERBS[step.verb](user))
        except MempilerError as error:
            result = str(error)
        assert FLOWERS[other_tenant] not in result, step


def test_all_methods_of_a_client_are_among_the_verbs() -> None:
    """A new method has to be added above, so that it is tested with two tenants."""
    methods = {*vars(RemoteMemory), *vars(RemoteEntries)}
    public_methods = {name for name in methods if not name.startswith("_")}
    assert public_methods - {"entries"} <= ALL_VERBS.keys()


@pytest.fixture
def cleos(clients: dict[str, Client]) -> tuple[TenantUser, TenantUser]:
    """Two users "cleo", of `acme` and of `globex`, with the same session "s1".

    All that the first one says has the word "anemone", and all that the other one says has
    "gladiolus".
    """
    cleo_of_acme = TenantUser(clients["acme"], "cleo", "anemone", "s1", chosen_flower="anemone")
    cleo_of_globex = TenantUser(
        clients["globex"], "cleo", "gladiolus", "s1", chosen_flower="gladiolus"
    )
    for cleo in (cleo_of_acme, cleo_of_globex):
        cleo.add()
        cleo.add_under_the_same_id()
    for cleo in (cleo_of_acme, cleo_of_globex):
        assert within(20, lambda cleo=cleo: not cleo.memory.status().queued)
    return cleo_of_acme, cleo_of_globex


def test_two_tenants_with_the_same_names_see_only_their_own(
    cleos: tuple[TenantUser, TenantUser],
) -> None:
    """Cleo of `acme` says only "anemone", and her namesake of `globex` only "gladiolus"."""
    cleo_of_acme, cleo_of_globex = cleos

    # In the second round there are changes of entries, which the first round has made.
    for verb, send_request in 2 * list(VERBS_THAT_SHOW_TEXTS.items()):
        result_of_acme = repr(send_request(cleo_of_acme))
        result_of_globex = repr(send_request(cleo_of_globex))
        assert "anemone" in result_of_acme, verb
        assert "gladiolus" not in result_of_acme, verb
        assert "gladiolus" in result_of_globex, verb
        assert "anemone" not in result_of_globex, verb
