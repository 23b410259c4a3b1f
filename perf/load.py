"""Many users at once on the service: errors, answers that hold another user's words, latencies, and its overhead.

A service of its own (`mempiler serve`, offline engine, turn RAG) is asked by `--users` clients over HTTP, each of
which sends its next request as soon as it has the last answer. Users have the same names under two tenants, and every
session that is stored holds a marker of its own. In turn a user chats, asks, adds a session and reads the memory;
searches it, by metadata and as it was; lists and reads its entries, rewords, deletes and restores one. Whatever comes
back is searched for markers, and one that another user stored is a leak.

    errors      responses of another status than 200 or 201, and connections that failed
    leaks       responses with a marker that their user did not store
    recalled    chats and questions about the marker that were answered with one of the user's own
    overhead    after the load, when nothing is queued any more: the time of one question at a time over HTTP, by that
                of the same question in process, to the same store. A request waits for four threads to be woken; where
                other programs keep the cores busy, the medians tell of that, and the minima of the service.

Clients, service and store share the cores of the machine. The exit code is 1 if there are errors or leaks.

Usage:
    $ python perf/load.py --users 200 --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import secrets
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import mempiler
from mempiler.engines.models import language_model

TENANTS = ("acme", "globex")
MARKER = re.compile(r"mk[0-9a-f]{12}")
TOPICS = ("garden", "bicycle", "piano", "harbour", "winter", "novel", "kitchen", "mountain")
QUESTION = "What is the secret word of the {topic}?"


class User:
    """One client: what it stored, and what it sees."""

    def __init__(self, number: int, client: httpx.AsyncClient, tokens: dict[str, str]) -> None:
        self.tenant, self.name = TENANTS[number % len(TENANTS)], f"user-{number // len(TENANTS)}"
        self._client, self._headers = client, {"Authorization": f"Bearer {tokens[self.tenant]}"}
        self._topics: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.times: dict[str, list[float]] = defaultdict(list)

    async def run(self, until: float) -> None:
        """Sends one request after the other."""
        await self.add()
        while time.monotonic() < until:
            for step in (self.chat, self.ask, self.search, self.read, self.chat, self.entries, self.past, self.add):
                if time.monotonic() < until:
                    await step()

    async def add(self) -> None:
        """Stores a session with a new marker."""
        topic = TOPICS[len(self._topics) % len(TOPICS)]
        marker = f"mk{secrets.token_hex(6)}"
        self._topics[topic + f" {len(self._topics)}"] = marker
        said = f"The secret word of the {list(self._topics)[-1]} is {marker}."
        messages = [{"role": "user", "name": "Ada", "content": said}, {"role": "assistant", "content": "I see."}]
        body = {"messages": messages, "metadata": {"topic": topic, "number": len(self._topics)}}
        await self._send("add", "POST", f"/v1/users/{self.name}/sessions", body)

    async def chat(self) -> None:
        """Asks for a marker by the chat."""
        question = QUESTION.format(topic=secrets.choice(list(self._topics)))
        body = {"user": self.name, "messages": [{"role": "user", "content": question}]}
        found = await self._send("chat", "POST", "/v1/chat/completions", body)
        self._answered(found["choices"][0]["message"]["content"] if found else "")

    async def ask(self) -> None:
        """Asks for a marker."""
        question = QUESTION.format(topic=secrets.choice(list(self._topics)))
        found = await self._send("ask", "POST", f"/v1/users/{self.name}/ask", {"question": question})
        self._answered(found["answer"] if found else "")

    async def search(self) -> None:
        """Searches all sessions, and some."""
        path, where = f"/v1/users/{self.name}/search", {"number": {"lte": len(self._topics) // 2 + 1}}
        await self._send("search", "POST", path, {"query": "secret word"})
        await self._send("search where", "POST", path, {"query": "secret word", "where": where})
        question = {"question": QUESTION.format(topic=TOPICS[0]), "where": {"topic": TOPICS[0]}}
        await self._send("ask where", "POST", f"/v1/users/{self.name}/ask", question)

    async def entries(self) -> None:
        """Lists entries, and rewords, deletes and restores one."""
        path = f"/v1/users/{self.name}/entries"
        found = await self._send("list", "GET", f"{path}?limit=20")
        await self._send("list where", "GET", f"{path}?limit=20&where=%7B%22number%22%3A%7B%22lte%22%3A2%7D%7D")
        if not found or not found["entries"]:
            return
        one = f"{path}/{found['entries'][0]['id']}"
        await self._send("get", "GET", one)
        await self._send("update", "PATCH", one, {"text": f"It was {next(iter(self._topics.values()))}."})
        await self._send("delete", "DELETE", one)
        for _ in range(2):
            await self._send("undo", "POST", f"{one}/undo")
        await self._send("history", "GET", f"{one}/history")

    async def past(self) -> None:
        """Searches the memory as it was."""
        body = {"query": "secret word", "as_of": datetime.now(UTC).isoformat()}
        await self._send("search as of", "POST", f"/v1/users/{self.name}/search", body)

    async def read(self) -> None:
        """Reads the memory."""
        await self._send("read", "GET", f"/v1/users/{self.name}/memory")

    def _answered(self, answer: str) -> None:
        self.counts["questions"] += 1
        self.counts["recalled"] += bool(MARKER.search(answer))

    async def _send(self, kind: str, method: str, path: str, body: Any = None) -> Any:
        begun = time.perf_counter()
        try:
            response = await self._client.request(method, path, json=body, headers=self._headers)
        except httpx.HTTPError as error:
            self.counts["errors"] += 1
            self.counts[f"error {type(error).__name__}"] += 1
            return None
        self.times[kind].append(time.perf_counter() - begun)
        self.counts["requests"] += 1
        if response.status_code not in (200, 201):
            self.counts["errors"] += 1
            self.counts[f"error {response.status_code}"] += 1
            return None
        self.counts["leaks"] += bool(set(MARKER.findall(response.text)) - set(self._topics.values()))
        return response.json()


@contextmanager
def service(folder: Path, tokens: dict[str, str], store: str, options: list[str]) -> Iterator[tuple[str, int]]:
    """A service of its own in a process of its own; yields its address and its process."""
    workers = int(options[options.index("--workers") + 1]) if "--workers" in options else 1
    mempiler.save(mempiler.build("turn-rag"), folder / "program")
    (folder / "tokens").write_text("".join(f"{tenant} {token}\n" for tenant, token in tokens.items()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "mempiler", "serve", str(folder / "program"), "--port", port]
    command += ["--store", store, "--token-file", str(folder / "tokens"), "--log-level", "warning", *options]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        for _ in range(300):
            try:
                ready = httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
                # A client stays with the process that took its connection, so all of them have to be there first.
                if ready and listening(int(port)) >= workers:
                    break
            except httpx.HTTPError:
                pass
            time.sleep(0.2)
        else:
            raise RuntimeError((folder / "log").read_text())
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(60)
        print((folder / "log").read_text()[-2000:], end="", file=sys.stderr)


def listening(port: int) -> int:
    """How many sockets of this machine take connections at a port; Linux tells."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


