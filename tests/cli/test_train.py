"""`mempiler train` from the command line: a small model, and a program that others can load.

`train` changes the weights of a model on this machine, so that the method memory-r2 writes better
memories with it. In each step the model writes several memories of the same conversation (a group),
questions are answered from them, and the scores are the rewards. The journal notes each step, so
that a training that was killed goes on. The model here has a few thousand weights, and has seen
demonstrations, so that some of its memories are better than others.
"""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from ..command_line import json_of, run_cli
from ..conftest import tracking_in_mlflow, within
from ..demonstrated_model import save_demonstrated_model

pytestmark = pytest.mark.slow

TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
]
"""Begins the command line of a training in two processes."""

SAME_WEIGHTS = 1e-5
"""How far weights may differ that one and two processes sum up in another order."""


# --- commands and models ----------------------------------------------------------------------


def train_settings(*pairs: str) -> list[str]:
    """Return options of `--train-set` for settings such as "steps=1"."""
    options: list[str] = []
    for pair in pairs:
        options.extend(["--train-set", pair])
    return options


SMALL_BENCHMARK = [
    *("--train", "2"),
    *("--dev", "1"),
    *("--test", "1"),
    *("--adapter", "compact"),
    *("--benchmark-set", "users=10"),
    *("--benchmark-set", "sessions=2"),
]
SMALL_TRAINING = train_settings(
    "validate_every=1",
    "num_rollouts=2",
    "local_n=2",
    "histories=1",
    "answer_tokens=24",
    "horizons=[1]",
    "steps=1",
    # Members of a group that all have the same reward teach nothing. The members of this model's
    # groups differ in what cannot be read.
    "format_penalty=0.5",
    "unknown_id_penalty=0.2",
    "learning_rate=1e-4",
)


def train_command(start_model: Path, *options: str) -> list[str]:
    """Return the words of a small training; `options` come last, and replace earlier ones."""
    return [
        *("train", "memory-r2"),
        *("--benchmark", "memory-env"),
        *("--lm", f"local:{start_model}"),
        *SMALL_BENCHMARK,
        *SMALL_TRAINING,
        *options,
    ]


def train(start_model: Path, *options: str) -> dict[str, Any]:
    """Run a small training; return what it prints."""
    return json_of(run_cli, *train_command(start_model, *options))


def load_model(name: str | Path) -> Any:
    """Load a model by its folder, or by a name such as "local:FOLDER"."""
    from mempiler.engines.local.model import LocalModel

    return LocalModel.load(str(name).removeprefix("local:"), device="cpu")


def largest_difference(weights: Mapping[str, Any], others: Mapping[str, Any]) -> float:
    """Return the largest difference between weights of the same names."""
    assert weights.keys() == others.keys()
    return max(float((weights[name] - others[name]).abs().max()) for name in weights)


def journal_of(run: str | Path) -> dict[str, Any]:
    """Return what the training of a run has noted after its latest step."""
    return json.loads((Path(run) / "training" / "train.json").read_text())


