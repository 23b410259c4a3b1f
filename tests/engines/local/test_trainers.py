"""Several processes take the steps of one; what every trainer does with memory that ends, and gradients without end."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from mempiler.engines.local import processes
from mempiler.engines.local.engine import follow, local_lm
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.update import Update

from tests.engines.local.groups import text_group

TEXTS = ("w7", "w8 w9", "w3 w4 w5", "w6", "w1 w1 w1", "w2 w3", "w4")
REWARDS = (1.0, 0.0, 0.3, 0.7, 0.5, 0.1, 0.2)
CASES = [{"ratio": "token", "beta": 0.0}, {"ratio": "turn", "beta": 0.02}]


def job_of(model: Any, **settings: Any) -> Any:
    sizes = {"learning_rate": 1e-2, "batch_size": 5, "micro_batch_size": 2, "epochs": 2}
    return local_lm(model, temperature=1.0).reinforce({**sizes, **settings})


def results(folder: Path) -> dict[str, Any]:
    """By case the losses and weights of two steps on seven records, the run put back to a checkpoint in between."""
    found: dict[str, Any] = {}
    for n, case in enumerate(CASES):
        model = LocalModel.load(folder, lora={"r": 2} if n else None)
        job, group = job_of(model, output_dir=str(folder / f"{n}"), **case), text_group(model, *TEXTS, rewards=REWARDS)
        losses = [job.step([group]).loss]
        job.save_checkpoint("first")
        job.step([group])
        job.load_checkpoint(job.checkpoints["first"])
        losses.append(job.step([group]).loss)
        found |= {f"{n} {name}": weights for name, weights in model.state().items()}
        found[f"{n} losses"] = torch.tensor(losses)
        job.terminate()
    return found


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def torchrun(*words: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]


def main(folder: Path) -> None:
    """What each of two processes does; they stay together from one training to the next."""
    processes.leave = lambda: None
    if int(os.environ["RANK"]):
        assert [follow() for _ in CASES] == [True, True]
    else:
        torch.save(results(folder), folder / "found")


@pytest.fixture
def folder(make_model: Any, tmp_path: Path) -> Path:
    return make_model().save(tmp_path / "start")


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(folder: Path) -> None:
    (folder / "run.py").write_text(
        "import sys, pathlib\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "from tests.engines.local import test_trainers\n"
        f"test_trainers.main(pathlib.Path({str(folder)!r}))\n"
    )
    done = subprocess.run(torchrun(str(folder / "run.py")), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert apart(results(folder), torch.load(folder / "found")) < 1e-5


def test_a_gradient_that_is_no_number_is_left_out_and_counted(model: Any, monkeypatch: Any) -> None:
    job, before, part = job_of(model, epochs=1, batch_size=48), model.fingerprint, Update._part
    monkeypatch.setattr(Update, "_part", lambda self, rows, loss: part(self, rows, lambda each: loss(each) * torch.inf))
    assert job.step([text_group(model, *TEXTS, rewards=REWARDS)]).skipped == 1
    assert model.fingerprint == before
