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

_PATIENCE = 5.0
"""Seconds that the server and its processes have to end."""


@click.command("ui")
@click.option("--port", type=click.IntRange(1, 65535), default=5000)
@click.option("--host", default="127.0.0.1")
def command(port: int, host: str) -> None:
    """Serve the MLflow pages over the tracking store until stopped."""
    from ..runs.tracking.store import client, database_file, experiment_id, tracking_uri

    _refuse_taken_port(host, port)
    database = database_file(tracking_uri())
    if database is not None and not database.exists():
        client()  # makes it, whole
    # One worker: four, as it has them by itself, take four times as long until the first page.
    arguments = ["ui", "--backend-store-uri", tracking_uri(), "--host", host, "--port", str(port), "--workers", "1"]
    # Without these the server waits for the network: a price list of litellm, and a job runner nothing here uses.
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    environment = {**os.environ, **offline, "MLFLOW_DISABLE_TELEMETRY": "true"}
    # In a group of its own, so that its workers end with it, whoever is asked to end.
    command = [sys.executable, "-m", "mlflow", *arguments]
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        # MLflow takes seconds to be imported, there and here: at the same time.
        experiment = experiment_id(client())
        click.echo(f"runs: http://{host}:{port}/#/experiments/{experiment}/runs (Ctrl-C ends it)", err=True)
        code = server.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(server.pid, number)
                server.wait(_PATIENCE)
    sys.exit(code)


def _refuse_taken_port(host: str, port: int) -> None:
    """Refuse an address at which MLflow could not listen, before it takes seconds to start.

    Raises:
        MempilerError: Something else listens there, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections of a server that has just ended do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = error.strerror or error
            raise MempilerError(f"cannot listen at {host}, port {port}: {reason}; give another --port") from error
