"""Logs one MLflow run per command, from the thread that owns it.

Everything is logged by run id through a client: MLflow's fluent calls would start orphan runs in worker threads. A
store that cannot be reached at the start is an error, before any paid call. One that fails later is one line in the log
`mempiler`, and the results stand in the run's own folder.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import UserError
from ..text import one_line
from .results_folder import create_folder, results_folder
from .results import Evaluation, totals
from .statistics import Difference

EXPERIMENT = "mempiler"
"""The experiment of all runs, where `MLFLOW_EXPERIMENT_NAME` names no other."""
PARAM_LIMIT = 6000
"""Longest parameter value MLflow takes."""
PATIENCE = 300.0
"""Seconds to wait for another process that makes the database."""
BUILDING = ".mlflow-"
"""What the folders begin with in which a database is made."""
DATABASES = {"postgresql", "mysql", "mssql"}
"""Servers whose addresses are no artifact locations."""
UI = "http://127.0.0.1:5000"
"""Where `mempiler ui` serves MLflow's pages, unless it is told otherwise."""
KIND = {"mlflow.experimentKind": "genai_development"}
"""The tag by which MLflow's pages show traces, datasets and prompts of an experiment."""
_QUIET = {
    "DISABLE_TELEMETRY": "true",
    "HTTP_REQUEST_MAX_RETRIES": "2",  # its own seven keep a user with a wrong address waiting for minutes
    "SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
_AT_STORE = threading.Lock()
LOG = "mempiler"
"""The log for a store that failed during the run."""


@dataclass(eq=False)
class Tracker:
    """An MLflow run, named and labelled, that is open between `__enter__` and `__exit__`.

    Raises:
        UserError: The tracking store cannot be reached or written.
    """

    name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    run_id: str = field(default="", init=False)
    failed: str | None = field(default=None, init=False)
    """The store's failure; no calls follow it."""
    parameters: Mapping[str, Any] = field(default_factory=dict, init=False)
    """What was logged of the run's settings."""

    def __enter__(self) -> Tracker:
        self.client = client()
        from mlflow.tracking.context.registry import resolve_tags

        try:
            self.experiment = experiment_id(self.client)
            # User, source and commit, which MLflow's own calls set and a client leaves out.
            tags = {**resolve_tags(), "mlflow.source.name": "mempiler", **self.tags}
            run = self.client.create_run(self.experiment, run_name=self.name, tags=tags)
        except Exception as error:
            raise UserError(f"MLflow store {tracking_uri()}: {one_line(error, 300)}") from error
        self.run_id = run.info.run_id
        return self

    @property
    def address(self) -> str:
        """Where the run can be looked at: on its server, or where `mempiler ui` shows it."""
        uri = tracking_uri()
        server = re.sub("//[^/@]*@", "//", uri).rstrip("/") if uri.startswith("http") else UI
        return f"{server}/#/experiments/{self.experiment}/runs/{self.run_id}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = "FINISHED" if error is None else "KILLED" if kind is KeyboardInterrupt else "FAILED"
        if error is not None:
            self._send("set_tag", "error", one_line(error, 300))
        self._send("set_terminated", status)

    def _send(self, call: str, *values: Any, **named: Any) -> None:
        """Calls the client for this run; a store that fails during the run loses no results."""
        if self.failed is not None:
            return  # Every further call would wait out its own retries.
        try:
            getattr(self.client, call)(self.run_id, *values, **named)
        except Exception as error:
            self.failed = _warned(error, "the results are in the run's folder, the MLflow run is not complete")

    @contextmanager
    def optional(self) -> Iterator[None]:
        """Logs what the run's own record does not need; what a store cannot take of it is left out with all the rest.

        Only for a run whose store has not `failed`.
        """
        try:
            yield
        except Exception as error:  # whatever the store, or MLflow on the way to it, does not take
            _warned(error, "the MLflow run has its scores, but not all of its traces, prompts and questions")

    def params(self, values: Mapping[str, Any]) -> None:
        """Logs parameters; long values are cut."""
        from mlflow.entities import Param

        self.parameters = values
        params = [Param(name, str(value)[:PARAM_LIMIT]) for name, value in values.items()]
        for n in range(0, len(params), 100):
            self._send("log_batch", params=params[n : n + 100])

    def metrics(self, values: Mapping[str, float | None]) -> None:
        """Logs numbers; None and nan are left out."""
        self._series((name, value, 0) for name, value in values.items())

    def _series(self, points: Iterable[tuple[str, float | None, int]]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        known = [(name, float(value), step) for name, value, step in points if value is not None and value == value]
        metrics = [Metric(_metric_name(name), value, now, step) for name, value, step in known]
        for n in range(0, len(metrics), 1000):
            self._send("log_batch", metrics=metrics[n : n + 1000])

    def evaluation(self, prefix: str, evaluation: Evaluation) -> None:
        """Logs scores per category, retrieval, calls and cost as metrics, and every question's row as a table."""
        summary = evaluation.to_dict()
        values: dict[str, float | None] = {"score": summary["score"], "n": float(evaluation.n)}
        values |= dict(zip(("score_low", "score_high"), summary["interval"] or (), strict=False))
        values |= summary["metrics"] | summary["aggregate"]
        values |= {name.replace("@", "_at_"): value for name, value in summary["retrieval"].items()}
        values |= {f"calls_{role}": float(count) for role, count in summary["calls"].items()}
        values |= {f"context_{name}": size for name, size in summary["context"].items()}
        values |= {f"search_ms_{name}": value for name, value in summary["search_ms"].items()}
        values |= {name: summary[name] for name in ("prompt_tokens", "cached_share")}
        values |= totals(evaluation.metered_usage) | {
            "failures": float(evaluation.failures),
            "seconds": evaluation.seconds,
        }
        values |= {f"answers_{name}": float(count) for name, count in evaluation.outcomes.items()}
        for found in summary["by"].values():
            values[f"score_{found['name'].replace(' ', '_')}"] = found["score"]
        self.metrics({f"{prefix}.{name}": value for name, value in values.items()})
        self.data(f"{prefix}.json", summary)
        self.data(f"{prefix}_rows.jsonl", [row.model_dump(mode="json", exclude={"trace"}) for row in evaluation.rows])

    def difference(self, difference: Difference) -> None:
        """Log the difference of two evaluations, after minus before, with its interval, verdict and scope."""
        metrics: dict[str, float | None] = {
            "difference": difference.mean,
            "difference_design_effect": difference.design_effect,
        }
        if difference.interval is not None:
            metrics["difference_low"] = difference.interval.low
            metrics["difference_high"] = difference.interval.high
        self.metrics(metrics)
        self.tag("mempiler.verdict", difference.verdict)
        self.tag("mempiler.scope", difference.scope)

    def tag(self, name: str, value: str) -> None:
        """Set a tag of the run."""
        self._send("set_tag", name, value)

    def steps(self, prefix: str, rows: Sequence[Mapping[str, Any]], step: str = "step") -> None:
        """Logs rows as series: every number of a row, at that which `step` names."""
        self._series(
            (f"{prefix}.{name}", value, int(row[step]))
            for row in rows
            for name, value in row.items()
            if name != step and isinstance(value, int | float)
        )

    def data(self, name: str, value: Any) -> None:
        """Logs JSON as an artifact, or where its name ends with `.jsonl`, a line for each of the values."""
        indent, parts = (None, value) if name.endswith(".jsonl") else (1, [value])
        text = "\n".join(json.dumps(each, indent=indent, ensure_ascii=False) for each in parts)
        self._send("log_text", text, name)

    def files(self, path: Path | None, name: str | None = None) -> None:
        """Logs a file, or a folder under a name, as an artifact; nothing for None, e.g. a page that was not made."""
        if path is not None:
            self._send("log_artifacts" if path.is_dir() else "log_artifact", str(path), name)


def _warned(error: Exception, told: str) -> str:
    """Says in the log what the store did not take; returns the error on one line."""
    line = one_line(error, 300)
    logging.getLogger(LOG).warning("mempiler: MLflow store %s: %s; %s", tracking_uri(), line, told)
    return line


def tracking_uri() -> str:
    """The store's address."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{results_folder().absolute() / 'mlflow.db'}"


@contextmanager
def use_tracking_store() -> Iterator[None]:
    """Lets MLflow's calls that ask for no address go to our store: its entities save and link themselves by them.

    It is named in the environment, where MLflow looks: setting it by MLflow's own call would end the traces that a
    program around us is logging.
    """
    with _AT_STORE:
        named, uri = "MLFLOW_TRACKING_URI" in os.environ, tracking_uri()
        os.environ["MLFLOW_TRACKING_URI"] = uri
        try:
            yield
        finally:
            if not named:
                del os.environ["MLFLOW_TRACKING_URI"]


def client() -> Any:
    """An MLflow client of the store; imports MLflow, which takes a second or two."""
    for name, value in _QUIET.items():
        os.environ.setdefault(f"MLFLOW_{name}", value)
    if "MLFLOW_TRACKING_URI" not in os.environ:
        create_folder(results_folder())
    # MLflow's import and its tables warn of what its own dependencies will drop.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        for noisy in ("alembic", "mlflow"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        make_database(tracking_uri())
        try:
            return MlflowClient(tracking_uri=tracking_uri())
        except Exception as error:
            raise UserError(f"MLflow store {tracking_uri()}: {one_line(error, 300)}") from error


def make_database(uri: str) -> None:
    """Makes the SQLite file of a tracking store, if it names one that is not there.

    MLflow makes the tables in some sixty steps, and goes on neither after a process that was killed in the middle nor
    beside one that makes them too. So one process makes the file in a folder beside, and renames it when it is whole.

    Raises:
        UserError: It cannot be made: the folder cannot be written, or another process takes too long.
    """
    path = database_file(uri)
    if path is None or path.exists():
        return
    from filelock import FileLock, Timeout

    try:
        with FileLock(f"{path}.lock", timeout=PATIENCE):
            if path.exists():
                return
            for left in path.parent.glob(f"{BUILDING}*"):
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=BUILDING, dir=path.parent) as folder:
                _tables(Path(folder) / path.name)
                (Path(folder) / path.name).replace(path)
    except Timeout as error:
        told = f"another process has been making it for {PATIENCE:.0f} s; stop it"
        raise UserError(f"MLflow store {uri}: {told}") from error
    except OSError as error:
        raise UserError(f"MLflow store {uri}: cannot be made: {error.strerror or error}") from error


def database_file(uri: str) -> Path | None:
    """The SQLite file that an address names; None for any other store."""
    scheme, _, rest = uri.partition("://")
    return Path(rest.removeprefix("/")) if scheme == "sqlite" and len(rest) > 1 and "?" not in rest else None


def _tables(path: Path) -> None:
    from mlflow import MlflowClient

    MlflowClient(tracking_uri=f"sqlite:///{path}")


def experiment_id(found: Any) -> str:
    """The id of our experiment in a store, by its client; made where it is not there."""
    from mlflow.exceptions import MlflowException

    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    experiment = found.get_experiment_by_name(name)
    if experiment is not None:
        return experiment.experiment_id
    try:
        place = artifact_location(tracking_uri())
        return found.create_experiment(name, artifact_location=place, tags=KIND)
    except MlflowException:
        # Another process made it in the meantime.
        return found.get_experiment_by_name(name).experiment_id


def artifact_location(uri: str) -> str | None:
    """Where the artifacts of a new experiment go; None lets the store decide.

    A database names no folder, and MLflow then takes `./mlruns` of whatever folder is the current one: artifacts go
    beside an SQLite file instead, and into the results folder for a database server.
    """
    scheme, _, rest = uri.partition("://")
    if scheme.split("+")[0] == "sqlite":
        file = Path(rest.partition("?")[0].removeprefix("/"))
        return (file.absolute().parent / "mlartifacts").as_uri()
    return (results_folder().absolute() / "mlartifacts").as_uri() if scheme.split("+")[0] in DATABASES else None


def _metric_name(name: str) -> str:
    """The name as MLflow takes it: a user's own category may hold any letter."""
    return "".join(char if char.isalnum() or char in "_-. :" else "_" for char in name)[:250]
