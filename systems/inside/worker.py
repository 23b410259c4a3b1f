"""The loop of a worker: one JSON object calls a memory system, and one JSON object answers.

    python -I worker.py FILE SOCKET     FILE has a class `System`; SOCKET is an open socket's number

    {"call": "open", "folder": ..., "settings": {...}}    {"result": null}
    {"call": "add", "session": {...}}                     {"result": null}
    {"call": "search", "query": ..., "k": 5}              {"result": [{"text": ..., "ids": [...]}]}
    {"call": "close"}                                     {"error": "RuntimeError: ..."}

    class System:
        def __init__(self, folder: str, settings: dict): ...   stores only below the folder
        def add(self, session: dict): ...                      {"id", "time", "turns"}
        def search(self, query: str, k: int): ...              texts, or {"text", "ids"}, best first
        def close(self): ...                                   writes what is left; may be missing

`process` sends the calls. A method may be a coroutine. Of an object in an answer those fields are
sent that say something of an entry.

The worker ends, with all that it has started, as soon as nobody holds the other end of the socket,
even while the package is busy.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import os
import queue
import random
import signal
import sys
import sysconfig
import threading
import traceback
import uuid
from collections.abc import Awaitable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ENTRY_FIELDS = ("text", "memory", "content", "page_content", "id", "sources", "ids", "score")
"""The fields of an entry that is an object."""
MAX_MEMORY_BYTES = 8 << 30
"""Bytes of memory that a package may write to."""
MAX_FILE_BYTES = 2 << 30
"""Bytes of the largest file that it may write."""
MAX_ERROR_CHARS = 1000
MODULE_NAME = "system_inside"
"""The name under which the file with the class `System` is imported."""

Call = dict[str, Any]
"""A call: the name of the method under "call", and its arguments."""


def main() -> None:
    """Answer calls, one after the other.

    The loop has no end: `receive_calls` kills the process when the caller is gone.
    """
    file = sys.argv[1]
    socket_number = int(sys.argv[2])
    # The caller sees from the closed socket that this worker has ended. So no process that the
    # package starts may keep the socket open.
    os.set_inheritable(socket_number, False)
    connection: Connection[Any, Any] = Connection(socket_number)
    limit_resources()

    # Calls are received in a thread of their own, which notices that the caller is gone even while
    # the package is busy.
    calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
    threading.Thread(target=receive_calls, args=(connection, calls), daemon=True).start()
    worker = Worker(file)
    while True:
        call = calls.get()
        try:
            answer = json.dumps({"result": worker.perform(call)}, default=entry_fields)
        except Exception as error:
            traceback.print_exc()
            answer = json.dumps({"error": describe_error(error)})
        connection.send_bytes(answer.encode())


def receive_calls(connection: Connection[Any, Any], calls: queue.SimpleQueue[Call]) -> None:
    """Put each call into the queue; kill this process and its children when the caller is gone.

    The caller is gone when nobody holds the other end of the connection.
    """
    with suppress(EOFError, OSError):
        while True:
            calls.put(json.loads(connection.recv_bytes()))
    os.killpg(os.getpgrp(), signal.SIGKILL)


def limit_resources() -> None:
    """Limit the memory of this process and the size of every file that it writes.

    Where the operating system does not have these limits, nothing is limited.
    """
    with suppress(ImportError, ValueError, OSError):
        # Windows does not have this module.
        import resource

        # No core dumps: one may be as large as the memory.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
        # RLIMIT_DATA counts memory that is written to; large read-only mappings stay possible.
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


class Worker:
    """Performs the calls of one memory system.

    Args:
        file: The file with the class `System`.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._system: Any = None
        self._runner = asyncio.Runner()
        self._uuid_rng = random.Random()
        # Random ids stand in the prompts of a package. With other ids a run that is resumed would
        # pay for its calls again.
        uuid.uuid4 = self._make_uuid

    def _make_uuid(self) -> uuid.UUID:
        """Return an id that looks random, but is the same whenever a call is repeated.

        It follows from the arguments of the call and the number of ids drawn in it before.
        """
        return uuid.UUID(int=self._uuid_rng.getrandbits(128), version=4)

    def perform(self, call: Call) -> Any:
        """Perform a call and return its result; raise what the system raises.

        The first call must be "open", which makes the system. Every other call is passed to the
        system's method of its name.
        """
        arguments = {name: value for name, value in call.items() if name != "call"}
        method_name = call["call"]
        if method_name == "open":
            system_class = load_system_class(self._file)
            self._system = system_class(**arguments)
            return None

        # A system need not have this method.
        if method_name == "close" and not hasattr(self._system, "close"):
            return None

        # A call that is repeated in a later run draws the same ids, see `_make_uuid`.
        self._uuid_rng.seed(json.dumps(arguments))
        result = getattr(self._system, method_name)(**arguments)
        if inspect.isawaitable(result):
            return self._runner.run(wait_for(result))
        return result


async def wait_for(awaitable: Awaitable[Any]) -> Any:
    """Return the result of an awaitable, which need not be a coroutine."""
    return await awaitable


def load_system_class(path: str) -> Any:
    """Import a file and return its class `System`.

    The file is often named like the package that it wraps: mem0.py imports mem0. As a module it
    must have another name, or it would import itself.
    """
    spec: Any = importlib.util.spec_from_file_location(MODULE_NAME, path)
    module = importlib.util.module_from_spec(spec)
    # As with an import statement, so that classes of the file can be looked up by their module.
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    return module.System


def entry_fields(entry: Any) -> dict[str, Any]:
    """Return the fields of an entry that JSON has no form for."""
    fields = {name: getattr(entry, name) for name in ENTRY_FIELDS if hasattr(entry, name)}
    if not fields:
        raise TypeError(f"{type(entry).__name__} is no entry, and not JSON serializable")
    return fields


def describe_error(error: Exception) -> str:
    """Return an error on one line, with the line of a user's own file that raised it."""
    message = " ".join(str(error).split())[:MAX_ERROR_CHARS]
    return f"{type(error).__name__}: {message}{own_line(error)}"


def own_line(error: BaseException) -> str:
    """Return where a user's own file raised an error, e.g. " (mine.py:12)"; "" if a package did."""
    installed_folders = (
        str(Path(__file__).parent),
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        # Code that is in no file.
        "<",
    )
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(installed_folders):
            return f" ({Path(frame.filename).name}:{frame.lineno})"
    return ""


if __name__ == "__main__":
    main()
