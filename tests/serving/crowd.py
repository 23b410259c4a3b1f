"""Many users at once on a service: each sends its next request as soon as it has the last answer.

Users have the same names under two tenants, and every session that is stored holds a marker of its own. Whatever comes
back is searched for markers, and one that another user stored is a leak.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import ssl
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import httpx

MARKER = re.compile(r"mk[0-9a-f]{12}")
TOPICS = ("garden", "bicycle", "piano", "harbour", "winter", "novel", "kitchen", "mountain")


class User:
    """One client: what it stored, and what it sees."""

    def __init__(self, number: int, client: httpx.AsyncClient, tokens: Mapping[str, str]) -> None:
        tenants = list(tokens)
        self._path = f"/v1/users/user-{number // len(tenants)}"
        self._client, self._name = client, self._path.rpartition("/")[2]
        self._headers = {"Authorization": f"Bearer {tokens[tenants[number % len(tenants)]]}"}
        self._markers: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.times: list[float] = []

    async def run(self, until: float) -> None:
        """Adds, chats, asks, searches, reads, rewords and deletes until the time is up."""
        await self.add()
        while time.monotonic() < until:
            for step in (self.chat, self.ask, self.search, self.chat, self.entries, self.add):
                if time.monotonic() < until:
                    await step()

    async def add(self) -> None:
        """Stores a session with a new marker."""
        number = len(self._markers)
        topic, marker = f"{TOPICS[number % len(TOPICS)]} {number}", f"mk{secrets.token_hex(6)}"
        self._markers[topic] = marker
        said = {"role": "user", "name": "Ada", "content": f"The secret word of the {topic} is {marker}."}
        body = {"messages": [said, {"role": "assistant", "content": "I see."}], "metadata": {"number": number}}
        await self._send("POST", f"{self._path}/sessions", body)

    async def chat(self) -> None:
        """Asks for a marker by the chat."""
        body = {"user": self._name, "messages": [{"role": "user", "content": self._question()}]}
        self._answered(await self._send("POST", "/v1/chat/completions", body))

    async def ask(self) -> None:
        """Asks for a marker."""
        self._answered(await self._send("POST", f"{self._path}/ask", {"question": self._question()}))

    async def search(self) -> None:
        """Searches all sessions, and some, and reads the memory."""
        for where in ({}, {"where": {"number": {"lte": len(self._markers) // 2}}}):
            await self._send("POST", f"{self._path}/search", {"query": "secret word", **where})
        await self._send("GET", f"{self._path}/memory")

    async def entries(self) -> None:
        """Lists entries, and rewords, deletes and restores one."""
        found = await self._send("GET", f"{self._path}/entries?limit=20")
        if found and found["entries"]:
            one = f"{self._path}/entries/{found['entries'][0]['id']}"
            await self._send("PATCH", one, {"text": f"It was {next(iter(self._markers.values()))}."})
            await self._send("DELETE", one)
            for _ in range(2):
                await self._send("POST", f"{one}/undo")
            await self._send("GET", f"{one}/history")

    def _question(self) -> str:
        return f"What is the secret word of the {secrets.choice(list(self._markers))}?"

    def _answered(self, found: Any) -> None:
        self.counts["questions"] += 1
        self.counts["recalled"] += bool(MARKER.search(str(found)))

    async def _send(self, method: str, path: str, body: Any = None) -> Any:
        begun = time.perf_counter()
        try:
            response = await self._client.request(method, path, json=body, headers=self._headers)
        except httpx.HTTPError as error:
            self.counts[f"error {type(error).__name__}"] += 1
            return None
        self.times.append(time.perf_counter() - begun)
        if response.status_code not in (200, 201):
            self.counts[f"error {response.status_code}"] += 1
            return None
        self.counts["leaks"] += bool(set(MARKER.findall(response.text)) - set(self._markers.values()))
        return response.json()


async def crowd(address: str, users: int, seconds: float, tokens: Mapping[str, str]) -> dict[str, float]:
    """What all users at the same time came to: counts, requests a second, and seconds of a request."""
    async with AsyncExitStack() as stack:
        # A client each: one that holds 200 connections looks through them with every request.
        known = ssl.create_default_context()
        clients = [httpx.AsyncClient(base_url=address, timeout=120, verify=known) for _ in range(users)]
        running = [User(n, await stack.enter_async_context(client), tokens) for n, client in enumerate(clients)]
        begun = time.monotonic()
        await asyncio.gather(*(user.run(begun + seconds) for user in running))
        took = time.monotonic() - begun
    times = [each for user in running for each in user.times]
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    counts = sum((user.counts for user in running), Counter[str]())
    return {"leaks": 0, **counts, "took": took, "per second": len(times) / took, "p50": cuts[49], "p99": cuts[98]}
