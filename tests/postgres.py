"""A PostgreSQL server of one's own, on a free port of this machine, in a folder that goes when it stops.

Debian's package keeps the programs below /usr/lib/postgresql. The server refuses to run as root, so root starts it as
the user `postgres` that the package makes.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path


class Postgres:
    """A running server.

    Raises:
        RuntimeError: There is none on this machine, or it does not start; the message says why.
    """

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
        on_path = shutil.which("initdb")
        if not found and not on_path:
            raise RuntimeError("PostgreSQL is not installed; run: apt-get install postgresql")
        self._programs = (found[-1] if found else Path(on_path or "")).parent
        self._folder = Path(tempfile.mkdtemp(prefix="mempiler-postgres-"))
        self._account: str | None = None
        if os.geteuid() == 0:
            try:
                account = pwd.getpwnam("postgres")
            except KeyError:
                raise RuntimeError("PostgreSQL does not run as root, and there is no user postgres") from None
            self._account = account.pw_name
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        try:
            self._start()
        except (RuntimeError, OSError, subprocess.SubprocessError):
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _start(self) -> None:
        data = str(self._folder / "data")
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--no-locale", "-E", "UTF8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        self._run("pg_ctl", "-D", data, "-w", "-t", "30", "-l", str(self._folder / "log"), "-o", options, "start")
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def emptied(self) -> str:
        """Deletes all tables, and returns the address of the database."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return self.url

    def stop(self) -> None:
        """Stops the server and deletes its folder."""
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "-w", "stop")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command,
            user=self._account,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {' '.join(done.stderr.split())[:300]}")