@pytest.fixture(scope="module")
def start_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that has seen demonstrations."""
    extra = "the `local` extra is not installed: pip install '.[local]'"
    pytest.importorskip("torch", reason=extra)
    pytest.importorskip("transformers", reason=extra)
    return save_demonstrated_model(tmp_path_factory.mktemp("train") / "start", steps=120)


@dataclass(frozen=True)
class Training:
    """A finished training."""

    result: dict[str, Any]
    """What the command printed."""
    completions: list[dict[str, Any]]
    """The completions that were trained on."""


@pytest.fixture(scope="module")
def finished_training(start_model: Path) -> Training:
    """A finished training of one step, by the default optimizer, which MLflow has recorded."""
    from mempiler.engines.local.trainer import LocalReinforceJob

    completions: list[dict[str, Any]] = []
    take_step = LocalReinforceJob.step

    def record_and_take_step(job: Any, groups: Any, data_format: Any = None) -> Any:
        for group in groups:
            completions.extend(group["group"])
        return take_step(job, groups)

    with tracking_in_mlflow(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalReinforceJob, "step", record_and_take_step)
        result = train(start_model)
    return Training(result, completions)


# --- a training and its record ----------------------------------------------------------------


def test_the_tokens_that_were_sampled_are_the_tokens_that_are_trained(
    finished_training: Training,
) -> None:
    """A text that is encoded once more may give other tokens than those that were sampled."""
    model = load_model(finished_training.result["model"])

    assert finished_training.completions
    for completion in finished_training.completions:
        tokens = completion["completion_ids"]
        # A completion that was not cut ends with a token that is no text.
        text_tokens = tokens[:-1] if tokens[-1] in model.ends else tokens
        assert model.decode(text_tokens) == completion["completion"]["content"]
        assert len(completion["logprobs"]) == len(tokens)
        assert completion["prompt_ids"] == model.encode(completion["messages"])


def test_the_same_test_questions_are_scored_before_and_after_the_training(
    finished_training: Training,
) -> None:
    before = finished_training.result["before"]
    after = finished_training.result["after"]

    assert before["n"] > 0
    assert after["n"] == before["n"]
    assert after["calls"] == before["calls"]
    assert finished_training.result["difference"]["n"] == before["n"]


def test_the_completions_of_a_training_are_within_its_plan(start_model: Path) -> None:
    """The plan is an upper bound, and must not be more than twenty times too high."""
    result = train(start_model, "--optimizer", "local")

    plan = train(start_model, "--optimizer", "local", "--plan")

    completions = sum(row.get("completions", 0) for row in journal_of(result["run"])["rows"])
    planned_completions = plan["phases"]["training"]["high"]
    assert 0 < completions <= planned_completions < 20 * completions


@pytest.mark.usefixtures("finished_training")
def test_a_plan_counts_time_and_cost_if_a_training_has_shown_how_fast_the_machine_is(
    start_model: Path,
) -> None:
    """60 dollars an hour are one dollar a minute."""
    plan = train(start_model, "--plan", *train_settings("usd_per_hour=60"))

    minutes = plan["minutes"]["high"]
    assert minutes > 0
    assert plan["usd"]["high"] == pytest.approx(minutes, rel=0.01)


def test_the_saved_program_names_its_model_and_optimizer(finished_training: Training) -> None:
    manifest_file = Path(finished_training.result["program"]) / "manifest.json"

    manifest = json.loads(manifest_file.read_text())

    assert manifest["lms"] == {"task": finished_training.result["model"]}
    assert manifest["optimizer"]["name"] == "logo-grpo"


def test_the_saved_program_is_asked_with_its_model(
    finished_training: Training, tmp_path: Path
) -> None:
    """The trained model has a few thousand weights, so its answer need not be right."""
    chat = tmp_path / "chat.json"
    chat.write_text('[{"role": "user", "name": "Ada", "content": "my pet is cat"}]')

    answer = json_of(
        run_cli,
        *("ask", finished_training.result["program"], "What is Ada's pet?"),
        *("--history", str(chat)),
        *("--lm", finished_training.result["model"]),
    )

    assert answer["lm"] == finished_training.result["model"]


def test_mlflow_has_the_metrics_and_files_of_a_training(finished_training: Training) -> None:
    from mempiler.runs.tracking.store import client

    run_id = finished_training.result["run_id"]

    metrics = client().get_run(run_id).data.metrics
    files = {file.path for file in client().list_artifacts(run_id)}

    assert metrics.keys() >= {
        "training.reward",
        "before.score",
        "after.score",
        "after.calls",
        "difference",
    }
    assert files >= {"outcome.json", "program", "model"}


def page_of(training: Training) -> Any:
    """Return the page of the run of a training."""
    from mempiler.runs.folder import RunFolder
    from mempiler.runs.pages.page import open_page

    return open_page(RunFolder.open(training.result["run"]))


def test_the_page_of_a_training_has_the_questions_before_and_after(
    finished_training: Training,
) -> None:
    page = page_of(finished_training)

    before = finished_training.result["before"]
    after = finished_training.result["after"]
    assert list(page.phases) == ["before", "after"]
    assert len(page.questions) == after["n"]
    assert [score.value for score in page.total.scores] == [before["score"], after["score"]]


def test_the_page_of_a_training_has_no_calls_for_answers(finished_training: Training) -> None:
    """In this benchmark an answer is looked up in the memory, so no model is asked for it."""
    page = page_of(finished_training)

    rows: list[Any] = []
    for question in page.questions:
        rows.extend(row for row in question.rows if row is not None)
    assert len(rows) > 0
    for row in rows:
        assert not row.trace.calls


# --- going on ---------------------------------------------------------------------------------


def test_a_finished_training_is_resumed_without_training_once_more(
    start_model: Path, finished_training: Training
) -> None:
    """All answers and weights of the run are kept, so nothing is asked again."""
    resumed = train(start_model, "--resume", finished_training.result["run"])

    assert resumed["before"]["calls"]["task"] == 0
    assert resumed["after"]["calls"]["task"] == 0
    assert resumed["after"]["score"] == finished_training.result["after"]["score"]
    assert resumed["training"]["tokens"] == finished_training.result["training"]["tokens"]


def test_the_command_on_the_page_of_a_training_resumes_the_same_run(
    finished_training: Training,
) -> None:
    """The page of a run shows the command by which it was started."""
    facts = dict(page_of(finished_training).facts)
    program_name, *words = shlex.split(facts["Command"])
    assert program_name == "mempiler"

    resumed = json_of(run_cli, *words, "--resume", finished_training.result["run"])

    assert resumed["after"]["calls"]["task"] == 0


def test_a_training_is_not_resumed_with_other_settings(
    start_model: Path, finished_training: Training
) -> None:
    """`lora` is the size of an adapter, which the first training did not have."""
    words = train_command(start_model, *train_settings("lora=2"))

    code, _, err = run_cli(*words, "--resume", finished_training.result["run"])

    assert code == 2
    assert "was started with lora" in err


TRAIN_AND_DIE = """
import os
import signal
import sys

