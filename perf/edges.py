"""What comes at a service from outside and would take it down: one real `serve` process per case, one line each.

    slowloris     300 connections that send a byte of their headers now and then    file limit 300,
    idle          300 connections that send nothing                                 where it is made to hold
    wait          the model says 429 with `Retry-After: 3600`
    trickle       the model sends a byte of its answer now and then                 40 chats at the same time
    endless       the model's answer does not end
    disk          the disk of an SQLite file is full, and has room again
    stopped       PostgreSQL's processes are stopped, and go on

While a case lasts, `/health` and, but for the last two, a route that needs the store alone are asked again and again.

    health        longest time of /health
    store route   longest time of GET /v1/users, and how many were answered
    RSS           growth of the process's memory
    log           bytes of its log
    well after    seconds after the end of the case until /ready says so and a session can be added
    survived      every request above was answered in 5 s with 200; RSS < 200 MB; log < 1 MB; well within 20 s;
                  /ready said 503 in 3 s while the disk was full or the server stopped

The disk is a tmpfs of 2 MB; where mounting is not permitted, a limit of the size of files, which SQLite meets likewise.
The exit code is the number of cases that were not survived.

Usage:
    $ python perf/edges.py [CASE ...] [--seconds 15]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mempiler

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

FILES = 300
"""Open files that a process may have in the cases with many connections."""
TOKEN = "a-token-that-is-long-enough"
_HEADERS = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}


class Served:
    """One `serve` process.

    Args:
        folder: For program, store and log.
        options: Further options of the command.
        store: Its address; an SQLite file of the folder if None.
        files: Open files it may have.
        largest: Bytes of its largest file.
    """

    def __init__(
        self, folder: Path, options: list[str], store: str | None = None, files: int = 0, largest: int = 0
    ) -> None:
        mempiler.save(mempiler.build("turn-rag"), folder / "program")
        (folder / "tokens").write_text(f"acme {TOKEN}\n")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = folder / "log"
        command = [sys.executable, "-m", "mempiler", "serve", str(folder / "program"), "--port", str(self.port)]
        command += ["--store", store or str(folder / "memories.sqlite"), "--token-file", str(folder / "tokens")]

        def limits() -> None:
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
            if largest:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))

        # The log goes through a pipe, so that a limit of files is not its limit.
        writing = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=self.log.open("wb"))
        self.process = subprocess.Popen([*command, *options], stderr=writing.stdin, preexec_fn=limits)
        if self.well(60) is None:
            raise RuntimeError(self.log.read_text()[-2000:])
        self.memory = self.rss()

    def rss(self) -> float:
        """Resident memory in MB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

    def get(self, path: str, timeout: float = 30.0) -> tuple[int, float]:
        """Status (0 for none) and seconds of a request over a connection of its own."""
        begun = time.monotonic()
        return self._status("GET", path, None, timeout), time.monotonic() - begun

    def add(self, text: str = "I moved to Lisbon.") -> int:
        """Adds a session; returns the status."""
        return self._status("POST", "/v1/users/ada/sessions", {"messages": [{"role": "user", "content": text}]})

    def chat(self, user: str) -> None:
        """Chats, whatever comes of it."""
        body = {"user": user, "messages": [{"role": "user", "content": "Where do I live?"}]}
        self._status("POST", "/v1/chat/completions", body, 5)

    def _status(self, method: str, path: str, body: Any, timeout: float = 30.0) -> int:
        # Cheaper than httpx: what asks shares the machine with what is measured.
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, json.dumps(body) if body else None, _HEADERS)
            found = connection.getresponse()
            found.read()
            return found.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def well(self, most: float) -> float | None:
        """Seconds until it is ready and stores something; None if that takes longer than `most`."""
        begun = time.monotonic()
        while time.monotonic() - begun < most:
            if self.get("/ready", 2)[0] == 200 and self.add() == 201:
                return time.monotonic() - begun
            time.sleep(0.2)
        return None

    def end(self) -> None:
        """Ends it."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


@contextlib.contextmanager
def served(*given: Any, **named: Any) -> Iterator[Served]:
    """A process, and its end."""
    running = Served(*given, **named)
    try:
        yield running
    finally:
        running.end()


def measured(name: str, running: Served, seconds: float, routes: tuple[str, ...], unready: bool, heal: Any) -> bool:
    """Asks while a case lasts, ends it, prints its line, and returns whether it was survived."""
    longest, failed, asked = dict.fromkeys(routes, 0.0), 0, 0
    until, grown, told = time.monotonic() + seconds, 0.0, not unready
    while time.monotonic() < until:
        for route in routes:
            status, took = running.get(route)
            longest[route] = max(longest[route], took)
            asked, failed = asked + 1, failed + (status != 200 or took > 5)
        status, took = running.get("/ready")
        told = told or (status == 503 and took < 3)
        grown = max(grown, running.rss() - running.memory)
        time.sleep(0.2)
    heal()
    well = running.well(60)
    size = running.log.stat().st_size
    fine = not failed and told and grown < 200 and size < 1_000_000 and well is not None and well < 20
    times = "  ".join(f"{route} {took:5.2f} s" for route, took in longest.items())
    after = "never" if well is None else f"{well:.1f} s"
    verdict = "survived" if fine else "not"
    print(
        f"{name:10s} {verdict:9s} {times}  failed {failed}/{asked}  RSS +{grown:.0f} MB  log {size} B  "
        f"well after {after}" + ("" if told else "  /ready never said 503"),
        flush=True,
    )
    return fine


def many_connections(name: str, folder: Path, seconds: float) -> bool:
    """Idle sockets, or headers that come slowly."""
    options = _known(["--connections", "40", "--header-timeout", "3"])
    with served(folder, options, files=FILES) as running:
        going = threading.Event()

        def attack() -> None:
            sockets: list[socket.socket] = []
            while not going.wait(0.5):
                while len(sockets) < FILES:
                    try:
                        sockets.append(socket.create_connection(("127.0.0.1", running.port), timeout=1))
                    except OSError:
                        break
                sockets = [one for one in sockets if name == "idle" or _sent(one)]
            for one in sockets:
                one.close()

        thread = threading.Thread(target=attack)
        thread.start()

        def heal() -> None:
            going.set()
            thread.join()

        return measured(name, running, seconds, ("/health", "/v1/users"), False, heal)


def _sent(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"G")
    except OSError:
        connection.close()
        return False
    return True


def model(name: str, folder: Path, seconds: float) -> bool:
    """A model's endpoint that does not let go."""
    from stub_server import StubServer, every

    with StubServer(every(name)) as server:
        os.environ["OPENAI_API_KEY"] = "none"
        options = ["--lm", server.model, "--api-base", server.url, *_known(["--lm-deadline", "10"])]
        with served(folder, options) as running:
            going = threading.Event()

            def chats(number: int) -> None:
                while not going.is_set():
                    running.chat(f"user-{number}")
                    going.wait(0.2)

            threads = [threading.Thread(target=chats, args=(n,)) for n in range(40)]
            for thread in threads:
                thread.start()

            def heal() -> None:
                server.script = lambda n, text: None
                going.set()
                for thread in threads:
                    thread.join()

            return measured(name, running, seconds, ("/health", "/v1/users"), False, heal)


