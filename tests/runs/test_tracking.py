"""One MLflow run per command, in the results folder, whatever happens inside."""

import json
import logging
import multiprocessing
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from mempiler.errors import UserError
from mempiler.records import Failure
from mempiler.runs import tracking
from mempiler.runs.results import Evaluation
from mempiler.runs.tracking import Tracker, artifact_location, client, tracking_uri

from ..conftest import within
from .evaluations import evaluation, refusal, row


def evaluation_of(*categories: str) -> Evaluation:
    """Questions of these categories, by turns wrong and right; the first one failed."""
    failed = Failure(kind="parse", where="q0", message="no field")
    rows = [
        row(f"q{n}", n % 2, category=category, recall={"recall@5": 1.0}, failure=None if n else failed)
        for n, category in enumerate(categories)
    ]
    return evaluation(rows, benchmark="jsonl", cost=None)


def artifact(run_id: str, name: str, folder: Path) -> Path:
    return Path(client().download_artifacts(run_id, name, str(folder)))


@pytest.mark.parametrize(
    ("error", "status"), [(None, "FINISHED"), (ValueError("broken\nhere"), "FAILED"), (KeyboardInterrupt(), "KILLED")]
)
def test_a_run_ends_as_its_block_does(error, status):
    tracker = Tracker("test-status")
    with suppress(ValueError, KeyboardInterrupt), tracker:
        if error:
            raise error
    run = client().get_run(tracker.run_id)
    assert run.info.status == status
    assert run.data.tags.get("error") == ("broken here" if status == "FAILED" else "" if error else None)


def test_an_evaluation_is_logged_with_every_row(tmp_path):
    with Tracker("test-evaluation", {"command": "evaluate"}) as tracker:
        tracker.params({"lm": "offline", "long": "x" * 9000, "nothing": None})
        tracker.evaluation("evaluation", evaluation_of("single hop", "single hop", "multi"))
    run = client().get_run(tracker.run_id)
    tags = run.data.tags
    assert (tags["command"], tags["mlflow.source.name"], bool(tags["mlflow.user"])) == ("evaluate", "mempiler", True)
    assert (run.data.params["lm"], len(run.data.params["long"])) == ("offline", 6000)
    expected = {
        "evaluation.score": pytest.approx(1 / 3),
        "evaluation.n": 3,
        "evaluation.failures": 1,
        "evaluation.calls_task": 3,
        "evaluation.calls": 3,
        "evaluation.tokens": 1234,
        "evaluation.score_low": 0,
        "evaluation.score_high": 1,
        "evaluation.recall_at_5": 1,
        "evaluation.score_single_hop": 0.5,
    }
    assert {name: run.data.metrics.get(name) for name in expected} == expected
    assert "evaluation.cost" not in run.data.metrics
    rows = artifact(tracker.run_id, "evaluation_rows.jsonl", tmp_path).read_text().splitlines()
    assert [json.loads(row)["id"] for row in rows] == ["q0", "q1", "q2"]
    assert json.loads(rows[0])["failure"]["kind"] == "parse"
    assert json.loads(artifact(tracker.run_id, "evaluation.json", tmp_path).read_text())["n"] == 3


@pytest.mark.parametrize("uri", ["nowhere://x", "sqlite:////proc/none/x.db"])
def test_a_store_that_cannot_be_used_is_one_line(monkeypatch, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert uri in refusal(Tracker("test-wrong-store").__enter__)


@pytest.mark.parametrize("call", ["log_batch", "log_text", "log_artifact", "log_artifacts"])
def test_a_store_that_fails_on_the_way_is_one_line_and_stops_nothing(tmp_path, monkeypatch, caplog, call):
    (tmp_path / "file.txt").write_text("x")
    with caplog.at_level(logging.WARNING, "mempiler"), Tracker("test-failing") as tracker:
        gone = Mock(side_effect=OSError(f"connection to the store lost\nin {call}"))
        for name in (call, "set_terminated"):
            monkeypatch.setattr(f"mlflow.MlflowClient.{name}", gone)
        tracker.params({"lm": "offline"})
        tracker.evaluation("after", evaluation_of("single hop"))
        tracker.files(tmp_path / "file.txt")
        tracker.files(tmp_path, "program")
    assert gone.call_count == 1
    lines = [record.getMessage() for record in caplog.records if record.name == "mempiler"]
    assert len(lines) == 1
    assert lines[0].startswith(f"mempiler: MLflow store {tracking_uri()}: ")
    assert f"connection to the store lost in {call}; the results are in the run's folder" in lines[0]


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("sqlite+pysqlite:////srv/tracking/mlflow.db?timeout=5", "file:///srv/tracking/mlartifacts"),
        ("sqlite:///mine.db", "file://{here}/mlartifacts"),
        ("postgresql+psycopg://u@host/db", "file://{here}/results/mlartifacts"),
        ("http://mlflow:5000", None),
    ],
)
def test_artifacts_lie_where_the_store_is(tmp_path, monkeypatch, uri, place):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "results"))
    assert artifact_location(uri) == (place and place.format(here=tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracking_uri() == f"sqlite:///{tmp_path}/results/mlflow.db"
    monkeypatch.delenv("MEMPILER_HOME")
    assert tracking_uri() == f"sqlite:///{tmp_path}/runs/local/mlflow.db"


FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a database whose tables take a while, and are counted."""

    def tables(new: Path) -> None:
        with (tmp_path / "made").open("a") as file:
            file.write("x")
        time.sleep(0.2)
        new.write_text("whole")

    monkeypatch.setattr(tracking, "_tables", tables)
    return tmp_path / "mlflow.db"


def made(path: Path) -> Any:
    """A process that makes the database."""
    process = FORK.Process(target=tracking.make_database, args=(f"sqlite:///{path}",))
    process.start()
    return process


def test_kill_leaves_nothing_that_is_in_the_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(new: Path) -> None:
        new.write_text("half")
        new.with_name("begun").touch()
        time.sleep(60)

    with monkeypatch.context() as patch:
        patch.setattr(tracking, "_tables", slow)
        process = made(path)
    assert within(20, lambda: list(path.parent.glob(".mlflow-*/begun")))
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not path.exists()
    tracking.make_database(f"sqlite:///{path}")
    assert path.read_text() == "whole"
    assert list(path.parent.glob(".mlflow-*")) == []


def test_of_three_first_runs_one_makes_the_file(path: Path) -> None:
    processes = [made(path) for _ in range(3)]
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (path.parent / "made").read_text() == "x"


def test_folder_that_cannot_be_written_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "_tables", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(UserError, match=r"^MLflow store sqlite:.*: cannot be made: Permission denied$"):
        tracking.make_database(f"sqlite:///{path}")
