"""The loop of a worker: one JSON object asks for one call of a memory system, one JSON object answers it.

    python -I worker.py FILE SOCKET        FILE has a class `System`, see below; SOCKET is the number of an open one

    {"call": "open", "folder": ..., "settings": {...}}      {"result": null}
    {"call": "add", "session": {...}}                       {"result": null}
    {"call": "search", "query": ..., "k": 5}                {"result": [{"text": ..., "ids": [...]}]}
    {"call": "close"}                                       {"error": "RuntimeError: ..."}

    class System:
        def __init__(self, folder: str, settings: dict): ...     keeps what it stores below the folder
        def add(self, session: dict): ...                         {"id", "time", "turns"}, as `process` sends it
        def search(self, query: str, k: int): ...                 texts, or objects {"text", "ids"}, best first
        def close(self): ...                                      writes what is not written yet; may be left out

A method may be a coroutine. Objects in an answer are sent as those of their fields that say something of an entry.

The worker ends, with all that it has started, as soon as nobody holds the other end, be the package busy or not.
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
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

FIELDS = ("text", "memory", "content", "page_content", "id", "sources", "ids", "score")
"""What is read of an entry that is an object."""
MEMORY, FILE = 8 << 30, 2 << 30
"""Bytes that a package may write to in memory, and in one file."""


def main() -> None:
    """Answers calls until nobody asks."""
    os.set_inheritable(int(sys.argv[2]), False)
    asking = Connection(int(sys.argv[2]))
    limit()
    drawn = random.Random()
    # Ids that a package draws stand in its prompts: drawn anew, a run that goes on would pay for its calls again.
    uuid.uuid4 = lambda: uuid.UUID(int=drawn.getrandbits(128), version=4)
    calls: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=hear, args=(asking, calls), daemon=True).start()
    system, runner = None, asyncio.Runner()
    while True:
        call = calls.get()
        try:
            kind = call.pop("call")
            if kind == "open":
                system, result = load(sys.argv[1])(**call), None
            else:
                drawn.seed(json.dumps(call))
                result = getattr(system, kind, lambda: None)(**call)
            if inspect.isawaitable(result):
                result = runner.run(awaited(result))
            answer = json.dumps({"result": result}, default=fields)
        except Exception as error:
            traceback.print_exc()
            said = " ".join(str(error).split())[:1000]
            answer = json.dumps({"error": f"{type(error).__name__}: {said}{own_line(error)}"})
        asking.send_bytes(answer.encode())


def hear(asking: Connection[Any, Any], calls: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Passes calls on; ends the whole process group when nobody is left to ask."""
    with suppress(EOFError, OSError):
        while True:
            calls.put(json.loads(asking.recv_bytes()))
    os.killpg(os.getpgrp(), signal.SIGKILL)


def limit() -> None:
    """Limits the memory that is written to, and the size of any file; leaves no memory dumps."""
    with suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def own_line(error: BaseException) -> str:
    """Where in a user's own file an error was raised, e.g. " (mine.py:12)"; empty where it was in a package."""
    installed = (str(Path(__file__).parent), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<")
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(installed)]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


async def awaited(value: Any) -> Any:
    """What is awaited."""
    return await value


def fields(entry: Any) -> dict[str, Any]:
    """What JSON has no form for, as an entry: an object of its fields."""
    found = {name: getattr(entry, name) for name in FIELDS if hasattr(entry, name)}
    if not found:
        raise TypeError(f"{type(entry).__name__} is no entry, and not JSON serializable")
    return found


def load(path: str) -> Any:
    """The class `System` of a file; under a name of its own, since the file is called as the package is."""
    spec: Any = importlib.util.spec_from_file_location("system_inside", path)
    module = sys.modules["system_inside"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.System


if __name__ == "__main__":
    main()
