"""A PostgreSQL server for tests: on a free port of this machine, in a temporary folder.

The server refuses to run as root. If the tests run as root, it runs as the user `postgres`, which
Debian's package creates.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path


class Postgres:
    """A running server.

    Raises:
        RuntimeError: PostgreSQL is not installed, or does not start.
    """

    def __init__(self) -> None:
        self._programs = _folder_of_programs()
        self._folder = Path(tempfile.mkdtemp(prefix="mempiler-postgres-"))
        self._data = str(self._folder / "data")
        self._account: str | None = None
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")
            self._account = "postgres"

        try:
            self._create_cluster()
            self._port = _free_port()
            self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
            self.start()
        except (RuntimeError, OSError, subprocess.SubprocessError):
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _create_cluster(self) -> None:
        no_sync = "-N"
        self._run(
            "initdb",
            *("-D", self._data),
            *("-U", "postgres"),
            *("-A", "trust"),
            no_sync,
            "--no-locale",
            *("-E", "UTF8"),
        )

    def start(self) -> None:
        """Start the server; it may have been shut down before."""
        options = [
            f"-p {self._port}",
            "-c listen_addresses=127.0.0.1",
            "-c unix_socket_directories=",
            "-c fsync=off",
        ]
        self._run(
            "pg_ctl",
            *("-D", self._data),
            *("-w", "-t", "30"),
            *("-l", str(self._folder / "log")),
            *("-o", " ".join(options)),
            "start",
        )

    def shut_down(self) -> None:
        """Stop the server, and keep its data."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def emptied(self) -> str:
        """Delete all tables; return the address of the database."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return self.url

    def stop(self) -> None:
        """Stop the server, and delete its folder."""
        self.shut_down()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs; raise a RuntimeError if it fails."""
        result = subprocess.run(
            [str(self._programs / program), *arguments],
            user=self._account,
            cwd=self._folder,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            # Not a pipe: the server would hold it open.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if result.returncode != 0:
            message = " ".join(result.stderr.split())
            raise RuntimeError(f"{program} failed: {message[:300]}")


def _folder_of_programs() -> Path:
    """Return the folder of `initdb` and `pg_ctl`."""
    debian_programs = list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if debian_programs:
        return debian_programs[0].parent

    program_on_path = shutil.which("initdb")
    if program_on_path is None:
        raise RuntimeError("PostgreSQL is not installed; run: apt-get install postgresql")
    return Path(program_on_path).parent


def _free_port() -> int:
    with socket.socket() as free_socket:
        free_socket.bind(("127.0.0.1", 0))
        return free_socket.getsockname()[1]
