"""What a local job says is wrong with a step reaches the journal's rows and the remarks of the result."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mempiler.engines.local.reinforce import MISMATCH, Step
from mempiler.optimizers.logo_grpo.groups import Group
from mempiler.optimizers.logo_grpo.journal import Progress
from mempiler.optimizers.logo_grpo.settings import TrainingSettings
from mempiler.optimizers.logo_grpo.trainer import Trainer

ROW = {"step": 1, "groups_global": 1, "groups_local": 0, "no_variance_global": 0, "no_variance_local": 0}


class Job:
    """A local job that answers what it is given."""

    said: Any = None

    def load_checkpoint(self, path: str) -> None:
        """Makes it one that takes more than the protocol's bare form."""

    def step(self, data: Any, form: Any) -> Any:
        return self.said


def test_rollouts_of_other_weights_are_a_warning_of_that_step_alone(tmp_path: Path) -> None:
    job = Job()
    provider = SimpleNamespace(reinforceable=True, ReinforceJob=Job)
    lm = SimpleNamespace(model="local/x", provider=provider, reinforce=lambda kwargs: job)
    trainer, group = Trainer(lm, {}, TrainingSettings(), tmp_path), Group(("user", 1, "manage", 0), "global", ())
    told = []
    for mismatch in (MISMATCH / 2, 2 * MISMATCH, 0.0):
        job.said = Step(mismatch=mismatch)
        numbers = trainer.train([group])
        assert all(isinstance(value, float) for value in numbers.values())
        told.append(trainer.warning)
    assert [bool(each) for each in told] == [False, True, False]
    assert "log-probabilities are 0.20 apart on average, a ratio of 1.22" in told[1]


def test_warnings_are_a_remark_of_the_training() -> None:
    assert Progress(rows=(ROW, {**ROW, "warning": "stale"})).remarks == ("1 of 2 steps: stale",)
    assert Progress(rows=(ROW,)).remarks == ()
