"""The loop of a worker: one JSON line asks for one call of a memory system, one JSON line answers it.

    python -I worker.py FILE LIMITS        FILE has a class `System`, see below; LIMITS is a JSON object of bytes

    {"call": "open", "folder": ..., "settings": {...}}      {"result": null}
    {"call": "add", "session": {...}}                       {"result": null}
    {"call": "search", "query": ..., "k": 5}                {"result": [{"text": ..., "ids": [...]}]}
    {"call": "count"}                                       {"result": 12}
    {"call": "close"}                                       {"error": "RuntimeError: ..."}

    class System:
        def __init__(self, folder: str, settings: dict): ...     keeps what it stores below the folder
        def add(self, session: dict): ...                         {"id", "time", "turns": [{"id", "speaker", "text"}]}
        def search(self, query: str, k: int): ...                 texts, or objects {"text", "ids"}, best first
        def __len__(self): ...                                    entries stored
        def close(self): ...                                      writes what is not written yet; may be left out

The lines go over copies of the two standard streams, taken before the package is imported; what the package prints goes
to the log. The worker ends, with all that it has started, as soon as nobody holds the other end of its input, be the
package busy or not.

Limits: memory and the size of one file are limited by the system, where it can. The package runs with the rights of the
user: this is order among programs that mean no harm, no prison.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import random
import signal
import sys
import threading
import traceback
import uuid
from typing import Any


def main() -> None:
    """Answers calls until the input ends."""
    asked, answers = os.fdopen(os.dup(0), "r", encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115
    limit(json.loads(sys.argv[2]))
    drawn = random.Random()
    # Ids that a package draws stand in its prompts: drawn anew, a run that goes on would pay for its calls again.
    uuid.uuid4 = lambda: uuid.UUID(int=drawn.getrandbits(128), version=4)
    calls: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=hear, args=(asked, calls), daemon=True).start()
    system: Any = None
    while True:
        call = calls.get()
        try:
            kind = call.pop("call")
            if kind == "open":
                system, result = load(sys.argv[1])(**call), None
            elif kind == "add":
                drawn.seed(json.dumps(call))
                result = system.add(**call)
            elif kind == "search":
                result = found(system.search(**call))
            elif kind == "count":
                result = len(system)
            else:
                result = getattr(system, kind, lambda: None)(**call)
            answer = json.dumps({"result": result})
        except Exception as error:
            traceback.print_exc()
            answer = json.dumps({"error": f"{type(error).__name__}: {' '.join(str(error).split())[:1000]}"})
        answers.write(answer + "\n")
        answers.flush()


def hear(asked: Any, calls: Any) -> None:
    """Passes calls on; ends the whole process group with the input."""
    for line in asked:
        calls.put(json.loads(line))
    os.killpg(os.getpgrp(), signal.SIGKILL)


def limit(limits: dict[str, int]) -> None:
    """Limits the memory that is written to, the size of any file, and memory dumps."""
    try:
        import resource
    except ImportError:  # not on this system
        return
    for name, most in {"RLIMIT_DATA": limits["memory"], "RLIMIT_FSIZE": limits["file"], "RLIMIT_CORE": 0}.items():
        try:
            resource.setrlimit(getattr(resource, name), (most, most))
        except (ValueError, OSError, AttributeError):
            continue


def load(path: str) -> Any:
    """The class `System` of a file; under a name of its own, since the file is called as the package is."""
    spec = importlib.util.spec_from_file_location("system_inside", path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["system_inside"] = module
    spec.loader.exec_module(module)
    return module.System


def found(result: Any) -> list[dict[str, Any]]:
    """Entries as objects, whatever they came as."""
    return [entry if isinstance(entry, dict) else {"text": entry} for entry in result]


if __name__ == "__main__":
    main()
