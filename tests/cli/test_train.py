"""`mempiler train` from the command line: a small model, all objectives, a program that another process loads."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli import main

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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--lm", "offline"), "cannot be trained in this process; use --lm local:NAME"),
        (("--lm", "local:x", "--with", "ppo"), "--with 'ppo': choose one of logo-grpo, grpo, local"),
        (("--lm", "local:x", "--horizons", "8,x"), "--horizons '8,x'"),
        (("--lm", "local:x", "--horizons", "8,4"), "growing numbers of sessions"),
        (("--lm", "local:x", "--rollouts", "1"), "num_rollouts = 1"),
        (("--lm", "local:x", "--weights", "both"), "weights = 'both'; choose shared or separate"),
        (("--lm", "local:x", "--reward-set", "speed=1"), "--reward-set"),
        (("--lm", "local:x", "--reward-set", "compression=-1"), "compression = -1 is negative"),
        (("--lm", "local:x", "--plan"), "no --plan"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "memory-r2", "--on", "memory-env", *words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert says in lines[-1]
    assert lines[-1].startswith("mempiler: ")
    assert not any("Traceback" in line for line in lines)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A folder with a model that has seen some demonstrations."""
    pytest.importorskip("torch", reason=REASON)
    pytest.importorskip("transformers", reason=REASON)
    from mempiler.data.synthesis.memory_env import vocabulary
    from mempiler.engines.embedders import embedder
    from mempiler.engines.local import sft
    from mempiler.engines.local.model import LocalModel
    from mempiler.engines.local.tiny import create
    from mempiler.optimizers.demonstrations import demonstrate
    from mempiler.programs.catalog import build
    from mempiler.programs.compact_adapter import CompactAdapter
    from mempiler.programs.memory_r2.method import MemoryR2

    home = tmp_path_factory.mktemp("train")
    method: Any = build("memory-r2", "memory-lookup", embedder(), **MemoryR2.preset("memory-env")).method
    shown = demonstrate(method, CompactAdapter(), 8, sessions=2, seed=1)
    create(home / "start", shown, vocabulary(), seed=0)
    model = LocalModel.load(home / "start", device="cpu", threads=1)
    sft.fit(model, shown, steps=20, learning_rate=3e-3, batch=8, seed=0)
    model.save(home / "start")
    return {"home": home, "start": home / "start"}


def command(trained: dict[str, Any], *words: str) -> list[str]:
    sizes = ["--train", "2", "--dev", "1", "--test", "1", "--horizons", "1", "--steps", "1", "--validate-every", "1"]
    groups = ["--rollouts", "2", "--local-n", "2", "--histories", "1", "--answer-tokens", "24"]
    model = ["--lm", f"local:{trained['start']}", "--adapter", "compact"]
    return ["train", "memory-r2", "--on", "memory-env", *model, *sizes, *groups, *words]


@pytest.fixture(scope="module")
def result(trained: dict[str, Any]) -> dict[str, Any]:
    """What `train --json` printed."""
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert run(*command(trained, "--json")) == 0
    return json.loads(said.getvalue())


def test_every_objective_has_a_row_with_what_it_took(result: dict[str, Any]) -> None:
    assert [row["name"] for row in result["rows"]] == ["start", "grpo", "local", "logo-grpo"]
    assert len({row["n"] for row in result["rows"]}) == 1
    for row in result["rows"]:
        assert 0 <= row["greedy"] <= 1
        assert 0 <= row["sampled_failures"] <= 1
        assert (row["tokens"] > 0) is (row["name"] != "start")
    assert result["kept"] == "logo-grpo.0"


def test_the_program_names_the_model_and_is_loaded_in_a_new_process(result: dict[str, Any]) -> None:
    manifest = json.loads((Path(result["program"]) / "manifest.json").read_text())
    assert manifest["lms"] == {"task": f"local:{result['model']}"}
    assert manifest["optimizer"]["name"] == "logo-grpo"
    words = [sys.executable, "-c", ASK, result["program"], manifest["lms"]["task"]]
    done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ), timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("answer: ")


def test_mlflow_has_series_pictures_and_both_folders(result: dict[str, Any]) -> None:
    from mempiler.runs.tracking import client

    store = client()
    run_id = result["run_id"]
    metrics = store.get_run(run_id).data.metrics
    assert "logo-grpo.0.reward" in metrics
    assert "start.greedy" in metrics
    assert [point.step for point in store.get_metric_history(run_id, "grpo.0.tokens") if point.step] == [1]
    names = {found.path for found in store.list_artifacts(run_id)}
    assert {"curves.png", "scores.png", "outcome.json", "program", "model"} <= names


def test_a_finished_run_is_resumed_without_training_again(
    trained: dict[str, Any], result: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*command(trained, "--json", "--resume", result["run"])) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["rows"] == result["rows"]
    assert run(*command(trained, "--resume", result["run"])) == 0
    assert "logo-grpo.0" in capsys.readouterr().out
    assert run(*command(trained, "--seeds", "2", "--resume", result["run"])) == 2
    assert "was started with seeds" in capsys.readouterr().err


def test_separate_weights_are_kept_beside_each_other_and_asked_by_the_loaded_program(
    trained: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*command(trained, "--only", "--weights", "separate", "--json")) == 0
    result = json.loads(capsys.readouterr().out)
    model = Path(result["model"])
    assert sorted(path.name for path in (model / "roles").iterdir()) == ["extract", "manage"]
    words = ["evaluate", result["program"], "--on", "memory-env", "--lm", f"local:{model}", "--test", "1", "--json"]
    assert run(*words) == 0
    assert json.loads(capsys.readouterr().out)["n"] > 0
    assert run("train", "memory-r2", "--on", "memory-env", "--lm", f"local:{model}") == 2
    assert "holds a model for each role" in capsys.readouterr().err
