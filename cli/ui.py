"""`mempiler ui`: the MLflow pages of all runs."""

from __future__ import annotations

import os
import subprocess
import sys

import click


@click.command("ui")
@click.option("--port", type=int, default=5000, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True)
def command(port: int, host: str) -> None:
    """Serve the MLflow pages over the tracking store until stopped."""
    from ..runs.tracking import client, tracking_uri

    client()  # makes the store, whole
    arguments = ["ui", "--backend-store-uri", tracking_uri(), "--host", host, "--port", str(port)]
    # Without these the server waits for the network: a price list of litellm, and a job runner nothing here uses.
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    environment = {**os.environ, **offline, "MLFLOW_DISABLE_TELEMETRY": "true"}
    sys.exit(subprocess.call([sys.executable, "-m", "mlflow", *arguments], env=environment))
