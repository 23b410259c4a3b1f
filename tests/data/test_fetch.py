"""Fetching genuine files from a server of the test's own: licence first, checksum, nothing half-written, one line."""

import errno
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from mempiler.data import fetch as module
from mempiler.data.fetch import Download, fetch
from mempiler.errors import DataError, EndpointError, UserError

CONTENT = '{"question": "Where?", "answer": "Ålesund"}\r\n'.encode()
DIGEST = hashlib.sha256(CONTENT).hexdigest()
COMMIT = "5" * 40
HUB = f"hf://datasets/ada/set@{COMMIT}/parts/set.jsonl"
PRIVATE = f"/datasets/ada/set/resolve/{COMMIT}/parts/set.jsonl"


class Server(BaseHTTPRequestHandler):
    """Serve CONTENT at /file, half of it at /short, and at PRIVATE to whoever has the token.

    The address /moved leads to /file. The hub's package asks for the headers of a file first.
    """

    def do_HEAD(self) -> None:
        self.answer_with(b"")

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers["Authorization"]))  # pyright: ignore[reportAttributeAccessIssue]
        self.answer_with(CONTENT[:9] if self.path == "/short" else CONTENT)

    def answer_with(self, body: bytes) -> None:
        is_allowed = (self.path, self.headers["Authorization"]) == (PRIVATE, "Bearer t")
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path in ("/file", "/short") or is_allowed:
            self.send_response(200)
            self.send_header("ETag", f'"{DIGEST}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A running server, which is the hub as well."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        running.requests = []  # pyright: ignore[reportAttributeAccessIssue]
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setenv("no_proxy", "*")
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{running.server_port}")
        monkeypatch.setenv("HF_TOKEN", "t")
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def offer(server: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Download]:
    """Puts one file on the list of downloads: `offer("/short")`."""

    def put(path: str = "/file", port: int | None = None, **changes: Any) -> Download:
        address = f"http://127.0.0.1:{port or server.server_port}{path}"
        wanted = replace(Download("set.jsonl", address, DIGEST, "CC0"), **changes)
        monkeypatch.setattr(module, "DOWNLOADS", {"set": wanted})
        return wanted

    return put


@pytest.mark.parametrize("path", ["/file", "/moved"])
def test_a_file_is_fetched_byte_by_byte_and_its_licence_printed(offer: Any, tmp_path: Path, path: str) -> None:
    offer(path)
    told: list[str] = []
    found = fetch("set", tmp_path, told.append)
    assert found.path == tmp_path / "set.jsonl"
    assert found.sha256 == DIGEST
    assert found.verified is True
    assert found.downloaded is True
    assert found.path.read_bytes() == CONTENT
    assert told == ["set.jsonl: licence CC0"]
    assert [path.name for path in tmp_path.iterdir()] == ["set.jsonl"]


def test_another_file_of_that_name_is_neither_fetched_nor_written_over(offer: Any, server: Any, tmp_path: Path) -> None:
    offer()
    (tmp_path / "set.jsonl").write_bytes(b"my own")
    with pytest.raises(DataError, match=r"set\.jsonl: is there already, and is another file .*; delete it"):
        fetch("set", tmp_path, print)
    assert server.requests == []
    assert (tmp_path / "set.jsonl").read_bytes() == b"my own"


def test_a_mismatch_with_a_checksum_that_others_report_is_printed_and_the_file_kept(offer: Any, tmp_path: Path) -> None:
    offer(sha256="0" * 64, reported=True)
    told: list[str] = []
    found = fetch("set", tmp_path, told.append)
    assert found.verified is False
    assert found.path.read_bytes() == CONTENT
    assert told[1].startswith(f"set.jsonl: sha256 is {DIGEST}, others report 0000")


REFUSED = [
    ("set", {"sha256": "0" * 64}, DataError, f"sha256 is {DIGEST}, expected 000"),
    ("set", {"path": "/short"}, EndpointError, "set cannot be fetched (ChunkedEncodingError"),
    ("set", {"path": "/nowhere"}, EndpointError, "404"),
    ("set", {"port": 9}, EndpointError, "cannot be fetched (ConnectionError"),
    (f"{HUB}x", {}, EndpointError, "; set HF_TOKEN if the set is private, or download"),
    ("hf://datasets/ada/set@main/set.jsonl", {}, UserError, "main is no commit and may change"),
    (f"hf://datasets/ada/set@{COMMIT}/../set.jsonl", {}, UserError, "is no file of the hub"),
    (f"hf://datasets/a--b/set@{COMMIT}/set.jsonl", {}, UserError, "is no file of the hub"),
]


@pytest.mark.parametrize(("name", "wanted", "error", "says"), REFUSED)
def test_a_failed_download_is_one_line_and_leaves_no_file(offer, tmp_path, name, wanted, error, says) -> None:
    address = offer(**wanted).address
    with pytest.raises(error) as refusal:
        fetch(name, tmp_path, lambda line: None)
    assert says in str(refusal.value)
    if error is EndpointError and name == "set":
        assert f"download {address} by hand" in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
FULL_FOLDER = r"the temporary folder cannot be written \(.*No space left"


@pytest.mark.parametrize(
    ("name", "cause", "error", "line"),
    [
        ("set", NO_SPACE, UserError, FULL_FOLDER),
        (HUB, NO_SPACE, UserError, FULL_FOLDER),
        (HUB, httpx.ReadTimeout("timed out"), EndpointError, r"cannot be fetched \(ReadTimeout: timed out\)"),
        (HUB, OSError("Consistency check failed"), EndpointError, "cannot be fetched"),
    ],
)
def test_a_download_that_fails_is_one_line_about_its_cause(
    offer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    cause: Exception,
    error: type[Exception],
    line: str,
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise cause

    offer()
    monkeypatch.setattr("pooch.HTTPDownloader.__call__", fail)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    with pytest.raises(error, match=line):
        fetch(name, tmp_path, lambda line: None)


def test_any_file_of_the_hub_is_fetched_at_a_commit_and_the_token_goes_nowhere_else(
    server: Any, offer: Any, tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, err = cli("fetch", HUB, "--out", tmp_path)
    path = tmp_path / "set.jsonl"
    assert path.read_bytes() == CONTENT
    assert out == f"{path}: fetched, sha256 {DIGEST}, not verified; use it as --data {path}\n"
    assert "licence as its page says: http://127.0.0.1" in err
    assert "was there, sha256 verified" in cli("fetch", HUB, "--out", tmp_path, "--sha256", DIGEST)[1]
    with pytest.raises(DataError, match="give --sha256"):
        fetch(HUB, tmp_path, print)
    path.unlink()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EndpointError, match="HF_HUB_OFFLINE switches the hub off"):
        fetch(HUB, tmp_path, print)
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    offer()
    fetch("set", tmp_path, print)
    assert server.requests == [(PRIVATE, "Bearer t"), ("/file", None)]


def test_the_command_puts_the_file_into_the_results_folder(offer, tmp_path, monkeypatch, cli) -> None:
    wanted = offer()
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    path = tmp_path / "data" / "set.jsonl"
    told = f"{path}: fetched, sha256 verified; use it as --benchmark set --data {path}\n"
    assert cli("fetch", "set") == (0, told, "set.jsonl: licence CC0\n")
    found = json.loads(cli("fetch", "set", "--json")[1])
    assert found["address"] == wanted.address
    assert found["state"] == "was there, sha256 verified"
    assert found["path"] == str(path)
    assert found["use"] == f"--benchmark set --data {path}"
    assert found["downloaded"] is False
