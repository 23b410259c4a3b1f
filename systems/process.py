"""A memory system in a process of its own, as an object with `add` and `search`.

    System ── JSON over a socket ──> worker, in the system's environment ──> its package
      └── Proxy <── HTTP on loopback ── its calls of models

The worker gets a folder to store in, an environment without the user's keys, and bounds of memory and of any one file.
It runs with the user's rights: order among programs that mean no harm, no prison. One that hangs is for the caller to
`kill`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..engines.embedders import embedder as offline_embedder
from ..errors import MempilerError
from ..memory.index import Embedder
from ..records import Item, Turn
from .proxy import CHAT_MODEL, EMBEDDING_MODEL, Proxy

WORKER = Path(__file__).parent / "inside" / "worker.py"
LOG = "worker.log"
"""What the package prints, in the folder of the system."""
LONGEST = 64 << 20
"""Most bytes of an answer."""


class SystemFailedError(MempilerError):
    """Raised if another's memory system crashed, was ended, or answered nonsense."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")


class System:
    """A running memory system of one history; close it.

    One that crashes or answers nonsense is ended with all that it started, and the call raises the reason; so does
    every later call. An error of the package is one of the call alone.

    Args:
        name: What failures call it.
        python: What runs it.
        file: The file with its class.
        settings: Given to that class.
        folder: Where it stores; made if missing.
        embedder: The embedder that it is given, the offline one if None; its language model is that of DSPy's settings
            when it is called.

    Raises:
        SystemFailedError: It does not start; of a method: it failed.
    """

    def __init__(
        self,
        name: str,
        python: Path,
        file: Path,
        settings: Mapping[str, Any],
        folder: Path,
        embedder: Embedder | None = None,
    ) -> None:
        self.name, self.folder = name, folder.absolute()
        # Isolated: neither the folder of the file nor the user's own packages are looked into.
        self._command = [str(python), "-I", "-u", str(WORKER), str(file)]
        self._process: subprocess.Popen[bytes] | None = None
        self._worker: Any = None
        self._dead, self._calls = "", threading.RLock()
        for place in ("store", "home", "tmp"):
            (self.folder / place).mkdir(parents=True, exist_ok=True)
        embeds = embedder or offline_embedder()
        size = int(embeds.embed(["size"]).shape[1])
        self._proxy = Proxy(embeds)
        given = {"url": self._proxy.url, "key": self._proxy.key, "lm": CHAT_MODEL, "embedder": EMBEDDING_MODEL}
        self._settings = {**settings, **given, "dimension": size}
        try:
            self._start()
        except BaseException:
            self._end("is closed")
            raise

    def add(self, session: Item) -> None:
        """Gives it one more session, if anything was said in it."""
        turns = [_turn(turn, _written(turn.time or session.time)) for turn in session.turns]
        if turns:
            self._ask("add", session={"id": session.id, "time": _written(session.time), "turns": turns})

    def search(self, query: str, k: int) -> Any:
        """What it finds for a query, best first: texts, or objects with `text` and, where known, `ids` of turns."""
        return self._ask("search", query=query, k=k)

    def ask(self, question: str) -> Any:
        """What one that answers by itself says: an object with `answer` and `recalled`."""
        return self._ask("ask", question=question)

    def close(self) -> None:
        """Ends the worker, in order if it still answers, and all that it started."""
        with self._calls:
            with suppress(MempilerError):
                self._ask("close")
            self._end("is closed")

    def kill(self) -> None:
        """Ends it at once, from any thread; a call that is going on raises."""
        self._signal()
        with self._calls:
            self._end("was ended")

    def _start(self) -> None:
        here, there = socket.socketpair()
        try:
            with (self.folder / LOG).open("ab") as log, there:
                self._process = subprocess.Popen(
                    [*self._command, str(there.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    env=self._environment(),
                    pass_fds=[there.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            here.close()
            raise SystemFailedError(self.name, f"cannot be started: {error}") from error
        self._worker = Connection(here.detach())
        self._ask("open", folder=str(self.folder / "store"), settings=self._settings)

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
            if self._dead:
                raise SystemFailedError(self.name, self._dead)
            self._proxy.serve_here()
            try:
                self._worker.send_bytes(json.dumps({"call": call, **given}).encode())
                answer = json.loads(self._worker.recv_bytes(LONGEST))
            except (OSError, EOFError, ValueError):
                raise self._end(self._last_words()) from None
            failure, self._proxy.failure = self._proxy.failure, None
            if failure is not None:
                # A limit, or an endpoint that is gone: no fault of the system, whatever it made of it.
                raise failure
            if answer.get("error") is not None:
                raise SystemFailedError(self.name, f"{call}: {answer['error']}")
            return answer.get("result")

    def _last_words(self) -> str:
        """Why a worker that is gone may have gone."""
        assert self._process is not None
        try:
            code = self._process.wait(2)
        except subprocess.TimeoutExpired:
            return "gave no answer that can be read"
        with (self.folder / LOG).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
            lines = log.read().decode("utf-8", "replace").splitlines()
        said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        how = signal.Signals(-code).name if code < 0 else f"itself, status {code}"
        return f"ended by {how}; last said: {said[:300]}"

    def _end(self, reason: str) -> SystemFailedError:
        """Ends the worker with all that it started, and lets go of the endpoint, once; the error that says why."""
        if not self._dead:
            self._dead = reason
            if self._process is not None:
                self._signal()
                self._process.wait()
            if self._worker is not None:
                self._worker.close()
            self._proxy.close()
        return SystemFailedError(self.name, reason)

    def _signal(self) -> None:
        with suppress(ProcessLookupError):
            if self._process is not None:
                os.killpg(self._process.pid, signal.SIGKILL)


def _turn(turn: Turn, time: str) -> dict[str, Any]:
    said = {"id": turn.id, "speaker": turn.speaker, "text": turn.content, "time": time}
    return {**said, "line": f"({time}) {turn.speaker}: {turn.content}", "record": turn.model_dump(mode="json")}


def _written(time: datetime | None) -> str:
    return time.isoformat(sep=" ") if time else ""
