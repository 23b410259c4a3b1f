"""`mempiler train` from the command line: a small model, and a program that another process loads."""

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import run_cli as printed

pytestmark = pytest.mark.slow


def warmed_up(folder: Path, conversations: int, **tuning: Any) -> Path:
    """Makes a model of a few thousand weights that has seen demonstrations: right now and then, and malformed too."""
    from mempiler.data.memory_env import vocabulary
    from mempiler.engines.embedders import embedder
    from mempiler.engines.local import sft
    from mempiler.engines.local.model import LocalModel
    from mempiler.engines.local.settings import Finetuning
    from mempiler.engines.local.tiny import create
    from mempiler.optimizers.demonstrations import demonstrate
    from mempiler.programs.catalog import build, preset
    from mempiler.programs.compact_adapter import CompactAdapter

    method: Any = build("memory-r2", "memory-lookup", embedder(), **preset("memory-r2", "memory-env")).method
    shown = demonstrate(method, CompactAdapter(), conversations, sessions=2, seed=1)
    words = [*vocabulary(), *(f"m{n}" for n in range(1, 9)), *(f"D{s}:{t}" for s in (1, 2) for t in (1, 2))]
    create(folder, shown, words, seed=0)
    model = LocalModel.load(folder, device="cpu")
    sft.fit(model, shown, Finetuning(learning_rate=3e-3, **tuning))
    return model.save(folder)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that has seen some demonstrations."""
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason="the `local` extra is not installed: pip install '.[local]'")
    return warmed_up(tmp_path_factory.mktemp("train") / "start", 8, steps=120)


SIZES = "--train 2 --dev 1 --test 1 --adapter compact --benchmark-set users=10 --benchmark-set sessions=2"
SETTINGS = "validate_every=1 num_rollouts=2 local_n=2 histories=1 answer_tokens=24 horizons=[1] steps=1"
# Members of a group that all have the same reward teach nothing. This model's differ in what cannot be read.
SETTINGS += " format_penalty=0.5 unknown_id_penalty=0.2 learning_rate=1e-4"


def command(start: Path, *words: str) -> list[str]:
    given = [*SIZES.split(), *(word for each in SETTINGS.split() for word in ("--train-set", each))]
    return ["train", "memory-r2", "--benchmark", "memory-env", "--lm", f"local:{start}", *given, *words]


def trained(start: Path, *words: str) -> dict[str, Any]:
    """What `train --json` prints."""
    code, out, err = printed(*command(start, "--json", *words))
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def result(start: Path) -> dict[str, Any]:
    """A finished training, with the completions that were trained on as `items`."""
    from mempiler.engines.local.trainer import LocalReinforceJob

    step, heard = LocalReinforceJob.step, list[Any]()
    listening = lambda self, data, form=None: (heard.extend(data), step(self, data))[1]  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalReinforceJob, "step", listening)
        found = trained(start)
    return {**found, "items": [item for group in heard for item in group["group"]]}


def test_the_tokens_that_were_sampled_are_the_tokens_that_are_trained(result: dict[str, Any]) -> None:
    from mempiler.engines.local.model import LocalModel

    model = LocalModel.load(result["model"].removeprefix("local:"), device="cpu")
    assert result["items"]
    for item in result["items"]:
        ids = item["completion_ids"]
        assert len(ids) == len(item["logprobs"]) > 0
        assert item["prompt_ids"] == model.encode(item["messages"])
        said = ids[:-1] if ids[-1] in model.ends else ids
        assert model.decode(said) == item["completion"]["content"]


def test_the_test_questions_are_scored_before_and_after_and_say_what_it_took(result: dict[str, Any]) -> None:
    assert result["before"]["n"] == result["after"]["n"] == result["difference"]["n"] > 0
    assert {name for name in ("tokens", "steps", "validation") if result["training"][name] > 0} >= {"tokens", "steps"}
    assert result["before"]["calls"] == result["after"]["calls"]


def test_the_completions_of_a_training_lie_in_its_plan(start: Path) -> None:
    made = trained(start, "--optimizer", "local")
    plan = trained(start, "--optimizer", "local", "--plan", "--train-set", "usd_per_hour=36")
    planned = plan["phases"]["training"]["high"]
    rows = json.loads(Path(made["run"], "training", "train.json").read_text())["rows"]
    completions = sum(row.get("completions", 0) for row in rows)
    assert 0 < completions <= planned < 20 * completions
    # By the rate of the training above: 36 dollars an hour are 60 cents a minute.
    assert plan["usd"]["high"] == pytest.approx(0.6 * plan["minutes"]["high"], rel=0.01)
    assert plan["minutes"]["high"] > 0


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


@pytest.mark.parametrize("trainer", ["local", "trl"])
def test_a_killed_process_resumes_to_the_very_weights_of_an_unbroken_run(start, trainer, monkeypatch, tmp_path) -> None:
    """Killed when the checkpoint of step 2 is written and the journal does not name it yet; with a new adapter."""
    from mempiler.engines.local.model import LocalModel

    # Without validation users the last weights are kept.
    words = ["--optimizer", "grpo", "--threads", "1", "--dev", "0", "--trainer", trainer]
    words += [word for each in ("lora=2", "steps=3", "num_rollouts=6") for word in ("--train-set", each)]
    whole = trained(start, *words)
    journal = json.loads((Path(whole["run"]) / "training" / "train.json").read_text())
    assert [row["train_rows"] > 0 for row in journal["rows"]] == [True] * 3
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    killed = [sys.executable, "-c", KILL, "2", *command(start, *words)]
    done = subprocess.run(killed, capture_output=True, timeout=600, check=False)
    assert done.returncode == -signal.SIGKILL
    (broken,) = tmp_path.glob("*-train-*")
    assert json.loads((broken / "training" / "train.json").read_text())["step"] == 1
    again = trained(start, *words, "--resume", str(broken))
    found = [LocalModel.load(each["model"].removeprefix("local:"), device="cpu").fingerprint for each in (whole, again)]
    assert found[0] == found[1]
    assert LocalModel.load(start, device="cpu", lora={"r": 2}, seed=0).fingerprint != found[0]


def test_both_trainers_end_with_the_same_scores(start: Path) -> None:
    words = ["--threads", "1", "--train-set", "steps=2", "--train-set", "num_rollouts=4", "--train-set", "beta=0.02"]
    one, other = (trained(start, *words, "--trainer", trainer) for trainer in ("local", "trl"))
    for phase in ("before", "after"):
        assert one[phase]["score"] == pytest.approx(other[phase]["score"], abs=1e-3)
    assert one["training"]["validation"] == pytest.approx(other["training"]["validation"], abs=1e-3)


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "mempiler"]


@pytest.mark.parametrize("trainer", ["local", "trl"])
def test_two_processes_one_of_which_is_killed_resume_to_the_weights_of_one(start, trainer, monkeypatch, tmp_path):
    """When one is killed all end with one line."""
    from mempiler.engines.local.model import LocalModel

    words = ["--optimizer", "grpo", "--threads", "1", "--dev", "0", "--trainer", trainer]
    words = command(start, *words, "--train-set", "num_rollouts=3", "--train-set", "steps=12", "--json")
    alone = json.loads(printed(*words)[1])
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    with subprocess.Popen([*TORCHRUN, *words], stderr=subprocess.PIPE, text=True) as run:
        while not [*tmp_path.glob("*/training/step-[3-9].pt")]:
            time.sleep(0.1)
        (second,) = [each for each in psutil.Process(run.pid).children() if each.environ().get("RANK") == "1"]
        second.kill()
        said = run.communicate(timeout=600)[1].splitlines()
    (line,) = [line for line in said if line.startswith("mempiler: ")]
    assert line.startswith(("mempiler: another process of the training has ended", "mempiler: stopped"))
    (broken,) = tmp_path.glob("*-train-*")
    done = subprocess.run([*TORCHRUN, *words, "--resume", str(broken)], capture_output=True, check=True)
    one, other, begun = (
        LocalModel.load(name.removeprefix("local:"), device="cpu").state()
        for name in (alone["model"], json.loads(done.stdout)["model"], str(start))
    )
    assert max(float((one[name] - other[name]).abs().max()) for name in begun) < 1e-5
    assert max(float((one[name] - begun[name]).abs().max()) for name in begun) > 1e-5


def test_the_program_names_the_model_and_is_asked(result: dict[str, Any], tmp_path: Path) -> None:
    manifest = json.loads((Path(result["program"]) / "manifest.json").read_text())
    assert manifest["lms"] == {"task": result["model"]}
    assert manifest["optimizer"]["name"] == "logo-grpo"
    (tmp_path / "chat.json").write_text('[{"role": "user", "name": "Ada", "content": "my pet is cat"}]')
    words = ["ask", result["program"], "What is Ada's pet?", "--lm", result["model"], "--json"]
    assert json.loads(printed(*words, "--history", f"{tmp_path}/chat.json")[1])["lm"] == result["model"]


def test_mlflow_and_the_page_have_it(result: dict[str, Any]) -> None:
    from mempiler.runs.folder import RunFolder
    from mempiler.runs.pages.page import open_page
    from mempiler.runs.tracking.store import client

    store, run_id = client(), result["run_id"]
    metrics = store.get_run(run_id).data.metrics
    assert {"training.reward", "before.score", "after.score", "after.calls", "difference"} <= metrics.keys()
    assert [point.step for point in store.get_metric_history(run_id, "training.tokens") if point.step] == [1]
    assert {"outcome.json", "program", "model"} <= {found.path for found in store.list_artifacts(run_id)}
    page = open_page(RunFolder.open(result["run"]))
    assert list(page.phases) == ["before", "after"]
    assert len(page.questions) == result["after"]["n"]
    assert page.total is not None
    assert [each.value for each in page.total.scores] == [result["before"]["score"], result["after"]["score"]]
    asked = [row for question in page.questions for row in question.rows if row is not None]
    # The memory itself is looked up in this world: nothing is asked to answer.
    assert all(row.trace is not None and not row.trace.calls for row in asked)
    assert f"of {result['after']['n']} questions" in printed("show", result["run"], "--wrong")[1]


def test_a_finished_run_is_resumed_without_training_again(start: Path, result: dict[str, Any]) -> None:
    from mempiler.runs.folder import RunFolder
    from mempiler.runs.pages.page import open_page

    again = trained(start, "--resume", result["run"], "--threads", "3")
    for phase in ("before", "after"):
        assert again[phase]["score"] == result[phase]["score"]
        assert again[phase]["calls"]["task"] == 0
    assert again["training"]["tokens"] == result["training"]["tokens"]
    # The command on its page is that of the very same run.
    facts = dict(open_page(RunFolder.open(result["run"])).facts)
    repeated = shlex.split(facts["Command"])[1:]
    code, out, err = printed(*repeated, "--resume", result["run"], "--json")
    assert code == 0, err
    assert json.loads(out)["after"]["calls"]["task"] == 0
    code, _, err = printed(*command(start, "--train-set", "lora=2", "--resume", result["run"]))
    assert code == 2
    assert "was started with lora" in err


PAPER_OF_TWO = """
import sys
from mempiler.cli import main
from mempiler.runs.papers import paper

