"""Programs on the hub: pushed, pinned, fetched and checked, against a stand-in that speaks the hub's HTTP."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler.errors import EndpointError, UserError
from mempiler.runs.manifest import MANIFEST, STATE
from mempiler.runs.publish import push
from mempiler.runs.registry import pinned

from ..hub_server import READER, HubServer

ADDRESS = "hf://ada/memory"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """A hub with nothing on it, and Ada's token."""
    with HubServer() as server:
        server.reached(monkeypatch)
        monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
        yield server


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved program."""
    mempiler.save(mempiler.build("turn-rag"), tmp_path / "program")
    return tmp_path / "program"


def test_what_is_pushed_is_loaded_by_its_name(hub: HubServer, saved: Path) -> None:
    address = push(saved, ADDRESS)
    commit = hub.repos["ada/memory"][-1][0]
    assert address == f"{ADDRESS}@{commit}"
    assert set(hub.repos["ada/memory"][-1][1]) == {".gitattributes", MANIFEST, STATE}
    assert mempiler.load(ADDRESS).name == "turn-rag"
    assert pinned(ADDRESS) == address
    asked = len(hub.asked)
    assert mempiler.load(address).name == "turn-rag"
    assert len(hub.asked) == asked  # a commit does not change: it is here


def _altered(files: dict[str, bytes]) -> None:
    files[STATE] = files[STATE] + b" "


def _code(files: dict[str, bytes]) -> None:
    from mempiler.runs.manifest import Manifest, digest_of

    manifest = Manifest.model_validate_json(files[MANIFEST]).model_copy(update={"method": "os:system"})
    manifest = manifest.model_copy(update={"manifest_sha256": digest_of(manifest)})
    files[MANIFEST] = manifest.model_dump_json().encode()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_altered, "altered after it was saved"),
        (_code, "code outside Mempiler"),
        (lambda files: files.pop(STATE), "no such repository, revision or program"),
        (lambda files: files.update({MANIFEST: b"{"}), "manifest.json"),
    ],
)
def test_what_is_fetched_is_checked_like_any_folder(
    hub: HubServer, saved: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], Any], says: str
) -> None:
    files = {path.name: path.read_bytes() for path in saved.iterdir()}
    change(files)
    hub.commit("eve/memory", {**files, "evil.py": b"raise SystemExit", "pickle.bin": b"0"})
    with pytest.raises(mempiler.UserError, match=says):
        mempiler.load("hf://eve/memory")
    assert not list((tmp_path / "home").rglob("evil.py"))
    assert not any("evil" in asked for asked in hub.asked)


def test_what_is_missing_or_forbidden_is_one_line(hub: HubServer, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push(saved, ADDRESS, private=True)
    for address, says in (
        ("hf://ada/other", "no such repository on the hub"),
        (f"{ADDRESS}@v9", "no such repository, revision or program: "),
        ("hf://ada", "write hf://OWNER/NAME"),
        ("hf://ada/mem?x", "write hf://OWNER/NAME"),
        ("hf://ada/--bad..name", "no such repository, revision or program: "),
    ):
        with pytest.raises(UserError, match=says) as caught:
            mempiler.load(address)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="leave out @main"):
        push(saved, f"{ADDRESS}@main")
    monkeypatch.setenv("HF_TOKEN", READER)
    with pytest.raises(UserError, match="it is private: set HF_TOKEN"):
        pinned(ADDRESS)
    with pytest.raises(UserError, match="refuses the token"):
        push(saved, ADDRESS)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UserError, match="set HF_TOKEN, or run: hf auth login"):
        push(saved, ADDRESS)
    hub.failing = True
    with pytest.raises(EndpointError, match="the hub cannot be reached, or fails"):
        mempiler.load(ADDRESS)
    hub.switched(monkeypatch, offline=True)
    with pytest.raises(EndpointError, match=r"cannot be reached, or fails: .*HF_HUB_OFFLINE"):
        mempiler.load(ADDRESS)


def test_a_program_is_published_and_asked_by_its_address(hub: HubServer, saved: Path, tmp_path: Path, cli: Any) -> None:
    address = json.loads(cli("publish", saved, ADDRESS, "--json")[1])["address"]
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]))
    asked = cli("ask", address, "Where did Ada move?", "--history", tmp_path / "chat.json", "--json")
    assert "Lisbon" in json.loads(asked[1])["answer"]
    assert "nothing: no such folder" in cli("publish", tmp_path / "nothing", ADDRESS)[2]
