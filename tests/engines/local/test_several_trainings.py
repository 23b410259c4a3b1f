"""Several trainings, one after the other, in the same processes."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mempiler.engines.local import engine, processes

TRAININGS = 3


def main(folder: Path) -> None:
    """Lead trainings, or follow them and write down what they were; without models, which take minutes to load."""
    if processes.rank() == 0:
        for number in range(TRAININGS):
            # The other process is ready for the next training before this one begins it.
            time.sleep(0.3 * number)
            processes.connect()
            processes.broadcast((f"model {number}", {}))
            processes.leave()
        processes.dismiss()
        return

    models: list[str] = []

    def repeat_training(training: tuple[Any, dict[str, Any]]) -> None:
        models.append(training[0])
        processes.leave()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_repeat_training", repeat_training)
        assert engine.follow_all()
    (folder / "followed").write_text("\n".join(models))


@pytest.mark.slow
def test_a_process_follows_all_trainings_until_it_is_dismissed(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        f"import os, sys, pathlib\nsys.path.insert(0, {str(Path(__file__).parents[3])!r})\nfrom tests.engines.local "
        f"import test_several_trainings\ntest_several_trainings.main(pathlib.Path({str(tmp_path)!r}))\nos._exit(0)\n"
    )
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    followed = (tmp_path / "followed").read_text().splitlines()
    assert followed == [f"model {number}" for number in range(TRAININGS)]
