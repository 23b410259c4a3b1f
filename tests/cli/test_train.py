"""`mempiler train` from the command line: a small model, and a program that another process loads."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli import main

pytestmark = pytest.mark.slow
REASON = "the `local` extra is not installed: pip install '.[local]'"


ASK = """
import sys, dspy
from mempiler import History
from mempiler.engines.models import language_model
from mempiler.runs.artifact import load
history = History.parse([{"role": "user", "name": "Ada", "content": "my pet is cat"}])
with dspy.context(lm=language_model(sys.argv[2], max_tokens=24)):
    print("answer:", load(sys.argv[1])(history=history, question="What is Ada's pet?").answer)
"""


def run(*words: str) -> int:
    try:
        main(list(words))
    except SystemExit as ended:
        return int(ended.code or 0)  # pyright: ignore[reportArgumentType]
    return 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A folder with a model that has seen some demonstrations."""
    pytest.importorskip("torch", reason=REASON)
    pytest.importorskip("transformers", reason=REASON)
    from mempiler.data.synthesis.memory_env import vocabulary
    from mempiler.engines.embedders import embedder
    from mempiler.engines.local import sft
    from mempiler.engines.local.model import LocalModel
    from mempiler.engines.local.settings import Finetuning
    from mempiler.engines.local.tiny import create
    from mempiler.optimizers.demonstrations import demonstrate
    from mempiler.programs.catalog import build
    from mempiler.programs.compact_adapter import CompactAdapter
    from mempiler.programs.memory_r2.method import MemoryR2

    home = tmp_path_factory.mktemp("train")
    method: Any = build("memory-r2", "memory-lookup", embedder(), **MemoryR2.preset("memory-env")).method
    shown = demonstrate(method, CompactAdapter(), 8, sessions=2, seed=1)
    create(home / "start", shown, vocabulary(), seed=0)
    model = LocalModel.load(home / "start", device="cpu")
    sft.fit(model, shown, Finetuning(steps=120, learning_rate=3e-3))
    model.save(home / "start")
    return {"home": home, "start": home / "start"}


SIZES = "--train 2 --dev 1 --test 1 --adapter compact --option users=10 --option sessions=2"
SETTINGS = "validate_every=1 num_rollouts=2 local_n=2 histories=1 answer_tokens=24 horizons=[1] steps=1"


def command(trained: dict[str, Any], *words: str) -> list[str]:
    given = [*SIZES.split(), *(word for each in SETTINGS.split() for word in ("--train-set", each))]
    return ["train", "memory-r2", "--on", "memory-env", "--lm", f"local:{trained['start']}", *given, *words]


