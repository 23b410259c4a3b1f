"""Several trainings, one after the other, in the same two processes.

The first process leads: it decides what is trained. The other one follows, and does its share of
every training.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mempiler.engines.local import processes
from mempiler.engines.local.engine import follow_all, local_lm
from mempiler.engines.local.model import LocalModel

from tests.engines.local.groups import text_group
from tests.engines.local.torchrun import run_in_two_processes

TRAININGS = 3


def main(folder: Path) -> None:
    """Lead trainings of the model in a folder, or follow them until all are done."""
    if processes.rank() == 0:
        lead_trainings(folder)
    else:
        assert follow_all()
        (folder / "follower.json").write_text(json.dumps("followed all trainings"))


def lead_trainings(folder: Path) -> None:
    """Train the model several times from the same weights, and write how many rows were trained."""
    trained_rows: list[int] = []
    for number in range(TRAININGS):
        # The other process is ready for the next training before this one begins it.
        time.sleep(0.3 * number)
        model = LocalModel.load(folder / "model")
        job = local_lm(model, temperature=1.0).reinforce({"learning_rate": 1e-2})
        assert processes.count() == 2
        group = text_group(model, "w7", "w8 w9", "w3", rewards=[1.0, 0.0, 0.5])
        trained_rows.append(job.step([group]).rows)
        job.terminate()
    processes.dismiss()
    (folder / "leader.json").write_text(json.dumps(trained_rows))


@pytest.mark.slow
def test_a_process_follows_all_trainings_until_it_is_dismissed(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    make_model().save(tmp_path / "model")

    run_in_two_processes("tests.engines.local.test_several_trainings", tmp_path, timeout=300)

    # Each training was one step on three texts.
    trained_rows = json.loads((tmp_path / "leader.json").read_text())
    assert trained_rows == [3] * TRAININGS
    message_of_follower = json.loads((tmp_path / "follower.json").read_text())
    assert message_of_follower == "followed all trainings"
