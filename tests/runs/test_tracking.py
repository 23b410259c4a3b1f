"""One MLflow run per command, in the results folder, whatever happens inside; what its client finds of runs."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from mempiler.errors import UserError
from mempiler.records import Failure
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.folder import RunFolder
from mempiler.runs.results import Evaluation
from mempiler.runs.tracking import store
from mempiler.runs.tracking.store import artifact_location, client, tracking_uri, use_tracking_store
from mempiler.runs.tracking.tracker import Tracker

from ..conftest import run_cli, within
from .evaluations import evaluation, refusal, row
from ..run_inputs import run_inputs


def evaluation_of(*categories: str) -> Evaluation:
    """Questions of these categories, by turns wrong and right; the first one failed."""
    failed = Failure(kind="parse", where="q0", message="no field")
    rows = [
        row(
            f"q{n}",
            n % 2,
            category=category,
            recall={"recall@5": 1.0},
            failure=None if n else failed,
        )
        for n, category in enumerate(categories)
    ]
    return evaluation(rows, benchmark="jsonl", cost=None)


def artifact(run_id: str, name: str, folder: Path) -> Path:
    return Path(client().download_artifacts(run_id, name, str(folder)))


def test_an_evaluation_is_logged_with_every_row(tmp_path):
    with Tracker("test-evaluation", {"command": "evaluate"}) as tracker:
        tracker.log_params({"lm": "offline", "long": "x" * 9000, "nothing": None})
        tracker.log_evaluation("evaluation", evaluation_of("single hop", "single hop", "multi"))
    run = client().get_run(tracker.run_id)
    tags = run.data.tags
    assert tags["command"] == "evaluate"
    assert tags["mlflow.source.name"] == "mempiler"
    assert tags["mlflow.user"]
    assert run.data.params["lm"] == "offline"
    assert len(run.data.params["long"]) == 6000
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
def test_a_store_that_fails_on_the_way_is_one_line_and_stops_nothing(
    tmp_path, monkeypatch, caplog, call
):
    (tmp_path / "file.txt").write_text("x")
    with caplog.at_level(logging.WARNING, "mempiler"), Tracker("test-failing") as tracker:
        gone = Mock(side_effect=OSError(f"connection to the store lost\nin {call}"))
        for name in (call, "set_terminated"):
            monkeypatch.setattr(f"mlflow.MlflowClient.{name}", gone)
        tracker.log_params({"lm": "offline"})
        tracker.log_evaluation("after", evaluation_of("single hop"))
        tracker.log_file(tmp_path / "file.txt")
        tracker.log_folder(tmp_path, "program")
    assert gone.call_count == 1
    lines = [record.getMessage() for record in caplog.records if record.name == "mempiler"]
    assert len(lines) == 1
    assert lines[0].startswith(f"mempiler: MLflow store {tracking_uri()}: ")
    assert (
        f"connection to the store lost in {call}; the results are in the run's folder" in lines[0]
    )


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        (
            "sqlite+pysqlite:////srv/tracking/mlflow.db?timeout=5",
            "file:///srv/tracking/mlartifacts",
        ),
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

    monkeypatch.setattr(store, "create_tables", tables)
    return tmp_path / "mlflow.db"


def made(path: Path) -> Any:
    """A process that makes the database."""
    process = FORK.Process(target=store.create_database, args=(f"sqlite:///{path}",))
    process.start()
    return process


def test_kill_leaves_nothing_that_is_in_the_way(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(new: Path) -> None:
        new.write_text("half")
        new.with_name("begun").touch()
        time.sleep(60)

    with monkeypatch.context() as patch:
        patch.setattr(store, "create_tables", slow)
        process = made(path)
    assert within(20, lambda: list(path.parent.glob(".mlflow-*/begun")))
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not path.exists()
    store.create_database(f"sqlite:///{path}")
    assert path.read_text() == "whole"
    assert list(path.parent.glob(".mlflow-*")) == []


def test_one_of_three_first_runs_creates_the_database(path: Path) -> None:
    processes = [made(path) for _ in range(3)]
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (path.parent / "made").read_text() == "x"


def test_folder_that_cannot_be_written_is_one_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        store, "create_tables", Mock(side_effect=PermissionError(13, "Permission denied"))
    )
    with pytest.raises(
        UserError, match=r"^MLflow store sqlite:.*: cannot be made: Permission denied$"
    ):
        store.create_database(f"sqlite:///{path}")


EVALUATE = (
    "evaluate",
    "turn-rag",
    "--benchmark",
    "locomo",
    "--split",
    "test",
    "--train",
    "6",
    "--dev",
    "4",
    "--test",
    "6",
)
COMPILE = (
    "compile",
    "turn-rag",
    "--benchmark",
    "locomo",
    "--optimizer",
    "knn",
    "--train",
    "6",
    "--dev",
    "4",
    "--test",
    "6",
)


def run(*words: str) -> str:
    """Runs a command on the offline engine; returns the id of its MLflow run."""
    return json.loads(run_cli(*words, "--embedder", "offline", "--json")[1])["run_id"]


@pytest.fixture(scope="module")
def runs() -> Iterator[Any]:
    """Three runs and their store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_EXPERIMENT_NAME", "tracked")
        evaluated = run(*EVALUATE, "--traces", "3"), run(*EVALUATE, "--traces", "none")
        compiled, store = run(*COMPILE, "--force", "--traces", "all"), client()
        experiment = store.get_experiment_by_name("tracked").experiment_id
        yield SimpleNamespace(
            evaluated=evaluated, compiled=compiled, store=store, experiment=experiment
        )


