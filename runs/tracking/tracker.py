"""One MLflow run for each command, logged by the thread that runs the command.

    with Tracker("evaluate-turn-rag-locomo", {"command": "evaluate"}) as tracker:
        tracker.log_params({"lm": "offline"})
        tracker.log_evaluation("evaluation", evaluation)

Everything is logged by the id of the run: MLflow's functions without an id would start runs of
their own in worker threads.

A store that cannot be reached at the start is an error, before any paid call. If it fails later,
this is one line in the log `mempiler`, and the results stand in the folder of the run.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec

from ...text import one_line
from ..config import Tracking
from ..metered_usage import usage_totals
from ..promotion import Promotion
from ..results import Evaluation
from ..statistics import Difference
from .store import client, experiment_id, store_errors, tracking_uri

PARAM_LIMIT = 6000
"""Characters of the longest parameter that MLflow takes."""
UI_ADDRESS = "http://127.0.0.1:5000"
"""Where `mempiler ui` serves MLflow's pages by default."""
LOG = "mempiler"
"""The log that is told when the store fails during a run."""

_MAX_NAME_LENGTH = 250
"""Characters of the longest name of a metric."""
_PARAMS_PER_REQUEST = 100
_METRICS_PER_REQUEST = 1000
"""The most that MLflow takes at once."""

Parameters = ParamSpec("Parameters")


@dataclass(frozen=True)
class _Point:
    """A number that is logged."""

    name: str
    value: float | None
    step: int = 0


