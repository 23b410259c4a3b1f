"""A memory system in a process of its own, as an object with `add` and `search`.

    System ── JSON lines ──> worker, in the system's environment ──> its package
      └── Proxy <── HTTP on loopback ── its calls of models

The worker gets a folder to store in, an environment without the user's keys, and bounds of memory and of any one file.
One that crashes or answers nonsense is ended with all that it started, and the call raises `SystemFailedError` with the
reason; so does every later call. One that hangs, or fills the disk with many files, is for the caller to `kill`.

Limits: order among programs that mean no harm, no prison (see `inside.worker`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from ..errors import MempilerError, SystemFailedError
from ..memory.index import Entry
from ..records import Item
from .proxy import CHAT_MODEL, EMBEDDING_MODEL, Embeds, Proxy

WORKER = Path(__file__).parent / "inside" / "worker.py"
LOG = "worker.log"
"""What the package prints, in the folder of the system."""
LINE = 64 << 20
"""Most bytes of an answer."""
MEMORY, FILE = 8 << 30, 4 << 30
"""Bytes that a worker may have in memory, and in one file."""


@dataclass(frozen=True)
class Program:
    """What is run: a Python, and the file with a system's class."""

    name: str
    python: Path
    file: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory: int = MEMORY
    largest: int = FILE


