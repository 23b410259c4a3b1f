"""The unit costs of `perf/scale.py`, measured on this machine.

Memory-R2 writes sessions of ten turns into the memory of a user who has had thirty, each of which leaves four facts;
its model is scripted, takes no time, and counts four characters for a token. The service is `mempiler serve` with turn
RAG and the offline engine, whose searching and answering are part of what a question costs here.
"""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cost_runs
import dspy
import httpx
import load
import mempiler
import psutil
from cost_row import cpu_ms
from mempiler.engines.meter import Meter, MeteredLM
from scripted_engine import ScriptedEngine

BEFORE, WRITTEN, REQUESTS, FACTS = 30, 10, 100, 4
_WORDS = re.findall(
    r"\w+", "we spoke of the garden and the old harbour, of trains that leave early and of what to cook"
)
TOKEN = "0123456789abcdef0123456789abcdef"


class Counting(ScriptedEngine):
    """Counts the characters of prompts and answers."""

    def __init__(self) -> None:
        super().__init__(0.0, self._reply)
        self.read = self.said = 0
        self._counting = threading.Lock()

    def complete(self, request: Any) -> Any:
        """Answers at once."""
        system = request.system if isinstance(request.system, str) else "".join(p.text for p in request.system or ())
        response = super().complete(request)
        with self._counting:
            self.read += len(system) + sum(len(message.text) for message in request.messages)
            self.said += len(response.message.text)
        return response

    def _reply(self, kind: str, text: str) -> dict[str, Any]:
        if kind not in ("facts", "operations"):
            return {"reasoning": "The memories say so.", "answer": "In Lisbon, since May."}
        found = cost_runs.reply(kind, text)
        # Four parts a session: one fact of each.
        return {"facts": found["facts"][:1]} if kind == "facts" else found


def measured() -> dict[str, float]:
    """The fields of `scale.Costs`."""
    return {**_served(), **_written()}


def _sessions(count: int) -> list[Any]:
    def turn(session: int, number: int) -> dict[str, str]:
        said = [_WORDS[(session * 7 + number * 3 + n) % len(_WORDS)] for n in range(40 if number % 2 else 90)]
        name = ("Ann", "Bob")[number % 2]
        return {"role": "user", "name": name, "content": f"Note {session}-{number}: {' '.join(said)}"}

    return [[turn(session, number) for number in range(10)] for session in range(count)]


def _written() -> dict[str, float]:
    engine = Counting()
    lm = MeteredLM("scripted/free", Meter(), engine=engine, cache=False, temperature=0.0)
    with tempfile.TemporaryDirectory() as folder, dspy.context(trace=None, disable_history=True):
        path = Path(folder) / "memories.sqlite"
        with mempiler.Store(path) as store:
            memory = mempiler.build("memory-r2").memory(store, "ann", lm=lm)
            sessions = _sessions(BEFORE + WRITTEN)
            for session in sessions[:BEFORE]:
                memory.add(session)
            engine.read = engine.said = 0
            calls = sum(engine.calls.values())
            taken = cpu_ms(lambda: [memory.add(session) for session in sessions[BEFORE:]])
            asked, read, said = sum(engine.calls.values()) - calls, engine.read, engine.said
            memory.ask("Where is the harbour?")
            asking, answer = engine.read - read, engine.said - said
        kept = path.stat().st_size / len(sessions)
    return {
        "write_ms": taken / WRITTEN,
        "write_calls": asked / WRITTEN,
        "write_in": read / 4 / WRITTEN,
        "write_out": said / 4 / WRITTEN,
        "ask_in": asking / 4,
        "ask_out": answer / 4,
        "session_kb": kept / 1000,
    }


def _served() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "memories.sqlite")
        with load.service(Path(folder), {"acme": TOKEN}, store, []) as (address, process):
            server = psutil.Process(process)
            with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
                sessions = _sessions(10)

                def post(number: int, path: str, body: Any) -> None:
                    client.post(f"/v1/users/user-{number % 10}/{path}", json=body).raise_for_status()

                def add(number: int) -> None:
                    post(number, "sessions", {"messages": sessions[number % 10]})

                def ask(number: int) -> None:
                    post(number, "ask", {"question": "Where is the harbour?"})

                return {"add_ms": _taken(server, add), "ask_ms": _taken(server, ask)}


def _taken(server: psutil.Process, call: Callable[[int], None]) -> float:
    """CPU milliseconds of the service for a request, what it does in the background among them."""
    for number in range(10):
        call(number)
    before = server.cpu_times()
    for number in range(REQUESTS):
        call(number)
    after = server.cpu_times()
    return 1000 * (after.user + after.system - before.user - before.system) / REQUESTS