from mempiler.cli import main
from mempiler.optimizers.logo_grpo.journal import Journal

last_step = int(sys.argv[1])
write = Journal.write

def write_or_die(journal, progress):
    if progress.step == last_step:
        os.kill(os.getpid(), signal.SIGKILL)
    write(journal, progress)

Journal.write = write_or_die
main(sys.argv[2:])
"""
"""Trains, and kills itself in a certain step.

The checkpoint of the step is written then, and the journal does not name it yet.
"""


def train_and_die(start_model: Path, options: list[str], step: int) -> None:
    """Run a small training in a process that kills itself in a certain step."""
    process = subprocess.run(
        [sys.executable, "-c", TRAIN_AND_DIE, str(step), *train_command(start_model, *options)],
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("trainer", ["local", "trl"])
def test_a_killed_training_is_resumed_to_the_very_weights_of_an_unbroken_one(
    start_model: Path, trainer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The process dies in step 2 of 3, after its checkpoint and before the journal is written.

    So this step is taken once more.
    """
    options = [
        *("--optimizer", "grpo"),
        *("--trainer", trainer),
        *("--threads", "1"),
        # Without validation the last weights are kept.
        *("--dev", "0"),
        # With an adapter, whose weights are new.
        *train_settings("lora=2", "steps=3", "num_rollouts=6"),
    ]
    unbroken = train(start_model, *options)

    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    train_and_die(start_model, options, step=2)
    (killed_run,) = tmp_path.glob("*-train-*")
    assert journal_of(killed_run)["step"] == 1
    resumed = train(start_model, *options, "--resume", str(killed_run))

    weights = load_model(unbroken["model"]).fingerprint
    assert load_model(resumed["model"]).fingerprint == weights
    # Every step has changed weights.
    trained_completions = [row["train_rows"] for row in journal_of(unbroken["run"])["rows"]]
    assert len(trained_completions) == 3
    assert min(trained_completions) > 0


def test_both_trainers_end_with_the_same_scores(start_model: Path) -> None:
    """The trainer `local` is ours, and `trl` is a library of Hugging Face."""
    settings = train_settings("steps=2", "num_rollouts=4", "beta=0.02")

    ours = train(start_model, "--threads", "1", *settings, "--trainer", "local")
    of_trl = train(start_model, "--threads", "1", *settings, "--trainer", "trl")

    assert of_trl["after"]["score"] == pytest.approx(ours["after"]["score"], abs=1e-3)
    validation = ours["training"]["validation"]
    assert of_trl["training"]["validation"] == pytest.approx(validation, abs=1e-3)


# --- two processes ----------------------------------------------------------------------------


def process_of_rank(launcher: int, rank: str) -> psutil.Process:
    """Return the process of a training that has this rank, by the launcher's process id."""
    for process in psutil.Process(launcher).children():
        if process.environ().get("RANK") == rank:
            return process
    raise AssertionError(f"no process of rank {rank} runs")


