"""Two tenants of one service, one hostile: how long the other waits, and whether all it said is there, once, and alone.

The model is a stub: it writes a summary of all words `mk...` that it is shown, fails where it reads FAIL, and says
nothing where it reads STALL. The hostile tenant attacks in a process of its own, one attack after the other; in between
the service is killed with SIGKILL, and started again over the same store.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import secrets
import socket
import sqlite3
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from mempiler import Store, build
from mempiler.memory.store.owner import Owner

from ..stub_server import StubServer
from .served import MARKER, Served

HOSTILE = "HOSTILE"
"""Stands in all that the hostile tenant says."""


class Hostile:
    """What the hostile tenant does, one request at a time; it takes no notice of answers."""

    def __init__(self, address: str, token: str, store: str, until: float) -> None:
        self._headers = {"Authorization": f"Bearer {token}", "Mempiler-User": "ada"}
        self._client = httpx.Client(base_url=address, headers=self._headers, timeout=3)
        self._store, self.until = store, until
        self.told = False
        """Whether anything of the other tenant came back."""

    def send(self, method: str, path: str, **given: Any) -> None:
        with contextlib.suppress(httpx.HTTPError):
            self.told |= bool(MARKER.search(self._client.request(method, path, **given).text))

    def say(self, text: str, user: str) -> None:
        body = {"messages": [{"role": "user", "content": f"{HOSTILE} {text}"}]}
        self.send("POST", f"/v1/users/{user}/sessions", json=body)

    def chat(self, text: str, user: str = "ada", **more: Any) -> None:
        body = {
            "user": user,
            "messages": [{"role": "user", "content": f"{HOSTILE} {text}"}],
            **more,
        }
        self.send("POST", "/v1/chat/completions", json=body)

    def failing(self, n: int) -> None:
        self.say("FAIL", f"failing-{n % 12}")
        self.chat("FAIL")

    def stalling(self, n: int) -> None:
        self.chat("STALL", f"stalling-{n % 50}", stream=bool(n % 2))

    def importing(self, n: int) -> None:
        self.say(f"import {n}", f"imported-{secrets.token_hex(4)}")

    def greedy(self, n: int) -> None:
        self.send("POST", f"/v1/users/imported-{n}/search", json={"query": HOSTILE, "k": 1000})
        self.send("GET", "/v1/users")

    def idling(self, n: int) -> None:
        """A body that does not come, and a stream that nobody reads."""
        host = self._client.base_url.host, self._client.base_url.port
        head = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        with contextlib.suppress(OSError), socket.create_connection(host, timeout=3) as connection:
            head = (
                f"POST /v1/users/a/ask HTTP/1.1\r\nHost: x\r\n{head}Content-Length: 900\r\n\r\n{{"
            )
            connection.sendall(head.encode())
            time.sleep(1)

    def garbage(self, n: int) -> None:
        bodies = (
            "[" * 100_000,
            '{"a":' * 50_000,
            "\ud800",
            "{}",
            "\0",
            '{"messages": [{"role": 1e999}]}',
            "x" * 999_000,
        )
        paths = (
            "/v1/users/ada/sessions",
            "/v1/chat/completions",
            "/v1/mcp",
            "/v1/users/%00/ask",
            "/v1/users/a/b/c",
        )
        content, kind = (
            bodies[n % 7].encode("utf-8", "surrogatepass"),
            {"Content-Type": "application/json"},
        )
        self.send("POST", paths[n % 5], content=content, headers={**kind, "Accept": "*/*"})

    def crossing(self, n: int) -> None:
        """Asks for users and sessions of the other tenant's names."""
        for path in ("", "/sessions", "/memory", "/entries"):
            self.send("GET", f"/v1/users/victim{path}")
        self.send("POST", "/v1/users/victim/ask", json={"question": "mk"})
        self.send("DELETE", f"/v1/users/victim/sessions/s{n}")
        self.send("DELETE", "/v1/users/victim")

    def damaging(self, n: int) -> None:
        """Spoils rows of its own users, as a disk might."""
        self.say(f"damaged {n}", "damaged")
        if "://" not in self._store:
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(self._store, timeout=1)) as db,
            ):
                db.execute(
                    "UPDATE mempiler_items SET json = '{' WHERE tenant = 'acme' AND \"user\" = 'damaged'"
                )
                db.commit()


ATTACKS = (
    "failing",
    "stalling",
    "importing",
    "greedy",
    "idling",
    "garbage",
    "crossing",
    "damaging",
)


def attack(address: str, token: str, store: str, seconds: float, told: Any) -> None:
    """All attacks, each for so many seconds; whether anything came back that is the other's."""
    for name in ATTACKS:
        hostile = Hostile(address, token, store, time.monotonic() + seconds)

        def work(first: int, name: str = name, hostile: Hostile = hostile) -> None:
            n = first
            while time.monotonic() < hostile.until:
                getattr(hostile, name)(n)
                n += 8

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        told.value |= hostile.told


