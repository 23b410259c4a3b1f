"""The main jobs end to end: what is kept, what is on disk, what MLflow knows, also when it ends badly."""

import json
from dataclasses import replace
from typing import Any

import pytest
from dspy.lm15 import ServerError
from mempiler.errors import EndpointError, UserError
from mempiler.optimizers.compile import Compilation
from mempiler.runs.artifact import load
from mempiler.runs.compile import run_compile
from mempiler.runs.experiment import compiled_on, run_evaluate
from mempiler.runs.manifest import read_manifest
from mempiler.runs.pages.html import HTML
from mempiler.runs.pages.page import open_page
from mempiler.runs.setup import Setup
from mempiler.runs.tracking import client

from ..stub_server import StubServer
from .evaluations import break_optimizer, own_questions, script_models

LABELED = Compilation("labeled")


def learning(kind: str, text: str, n: int) -> dict[str, Any]:
    """Knows the gold answers, but gives them only in the form that a demo shows."""
    asked = text.rsplit("[[ ## question ## ]]", 1)[1].split("?")[0]
    return {"answer": f"marker {asked.split()[-1]}" if text.count("[[ ## question ## ]]") > 1 else "no idea"}


def stubborn(kind: str, text: str, n: int) -> dict[str, Any]:
    return {"answer": "no idea"}


@pytest.fixture
def scene(tmp_path, monkeypatch, scripted) -> Any:
    """`scene(reply)` makes every model of a run a scripted one, and returns the setup."""

    def make(reply: Any, **options: Any) -> Setup:
        script_models(monkeypatch, scripted(reply).engine)
        data = own_questions(tmp_path)
        return Setup(benchmark="jsonl", data=data, lm="scripted/test", **{"min_n": 8, **options})

    return make


def mlflow_run(run_id: str) -> Any:
    return client().get_run(run_id)


def last_run() -> Any:
    experiment = client().get_experiment_by_name("mempiler")
    return client().search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"], max_results=1)[0]


def test_a_gain_on_dev_is_kept_scored_saved_and_logged(tmp_path, scene):
    setup = scene(learning)
    outcome = run_compile("turn-rag", setup, LABELED, out=tmp_path / "out")
    summary = outcome.summary()
    assert outcome.promoted
    assert (summary["start"]["score"], summary["result"]["score"]) == (0.0, 1.0)
    assert (summary["difference"]["mean"], summary["difference"]["interval"]) == (1.0, [1.0, 1.0])
    assert summary["dev"] == {"start": 0.0, "result": 1.0}
    assert len(load(tmp_path / "out").task.answer.demos) == 8
    manifest = read_manifest(tmp_path / "out")
    assert (manifest.optimizer["name"], manifest.benchmark["sizes"]) == (
        "labeled",
        {"train": 32, "dev": 8, "test": 8},
    )
    assert manifest.scores["result"]["score"] == 1.0
    assert compiled_on(tmp_path / "out", setup.load())

    run = mlflow_run(outcome.run_id)
    assert run.info.status == "FINISHED"
    assert (run.data.params["program"], run.data.params["optimizer.stage"]) == ("turn-rag", "all")
    assert (run.data.metrics["start.score"], run.data.metrics["result.score"]) == (0.0, 1.0)
    # What the gain costs: eight demos with their contexts in every prompt.
    sizes = [summary[part]["prompt_tokens"] for part in ("start", "result")]
    assert 0 < 2 * sizes[0] < sizes[1]
    assert [run.data.metrics[f"{part}.prompt_tokens"] for part in ("start", "result")] == sizes
    listed = {entry.path for entry in client().list_artifacts(outcome.run_id)}
    assert {"start_rows.jsonl", "result_rows.jsonl", "outcome.json", "program", HTML} <= listed
    inside = {entry.path for entry in client().list_artifacts(outcome.run_id, "program")}
    assert inside == {"program/manifest.json", "program/state.json"}


def test_the_page_of_a_compile_shows_its_questions_and_what_it_changed(tmp_path, scene):
    outcome = run_compile("turn-rag", scene(learning), LABELED, out=tmp_path / "out")
    page, kept = open_page(str(outcome.run)), (outcome.run / HTML).read_text()
    assert (list(page.phases), [each.changed for each in page.changes]) == (["before", "after"], [True])
    assert any(line.startswith("+Demo 1 of") for line in page.changes[0].diff)
    assert page.total is not None
    assert [each.value for each in page.total.scores] == [outcome.start.score, outcome.result.score]
    assert [question.last.id for question in page.questions] == [row.id for row in outcome.result.rows]
    shown = page.questions[0].last.seen
    assert shown is not None
    assert shown.entries[0].line in "\n".join(text for _, text in shown.calls[-1].messages)
    assert str(outcome.run.parent) not in kept
    assert "seen" not in json.loads((outcome.run / "result_rows.jsonl").read_text().splitlines()[0])


