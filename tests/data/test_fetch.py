"""Fetching the files of a benchmark from a local server, which also plays the Hugging Face hub."""

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
from mempiler.data.fetch import DOWNLOADS, Download, fetch
from mempiler.errors import DataError, EndpointError, UserError

CONTENT = '{"question": "Where?", "answer": "Ålesund"}\r\n'.encode()
DIGEST = hashlib.sha256(CONTENT).hexdigest()
WRONG_DIGEST = "0" * 64

COMMIT = "5" * 40
HUB_ADDRESS = f"hf://datasets/ada/set@{COMMIT}/parts/set.jsonl"
HUB_PATH = f"/datasets/ada/set/resolve/{COMMIT}/parts/set.jsonl"
"""The path at which the hub's package asks for the file of `HUB_ADDRESS`."""


class RequestHandler(BaseHTTPRequestHandler):
    """Serve CONTENT at /file, half of it at /short, and at HUB_PATH to whoever has the token.

    The path /moved leads to /file. The hub's package asks for the headers of a file first.
    """

    server: "FileServer"

    def do_HEAD(self) -> None:
        self.answer(body=b"")

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers["Authorization"]))
        is_cut_short = self.path == "/short"
        self.answer(body=CONTENT[:9] if is_cut_short else CONTENT)

    def answer(self, body: bytes) -> None:
        has_token = self.headers["Authorization"] == "Bearer t"
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path in ("/file", "/short") or (self.path == HUB_PATH and has_token):
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

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class FileServer(ThreadingHTTPServer):
    """A server that records the path and the token of each GET request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), RequestHandler)
        self.requests: list[tuple[str, str | None]] = []


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A running server. The hub's package takes it for the hub, and has a token for it."""
    with FileServer() as running:
        # The package read the variable HF_HUB_OFFLINE, which all tests set, when it was imported.
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
def add_download(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Download]:
    """Return a function that makes a path of the local server the download "set".

    The file must have the digest of CONTENT. Further arguments change fields of the `Download`.
    """

    def add(path: str, port: int | None = None, **changes: Any) -> Download:
        address = f"http://127.0.0.1:{port or server.server_port}{path}"
        download = Download("set.jsonl", address, sha256=DIGEST, licence="CC0")
        download = replace(download, **changes)
        monkeypatch.setitem(DOWNLOADS, "set", download)  # type: ignore[arg-type]
        return download

    return add


def ignore_message(line: str) -> None:
    """Take a message of `fetch` and do nothing."""


@pytest.mark.parametrize("path", ["/file", "/moved"])
def test_a_file_is_fetched_byte_by_byte(add_download: Any, tmp_path: Path, path: str) -> None:
    """At "/moved" the server says that the file is at "/file"."""
    add_download(path)

    fetched = fetch("set", tmp_path, ignore_message)

    path_of_file = tmp_path / "set.jsonl"
    assert path_of_file.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path_of_file]
    assert fetched.path == path_of_file
    assert fetched.sha256 == DIGEST
    assert fetched.verified is True
    assert fetched.downloaded is True


def test_the_licence_is_printed(add_download: Any, tmp_path: Path) -> None:
    """The download "set" is licensed under CC0. The user is told before the download."""
    add_download("/file")
    messages: list[str] = []

    fetch("set", tmp_path, messages.append)

    assert messages == ["set.jsonl: licence CC0"]


def test_a_different_file_with_the_same_name_is_not_overwritten(
    add_download: Any, server: FileServer, tmp_path: Path
) -> None:
    """The folder has a file set.jsonl of the user's, which is not the one to fetch."""
    add_download("/file")
    path = tmp_path / "set.jsonl"
    path.write_bytes(b"my own")

    problem = r"set\.jsonl: is there already, and is another file .*; delete it"
    with pytest.raises(DataError, match=problem):
        fetch("set", tmp_path, ignore_message)

    assert server.requests == []
    assert path.read_bytes() == b"my own"


def test_a_file_is_kept_with_a_warning_if_only_others_reported_the_checksum(
    add_download: Any, tmp_path: Path
) -> None:
    """The publisher has named no digest. One that others report may itself be wrong."""
    add_download("/file", sha256=WRONG_DIGEST, reported=True)
    messages: list[str] = []

    fetched = fetch("set", tmp_path, messages.append)

    assert fetched.verified is False
    assert fetched.path.read_bytes() == CONTENT
    assert messages[1].startswith(f"set.jsonl: sha256 is {DIGEST}, others report 0000")


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        pytest.param(
            {"path": "/file", "sha256": WRONG_DIGEST},
            DataError,
            f"sha256 is {DIGEST}, expected 000",
            id="another checksum",
        ),
        pytest.param(
            {"path": "/short"},
            EndpointError,
            "set cannot be fetched (ChunkedEncodingError",
            id="cut short",
        ),
        pytest.param({"path": "/nowhere"}, EndpointError, "404", id="not found"),
        pytest.param(
            {"path": "/file", "port": 9},
            EndpointError,
            "cannot be fetched (ConnectionError",
            id="no server",
        ),
    ],
)
def test_a_failed_download_leaves_no_file(
    add_download: Any, tmp_path: Path, options: dict[str, Any], error: type[Exception], problem: str
) -> None:
    """The local server gives half of the file at "/short", and nothing at "/nowhere"."""
    download = add_download(**options)

    with pytest.raises(error) as refusal:
        fetch("set", tmp_path, ignore_message)

    message = str(refusal.value)
    assert problem in message
    if error is EndpointError:
        assert f"download {download.address} by hand" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "error", "problem"),
    [
        pytest.param(
            f"{HUB_ADDRESS}x",
            EndpointError,
            "; set HF_TOKEN if the set is private, or download",
            id="no such file",
        ),
        pytest.param(
            "hf://datasets/ada/set@main/set.jsonl",
            UserError,
            "main is no commit and may change",
            id="a branch",
        ),
        pytest.param(
            f"hf://datasets/ada/set@{COMMIT}/../set.jsonl",
            UserError,
            "is no file of the hub",
            id="a path that leads out",
        ),
        pytest.param(
            f"hf://datasets/a--b/set@{COMMIT}/set.jsonl",
            UserError,
            "is no file of the hub",
            id="a name that the hub forbids",
        ),
    ],
)
@pytest.mark.usefixtures("server")
def test_a_failed_download_from_the_hub_leaves_no_file(
    tmp_path: Path, address: str, error: type[Exception], problem: str
) -> None:
    """An address of the hub names a set, a commit, and a file."""
    with pytest.raises(error) as refusal:
        fetch(address, tmp_path, ignore_message)

    assert problem in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
