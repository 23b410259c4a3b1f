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
def register_set(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Download]:
    """Return a function that registers a path of the local server as the download "set".

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
def test_a_file_is_fetched_byte_by_byte(register_set: Any, tmp_path: Path, path: str) -> None:
    """A local server has the file at "/file", and redirects from "/moved" to it."""
    register_set(path)

    fetched = fetch("set", tmp_path, ignore_message)

    path_of_file = tmp_path / "set.jsonl"
    assert path_of_file.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path_of_file]
    assert fetched.path == path_of_file
    assert fetched.sha256 == DIGEST
    assert fetched.verified is True
    assert fetched.downloaded is True


def test_a_different_file_with_the_same_name_is_not_overwritten(
    register_set: Any, server: FileServer, tmp_path: Path
) -> None:
    """The user has a file set.jsonl already. It is not the file that would be downloaded."""
    register_set("/file")
    path = tmp_path / "set.jsonl"
    path.write_bytes(b"my own")

    problem = r"set\.jsonl: is there already, and is another file .*; delete it"
    with pytest.raises(DataError, match=problem):
        fetch("set", tmp_path, ignore_message)

    assert server.requests == []
    assert path.read_bytes() == b"my own"


def test_a_file_is_kept_with_a_warning_if_only_others_reported_the_checksum(
    register_set: Any, tmp_path: Path
) -> None:
    """The file does not have the checksum that users of it report. They may be wrong themselves.

    If the publisher had named that checksum, the file would be refused.
    """
    register_set("/file", sha256=WRONG_DIGEST, reported=True)
    messages: list[str] = []

    fetched = fetch("set", tmp_path, messages.append)

    assert fetched.verified is False
    assert fetched.path.read_bytes() == CONTENT
    assert messages[1].startswith(f"set.jsonl: sha256 is {DIGEST}, others report 0000")


def test_a_file_with_another_checksum_than_the_published_one_is_deleted(
    register_set: Any, tmp_path: Path
) -> None:
    register_set("/file", sha256=WRONG_DIGEST)

    with pytest.raises(DataError, match=f"sha256 is {DIGEST}, expected 000"):
        fetch("set", tmp_path, ignore_message)

    assert list(tmp_path.iterdir()) == []


NOTHING_LISTENS_THERE = 9
"""A port of this machine on which no server runs."""


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        pytest.param(
            {"path": "/short"}, "set cannot be fetched (ChunkedEncodingError", id="cut short"
        ),
        pytest.param({"path": "/nowhere"}, "404", id="not found"),
        pytest.param(
            {"path": "/file", "port": NOTHING_LISTENS_THERE},
            "cannot be fetched (ConnectionError",
            id="no server",
        ),
    ],
)
def test_a_failed_download_leaves_no_file_and_can_be_done_by_hand(
    register_set: Any, tmp_path: Path, place: dict[str, Any], problem: str
) -> None:
    """A local server sends half of a file at "/short", and has nothing at "/nowhere"."""
    download = register_set(**place)

    with pytest.raises(EndpointError) as refusal:
        fetch("set", tmp_path, ignore_message)

    message = str(refusal.value)
    assert problem in message
    assert f"download {download.address} by hand" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("server")
def test_a_file_that_is_not_on_the_hub_may_be_private(tmp_path: Path) -> None:
    """The hub does not tell a stranger whether there is a private file."""
    problem = "; set HF_TOKEN if the set is private, or download"
    with pytest.raises(EndpointError, match=problem):
        fetch(f"hf://datasets/ada/set@{COMMIT}/missing.jsonl", tmp_path, ignore_message)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        pytest.param(
            "hf://datasets/ada/set@main/set.jsonl",
            "main is no commit and may change",
            id="a branch instead of a commit",
        ),
        pytest.param(
            f"hf://datasets/ada/set@{COMMIT}/../set.jsonl",
            "is no file of the hub",
            id="a path that leads out",
        ),
        pytest.param(
            f"hf://datasets/a--b/set@{COMMIT}/set.jsonl",
            "is no file of the hub",
            id="a name that the hub forbids",
        ),
    ],
)
def test_an_address_that_names_no_fixed_file_of_the_hub_is_refused(
    server: FileServer, tmp_path: Path, address: str, problem: str
) -> None:
    """An address is hf://datasets/OWNER/SET@COMMIT/FILE."""
    with pytest.raises(UserError, match=problem):
        fetch(address, tmp_path, ignore_message)

    assert server.requests == []
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def let_downloads_fail(
    register_set: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Exception], None]:
    """Return a function that lets all downloads raise an error, from the hub and from elsewhere."""

    def let_fail(error: Exception) -> None:
        def fail(*args: Any, **kwargs: Any) -> None:
            raise error

        register_set("/file")
        monkeypatch.setattr("pooch.HTTPDownloader.__call__", fail)
        monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)

    return let_fail


