"""Programs on the hub: pushed, pinned, fetched and checked, against a stand-in of the hub's client."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import httpx
import huggingface_hub
import mempiler
import pytest
from huggingface_hub import HfApi, errors
from mempiler.errors import EndpointError, UserError
from mempiler.runs.manifest import MANIFEST, STATE
from mempiler.runs.publish import push
from mempiler.runs.registry import pinned

ADDRESS = "hf://ada/memory"


def refused(status: int, kind: Any = errors.HfHubHTTPError) -> Exception:
    """An error of the hub's client, of some lines as they are."""
    response = httpx.Response(status, request=httpx.Request("GET", "https://hub.invalid"))
    return kind("the hub says\nno", response=response)


class Hub:
    """What programs ask of the hub's client, each call as its signature wants it; commits by repository and name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.repos: dict[str, dict[str, dict[str, bytes]]] = {}
        self.asked: list[str] = []
        self.error: Exception | None = None
        calls = {"create_repo": self._create, "upload_folder": self._upload, "model_info": self._info}
        places = [(HfApi, *each) for each in calls.items()] + [(huggingface_hub, "hf_hub_download", self._download)]
        for place, name, call in places:
            monkeypatch.setattr(place, name, create_autospec(getattr(place, name), side_effect=self._asked(call)))

    def commit(self, repo: str, files: dict[str, bytes]) -> str:
        """Adds a commit; returns its name."""
        commits = self.repos.setdefault(repo, {})
        commits[f"{len(commits):040x}"] = files
        return list(commits)[-1]

    def _asked(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def heard(*given: Any, **named: Any) -> Any:
            self.asked.append(named.get("filename") or (given[1] if call == self._download else call.__name__))
            if self.error is not None:
                raise self.error
            return call(*given, **named)

        return heard

    def _create(self, api: Any, repo_id: str, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        self.repos.setdefault(repo_id, {})

    def _upload(self, api: Any, repo_id: str, folder_path: Path, allow_patterns: list[str], commit_message: str) -> Any:
        sent = {path.name: path.read_bytes() for path in folder_path.iterdir() if path.name in allow_patterns}
        return SimpleNamespace(oid=self.commit(repo_id, sent))

    def _info(self, api: Any, repo_id: str, revision: str | None) -> Any:
        if repo_id not in self.repos:
            raise refused(404, errors.RepositoryNotFoundError)
        if revision not in (None, "main", *self.repos[repo_id]):
            raise refused(404, errors.RevisionNotFoundError)
        return SimpleNamespace(sha=list(self.repos[repo_id])[-1])

    def _download(self, repo_id: str, filename: str, revision: str, local_dir: Path, force_download: bool) -> None:
        if filename not in self.repos[repo_id][revision]:
            raise errors.EntryNotFoundError(filename)
        local_dir.mkdir(parents=True, exist_ok=True)
        (local_dir / filename).write_bytes(self.repos[repo_id][revision][filename])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    """A hub with nothing on it, and a token."""
    monkeypatch.setenv("HF_TOKEN", "hf_ada")
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    return Hub(monkeypatch)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved program."""
    mempiler.save(mempiler.build("turn-rag"), tmp_path / "program")
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]))
    return tmp_path / "program"


def test_what_is_published_is_loaded_and_asked_by_its_name(hub: Hub, saved: Path, cli: Any) -> None:
    address = json.loads(cli("publish", saved, ADDRESS, "--json")[1])["address"]
    ((commit, files),) = hub.repos["ada/memory"].items()
    assert (address, set(files)) == (f"{ADDRESS}@{commit}", {MANIFEST, STATE})
    assert mempiler.load(ADDRESS).name == "turn-rag"
    assert pinned(ADDRESS) == address
    asked = len(hub.asked)
    found = cli("ask", address, "Where did Ada move?", "--history", saved.parent / "chat.json", "--json")
    assert "Lisbon" in json.loads(found[1])["answer"]
    assert len(hub.asked) == asked  # a commit does not change: it is here
    assert "nothing: no saved program here" in cli("publish", saved.parent / "nothing", ADDRESS)[2]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda files: files.update({STATE: files[STATE] + b" "}), "altered after it was saved"),
        (lambda files: files.pop(STATE), "no such repository, revision or program"),
        (lambda files: files.update({MANIFEST: b"{"}), "manifest.json"),
    ],
)
def test_what_is_fetched_is_checked_like_any_folder(hub: Hub, saved: Path, change: Any, says: str) -> None:
    files = {path.name: path.read_bytes() for path in saved.iterdir()}
    change(files)
    hub.commit("eve/memory", {**files, "evil.py": b"raise SystemExit"})
    with pytest.raises(mempiler.UserError, match=says):
        mempiler.load("hf://eve/memory")
    assert "evil.py" not in hub.asked


@pytest.mark.parametrize(
    ("address", "error", "kind", "says"),
    [
        ("hf://ada/other", None, UserError, "no such repository on the hub, or it is private: set HF_TOKEN"),
        (f"{ADDRESS}@v9", None, UserError, "no such repository, revision or program: "),
        ("hf://ada/mem?x", None, UserError, "write hf://OWNER/NAME"),
        (ADDRESS, refused(403), UserError, "refuses the token"),
        (ADDRESS, refused(503), EndpointError, "the hub cannot be reached, or fails: the hub says no"),
    ],
)
def test_what_is_missing_or_forbidden_is_one_line(hub, saved, address, error, kind, says) -> None:
    push(saved, ADDRESS, private=True)
    hub.error = error
    with pytest.raises(kind, match=says):
        mempiler.load(address)


def test_what_cannot_be_pushed_is_told(hub: Hub, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="leave out @main"):
        push(saved, f"{ADDRESS}@main")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UserError, match="set HF_TOKEN, or run: hf auth login"):
        push(saved, ADDRESS)
    assert hub.asked == []