def disk(name: str, folder: Path, seconds: float) -> bool:
    """A full disk."""
    small = folder / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True, check=False
    )
    tmpfs = mounted.returncode == 0
    print(f"# disk: {'a tmpfs of 2 MB' if tmpfs else 'files of at most 2 MB (RLIMIT_FSIZE)'}")
    try:
        with served(folder, [], store=str(small / "memories.sqlite"), largest=0 if tmpfs else 2_000_000) as running:
            filler = small / "filler"
            if tmpfs:
                with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                    while True:
                        file.write(b"x" * 4096)
            while running.add("word " * 20_000) == 201:
                pass

            def heal() -> None:
                if tmpfs:
                    filler.unlink()
                else:
                    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, unlimited)

            fine = measured(name, running, seconds, ("/health",), True, heal)
            # What is said before the service begins is no JSON.
            lines = [json.loads(line) for line in running.log.read_text().splitlines() if line.startswith("{")]
            causes = sorted({line["cause"] for line in lines if "cause" in line})
            print(f"# disk: the log says {causes}")
            return fine and any("full" in cause or "disk" in cause for cause in causes)
    finally:
        if tmpfs:
            subprocess.run(["umount", "-l", str(small)], check=False)


def stopped(name: str, folder: Path, seconds: float) -> bool:
    """A database server that is stopped."""
    from postgres import Postgres

    server = Postgres()
    try:
        with served(folder, [], store=server.emptied()) as running:
            main = int((server._folder / "data" / "postmaster.pid").read_text().split()[0])
            children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
            processes = [main, *map(int, children)]
            for process in processes:
                os.kill(process, signal.SIGSTOP)

            def heal() -> None:
                threads = len(list(Path(f"/proc/{running.process.pid}/task").iterdir()))
                print(f"# stopped: {threads} threads of the service")
                for process in processes:
                    os.kill(process, signal.SIGCONT)

            return measured(name, running, seconds, ("/health",), True, heal)
    finally:
        server.stop()


CASES: dict[str, Callable[[str, Path, float], bool]] = {
    "slowloris": many_connections,
    "idle": many_connections,
    "wait": model,
    "trickle": model,
    "endless": model,
    "disk": disk,
    "stopped": stopped,
}


def _known(options: list[str]) -> list[str]:
    """The options, or none for a version of the command that does not know them."""
    known = subprocess.run([sys.executable, "-m", "mempiler", "serve", "--help"], capture_output=True, check=True)
    return options if options[0].encode() in known.stdout else []


def main() -> int:
    parser = argparse.ArgumentParser(description="What would take a service down.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} [default: all]")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each lasts")
    options = parser.parse_args()
    lost = 0
    for name in options.cases or CASES:
        with tempfile.TemporaryDirectory() as folder:
            lost += not CASES[name](name, Path(folder), options.seconds)
    return lost


if __name__ == "__main__":
    sys.exit(main())
