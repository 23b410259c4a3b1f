"""Fetching genuine files from a server of the test's own: licence first, checksum, nothing half-written, one line."""

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli import main
from mempiler.data import fetch as module
from mempiler.data.fetch import Download, fetch
from mempiler.errors import DataError, EndpointError, UserError

from ..hub_server import HubServer

CONTENT = '{"question": "Where?", "answer": "Ålesund"}\r\n'.encode()
DIGEST = hashlib.sha256(CONTENT).hexdigest()
COMMIT = "5" * 40


class Server(BaseHTTPRequestHandler):
    """Serves CONTENT at /file, half of it at /short; /moved leads to /file, but only whoever asks with GET."""

    def do_HEAD(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file" if self.command == "GET" else "/nowhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        found = self.path in ("/file", "/short")
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(CONTENT) if found else 0))
        self.end_headers()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # pyright: ignore[reportAttributeAccessIssue]
        self.do_HEAD()
        self.wfile.write({"/file": CONTENT, "/short": CONTENT[:9]}.get(self.path, b""))

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A running server; `datasets` may go online, which here is only to it."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        running.asked = []  # pyright: ignore[reportAttributeAccessIssue]
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def offer(server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts one file on the list of downloads: `offer(path="/file", hub=True)`."""

    def put(path: str = "/file", port: int | None = None, **changes: Any) -> Download:
        address = f"http://127.0.0.1:{port or server.server_port}{path}"
        wanted = replace(Download("set.jsonl", address, DIGEST, "CC0"), **changes)
        monkeypatch.setattr(module, "DOWNLOADS", {"set": wanted})
        return wanted

    return put


@pytest.mark.parametrize("hub", [False, True])
def test_a_file_is_fetched_byte_by_byte_after_its_licence(offer: Any, server: Any, tmp_path: Path, hub: bool) -> None:
    offer(hub=hub)
    told: list[tuple[str, list[str]]] = []
    found = fetch("set", tmp_path, lambda line: told.append((line, list(server.asked))))
    assert (found.path, found.sha256, found.verified, found.fresh) == (tmp_path / "set.jsonl", DIGEST, True, True)
    assert found.path.read_bytes() == CONTENT
    assert told == [("set.jsonl: licence CC0", [])]
    assert [path.name for path in tmp_path.iterdir()] == ["set.jsonl"]


def test_a_file_that_has_moved_is_followed(offer: Any, tmp_path: Path) -> None:
    offer("/moved")
    assert fetch("set", tmp_path, lambda line: None).verified


def test_what_is_there_is_not_fetched_again(offer: Any, server: Any, tmp_path: Path) -> None:
    offer()
    (tmp_path / "set.jsonl").write_bytes(CONTENT)
    told: list[str] = []
    found = fetch("set", tmp_path, told.append)
    assert (found.verified, found.fresh, told, server.asked) == (True, False, [], [])


def test_another_file_of_that_name_is_left_alone(offer: Any, server: Any, tmp_path: Path) -> None:
    offer()
    (tmp_path / "set.jsonl").write_text("my own")
    with pytest.raises(DataError, match=r"set\.jsonl: is there already, and is another file .*; delete it"):
        fetch("set", tmp_path, print)
    assert (tmp_path / "set.jsonl").read_text() == "my own"
    assert server.asked == []


def test_a_wrong_checksum_is_refused_and_nothing_kept(offer: Any, tmp_path: Path) -> None:
    offer(sha256="0" * 64)
    with pytest.raises(DataError, match=f"sha256 is {DIGEST}, expected 000"):
        fetch("set", tmp_path, lambda line: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("hub", [False, True])
def test_a_checksum_that_only_others_report_is_told_and_the_file_kept(offer: Any, tmp_path: Path, hub: bool) -> None:
    offer(sha256="0" * 64, reported=True, hub=hub)
    told: list[str] = []
    found = fetch("set", tmp_path, told.append)
    assert not found.verified
    assert found.path.read_bytes() == CONTENT
    assert told[0] == "set.jsonl: licence CC0"
    assert told[1].startswith(f"set.jsonl: sha256 is {DIGEST}, others report 0000")


UNREACHABLE = [
    ({"path": "/nowhere"}, "404"),
    ({"path": "/nowhere", "hub": True}, "404"),
    ({"port": 9}, "refused"),
    ({"port": 9, "hub": True}, "refused"),
]


@pytest.mark.parametrize(("wanted", "reason"), UNREACHABLE)
def test_what_cannot_be_reached_is_one_line_with_the_address(
    offer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], wanted: dict[str, Any], reason: str
) -> None:
    address = offer(**wanted).address
    with pytest.raises(SystemExit) as end:
        main(["fetch", "set", "--out", str(tmp_path)])
    printed = capsys.readouterr()
    assert end.value.code == 3
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert f"download {address} by hand" in line
    assert reason in line
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_breaks_off_is_not_kept(offer: Any, tmp_path: Path) -> None:
    offer("/short")
    with pytest.raises(EndpointError, match="IncompleteRead"):
        fetch("set", tmp_path, lambda line: None)
    assert list(tmp_path.iterdir()) == []


def test_a_hub_that_is_switched_off_is_named(offer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    offer(hub=True)
    with pytest.raises(EndpointError, match="HF_HUB_OFFLINE switches the hub off"):
        fetch("set", tmp_path, print)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file of a private set of Ada's, who has a token."""
    with HubServer() as server:
        server.reached(monkeypatch)
        commit = server.commit("ada/set", {"parts/set.jsonl": CONTENT})
        server.private.add("ada/set")
        yield f"hf://datasets/ada/set@{commit}/parts/set.jsonl"


def test_any_file_of_the_hub_is_fetched_at_a_commit(
    hub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["fetch", hub, "--out", str(tmp_path)])
    printed = capsys.readouterr()
    path = tmp_path / "set.jsonl"
    assert path.read_bytes() == CONTENT
    assert printed.out == f"{path}: fetched, sha256 {DIGEST}, not verified; use it as --data {path}\n"
    assert "licence as its page says: http://127.0.0.1" in printed.err
    main(["fetch", hub, "--out", str(tmp_path), "--sha256", DIGEST])
    assert "was there, sha256 verified" in capsys.readouterr().out
    with pytest.raises(DataError, match="give --sha256"):
        fetch(hub, tmp_path, print)
    with pytest.raises(DataError, match="expected 0000"):
        fetch(hub, make(tmp_path / "other"), print, "0" * 64)


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("hf://datasets/ada/set/set.jsonl", "none is no commit"),
        ("hf://datasets/ada/set@main/set.jsonl", "main is no commit and may change"),
        (f"hf://datasets/ada@{COMMIT}/set.jsonl", "is no file of the hub"),
        (f"hf://datasets/ada/set@{COMMIT}/../set.jsonl", "is no file of the hub"),
    ],
)
def test_a_file_of_the_hub_is_named_with_its_commit(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        fetch(name, tmp_path, print)


def test_a_set_without_the_token_is_one_line(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(EndpointError, match=r"404.*; set HF_TOKEN if the set is private, or download"):
        fetch(hub, tmp_path, print)


def test_the_command_puts_the_file_into_the_results_folder(
    offer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = offer()
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    path = tmp_path / "data" / "set.jsonl"
    main(["fetch", "set"])
    printed = capsys.readouterr()
    assert printed.err == "set.jsonl: licence CC0\n"
    assert printed.out == f"{path}: fetched, sha256 verified; use it as --on set --data {path}\n"
    main(["fetch", "set", "--json"])
    assert json.loads(capsys.readouterr().out) == {
        "name": "set",
        "licence": "CC0",
        "address": wanted.address,
        "path": str(path),
        "sha256": DIGEST,
        "verified": True,
        "fresh": False,
        "state": "was there, sha256 verified",
        "use": f"--on set --data {path}",
    }
