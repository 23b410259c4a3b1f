"""A stand-in for the Hugging Face hub on this machine: the part of its HTTP API that programs need.

Repositories are lists of commits in memory, each all files by path; every change makes one. Private ones are not there
for whoever has no token, as on the hub.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

TOKEN = "hf_token-of-ada"
READER = "hf_token-that-may-only-read"


class HubServer:
    """The server; it listens from `__enter__` on."""

    def __init__(self) -> None:
        self.repos: dict[str, list[tuple[str, dict[str, bytes]]]] = {}
        """Commits by repository, the newest last: name and files."""
        self.tags: dict[tuple[str, str], str] = {}
        self.private: set[str] = set()
        self.failing = False
        self.asked: list[str] = []
        """Method and path of every request."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """What `HF_ENDPOINT` takes."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def reached(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Sets what HF_ENDPOINT and HF_TOKEN would have set when the libraries of the hub were imported."""
        import datasets
        import huggingface_hub.constants

        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_ENDPOINT", self.url)
        template = f"{self.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        for name, value in {"ENDPOINT": self.url, "HUGGINGFACE_CO_URL_TEMPLATE": template}.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", self.url)
        self.switched(monkeypatch, offline=False)

    def switched(self, monkeypatch: pytest.MonkeyPatch, offline: bool) -> None:
        """Sets what HF_HUB_OFFLINE would have set."""
        import datasets
        import huggingface_hub.constants

        for module in (datasets.config, huggingface_hub.constants):
            monkeypatch.setattr(module, "HF_HUB_OFFLINE", offline)

    def __enter__(self) -> HubServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def commit(self, repo: str, files: dict[str, bytes]) -> str:
        """Adds a commit of these files; returns its name."""
        commits = self.repos.setdefault(repo, [])
        name = hashlib.sha1(f"{repo} {len(commits)}".encode()).hexdigest()
        commits.append((name, files))
        return name

    def files(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """Name and files of a commit, a tag or `main`."""
        commits = self.repos[repo]
        wanted = self.tags.get((repo, revision), commits[-1][0] if revision == "main" and commits else revision)
        return next((found for found in commits if found[0] == wanted), None)


def _handler(hub: HubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            hub.asked.append(f"{self.command} {self.path}")
            path = self.path.partition("?")[0]
            if hub.failing:
                return self.say(503, {"error": "the hub is down"})
            if found := re.fullmatch(r"/api/(?:models|datasets)/([^/]+/[^/]+)(?:/revision/(.+))?", path):
                return self.info(found[1], found[2] or "main")
            if found := re.fullmatch(r"/(?:datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                return self.file(*found.groups())
            self.say(404, {"error": "unknown"})

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            hub.asked.append(f"{self.command} {self.path}")
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.token != TOKEN:
                return self.say(403 if self.token else 401, {"error": "not with this token"})
            if self.path == "/api/repos/create":
                return self.create(json.loads(body))
            if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/main", self.path):
                files = json.loads(body)["files"]
                modes = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in files]
                return self.say(200, {"files": modes})
            if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", self.path):
                return self.change(found[1], [json.loads(line) for line in body.splitlines()])
            self.say(404, {"error": "unknown"})

        @property
        def token(self) -> str:
            return (self.headers["Authorization"] or "").removeprefix("Bearer ")

        def readable(self, repo: str) -> bool:
            return repo in hub.repos and (repo not in hub.private or self.token == TOKEN)

        def info(self, repo: str, revision: str) -> None:
            if not self.readable(repo):
                return self.say(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            if (found := hub.files(repo, revision)) is None:
                return self.say(404, {"error": "Invalid rev"}, {"X-Error-Code": "RevisionNotFound"})
            siblings = [{"rfilename": name} for name in found[1]]
            self.say(200, {"_id": "1", "id": repo, "sha": found[0], "siblings": siblings, "tags": [], "private": False})

        def file(self, repo: str, revision: str, name: str) -> None:
            found = hub.files(repo, revision) if self.readable(repo) else None
            if found is None or name not in found[1]:
                return self.say(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            content = found[1][name]
            self.say(200, content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": found[0]})

        def create(self, wanted: dict[str, Any]) -> None:
            repo = f"{wanted['organization']}/{wanted['name']}" if wanted.get("organization") else wanted["name"]
            if repo in hub.repos:
                return self.say(409, {"error": "You already created this model repo", "url": f"{hub.url}/{repo}"})
            hub.repos[repo] = []
            hub.commit(repo, {".gitattributes": b""})
            hub.private |= {repo} if wanted.get("visibility") == "private" else set()
            self.say(200, {"url": f"{hub.url}/{repo}", "name": repo})

        def change(self, repo: str, lines: list[dict[str, Any]]) -> None:
            files = dict(hub.repos[repo][-1][1])
            for line in lines:
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "deletedFile":
                    del files[value["path"]]
            name = hub.commit(repo, files)
            self.say(200, {"success": True, "commitOid": name, "commitUrl": f"{hub.url}/{repo}/commit/{name}"})

        def say(self, status: int, body: dict[str, Any] | bytes, headers: dict[str, str] | None = None) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    return Handler
