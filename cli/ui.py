"""`mempiler ui`: the MLflow pages of all runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import click

from ..errors import MempilerError

_SECONDS_TO_END = 5.0
"""Seconds that the server and its processes have to end after each signal."""


@click.command("ui")
@click.option("--port", type=click.IntRange(1, 65535), default=5000)
@click.option("--host", default="127.0.0.1")
def command(port: int, host: str) -> None:
    """Serve the MLflow pages over the tracking store until stopped."""
    from ..runs.tracking.store import client, database_file, experiment_id, tracking_uri

    _refuse_taken_port(host, port)

    # A new database must be complete before the server opens it, and making a client creates it.
    database = database_file(tracking_uri())
    if database is not None and not database.exists():
        client()

    server = _start_server(host, port, tracking_uri())
    try:
        # This imports MLflow, which takes seconds. It comes after the start of the server, so that
        # the server imports it at the same time and not later.
        experiment = experiment_id(client())
        address = f"http://{host}:{port}/#/experiments/{experiment}/runs"
        click.echo(f"runs: {address} (Ctrl-C ends it)", err=True)
        exit_code = server.wait()
    finally:
        _end_server(server)
    sys.exit(exit_code)


def _start_server(host: str, port: int, tracking_uri: str) -> subprocess.Popen[bytes]:
    """Start MLflow's server in a process group of its own."""
    # With MLflow's default of four workers the first page takes four times as long.
    options = {
        "--backend-store-uri": tracking_uri,
        "--host": host,
        "--port": str(port),
        "--workers": "1",
    }
    server_command = [sys.executable, "-m", "mlflow", "ui"]
    for name, value in options.items():
        server_command.extend([name, value])

    environment = {
        **os.environ,
        # Without these two the server waits for the network: for a price list of litellm, and for
        # a job runner that nothing here uses.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    # A signal to the group ends the workers of the server, too.
    return subprocess.Popen(server_command, env=environment, start_new_session=True)


def _end_server(server: subprocess.Popen[bytes]) -> None:
    """End the server and its workers; kill those that do not end in time."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(server.pid, signal_number)
            server.wait(_SECONDS_TO_END)


def _refuse_taken_port(host: str, port: int) -> None:
    """Refuse an address at which MLflow could not listen, before it takes seconds to start.

    Raises:
        MempilerError: Something else listens there, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Servers set this option too: connections of a server that has just ended do not block the
        # port then.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = error.strerror or error
            problem = f"cannot listen at {host}, port {port}: {reason}"
            raise MempilerError(f"{problem}; give another --port") from error
