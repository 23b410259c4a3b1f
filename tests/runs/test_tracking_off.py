"""Runs that are not recorded in MLflow: `--tracking off`, or `MEMPILER_TRACKING=off`."""

from __future__ import annotations

import sys
from pathlib import Path

import mempiler
import pytest
from mempiler.errors import UserError
from mempiler.runs.folder import RunFolder
from mempiler.runs.tracking.store import database_file, tracking_uri

from ..command_line import RunCommand, json_of, output_of

DATA = ("--benchmark", "locomo", "--train", "6", "--dev", "4", "--test", "3")
EVALUATE = ("evaluate", "turn-rag", *DATA)


def has_tracking_store() -> bool:
    """Tell whether there is a database of MLflow in the folder for results."""
    database = database_file(tracking_uri())
    assert database is not None
    return database.exists()


@pytest.fixture
def without_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every import of MLflow fail, as if it was not installed."""
    for name in list(sys.modules):
        if name.partition(".")[0] == "mlflow":
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "mlflow", None)


@pytest.fixture(autouse=True)
def empty_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder for results. The variable that turns tracking off in tests is not set."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MEMPILER_TRACKING")
    return tmp_path / "home"


@pytest.mark.usefixtures("without_mlflow")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(EVALUATE, id="evaluate"),
        pytest.param(("compile", "turn-rag", "--optimizer", "knn", *DATA), id="compile"),
        pytest.param(("choose", "turn-rag", "session-rag", "--share", "1", *DATA), id="choose"),
        pytest.param(
            ("check", "turn-rag", "--against", "no-memory", "--min-n", "1", *DATA), id="check"
        ),
    ],
)
def test_a_run_without_tracking_needs_no_mlflow(cli: RunCommand, command: tuple[str, ...]) -> None:
    run_id = json_of(cli, *command, "--tracking", "off")["run_id"]

    assert RunFolder.open(run_id).read()["status"] == "finished"
    assert not has_tracking_store()


def test_a_run_without_tracking_is_found_by_its_id(cli: RunCommand) -> None:
    run_id = json_of(cli, *EVALUATE, "--tracking", "off")["run_id"]

    assert "turn-rag on locomo" in output_of(cli, "show", run_id)
    assert "turn-rag on locomo" in output_of(cli, "compare", run_id, run_id)


def test_the_page_of_a_run_without_tracking_links_to_no_mlflow_run(cli: RunCommand) -> None:
    run_id = json_of(cli, *EVALUATE, "--tracking", "off")["run_id"]

    page = (RunFolder.open(run_id).path / "report.html").read_text()
    assert "none: --tracking off" in page
    assert f"/runs/{run_id}" not in page


def test_the_variable_mempiler_tracking_turns_tracking_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMPILER_TRACKING", "off")

    mempiler.evaluate("turn-rag", benchmark="locomo", test=3, progress=False)

    assert not has_tracking_store()


def test_the_argument_tracking_overrides_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPILER_TRACKING", "off")

    mempiler.evaluate("turn-rag", benchmark="locomo", test=3, tracking="mlflow", progress=False)

    assert has_tracking_store()


def test_runs_are_recorded_in_mlflow_by_default(cli: RunCommand) -> None:
    output_of(cli, *EVALUATE)

    assert has_tracking_store()


def test_a_run_without_tracking_may_be_resumed_with_tracking(cli: RunCommand) -> None:
    """Whether a run is recorded in MLflow does not change its result."""
    first = json_of(cli, *EVALUATE, "--tracking", "off")

    resumed = json_of(cli, *EVALUATE, "--resume", first["run_id"])

    assert resumed["score"] == first["score"]
    assert has_tracking_store()


def test_an_unknown_kind_of_tracking_is_refused() -> None:
    with pytest.raises(UserError, match="tracking = 'wandb': input should be 'mlflow' or 'off'"):
        mempiler.evaluate("turn-rag", benchmark="locomo", tracking="wandb", progress=False)  # type: ignore[arg-type]