def traces_of(runs: Any, run: str) -> list[Any]:
    return list(
        runs.store.search_traces([runs.experiment], filter_string=f"attributes.run_id = '{run}'")
    )


def spans(trace: Any) -> dict[str, Any]:
    return {span.name: span for span in trace.data.spans}


def test_a_trace_shows_what_a_question_went_through(runs):
    assert [len(traces_of(runs, run)) for run in (*runs.evaluated, runs.compiled)] == [3, 0, 6]
    for trace in traces_of(runs, runs.compiled):
        found = spans(trace)
        assert list(found) == ["question", "remember", "recall", "answer", "task.answer", "score"]
        whole, call, recalled = found["question"], found["task.answer"], found["recall"]
        # One after the other, and all within the question.
        steps = [found[name] for name in ("remember", "recall", "answer", "score")]
        assert {step.parent_id for step in steps} == {whole.span_id}
        assert whole.parent_id is None
        assert call.parent_id == found["answer"].span_id
        assert all(one.end_time_ns == next.start_time_ns for one, next in pairwise(steps))
        assert steps[0].start_time_ns == whole.start_time_ns
        assert steps[-1].end_time_ns == whole.end_time_ns
        assert (
            found["answer"].start_time_ns
            <= call.start_time_ns
            <= call.end_time_ns
            <= whole.end_time_ns
        )
        assert whole.inputs["question"] in call.inputs["messages"][-1]["content"]
        assert whole.outputs in call.outputs["choices"][0]["message"]["content"]
        # As the prompt shows it: with the date beside a relative one.
        assert recalled.outputs[0]["page_content"] in call.inputs["messages"][-1]["content"]
        assert trace.info.token_usage == call.attributes["mlflow.chat.tokenUsage"]
        assert trace.info.token_usage["input_tokens"] > 100
        assert trace.info.request_preview == whole.inputs["question"]


def test_a_trace_has_the_scores_the_gold_answer_and_the_evidence_as_assessments(runs):
    rows = {row["id"]: row for row in rows_of(runs, runs.compiled, "after")}
    for trace in traces_of(runs, runs.compiled):
        row = rows[spans(trace)["question"].inputs["id"]]
        given = {each.name: each for each in trace.info.assessments}
        values = {name: each.feedback.value for name, each in given.items() if each.feedback}
        evidence = {"evidence_recall": pytest.approx(row["recall"]["shown"])}
        expected = {"right": row["score"] >= 0.5, "score": row["score"], **row["parts"], **evidence}
        assert values == expected
        assert given["expected_response"].expectation.value == row["gold"]
        assert {each.source.source_type for each in given.values()} == {"CODE"}