class Tracker:
    """An MLflow run, which is running within the `with` block.

    Args:
        name: The name of the run.
        tags: Its tags.
        numbers_only: Whether the store gets numbers, settings and tags, but no files and no message
            of an error: these may hold the text of a user.

    Raises:
        UserError: The tracking store cannot be reached or written.
    """

    def __init__(
        self, name: str, tags: Mapping[str, str] | None = None, numbers_only: bool = False
    ) -> None:
        self.name = name
        self.tags: Mapping[str, str] = tags or {}
        self.numbers_only = numbers_only
        self.run_id = ""
        self.failure: str | None = None
        """The first error of the store, after which nothing more is sent to it."""
        self.parameters: Mapping[str, Any] = {}
        """The settings of the run, as they were logged."""

    @property
    def takes_details(self) -> bool:
        """Whether prompts, questions and traces may be sent to the store.

        They hold the text of a user. A store that has failed does not get them either: each request
        would wait for its own retries.
        """
        return self.failure is None and not self.numbers_only

    def __enter__(self) -> Tracker:
        self.client = client()
        from mlflow.tracking.context.registry import resolve_tags

        with store_errors():
            self.experiment_id = experiment_id(self.client)
            # User, source and commit, which a client does not set by itself.
            tags = {**resolve_tags(), "mlflow.source.name": "mempiler", **self.tags}
            run = self.client.create_run(self.experiment_id, run_name=self.name, tags=tags)
        self.run_id = run.info.run_id
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            status = "FINISHED"
        elif kind is KeyboardInterrupt:
            status = "KILLED"
        else:
            status = "FAILED"

        if error is not None:
            message = type(error).__name__ if self.numbers_only else one_line(error, 300)
            self.set_tag("error", message)
        self._send(self.client.set_terminated, self.run_id, status)

    @property
    def address(self) -> str:
        """The page of the run: on its server, or where `mempiler ui` shows it."""
        server = UI_ADDRESS
        uri = tracking_uri()
        if uri.startswith("http"):
            without_password = re.sub("//[^/@]*@", "//", uri)
            server = without_password.rstrip("/")
        return f"{server}/#/experiments/{self.experiment_id}/runs/{self.run_id}"

    @contextmanager
    def warn_of_errors(self) -> Iterator[None]:
        """Warn of any error in the block instead of raising it.

        This is for details, such as traces: a run is complete without them.
        """
        try:
            yield
        except Exception as error:  # the store, or MLflow on the way to it, may refuse anything
            _warn_of_failure(
                error,
                "the MLflow run has its scores, but not all of its traces, prompts and questions",
            )

    def log_params(self, values: Mapping[str, Any]) -> None:
        """Log the settings of the run; long values are cut."""
        from mlflow.entities import Param

        self.parameters = values
        params = [Param(name, str(value)[:PARAM_LIMIT]) for name, value in values.items()]
        for start in range(0, len(params), _PARAMS_PER_REQUEST):
            batch = params[start : start + _PARAMS_PER_REQUEST]
            self._send(self.client.log_batch, self.run_id, params=batch)

    def log_metrics(self, values: Mapping[str, float | None]) -> None:
        """Log numbers; None and nan are left out."""
        self._log_points(_Point(name, value) for name, value in values.items())

    def log_steps(self, prefix: str, rows: Sequence[Mapping[str, Any]], step: str = "step") -> None:
        """Log the numbers of each row as points of series.

        Args:
            prefix: Stands before the names of the series.
            rows: Values by name; those that are no numbers are left out.
            step: The name of the value that counts the rows.
        """
        points: list[_Point] = []
        for row in rows:
            for name, value in row.items():
                if name != step and isinstance(value, int | float):
                    points.append(_Point(f"{prefix}.{name}", value, int(row[step])))
        self._log_points(points)

    def log_evaluation(self, prefix: str, evaluation: Evaluation) -> None:
        """Log scores, retrieval, calls and cost as metrics, and a table with a row a question."""
        summary = evaluation.to_dict()
        values = _metrics_of(evaluation, summary)
        self.log_metrics({f"{prefix}.{name}": value for name, value in values.items()})
        self.log_json(f"{prefix}.json", summary)

        rows = [row.model_dump(mode="json", exclude={"trace"}) for row in evaluation.rows]
        self.log_json_lines(f"{prefix}_rows.jsonl", rows)

    def log_difference(self, difference: Difference) -> None:
        """Log the difference of two evaluations, with its interval, verdict and scope."""
        metrics: dict[str, float | None] = {
            "difference": difference.mean,
            "difference_design_effect": difference.design_effect,
        }
        if difference.interval is not None:
            metrics["difference_low"] = difference.interval.low
            metrics["difference_high"] = difference.interval.high
        self.log_metrics(metrics)
        self.set_tag("mempiler.verdict", difference.verdict)
        self.set_tag("mempiler.scope", difference.scope)

    def log_promotion(self, promotion: Promotion) -> None:
        """Log what a compiled program is promoted for by the dev questions, with its saving."""
        if promotion.basis is not None:
            self.set_tag("mempiler.basis", promotion.basis)

        saving = promotion.saving
        if saving is None:
            return
        self.log_metrics({"dev_lower_bound": saving.score.lower_bound})
        if saving.tokens is not None:
            self.log_metrics(
                {
                    "dev_token_difference": saving.tokens.mean,
                    "dev_token_difference_low": saving.tokens.low,
                    "dev_token_difference_high": saving.tokens.high,
                }
            )

    def set_tag(self, name: str, value: str) -> None:
        """Set a tag of the run."""
        self._send(self.client.set_tag, self.run_id, name, value)

    def log_json(self, name: str, value: Any) -> None:
        """Log a value as a JSON file among the artifacts."""
        self.log_text(name, json.dumps(value, indent=1, ensure_ascii=False))

    def log_json_lines(self, name: str, values: Iterable[Any]) -> None:
        """Log values as a file among the artifacts, one JSON value a line."""
        lines = [json.dumps(value, ensure_ascii=False) for value in values]
        self.log_text(name, "\n".join(lines))

    def log_text(self, name: str, text: str) -> None:
        """Log a text as a file among the artifacts."""
        if self.numbers_only:
            return
        self._send(self.client.log_text, self.run_id, text, name)

    def log_file(self, path: Path) -> None:
        """Log a file as an artifact."""
        if self.numbers_only:
            return
        self._send(self.client.log_artifact, self.run_id, str(path))

    def log_folder(self, path: Path, name: str) -> None:
        """Log the files of a folder as artifacts in a folder of this name."""
        if self.numbers_only:
            return
        self._send(self.client.log_artifacts, self.run_id, str(path), name)

    def _log_points(self, points: Iterable[_Point]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics: list[Metric] = []
        for point in points:
            if point.value is not None and not math.isnan(point.value):
                name = _metric_name(point.name)
                metrics.append(Metric(name, float(point.value), now, point.step))

        for start in range(0, len(metrics), _METRICS_PER_REQUEST):
            batch = metrics[start : start + _METRICS_PER_REQUEST]
            self._send(self.client.log_batch, self.run_id, metrics=batch)

    def _send(
        self,
        request: Callable[Parameters, object],
        *values: Parameters.args,
        **named_values: Parameters.kwargs,
    ) -> None:
        """Send a request to the store, unless it has failed; if it fails now, warn of it."""
        if self.failure is not None:
            return  # Every further request would wait for its own retries.
        try:
            request(*values, **named_values)
        except Exception as error:
            self.failure = _warn_of_failure(
                error,
                "the results are in the run's folder, the MLflow run is not complete",
            )


class NoTracker(Tracker):
    """Stands in for a Tracker in a run with `--tracking off`: it sends nothing and needs no MLflow.

    The run gets an id that looks like one of MLflow's, by which it is found.
    """

    @property
    def takes_details(self) -> bool:
        return False

    @property
    def address(self) -> str:
        """Return an empty text: MLflow has no page of the run."""
        return ""

    def __enter__(self) -> NoTracker:
        self.run_id = uuid.uuid4().hex
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let an error pass."""

    def log_params(self, values: Mapping[str, Any]) -> None:
        """Keep the settings, which the page of the run shows."""
        self.parameters = values

    def log_metrics(self, values: Mapping[str, float | None]) -> None:
        pass

    def log_steps(self, prefix: str, rows: Sequence[Mapping[str, Any]], step: str = "step") -> None:
        pass

    def log_evaluation(self, prefix: str, evaluation: Evaluation) -> None:
        pass

    def set_tag(self, name: str, value: str) -> None:
        pass

    def log_text(self, name: str, text: str) -> None:
        pass

    def log_file(self, path: Path) -> None:
        pass

    def log_folder(self, path: Path, name: str) -> None:
        pass


def open_tracker(
    tracking: Tracking,
    name: str,
    tags: Mapping[str, str] | None = None,
    numbers_only: bool = False,
) -> Tracker:
    """Return the Tracker of a run, as `--tracking` wants it; the arguments are those of Tracker."""
    tracker_class = NoTracker if tracking == "off" else Tracker
    return tracker_class(name, tags, numbers_only)


def _metrics_of(evaluation: Evaluation, summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the metrics of an evaluation by name.

    Args:
        evaluation: The evaluation. What is a number there is taken from it.
        summary: Its `to_dict()`, with the numbers that are computed from the rows.
    """
    metrics: dict[str, float | None] = {
        "score": summary["score"],
        "n": float(evaluation.n),
    }
    if summary["interval"]:
        low, high = summary["interval"]
        metrics["score_low"] = low
        metrics["score_high"] = high

    metrics.update(summary["metrics"])
    metrics.update(summary["aggregate"])
    for name, value in summary["retrieval"].items():
        metrics[name.replace("@", "_at_")] = value
    for role, count in summary["calls"].items():
        metrics[f"calls_{role}"] = float(count)
    for name, size in summary["context"].items():
        metrics[f"context_{name}"] = size
    for name, value in summary["search_ms"].items():
        metrics[f"search_ms_{name}"] = value

    metrics["prompt_tokens"] = summary["prompt_tokens"]
    metrics["cached_share"] = summary["cached_share"]
    metrics.update(usage_totals(evaluation.metered_usage))
    metrics["failures"] = float(evaluation.failures)
    metrics["seconds"] = evaluation.seconds
    for outcome, count in evaluation.outcomes.items():
        metrics[f"answers_{outcome}"] = float(count)
    for category in summary["by"].values():
        name = category["name"].replace(" ", "_")
        metrics[f"score_{name}"] = category["score"]
    return metrics


def _metric_name(name: str) -> str:
    """Return a name that MLflow takes: a category of a user's own data may hold any character."""
    characters = [char if char.isalnum() or char in "_-. :" else "_" for char in name]
    return "".join(characters)[:_MAX_NAME_LENGTH]


def _warn_of_failure(error: Exception, consequence: str) -> str:
    """Log what the store did not take, and what follows from it; return the error on one line."""
    line = one_line(error, 300)
    message = "mempiler: MLflow store %s: %s; %s"
    logging.getLogger(LOG).warning(message, tracking_uri(), line, consequence)
    return line
