"""A PostgreSQL server of one's own, on a free port of this machine, in a folder that goes when it stops.

It refuses to run as root, so root starts it as the user `postgres` that Debian's package makes.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any


class Postgres:
    """A running server; a RuntimeError says why there is none on this machine, or why it does not start."""

    def __init__(self) -> None:
        found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), *filter(None, [shutil.which("initdb")])]
        if not found:
            raise RuntimeError("PostgreSQL is not installed; run: apt-get install postgresql")
        self._programs = Path(found[0]).parent
        self._folder = Path(tempfile.mkdtemp(prefix="mempiler-postgres-"))
        self._account: str | None = None
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")
            self._account = "postgres"
        try:
            self._make()
            self.start()
        except (RuntimeError, OSError, subprocess.SubprocessError):
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _make(self) -> None:
        self._data = str(self._folder / "data")
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-N", "--no-locale", "-E", "UTF8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Starts the server, also one that was shut down."""
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", self._data, "-w", "-t", "30", "-l", log, "-o", options, "start")

    def shut_down(self) -> None:
        """Stops the server and keeps what it holds."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def emptied(self) -> str:
        """Deletes all tables, and returns the address of the database."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return self.url

    def stop(self) -> None:
        """Stops the server and deletes its folder."""
        self.shut_down()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        # No pipe for its output: the server would hold it open.
        streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        done = subprocess.run(command, user=self._account, cwd=self._folder, text=True, timeout=60, **streams)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {' '.join(done.stderr.split())[:300]}")