def rows_of(runs: Any, run: str, prefix: str) -> list[dict[str, Any]]:
    path = (
        Path(runs.store.get_run(run).info.artifact_uri.removeprefix("file://"))
        / f"{prefix}_rows.jsonl"
    )
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_questions_are_one_dataset_that_all_runs_are_linked_to(runs):
    (dataset,) = runs.store.search_datasets([runs.experiment])
    ids = {row["id"] for row in rows_of(runs, runs.compiled, "after")}
    ids |= {row["id"] for row in rows_of(runs, runs.evaluated[0], "evaluation")}
    assert dataset.name.split(".")[0] == "locomo"
    assert json.loads(dataset.profile)["num_records"] == len(ids)
    assert dataset.tags["benchmark"] == "locomo"
    assert dataset.tags["sample"] == "True"
    for run in (*runs.evaluated, runs.compiled):
        (linked,) = runs.store.get_run(run).inputs.dataset_inputs
        assert linked.dataset.name == dataset.name
        assert json.loads(linked.dataset.source) == {"dataset_id": dataset.dataset_id}


PROMPT = "mempiler.turn-rag.locomo.task.answer"


def test_a_compile_makes_a_version_of_each_prompt_it_changed(runs):
    start, best = (
        runs.store.get_prompt_version_by_alias(PROMPT, alias) for alias in ("start", "best")
    )
    assert start.version < best.version
    assert start.template[-1]["content"].count("{{question}}") == 1
    assert len(best.template) > len(start.template)
    versions = [(PROMPT, str(each.version)) for each in (start, best)]
    assert linked(runs, runs.evaluated[0]) == versions[:1]
    assert linked(runs, runs.compiled) == versions


def linked(runs: Any, run: str) -> list[tuple[str, str]]:
    tags = runs.store.get_run(run).data.tags
    return [(each["name"], each["version"]) for each in json.loads(tags["mlflow.linkedPrompts"])]


@pytest.mark.parametrize("call", ["create_dataset", "get_prompt"])
def test_a_store_that_takes_no_more_than_numbers_costs_a_run_nothing_else(
    monkeypatch, caplog, call
):
    def refuse(*values: Any, **named: Any) -> None:
        raise NotImplementedError(f"{call} is not supported\nhere")

    monkeypatch.setattr(f"mlflow.MlflowClient.{call}", refuse)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", f"without-{call}")
    with caplog.at_level(logging.WARNING, "mempiler"):
        found = run_evaluate(
            "turn-rag", run_inputs(benchmark="locomo", train=6, dev=4, test=3), "test"
        )
    told = [record.getMessage() for record in caplog.records if record.name == "mempiler"]
    assert len(told) == 1
    assert told[0].startswith(
        f"mempiler: MLflow store {tracking_uri()}: {call} is not supported here; "
    )
    run = client().get_run(str(found.run_id))
    assert run.info.status == "FINISHED"
    assert run.data.metrics["evaluation.n"] == found.n
    assert RunFolder.open(str(found.run_id)).is_finished


def test_a_run_leaves_mlflow_as_it_was_and_no_key_and_no_address_in_its_store(
    stub, monkeypatch, tmp_path
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.chdir(tmp_path)
    server = stub()
    inputs = run_inputs(
        benchmark="locomo",
        train=6,
        dev=4,
        test=3,
        lm=server.model,
        api_base=server.url,
        traces=None,
    )
    run = client().get_run(str(run_evaluate("turn-rag", inputs, "test").run_id))
    assert run.inputs.dataset_inputs
    assert len(client().search_traces([run.info.experiment_id])) == 3
    assert "MLFLOW_TRACKING_URI" not in os.environ
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    content = [
        path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.suffix in (".db", ".json", ".jsonl")
    ]
    assert len(content) > 2
    assert b"sk-very-secret" not in b"".join(content)
    assert server.url.encode() not in b"".join(content)


@pytest.mark.parametrize("value", [None, "", "sqlite:///other.db"])
def test_the_variable_of_mlflow_is_as_before_after_the_store_was_named_in_it(monkeypatch, value):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if value is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", value)
    with use_tracking_store():
        assert os.environ["MLFLOW_TRACKING_URI"] == tracking_uri()
    assert os.environ.get("MLFLOW_TRACKING_URI") == value
