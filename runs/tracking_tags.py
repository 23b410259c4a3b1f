"""Who ran what from which code: the tags that MLflow's own calls set and its pages show, which a client leaves out."""

from __future__ import annotations

import getpass
import os
import subprocess
from contextlib import suppress

EXPERIMENT = "mempiler"
"""The experiment of all runs, where `MLFLOW_EXPERIMENT_NAME` names no other."""
_PATIENCE = 5.0
"""Seconds for git to answer."""


def experiment_name() -> str:
    """The experiment that runs go into."""
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT


def origin() -> dict[str, str]:
    """User, source, and the commit of the folder that a command is called in, as far as they are known."""
    found = {"mlflow.source.name": "mempiler", "mlflow.source.type": "LOCAL"}
    with suppress(OSError, KeyError, ImportError):
        found["mlflow.user"] = getpass.getuser()
    with suppress(OSError, subprocess.SubprocessError):
        command = ["git", "rev-parse", "--verify", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
        found["mlflow.source.git.commit"] = done.stdout.strip()
    return found