@pytest.mark.parametrize("name", ["set", HUB_ADDRESS])
def test_a_full_disk_is_no_fault_of_the_server(
    let_downloads_fail: Any, tmp_path: Path, name: str
) -> None:
    """A file is downloaded into a temporary folder first."""
    let_downloads_fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    problem = r"the temporary folder cannot be written \(.*No space left"
    with pytest.raises(UserError, match=problem):
        fetch(name, tmp_path, ignore_message)


@pytest.mark.parametrize(
    ("cause", "problem"),
    [
        (httpx.ReadTimeout("timed out"), r"cannot be fetched \(ReadTimeout: timed out\)"),
        (OSError("Consistency check failed"), "cannot be fetched"),
    ],
)
def test_a_hub_that_does_not_answer_or_sends_a_broken_file_is_named_as_the_cause(
    let_downloads_fail: Any, tmp_path: Path, cause: Exception, problem: str
) -> None:
    let_downloads_fail(cause)
    with pytest.raises(EndpointError, match=problem):
        fetch(HUB_ADDRESS, tmp_path, ignore_message)


@pytest.mark.usefixtures("server")
def test_the_command_fetches_a_file_of_the_hub(tmp_path: Path, cli: Any) -> None:
    """A local server plays the Hugging Face hub, and has the file of `HUB_ADDRESS`."""
    path = tmp_path / "set.jsonl"

    _, out, err = cli("fetch", HUB_ADDRESS, "--out", tmp_path)

    assert path.read_bytes() == CONTENT
    assert out == f"{path}: fetched, sha256 {DIGEST}, not verified; use it as --data {path}\n"
    assert "licence as its page says: http://127.0.0.1" in err


@pytest.mark.usefixtures("server")
def test_a_fetched_file_of_the_hub_is_recognized_by_its_digest(tmp_path: Path, cli: Any) -> None:
    """The file was fetched before. The command finds it there, and does not fetch it again."""
    fetch(HUB_ADDRESS, tmp_path, ignore_message)

    _, out, _ = cli("fetch", HUB_ADDRESS, "--out", tmp_path, "--sha256", DIGEST)

    assert "was there, sha256 verified" in out


@pytest.mark.usefixtures("server")
def test_a_fetched_file_of_the_hub_is_not_trusted_without_a_digest(tmp_path: Path) -> None:
    """The file was fetched before, and may have been changed since then."""
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
    server: FileServer, register_set: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's token is "t". A local server plays the hub at first, and then another server."""
    monkeypatch.setenv("HF_TOKEN", "t")
    fetch(HUB_ADDRESS, tmp_path, ignore_message)
    (tmp_path / "set.jsonl").unlink()

    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    register_set("/file")
    fetch("set", tmp_path, ignore_message)

    assert server.requests == [(HUB_PATH, "Bearer t"), ("/file", None)]


def test_the_command_puts_the_file_into_the_results_folder(
    register_set: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    """The variable MEMPILER_HOME names the results folder."""
    register_set("/file")
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    path = tmp_path / "data" / "set.jsonl"

    code, out, err = cli("fetch", "set")

    assert code == 0
    assert out == (f"{path}: fetched, sha256 verified; use it as --benchmark set --data {path}\n")
    assert err == "set.jsonl: licence CC0\n"


def test_the_command_describes_a_file_that_was_there_as_json(
    register_set: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    """The first command fetches the file, the second one finds it."""
    download = register_set("/file")
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