def kill_one_of_two_processes(command: list[str], home: Path) -> str:
    """Start a training in two processes, and kill the second on the way; return the errors."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as launcher:
        assert within(600, lambda: list(home.glob("*/training/step-[3-9].pt")))
        process_of_rank(launcher.pid, "1").kill()
        _, err = launcher.communicate(timeout=600)
    return err


def test_two_processes_one_of_which_is_killed_resume_to_the_weights_of_one(
    start_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two processes share a training. When one is killed, both end, with one line.

    The resumed training ends with the weights of one process alone, but for rounding. That TRL's
    trainer does so, too, is tested in tests/engines/local/test_trainers.py.
    """
    words = train_command(
        start_model,
        *("--optimizer", "grpo"),
        *("--threads", "1"),
        *("--dev", "0"),
        *train_settings("num_rollouts=3", "steps=12"),
        "--json",
    )
    two_processes = [*TORCHRUN, "-m", "mempiler", *words]
    alone = json_of(run_cli, *words)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))

    errors = kill_one_of_two_processes(two_processes, home=tmp_path)
    (message,) = [line for line in errors.splitlines() if line.startswith("mempiler: ")]
    assert message.startswith(
        ("mempiler: another process of the training has ended", "mempiler: stopped")
    )

    (killed_run,) = tmp_path.glob("*-train-*")
    process = subprocess.run(
        [*two_processes, "--resume", str(killed_run)], capture_output=True, check=True
    )
    resumed = json.loads(process.stdout)

    weights = load_model(resumed["model"]).state()
    assert largest_difference(weights, load_model(alone["model"]).state()) < SAME_WEIGHTS
    # The training has changed the weights that it began with.
    assert largest_difference(weights, load_model(start_model).state()) > SAME_WEIGHTS


REPRODUCE_PAPER_OF_TWO_TRAININGS = """
import sys

from mempiler.cli import main
from mempiler.runs.papers import paper

def training(steps):
    return {
        "program": "memory-r2",
        "tuned": {"optimizer": "logo-grpo", "settings": {"steps": steps}},
    }

def read_paper(name):
    variants = {"one step": training(1), "two steps": training(2)}
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
"""Runs the command line with a paper that compares a training of one step with one of two."""


@dataclass(frozen=True)
class Reproduction:
    """A finished reproduction of the paper of two trainings."""

    result: dict[str, Any]
    """What the command printed."""
    weights_by_steps: dict[int, Mapping[str, Any]]
    """The weights of each training, by the number of its steps."""


@pytest.fixture
def reproduce(
    start_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Reproduction]:
    """A function that runs the paper of two trainings in a results folder of its own.

    Its arguments are the program that starts the script, and further options.
    """
    script = tmp_path / "paper.py"
    script.write_text(REPRODUCE_PAPER_OF_TWO_TRAININGS)
    words = [
        *("reproduce", "tiny"),
        *("--lm", f"local:{start_model}"),
        *SMALL_BENCHMARK,
        *("--threads", "1"),
        *train_settings(
            "validate_every=1",
            "num_rollouts=3",
            "local_n=2",
            "histories=1",
            "answer_tokens=24",
            "horizons=[1]",
            "steps=7",
            "threads=1",
        ),
        "--json",
    ]

    def run(name: str, launcher: list[str], *options: str) -> Reproduction:
        monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / name))
        process = subprocess.run(
            [*launcher, str(script), *words, *options],
            capture_output=True,
            timeout=900,
            check=False,
        )
        assert process.returncode == 0, process.stderr.decode()[-2000:]
        result = json.loads(process.stdout)

        weights_by_steps: dict[int, Mapping[str, Any]] = {}
        for part in Path(result["run"]).glob("parts/*/training"):
            steps = journal_of(part.parent)["step"]
            weights_by_steps[steps] = load_model(part / "model").state()
        return Reproduction(result, weights_by_steps)

    return run


def test_a_training_of_a_paper_keeps_the_steps_that_its_row_is_about(
    reproduce: Callable[..., Reproduction],
) -> None:
    """The user asks for seven steps. The rows of the paper are about one step and two steps."""
    reproduction = reproduce("home", [sys.executable])

    assert sorted(reproduction.weights_by_steps) == [1, 2]
    note = "one step is trained with its own steps = 1: that is what the row is about"
    assert note in reproduction.result["notes"]
    weights = reproduction.weights_by_steps
    assert largest_difference(weights[1], weights[2]) > 0


def test_the_trainings_of_a_paper_end_with_the_same_weights_in_two_processes(
    reproduce: Callable[..., Reproduction],
) -> None:
    """`mempiler reproduce` trains all variants of a paper, one after the other."""
    one_process = reproduce("one-process", [sys.executable])
    two_processes = reproduce("two-processes", TORCHRUN, *train_settings("train_gpus=2"))

    for steps in (1, 2):
        weights_of_one = one_process.weights_by_steps[steps]
        weights_of_two = two_processes.weights_by_steps[steps]
        assert largest_difference(weights_of_one, weights_of_two) < SAME_WEIGHTS
