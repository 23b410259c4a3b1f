"""A memory system in a process of its own, as an object with `add` and `search`.

    System ── JSON over a socket ──> worker, in the system's environment ──> its package
      └── Proxy <── HTTP on loopback ── its calls of models

The worker gets a folder to store in, an environment without the user's keys, and limits of its
memory and of the size of a file. It runs with the user's rights: this keeps well-meaning programs
apart, and is no protection from hostile ones. A caller must `kill` a worker that hangs.
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
from ..memory.search.embedder import Embedder
from ..records import Item, Turn
from .proxy import CHAT_MODEL, EMBEDDING_MODEL, Proxy

WORKER = Path(__file__).parent / "inside" / "worker.py"
LOG = "worker.log"
"""The file with what the package prints, in the folder of the system."""
LONGEST = 64 << 20
"""The most bytes that an answer may have."""

_LOG_TAIL_BYTES = 4096
"""How much of the log is searched for the last line."""

_EXIT_SECONDS = 2
"""How long to wait for the exit status of a worker that does not answer."""


class SystemFailedError(MempilerError):
    """Raised when a memory system crashed, was ended, or answered nonsense."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")


class System:
    """A running memory system of one history; close it.

    A system that crashes or answers nonsense is ended with all processes that it started. The call
    raises the reason, and so does every later call. An error of the package fails one call only.

    Args:
        name: The name of the system in failures.
        python: The interpreter that runs it.
        file: The file with its class.
        settings: Settings for that class.
        folder: Where it stores; made if missing.
        embedder: The embedder that it is given; the offline one if None. Its language model is the
            one in DSPy's settings at the time of a call.
        texts: The texts that it lets one set, by name; None if it has none.
        numbers: The numbers that it lets one set, by name; None if it has none.

    Raises:
        SystemFailedError: It does not start; or, from a method, it failed.
    """

    def __init__(
        self,
        name: str,
        python: Path,
        file: Path,
        settings: Mapping[str, Any],
        folder: Path,
        embedder: Embedder | None = None,
        texts: Mapping[str, str] | None = None,
        numbers: Mapping[str, int | float] | None = None,
    ) -> None:
        self.name = name
        self.folder = folder.absolute()
        # With -I, Python looks neither into the folder of the file nor for the user's own packages.
        self._command = [str(python), "-I", "-u", str(WORKER), str(file)]
        self._process: subprocess.Popen[bytes] | None = None
        self._worker: Connection | None = None
        self._reason_of_end = ""
        self._lock = threading.RLock()

        for subfolder in ("store", "home", "tmp"):
            (self.folder / subfolder).mkdir(parents=True, exist_ok=True)
        embedder = embedder or offline_embedder()
        # Before the proxy starts: an embedder that fails must leave nothing running.
        dimension = int(embedder.embed(["size"]).shape[1])
        self._proxy = Proxy(embedder)
        self._settings = {
            **settings,
            "texts": dict(texts or {}),
            "numbers": dict(numbers or {}),
            "url": self._proxy.url,
            "key": self._proxy.key,
            "lm": CHAT_MODEL,
            "embedder": EMBEDDING_MODEL,
            "dimension": dimension,
        }
        try:
            self._start()
        except BaseException:
            self._end("is closed")
            raise

    def add(self, session: Item) -> None:
        """Add one more session, if anything was said in it."""
        turns = [_turn_fields(turn, turn.time or session.time) for turn in session.turns]
        if turns:
            fields = {"id": session.id, "time": _format_time(session.time), "turns": turns}
            self._call("add", session=fields)

    def search(self, query: str, k: int) -> Any:
        """Return what the system finds for a query, best first.

        Its results are texts, or objects with `text` and, where known, `ids` of turns.
        """
        return self._call("search", query=query, k=k)

    def ask(self, question: str) -> Any:
        """Return the answer of a system that answers by itself: `answer` and `recalled`."""
        return self._call("ask", question=question)

    def close(self) -> None:
        """End the worker, in order if it still answers, and all processes that it started."""
        with self._lock:
            with suppress(MempilerError):
                self._call("close")
            self._end("is closed")

    def kill(self) -> None:
        """End the worker at once, from any thread; a call in progress raises."""
        # Without the lock, which a call in progress holds.
        self._kill_process_group()
        with self._lock:
            self._end("was ended")

    def _start(self) -> None:
        """Start the worker, connected by a socket, and open the store in it."""
        our_socket, worker_socket = socket.socketpair()
        try:
            with (self.folder / LOG).open("ab") as log, worker_socket:
                self._process = subprocess.Popen(
                    [*self._command, str(worker_socket.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    env=self._environment(),
                    pass_fds=[worker_socket.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            our_socket.close()
            raise SystemFailedError(self.name, f"cannot be started: {error}") from error
        self._worker = Connection(our_socket.detach())
        self._call("open", folder=str(self.folder / "store"), settings=self._settings)

    def _environment(self) -> dict[str, str]:
        """Return the worker's variables: no key of the user's, no telemetry, own folders."""
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

    def _call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the system in the worker, and return its result.

        Raises:
            SystemFailedError: The worker has ended, gave no answer that can be read, or reported an
                error of the package.
            MempilerError: A limit of the run was reached, or an endpoint does not answer.
        """
        with self._lock:
            if self._reason_of_end:
                raise SystemFailedError(self.name, self._reason_of_end)
            assert self._worker is not None

            # While the method runs, the package asks models through the proxy. They are the models
            # of this thread, and count for its work.
            self._proxy.serve_here()
            try:
                self._worker.send_bytes(json.dumps({"call": method, **arguments}).encode())
                answer = json.loads(self._worker.recv_bytes(LONGEST))
            except (OSError, EOFError, ValueError):
                # The worker is gone, whatever its calls of models met before.
                raise self._end(self._describe_end()) from None

            # Looked at before the answer: a limit, or an endpoint that is gone, is no fault of the
            # system, even if the package has reported it as an error or has gone on without it.
            proxy_failure = self._proxy.take_failure()
            if proxy_failure is not None:
                raise proxy_failure
            if answer.get("error") is not None:
                raise SystemFailedError(self.name, f"{method}: {answer['error']}")
            return answer.get("result")

    def _describe_end(self) -> str:
        """Return why a silent worker may have ended, with the last line of its log."""
        assert self._process is not None
        try:
            status = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "gave no answer that can be read"

        # A negative status is the number of the signal that ended the process.
        cause = signal.Signals(-status).name if status < 0 else f"itself, status {status}"
        last_line = self._last_log_line() or "nothing"
        return f"ended by {cause}; last said: {last_line[:300]}"

    def _last_log_line(self) -> str:
        """Return the last line of the log that is not blank, or an empty text."""
        with (self.folder / LOG).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _LOG_TAIL_BYTES))
            tail = log.read().decode("utf-8", "replace")
        lines = tail.strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _end(self, reason: str) -> SystemFailedError:
        """End the worker and the endpoint, once; return an error with the reason."""
        if not self._reason_of_end:
            self._reason_of_end = reason
            if self._process is not None:
                self._kill_process_group()
                self._process.wait()
            if self._worker is not None:
                self._worker.close()
            self._proxy.close()
        return SystemFailedError(self.name, reason)

    def _kill_process_group(self) -> None:
        """Kill the worker with all processes that it started."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _turn_fields(turn: Turn, time: datetime | None) -> dict[str, Any]:
    """Return a turn as the systems read it."""
    time_text = _format_time(time)
    return {
        "id": turn.id,
        "speaker": turn.speaker,
        "text": turn.content,
        "time": time_text,
        "line": f"({time_text}) {turn.speaker}: {turn.content}",
        "record": turn.model_dump(mode="json"),
    }


def _format_time(time: datetime | None) -> str:
    return time.isoformat(sep=" ") if time else ""