async def load(address: str, users: int, seconds: float, tokens: dict[str, str]) -> tuple[dict[str, Any], list[User]]:
    """Runs all users at the same time."""
    async with AsyncExitStack() as stack:
        # A client each: one that holds 200 connections looks through them with every request.
        known = ssl.create_default_context()
        clients = [httpx.AsyncClient(base_url=address, timeout=120, verify=known) for _ in range(users)]
        running = [
            User(number, await stack.enter_async_context(client), tokens) for number, client in enumerate(clients)
        ]
        begun = time.monotonic()
        await asyncio.gather(*(user.run(begun + seconds) for user in running))
        took = time.monotonic() - begun
    counts = sum((user.counts for user in running), Counter())
    found: dict[str, Any] = {"users": users, "seconds": round(took, 1), "errors": 0, "leaks": 0, **counts}
    found["per second"] = round(counts["requests"] / took, 1)
    kinds = sorted({kind for user in running for kind in user.times})
    for kind in [*kinds, "all"]:
        times = [t for user in running for k, values in user.times.items() if kind in (k, "all") for t in values]
        cuts = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
        found[f"{kind} ms"] = {"n": len(times), "p50": round(cuts[49] * 1000), "p99": round(cuts[98] * 1000)}
    return found, running


def overhead(address: str, folder: Path, store: str, tokens: dict[str, str], count: int = 200) -> dict[str, float]:
    """Milliseconds of a question over HTTP and in process, one at a time, and their ratios."""
    question = QUESTION.format(topic="garden 0")
    program, lm, times = mempiler.load(folder), language_model("offline"), ([], [])
    headers = {"Authorization": f"Bearer {tokens[TENANTS[0]]}"}
    with mempiler.Store(store) as opened, httpx.Client(base_url=address, headers=headers) as client:
        while any(user.queued for user in opened.users()):
            time.sleep(0.5)

        def ask_over_http() -> None:
            client.post("/v1/users/user-0/ask", json={"question": question}).raise_for_status()

        def ask_in_process() -> None:
            memory = program.memory(opened, "user-0", TENANTS[0], lm)
            opened.turns(memory.owner, memory.ask(question, date="now").context.sources)

        for _ in range(count):
            for call, taken in zip((ask_over_http, ask_in_process), times, strict=True):
                begun = time.perf_counter()
                call()
                taken.append(time.perf_counter() - begun)
    found: dict[str, float] = {}
    for name, taken in zip(("http", "in process"), times, strict=True):
        found |= {f"{name} min ms": round(min(taken) * 1000, 2), f"{name} p50 ms": round(_median(taken) * 1000, 2)}
    found["ratio of minima"] = round(min(times[0]) / min(times[1]), 2)
    return {**found, "ratio of medians": round(_median(times[0]) / _median(times[1]), 2)}


def _median(taken: list[float]) -> float:
    return statistics.median(taken[10:])


def main() -> int:
    parser = argparse.ArgumentParser(description="Many users at once on the service.")
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--store", help="an address [default: an SQLite file that is deleted afterwards]")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("options", nargs="*", help="further options of mempiler serve, after --")
    options = parser.parse_args()
    tokens = {tenant: secrets.token_urlsafe(24) for tenant in TENANTS}
    with tempfile.TemporaryDirectory() as name:
        store = options.store or str(Path(name) / "memories.sqlite")
        with service(Path(name), tokens, store, options.options) as (address, _):
            found, _ = asyncio.run(load(address, options.users, options.seconds, tokens))
            found["overhead"] = overhead(address, Path(name) / "program", store, tokens)
    print(json.dumps(found, indent=1))
    return 1 if found["errors"] or found["leaks"] else 0


if __name__ == "__main__":
    sys.exit(main())