def read_paper(name):
    variants = {
        "one step": {"program": "memory-r2", "tuned": {"optimizer": "logo-grpo", "settings": {"steps": 1}}},
        "two steps": {"program": "memory-r2", "tuned": {"optimizer": "logo-grpo", "settings": {"steps": 2}}},
    }
    section = {
        "name": "both",
        "title": "two trainings",
        "benchmark": "memory-env",
        "variants": list(variants),
        "baseline": "one step",
        "columns": [{"name": "score"}],
    }
    return paper.Paper(name=name, summary="", variants=variants, sections=[section])

paper.read_paper = read_paper
main(sys.argv[1:])
"""
PAPER_WORDS = [
    *("--adapter", "compact", "--train", "2", "--dev", "1", "--test", "1", "--threads", "1"),
    *("--benchmark-set", "users=10", "--benchmark-set", "sessions=2"),
]


def test_the_trainings_of_a_paper_follow_one_another_in_two_processes(start, monkeypatch, tmp_path):
    """They end with the weights that one process gives, and have what is chosen for all but for what they are about."""
    from mempiler.engines.local.model import LocalModel

    script = tmp_path / "paper.py"
    script.write_text(PAPER_OF_TWO)
    chosen = "validate_every=1 num_rollouts=3 local_n=2 histories=1 answer_tokens=24 horizons=[1] steps=7 threads=1"
    words = ["reproduce", "tiny", "--lm", f"local:{start}", *PAPER_WORDS, "--json"]
    words += [word for each in chosen.split() for word in ("--train-set", each)]
    found = []
    for number, launcher in enumerate(([sys.executable], TORCHRUN[:-2])):
        monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / str(number)))
        gpus = ["--train-set", "train_gpus=2"] if number else []
        done = subprocess.run([*launcher, str(script), *words, *gpus], capture_output=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        found.append(json.loads(done.stdout))

    for made in found:
        steps = [json.loads(path.read_text())["step"] for path in Path(made["run"]).glob("parts/*/training/train.json")]
        assert sorted(steps) == [1, 2]
        assert "one step is trained with its own steps = 1: that is what the row is about" in made["notes"]

    weights = []
    for made in found:
        by_steps = {}
        for path in Path(made["run"]).glob("parts/*/training/train.json"):
            model = LocalModel.load(path.parent / "model", device="cpu")
            by_steps[json.loads(path.read_text())["step"]] = model.state()
        weights.append(by_steps)
    one, other = weights
    for step in (1, 2):
        gaps = [float((one[step][name] - other[step][name]).abs().max()) for name in one[step]]
        assert max(gaps) < 1e-5
    assert any(not one[1][name].equal(one[2][name]) for name in one[1])
