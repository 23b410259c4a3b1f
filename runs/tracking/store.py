"""The tracking store: where MLflow keeps runs and registered models, and a client of it.

The store is what `MLFLOW_TRACKING_URI` names, or else a SQLite file in the results folder.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import MempilerError, UserError
from ...text import one_line
from ..results_folder import create_folder, results_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "mempiler"
"""The experiment of all runs, unless `MLFLOW_EXPERIMENT_NAME` names another."""
EXPERIMENT_TAGS = {
    # MLflow's pages then show traces, datasets and prompts of the experiment.
    "mlflow.experimentKind": "genai_development",
}
CREATION_PATIENCE = 300.0
"""Seconds to wait for another process that creates the database."""
TEMPORARY_PREFIX = ".mlflow-"
"""Beginning of the names of the folders in which a database is created."""
DATABASE_SERVERS = {"postgresql", "mysql", "mssql"}
"""Schemes of addresses that name no folder for artifacts."""

_MLFLOW_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # With MLflow's default of 7 a user with a wrong address waits for minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""Environment variables of MLflow, set unless the user has set them."""
_environment_lock = threading.Lock()
"""Held while `MLFLOW_TRACKING_URI` is set for a block."""


def tracking_uri() -> str:
    """Return the address of the store."""
    default = f"sqlite:///{results_folder().absolute() / 'mlflow.db'}"
    return os.environ.get("MLFLOW_TRACKING_URI") or default


def client() -> MlflowClient:
    """Return a new MLflow client of the store; create the database of the store if there is none.

    The first call imports MLflow, which takes a second or two.

    Raises:
        UserError: The store cannot be reached or created.
    """
    # MLflow reads its settings when it is imported.
    for name, value in _MLFLOW_SETTINGS.items():
        os.environ.setdefault(name, value)
    if "MLFLOW_TRACKING_URI" not in os.environ:
        create_folder(results_folder())

    # While MLflow is imported and creates its tables, it warns of deprecations in its own
    # dependencies.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        for logger_name in ("alembic", "mlflow"):
            logging.getLogger(logger_name).setLevel(logging.WARNING)
        create_database(tracking_uri())
        with store_errors():
            return MlflowClient(tracking_uri=tracking_uri())


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn any error of MLflow in the block into a UserError that names the store.

    Errors of Mempiler pass as they are.

    Raises:
        UserError: MLflow raised an error.
    """
    try:
        yield
    except MempilerError:
        raise
    except Exception as error:  # MLflow lets errors of HTTP and database libraries through
        raise UserError(f"MLflow store {tracking_uri()}: {one_line(error, 300)}") from error


@contextmanager
def use_tracking_store() -> Iterator[None]:
    """Make the store the default of MLflow within the block.

    Some functions of MLflow take no address, such as those by which its entities save themselves.
    They use the store that `MLFLOW_TRACKING_URI` names. `mlflow.set_tracking_uri` would not do: it
    would end the traces that a program around Mempiler is logging.
    """
    with _environment_lock:
        # If the user has set the variable, this is the address of the store already.
        previous_value = os.environ.get("MLFLOW_TRACKING_URI")
        os.environ["MLFLOW_TRACKING_URI"] = tracking_uri()
        try:
            yield
        finally:
            if previous_value is None:
                del os.environ["MLFLOW_TRACKING_URI"]
            else:
                os.environ["MLFLOW_TRACKING_URI"] = previous_value


def create_database(uri: str) -> None:
    """Create the SQLite file of a store, if its address names one that is not there.

    MLflow creates the tables in some sixty steps. It can continue neither after a process that was
    killed in between, nor beside one that creates them too. So one process creates the file in a
    temporary folder, and moves it to its place when it is complete.

    Raises:
        UserError: The folder cannot be written, or another process takes too long.
    """
    path = database_file(uri)
    if path is None or path.exists():
        return

    # Imported here because most commands find the file.
    from filelock import FileLock, Timeout

    try:
        with FileLock(f"{path}.lock", timeout=CREATION_PATIENCE):
            if path.exists():
                return
            for abandoned in path.parent.glob(f"{TEMPORARY_PREFIX}*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=path.parent) as folder:
                new_path = Path(folder) / path.name
                create_tables(new_path)
                new_path.replace(path)
    except Timeout as error:
        reason = f"another process has been making it for {CREATION_PATIENCE:.0f} s; stop it"
        raise UserError(f"MLflow store {uri}: {reason}") from error
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"MLflow store {uri}: cannot be made: {reason}") from error


def database_file(uri: str) -> Path | None:
    """Return the SQLite file that an address names; None for any other store."""
    scheme, _, rest = uri.partition("://")
    names_file = len(rest) > 1 and "?" not in rest
    if scheme != "sqlite" or not names_file:
        return None
    return Path(rest.removeprefix("/"))


def experiment_id(mlflow_client: MlflowClient) -> str:
    """Return the id of the experiment of all runs, which is created if it is not there."""
    from mlflow.exceptions import MlflowException

    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    experiment = mlflow_client.get_experiment_by_name(name)
    if experiment is not None:
        return experiment.experiment_id

    location = artifact_location(tracking_uri())
    try:
        return mlflow_client.create_experiment(name, location, EXPERIMENT_TAGS)
    except MlflowException:
        # Another process may have created it in the meantime.
        experiment = mlflow_client.get_experiment_by_name(name)
        if experiment is None:
            raise
        return experiment.experiment_id


def artifact_location(uri: str) -> str | None:
    """Return where a new experiment stores its artifacts; None if the store decides it.

    Without a location, MLflow would store the artifacts of a database in `./mlruns` of the current
    folder. Here they go beside a SQLite file; those of a database server go into the results
    folder.
    """
    scheme, _, rest = uri.partition("://")
    database = scheme.split("+")[0]

    if database == "sqlite":
        file = Path(rest.partition("?")[0].removeprefix("/"))
        return (file.absolute().parent / "mlartifacts").as_uri()
    if database in DATABASE_SERVERS:
        return (results_folder().absolute() / "mlartifacts").as_uri()
    return None


def create_tables(path: Path) -> None:
    """Let MLflow create its tables in a new SQLite file."""
    from mlflow import MlflowClient

    MlflowClient(tracking_uri=f"sqlite:///{path}")