@pytest.mark.parametrize("force", [False, True])
def test_without_a_gain_the_start_is_kept_unless_forced(tmp_path, scene, force):
    outcome = run_compile("turn-rag", scene(stubborn), LABELED, out=tmp_path / "out", force=force)
    assert outcome.promoted is force
    assert len(load(tmp_path / "out").task.answer.demos) == (8 if force else 0)
    assert bool(read_manifest(tmp_path / "out").optimizer) is force


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), "KILLED"), (RuntimeError("it broke"), "FAILED")], ids=str
)
def test_out_holds_a_program_also_when_the_optimizer_dies(tmp_path, scene, monkeypatch, error, status):
    def run(job: Any) -> Any:
        raise error

    break_optimizer(monkeypatch, run)
    with pytest.raises(type(error)):
        run_compile("turn-rag", scene(learning), Compilation("broken"), out=tmp_path / "out")
    assert load(tmp_path / "out").task.answer.demos == []
    assert last_run().info.status == status


def test_a_dead_endpoint_leaves_a_loadable_start(tmp_path, scene):
    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        raise ServerError("is down")

    with pytest.raises(EndpointError, match="is down"):
        run_compile("turn-rag", scene(reply), LABELED, out=tmp_path / "out")
    assert load(tmp_path / "out").name == "turn-rag"
    assert last_run().info.status == "FAILED"


@pytest.mark.parametrize(
    ("method", "how", "out", "words"),
    [
        ("turn-rag", Compilation("labeld"), "out", "did you mean 'labeled'"),
        ("turn-rag", Compilation("labeled", stage="write"), "out", "no prompt to tune in stage 'write'"),
        ("turn-rag", Compilation("labeled", settings={"k": 1}), "out", "has no setting 'k'"),
        ("turn-rga", LABELED, "out", "did you mean 'turn-rag'"),
        ("turn-rag", LABELED, "questions.jsonl", "exists and is no saved program"),
        ("turn-rag", LABELED, "questions.jsonl/out", "cannot be written"),
    ],
)
def test_a_wrong_request_costs_no_call_and_no_run(tmp_path, scene, method, how, out, words):
    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        pytest.fail("a call was made")

    run_evaluate("no-memory", scene(stubborn, test=1))
    before = last_run().info.run_id
    with pytest.raises(UserError, match=words):
        run_compile(method, scene(reply), how, out=tmp_path / out)
    assert last_run().info.run_id == before
    assert [path.name for path in tmp_path.iterdir()] == ["questions.jsonl"]


@pytest.mark.parametrize(
    ("part", "options", "asked"),
    [("all", {}, 48), ("train", {}, 32), ("dev", {}, 8), ("test", {}, 8), ("all", {"test": 3}, 3)],
)
def test_evaluate_asks_the_part_it_is_told_to(scene, part, options, asked):
    found = run_evaluate("turn-rag", scene(learning, **options), part)
    assert len(found.rows) == asked
    run = mlflow_run(found.run_id)
    assert (run.info.status, run.data.params["part"]) == ("FINISHED", part)
    assert run.data.metrics["evaluation.calls_task"] == asked


@pytest.mark.parametrize(("options", "abstains"), [({}, True), ({"categories": "1,2,3,4"}, False)])
def test_a_program_declines_only_where_a_benchmark_asks_what_was_never_said(tmp_path, options, abstains):
    setup = Setup(benchmark="locomo", options=options, train=4, dev=2, test=2)
    run_compile("turn-rag", setup, LABELED, out=tmp_path / "out", force=True)
    assert read_manifest(tmp_path / "out").config.get("task.abstain", False) is abstains


def test_a_saved_program_is_evaluated_and_compiled_on_as_it_was(tmp_path, scene):
    setup = scene(learning)
    outcome = run_compile("turn-rag", replace(setup, config={"k": 2}), LABELED, out=tmp_path / "out")
    found = run_evaluate(str(tmp_path / "out"), setup, "test")
    assert found.score == outcome.result.score == 1.0
    again = run_compile(str(tmp_path / "out"), setup, LABELED, out=tmp_path / "again")
    assert (again.start.score, again.promoted, len(load(tmp_path / "again").task.answer.demos)) == (1.0, False, 8)
    with pytest.raises(UserError, match="keeps its settings"):
        run_evaluate(str(tmp_path / "out"), replace(setup, config={"k": 3}))


def test_another_model_answers_than_the_one_that_writes() -> None:
    with StubServer() as server:
        setup = Setup(benchmark="locomo", test=3, answer_lm=server.model, answer_api_base=server.url)
        found = run_evaluate("memory-r2", setup, "test")
        assert (found.calls["answer"], len(server.texts)) == (3, 3)
    assert all("first_speaker_memories" in text for text in server.texts)
    assert found.calls["task"] > 3
    assert mlflow_run(found.run_id).data.params["answer_lm"] == server.model


def test_a_model_for_answers_is_refused_where_no_prompt_of_ours_answers() -> None:
    setup = Setup(benchmark="memory-env", options={"users": 10}, test=2, answer_lm="offline")
    with pytest.raises(UserError, match="answers without a prompt of ours: --answer-lm does not reach it"):
        run_evaluate("memory-r2", setup, "test")