def trained_in(trained: dict[str, Any], capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(*command(trained, "--json", *words)) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def result(trained: dict[str, Any]) -> dict[str, Any]:
    """What `train --json` printed."""
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert run(*command(trained, "--json")) == 0
    return json.loads(said.getvalue())


def test_the_test_questions_are_scored_before_and_after_and_say_what_it_took(result: dict[str, Any]) -> None:
    assert result["start"]["n"] == result["result"]["n"] == result["difference"]["n"] > 0
    assert {name for name in ("tokens", "steps", "validation") if result["training"][name] > 0} >= {"tokens", "steps"}
    assert result["start"]["calls"] == result["result"]["calls"]


@pytest.mark.parametrize("name", ["grpo-session", "local"])
def test_the_completions_of_a_training_lie_in_its_plan(
    trained: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    made = trained_in(trained, capsys, "--with", name)
    assert run(*command(trained, "--with", name, "--plan", "--json")) == 0
    planned = json.loads(capsys.readouterr().out)["phases"]["training"]["high"]
    rows = json.loads(Path(made["run"], "training", "train.json").read_text())["rows"]
    completions = sum(row.get("completions", 0) for row in rows)
    assert 0 < completions <= planned < 20 * completions


KILL = """
import os, signal, sys
from mempiler.optimizers.logo_grpo.journal import Journal
write = Journal.write
def dies(self, progress):
    if progress.step == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, progress)
Journal.write = dies
from mempiler.cli import main
main(sys.argv[2:])
"""


def test_a_killed_process_resumes_to_the_very_weights_of_an_unbroken_run(
    trained: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Killed when the checkpoint of step 2 is written and the journal does not name it yet; with a new adapter."""
    from mempiler.engines.local.model import LocalModel

    # Without validation users the last weights are kept.
    words = ["--with", "grpo", "--threads", "1", "--dev", "0"]
    words += [word for each in ("lora=2", "steps=3", "num_rollouts=6") for word in ("--train-set", each)]
    whole = trained_in(trained, capsys, *words)
    journal = json.loads((Path(whole["run"]) / "training" / "train.json").read_text())
    assert [row["train_rows"] > 0 for row in journal["rows"]] == [True] * 3
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    killed = [sys.executable, "-c", KILL, "2", *command(trained, *words)]
    done = subprocess.run(killed, capture_output=True, timeout=600, check=False)
    assert done.returncode == -signal.SIGKILL
    (broken,) = tmp_path.glob("*-train-*")
    assert json.loads((broken / "training" / "train.json").read_text())["step"] == 1
    again = trained_in(trained, capsys, *words, "--resume", str(broken))
    found = [LocalModel.load(each["model"].removeprefix("local:"), device="cpu").fingerprint for each in (whole, again)]
    assert found[0] == found[1]
    begun = LocalModel.load(trained["start"], device="cpu", lora={"r": 2}, seed=0)
    assert begun.fingerprint != found[0]


def test_the_program_names_the_model_and_is_loaded_in_a_new_process(result: dict[str, Any]) -> None:
    manifest = json.loads((Path(result["program"]) / "manifest.json").read_text())
    assert manifest["lms"] == {"task": result["model"]}
    assert manifest["optimizer"]["name"] == "logo-grpo"
    words = [sys.executable, "-c", ASK, result["program"], manifest["lms"]["task"]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("answer: ")


def test_mlflow_has_series_and_both_folders(result: dict[str, Any]) -> None:
    from mempiler.runs.tracking import client

    store, run_id = client(), result["run_id"]
    metrics = store.get_run(run_id).data.metrics
    assert {"training.reward", "start.score", "result.score", "difference"} <= metrics.keys()
    assert [point.step for point in store.get_metric_history(run_id, "training.tokens") if point.step] == [1]
    assert {"outcome.json", "program", "model"} <= {found.path for found in store.list_artifacts(run_id)}


def test_the_page_has_the_questions_before_and_after(
    result: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    from mempiler.runs.pages.page import open_page

    page = open_page(result["run"])
    assert (list(page.phases), len(page.questions)) == (["before", "after"], result["result"]["n"])
    assert page.total is not None
    assert [each.value for each in page.total.scores] == [result["start"]["score"], result["result"]["score"]]
    assert "Training" in dict(page.facts)
    asked = [row for question in page.questions for row in question.rows if row is not None]
    # The memory itself is looked up in this world: nothing is asked to answer.
    assert all(row.seen is not None and not row.seen.calls for row in asked)
    assert {row.question[-1:] for row in asked} == {"?"}
    capsys.readouterr()
    assert run("show", result["run"], "--wrong") == 0
    assert f"of {result['result']['n']} questions" in capsys.readouterr().out


def test_a_finished_run_is_resumed_without_training_again(
    trained: dict[str, Any], result: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*command(trained, "--json", "--resume", result["run"])) == 0
    again = json.loads(capsys.readouterr().out)
    for phase in ("start", "result"):
        assert (again[phase]["score"], again[phase]["calls"]["task"]) == (result[phase]["score"], 0)
    assert again["training"]["tokens"] == result["training"]["tokens"]
    assert run(*command(trained, "--resume", result["run"], "--threads", "3")) == 0
    assert "Training: tokens" in capsys.readouterr().out
    assert run(*command(trained, "--train-set", "lora=2", "--resume", result["run"])) == 2
    assert "was started with lora" in capsys.readouterr().err
