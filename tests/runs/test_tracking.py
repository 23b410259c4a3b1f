"""One MLflow run per command, in the results folder, whatever happens inside."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from mempiler.errors import UserError
from mempiler.records import Failure
from mempiler.runs.results import Evaluation
from mempiler.runs.tracking import Tracker, artifact_location, client, tracking_uri

from .evaluations import evaluation, row


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
    def work() -> None:
        with Tracker("test-status") as tracker:
            ids.append(tracker.run_id)
            if error:
                raise error

    ids: list[str] = []
    if error:
        with pytest.raises(type(error)):
            work()
    else:
        work()
    run = client().get_run(ids[0])
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
        "evaluation.recall_at_5": 1,
        "evaluation.score_single_hop": 0.5,
    }
    assert {name: run.data.metrics.get(name) for name in expected} == expected
    assert "evaluation.cost" not in run.data.metrics
    rows = artifact(tracker.run_id, "evaluation_rows.jsonl", tmp_path).read_text().splitlines()
    assert [json.loads(row)["id"] for row in rows] == ["q0", "q1", "q2"]
    assert json.loads(rows[0])["failure"]["kind"] == "parse"
    assert json.loads(artifact(tracker.run_id, "evaluation.json", tmp_path).read_text())["n"] == 3


def test_the_store_and_its_artifacts_are_in_the_results_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "elsewhere"))
    assert tracking_uri() == f"sqlite:///{tmp_path}/elsewhere/mlflow.db"
    monkeypatch.delenv("MEMPILER_HOME")
    monkeypatch.chdir(tmp_path)
    assert tracking_uri() == f"sqlite:///{tmp_path}/runs/local/mlflow.db"


@pytest.mark.parametrize("uri", ["nowhere://x", "sqlite:////proc/none/x.db"])
def test_a_store_that_cannot_be_used_is_one_line(monkeypatch, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UserError) as caught, Tracker("test-wrong-store"):
        pass
    assert uri in str(caught.value)
    assert "\n" not in str(caught.value)


def failing(call: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets calls of the client fail as they do when the store has gone away; returns the calls that were made."""
    made: list[str] = []

    def gone(name: str) -> Any:
        def called(self: Any, *values: Any, **named: Any) -> None:
            made.append(name)
            raise OSError(f"connection to the store lost\nin {name}")

        return called

    for name in (call, "set_terminated"):
        monkeypatch.setattr(f"mlflow.MlflowClient.{name}", gone(name))
    return made


@pytest.mark.parametrize("call", ["log_batch", "log_text", "log_artifact", "log_artifacts"])
def test_a_store_that_fails_on_the_way_is_one_line_and_stops_nothing(tmp_path, monkeypatch, caplog, call):
    (tmp_path / "file.txt").write_text("x")
    with caplog.at_level(logging.WARNING, "mempiler"), Tracker("test-failing") as tracker:
        made = failing(call, monkeypatch)
        tracker.params({"lm": "offline"})
        tracker.evaluation("result", evaluation_of("single hop"))
        tracker.page(tmp_path / "file.txt")
        tracker.folder(tmp_path, "program")
    assert made == [call]
    lines = [record.getMessage() for record in caplog.records if record.name == "mempiler"]
    assert len(lines) == 1
    assert lines[0].startswith(f"mempiler: MLflow store {tracking_uri()}: ")
    assert f"connection to the store lost in {call}; the results are in the run's folder" in lines[0]


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("sqlite:////srv/tracking/mlflow.db", "file:///srv/tracking/mlartifacts"),
        ("sqlite+pysqlite:////srv/tracking/mlflow.db?timeout=5", "file:///srv/tracking/mlartifacts"),
        ("sqlite:///mine.db", "file://{here}/mlartifacts"),
        ("postgresql+psycopg://u@host/db", "file://{here}/results/mlartifacts"),
        ("http://mlflow:5000", None),
        ("file:///srv/mlruns", None),
        ("/srv/mlruns", None),
    ],
)
def test_artifacts_lie_where_the_store_is(tmp_path, monkeypatch, uri, place):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "results"))
    assert artifact_location(uri) == (place and place.format(here=tmp_path))