class System:
    """A running memory system of one history; close it.

    Its folder holds all that it knows once its package is closed, which then goes on in another process: packages hold
    on to what they had open.

    Args:
        program: What is run.
        folder: Where it stores; made if missing.
        embedder: The embedder that it is given; its language model is that of DSPy's settings when it is called.

    Raises:
        SystemFailedError: It does not start.
    """

    def __init__(self, program: Program, folder: Path, embedder: Embeds) -> None:
        self.name, self.folder, self._program = program.name, folder.absolute(), program
        self._dead: str | None = None
        self._calls = threading.RLock()
        for name in ("store", "home", "tmp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        size = int(embedder.embed(["size"]).shape[1])
        self._proxy = Proxy(embedder)
        own = {"url": self._proxy.url, "key": self._proxy.key, "lm": CHAT_MODEL, "embedder": EMBEDDING_MODEL}
        self._settings = {**program.settings, **own, "dimension": size}
        try:
            self._process = self._started()
        except BaseException:
            self._proxy.close()
            raise
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        """How many entries it stores."""
        return int(self._ask("count"))

    def __bool__(self) -> bool:
        return True

    def add(self, session: Item) -> None:
        """Gives it one more session.

        Raises:
            SystemFailedError: It failed.
        """
        turns = [
            {"id": turn.id, "speaker": turn.speaker, "text": turn.content, "time": _said(turn.time or session.time)}
            for turn in session.turns
        ]
        self._ask("add", session={"id": session.id, "time": _said(session.time), "turns": turns})

    def search(self, query: str, k: int) -> Sequence[Entry]:
        """What it finds for a query, best first, at most `k` entries.

        Raises:
            SystemFailedError: It failed, or answered no list of entries.
        """
        found = self._ask("search", query=query, k=k)
        try:
            return [_entry(number, each) for number, each in enumerate(found)][:k]
        except (TypeError, ValueError, KeyError, AttributeError):
            raise self._failed(f"answered no list of entries: {json.dumps(found)[:200]}") from None

    def close(self) -> None:
        """Ends the worker, in order if it still answers, and all that it started."""
        with self._calls:
            if self._dead is None:
                with suppress(MempilerError):
                    self._ask("close")
            self._end("is closed")

    def kill(self) -> None:
        """Ends it at once, from any thread; a call that is going on raises."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with self._calls:
            self._end("was ended")

    def _open(self) -> None:
        self._ask("open", folder=str(self.folder / "store"), settings=self._settings)

    def _started(self) -> subprocess.Popen[bytes]:
        program = self._program
        limits = json.dumps({"memory": program.memory, "file": program.largest})
        # Isolated: neither the folder of the file nor the user's own packages are looked into.
        command = [str(program.python), "-I", str(WORKER), str(program.file), limits]
        try:
            with (self.folder / LOG).open("ab") as log:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self.folder,
                    env=self._environment(),
                    start_new_session=True,
                )
        except OSError as error:
            raise SystemFailedError(self.name, f"cannot be started: {error}") from error

    def _environment(self) -> dict[str, str]:
        """No key of the user's, no telemetry, no hub; a home and a folder for scratch below its own."""
        return {
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "OPENAI_API_KEY": self._proxy.key,
            "OPENAI_BASE_URL": self._proxy.url,
            "NO_PROXY": "127.0.0.1",
            "HF_HUB_OFFLINE": "1",
            "DO_NOT_TRACK": "1",
            "ANONYMIZED_TELEMETRY": "False",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    def _ask(self, call: str, **given: Any) -> Any:
        with self._calls:
            if self._dead is not None:
                raise SystemFailedError(self.name, self._dead)
            self._proxy.serve_here()
            line = self._answered({"call": call, **given})
            failure, self._proxy.failure = self._proxy.failure, None
            if failure is not None:
                # A limit, or an endpoint that is gone: no fault of the system, whatever it made of it.
                raise failure
            try:
                answer = json.loads(line)
                error = answer.get("error")
                if error is None:
                    return answer["result"]
            except (ValueError, KeyError, AttributeError):
                raise self._failed(f"answered {line[:100]!r}") from None
            raise SystemFailedError(self.name, f"{call}: {error}")

    def _answered(self, call: Mapping[str, Any]) -> bytes:
        pipes = self._process
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        try:
            pipes.stdin.write(json.dumps(call).encode() + b"\n")
            pipes.stdin.flush()
        except (OSError, ValueError):  # the latter of a pipe that is closed here
            raise self._failed(self._last_words()) from None
        line = pipes.stdout.readline(LINE)
        if not line.endswith(b"\n"):
            raise self._failed(f"answered more than {LINE >> 20} MB" if line else self._last_words())
        return line

    def _last_words(self) -> str:
        """Why a worker that is gone may have gone."""
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "closed its output"
        with (self.folder / LOG).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
            lines = log.read().decode("utf-8", "replace").splitlines()
        said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        return (
            f"ended by {signal.Signals(-code).name if code < 0 else f'itself, status {code}'}; last said: {said[:300]}"
        )

    def _failed(self, reason: str) -> SystemFailedError:
        self._end(reason)
        return SystemFailedError(self.name, reason)

    def _end(self, reason: str) -> None:
        """Kills the process group, and lets go of the pipes and the endpoint."""
        if self._dead is not None:
            return
        self._dead = reason
        self._stop()
        self._proxy.close()

    def _stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()


class KeptSystem(System):
    """A memory system that keeps all it knows below its folder, so that a copy of that is a copy of it."""

    def snapshot(self, folder: Path) -> None:
        """Copies what it knows.

        Args:
            folder: Where to; empty.

        Raises:
            SystemFailedError: It does not close, or open again.
        """
        with self._elsewhere():
            shutil.copytree(self.folder / "store", folder, dirs_exist_ok=True)

    def restore(self, folder: Path) -> None:
        """Takes what another one knew; called before anything is added.

        Args:
            folder: A snapshot.

        Raises:
            SystemFailedError: It does not open it.
        """
        with self._elsewhere():
            shutil.rmtree(self.folder / "store")
            shutil.copytree(folder, self.folder / "store")

    @contextmanager
    def _elsewhere(self) -> Generator[None]:
        with self._calls:
            self._ask("close")
            self._stop()
            yield
            self._process = self._started()
            self._open()


def _said(time: datetime | None) -> str:
    return time.isoformat(sep=" ") if time else ""


def _entry(number: int, found: Mapping[str, Any]) -> Entry:
    sources = tuple(str(each) for each in found.get("ids") or ())
    return Entry(id=f"entry-{number}", text=found["text"], sources=sources)