NO_SPACE_PROBLEM = r"the temporary folder cannot be written \(.*No space left"


@pytest.mark.parametrize(
    ("name", "cause", "error", "problem"),
    [
        ("set", NO_SPACE, UserError, NO_SPACE_PROBLEM),
        (HUB_ADDRESS, NO_SPACE, UserError, NO_SPACE_PROBLEM),
        (
            HUB_ADDRESS,
            httpx.ReadTimeout("timed out"),
            EndpointError,
            r"cannot be fetched \(ReadTimeout: timed out\)",
        ),
        (
            HUB_ADDRESS,
            OSError("Consistency check failed"),
            EndpointError,
            "cannot be fetched",
        ),
    ],
)
def test_a_failed_download_is_explained_by_its_cause(
    add_download: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    cause: Exception,
    error: type[Exception],
    problem: str,
) -> None:
    """The disk is full, the hub does not answer, or a file arrives broken.

    "set" comes from a plain server, and `HUB_ADDRESS` from the Hugging Face hub.
    """

    def fail(*args: Any, **kwargs: Any) -> None:
        raise cause

    add_download("/file")
    monkeypatch.setattr("pooch.HTTPDownloader.__call__", fail)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)

    with pytest.raises(error, match=problem):
        fetch(name, tmp_path, ignore_message)


@pytest.mark.usefixtures("server")
def test_the_command_fetches_a_file_of_the_hub(tmp_path: Path, cli: Any) -> None:
    """The local server plays the hub, and has one file."""
    path = tmp_path / "set.jsonl"

    _, out, err = cli("fetch", HUB_ADDRESS, "--out", tmp_path)

    assert path.read_bytes() == CONTENT
    assert out == f"{path}: fetched, sha256 {DIGEST}, not verified; use it as --data {path}\n"
    assert "licence as its page says: http://127.0.0.1" in err


@pytest.mark.usefixtures("server")
def test_a_fetched_file_of_the_hub_is_recognized_by_its_digest(tmp_path: Path, cli: Any) -> None:
    """The command finds the file in its place, and does not fetch it again."""
    fetch(HUB_ADDRESS, tmp_path, ignore_message)

    _, out, _ = cli("fetch", HUB_ADDRESS, "--out", tmp_path, "--sha256", DIGEST)

    assert "was there, sha256 verified" in out


@pytest.mark.usefixtures("server")
def test_a_fetched_file_of_the_hub_is_not_trusted_without_a_digest(tmp_path: Path) -> None:
    """Without a digest, nobody knows whether the file in that place is the file of the hub."""
    fetch(HUB_ADDRESS, tmp_path, ignore_message)

    with pytest.raises(DataError, match="give --sha256"):
        fetch(HUB_ADDRESS, tmp_path, ignore_message)


@pytest.mark.usefixtures("server")
def test_nothing_is_fetched_from_the_hub_if_it_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users switch the hub off by the variable HF_HUB_OFFLINE."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(EndpointError, match="HF_HUB_OFFLINE switches the hub off"):
        fetch(HUB_ADDRESS, tmp_path, ignore_message)


def test_the_token_of_the_hub_is_sent_to_no_other_server(
    server: FileServer, add_download: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local server plays the hub at first, and then any other server. The token is "t"."""
    fetch(HUB_ADDRESS, tmp_path, ignore_message)
    (tmp_path / "set.jsonl").unlink()

    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    add_download("/file")
    fetch("set", tmp_path, ignore_message)

    assert server.requests == [(HUB_PATH, "Bearer t"), ("/file", None)]


def test_the_command_puts_the_file_into_the_results_folder(
    add_download: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    """The results folder is named by the variable MEMPILER_HOME."""
    add_download("/file")
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    path = tmp_path / "data" / "set.jsonl"

    code, out, err = cli("fetch", "set")

    assert code == 0
    assert out == (f"{path}: fetched, sha256 verified; use it as --benchmark set --data {path}\n")
    assert err == "set.jsonl: licence CC0\n"


def test_the_command_describes_a_file_that_was_there_as_json(
    add_download: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    """The first command fetches the file, the second one finds it."""
    download = add_download("/file")
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    path = tmp_path / "data" / "set.jsonl"
    cli("fetch", "set")

    _, out, _ = cli("fetch", "set", "--json")

    description = json.loads(out)
    assert description["address"] == download.address
    assert description["state"] == "was there, sha256 verified"
    assert description["path"] == str(path)
    assert description["use"] == f"--benchmark set --data {path}"
    assert description["downloaded"] is False