class Victim:
    """The other tenant: its requests, what was acknowledged of them, and how long they took."""

    def __init__(self, served: Served) -> None:
        self.client = httpx.Client(base_url=served.address, timeout=60)
        self.client.headers["Authorization"] = f"Bearer {served.tokens['globex']}"
        self.times: dict[str, list[float]] = {"chat": [], "search": [], "remembered": []}
        self.sessions, self.chats = list[str](), list[str]()
        """Markers of what was acknowledged."""
        self.told, self.refused = False, list[int]()
        self.stop, self.away = threading.Event(), threading.Event()

    def send(self, method: str, path: str, what: str = "", **given: Any) -> httpx.Response | None:
        begun, away = time.monotonic(), self.away.is_set()
        try:
            found = self.client.request(method, path, **given)
        except httpx.HTTPError:
            return None
        self.told |= HOSTILE in found.text
        if what and not (away or self.away.is_set()):
            self.times[what].append(time.monotonic() - begun)
            self.refused += [] if found.is_success else [found.status_code]
        return found if found.is_success else None

    def ask(self) -> None:
        while not self.stop.wait(0.1):
            marker = f"mk{secrets.token_hex(6)}"
            body = {"user": "talker", "messages": [{"role": "user", "content": f"Well, {marker}?"}]}
            if self.send("POST", "/v1/chat/completions", "chat", json=body):
                self.chats.append(marker)
            if self.sessions:
                self.send(
                    "POST", "/v1/users/victim/search", "search", json={"query": "secret word"}
                )

    def tell(self) -> None:
        while not self.stop.wait(0.5):
            marker, begun = f"mk{secrets.token_hex(6)}", time.monotonic()
            messages = [{"role": "user", "content": f"The secret word is {marker}."}]
            said = {"id": f"s{len(self.sessions)}", "messages": messages}
            killed = self.away.is_set()
            while not self.send("POST", "/v1/users/victim/sessions", json=said):
                time.sleep(0.2)
            self.sessions.append(marker)
            while (found := self.send("GET", "/v1/users/victim")) is None or found.json()["queued"]:
                time.sleep(0.1)
                killed |= self.away.is_set()
            if not killed:
                self.times["remembered"].append(time.monotonic() - begun)


def answer(body: dict[str, Any]) -> str:
    """Every word `mk...` of the last message, in each field that is asked for."""
    text = str(body["messages"][-1]["content"])
    shown = " ".join(MARKER.findall(text.partition("Respond with")[0])) or "nothing"
    return "".join(
        f"[[ ## {name} ## ]]\n{shown}\n\n" for name in ("summary", "answer", "completed")
    )


def fault(n: int, text: str) -> str | None:
    last = text.rpartition("[[ ## ")[0]
    return "500" if "FAIL" in last else "stall" if "STALL" in last else None


def soak(folder: Path, seconds: float, store: str | None = None, seed: int = 0) -> dict[str, Any]:
    """Each attack for so many seconds, and a kill now and then; what it came to."""
    generator, told = random.Random(seed), multiprocessing.get_context("spawn").Value("b", False)
    with StubServer(fault, answer=answer) as model:
        options = [
            "--lm",
            model.model,
            "--api-base",
            model.url,
            "--lm-deadline",
            "20",
            "--timeout",
            "30",
        ]
        options += ["--lm-retries", "0", "--mcp"]
        with Served(folder, options, store, method="recursive-summary") as served:
            victim = Victim(served)
            threads = [threading.Thread(target=work) for work in (victim.ask, victim.tell)]
            given = (served.address, served.tokens["acme"], served.store, seconds, told)
            hostile = multiprocessing.get_context("spawn").Process(target=attack, args=given)
            for one in (*threads, hostile):
                one.start()
            kills = 0
            while hostile.is_alive():
                hostile.join(generator.uniform(0.5, 1.5) * seconds * len(ATTACKS) / 3)
                if hostile.is_alive():
                    victim.away.set()
                    served.restart()
                    victim.away.clear()
                    kills += 1
            victim.stop.set()
            for one in threads:
                one.join(120)
            victim.client.close()
    return {"kills": kills, **verified(served.store, victim, bool(told.value))}


def good(
    found: dict[str, Any], chat: float = 1.0, search: float = 1.0, remembered: float = 10.0
) -> bool:
    """Whether nothing is lost, doubled, refused or told to another, and nothing takes longer than these seconds."""
    whole = not (found["lost"] or found["doubled"] or found["crossed"] or found["refused"])
    return (
        whole
        and found["chat"] < chat
        and found["search"] < search
        and found["remembered"] < remembered
    )


def verified(store: str, victim: Victim, crossed: bool) -> dict[str, Any]:
    """The seconds that 95 of 100 requests took at most, and counts of what is lost, doubled or not its own."""
    with Store(store) as opened:
        summary = (
            build("recursive-summary").memory(opened, "victim", "globex").read().summary.split()
        )  # pyright: ignore
        of = Owner("talker", "globex")
        talked = [*(one.item for one in opened.items.list_all(of)), *opened.read(of).open_sessions]
    turns = (turn for one in talked for turn in one.turns if turn.speaker == "user")
    said = [word for turn in turns for word in MARKER.findall(turn.text)]
    lost = (set(victim.sessions) - set(summary)) | (set(victim.chats) - set(said))
    doubled = [len(found) - len(set(found)) for found in (summary, said)]
    cuts = {
        what: statistics.quantiles(took, n=20, method="inclusive")[-1]
        for what, took in victim.times.items()
    }
    about = {
        "sessions": len(victim.sessions),
        "chats": len(victim.chats),
        "refused": victim.refused,
    }
    return {
        **about,
        **cuts,
        "lost": len(lost),
        "doubled": sum(doubled),
        "crossed": victim.told or crossed,
    }
