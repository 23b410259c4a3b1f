"""Training of separate weights: a reinforcement job for each role, which act as one.

A group names its `role` and trains that role's model alone. Each job has its own optimizer and, with a KL term, its own
reference; settings and seed are the same for all. A checkpoint is one file with the state of every job, so there is
never one role's without the other's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dspy.clients.provider import ReinforceJob, TrainingJob
from dspy.clients.utils_finetune import TrainDataFormat

from ...errors import DataError, UserError
from .job_state import read_checkpoint, write_checkpoint
from .provider import LocalProvider
from .reinforce import LocalReinforceJob, Step
from .roles import RoleModels

_SUMS = ("rows", "tokens", "left_out")
"""Numbers of a step that are also told of all roles together."""


class RoleReinforceJob(ReinforceJob):
    """Updates, in place, the models that an LM with roles samples.

    Args:
        lm: An LM over `RoleModels`.
        train_kwargs: See `settings.Reinforcement`; every role is trained with them.
    """

    def __init__(self, lm: Any, train_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(lm, train_kwargs)
        self.model: RoleModels = lm.engine.model
        self.jobs = {name: LocalReinforceJob(lm.over(each), train_kwargs) for name, each in self.model.models.items()}
        self._folder = next(iter(self.jobs.values())).settings.output_dir
        self._status = "pending"

    def initialize(self) -> None:
        """Starts the job of every role."""
        for job in self.jobs.values():
            job.initialize()
        self._status = "running"

    def get_status(self) -> dict[str, Any]:
        """The status of each role's job."""
        return {name: job.get_status() for name, job in self.jobs.items()}

    def status(self) -> str:
        """pending, running or terminated."""
        return self._status

    def step(
        self, train_data: Sequence[Mapping[str, Any]], train_data_format: TrainDataFormat | str | None = None
    ) -> dict[str, float | str]:
        """Trains each role on its groups; a role without any takes an empty step.

        Returns:
            The numbers of each role's step, as NAME.ROLE; rows, tokens and groups left out also in all; a `warning`.

        Raises:
            DataError: A group names no role that is trained, or is of the wrong form.
        """
        for group in train_data:
            if group.get("role") not in self.jobs:
                raise DataError(f"a group of role {group.get('role')!r}; trained are: {', '.join(self.jobs)}")
        found: dict[str, Step] = {}
        for name, job in self.jobs.items():
            found[name] = job.step([group for group in train_data if group["role"] == name], train_data_format)
        numbers: dict[str, float | str] = {
            each: float(sum(getattr(step, each) for step in found.values())) for each in _SUMS
        }
        for name, step in found.items():
            numbers |= {f"{each}.{name}": value for each, value in asdict(step).items()}
        return numbers | {"warning": next((step.warning for step in found.values() if step.warning), "")}

    def save_checkpoint(self, checkpoint_name: str) -> None:
        """Writes the state of every role to one file, `output_dir`/`checkpoint_name`.pt.

        Raises:
            UserError: There is no `output_dir`, or the job does not run.
        """
        state = {"roles": {name: job.state() for name, job in self.jobs.items()}}
        self.checkpoints[checkpoint_name] = str(write_checkpoint(self._folder, checkpoint_name, state))
        self.last_checkpoint = checkpoint_name

    def load_checkpoint(self, path: str | Path) -> None:
        """Puts every role back to a checkpoint.

        Raises:
            UserError: The file is no checkpoint of these roles, or the job does not run.
        """
        states = read_checkpoint(path, "roles")["roles"]
        if set(states) != set(self.jobs):
            raise UserError(f"{path}: holds weights of {', '.join(states)}, but trained are {', '.join(self.jobs)}")
        for name, job in self.jobs.items():
            job.load_state(states[name])

    def update_model(self) -> None:
        """Nothing to do: the LM samples the very weights that learn."""

    def terminate(self) -> None:
        """Releases the optimizers; the models are written beside each other to `output_dir`/model."""
        running = self._status == "running"
        self.cancel()
        self._status = "terminated"
        if running and self._folder is not None:
            self.model.save(Path(self._folder) / "model")

    def cancel(self) -> None:
        """Ends the jobs without writing anything."""
        for job in self.jobs.values():
            job.cancel()
        self._status = "cancelled"


class RoleProvider(LocalProvider):
    """Trains the models of an engine with roles.

    Args:
        model: The models.
    """

    def __init__(self, model: RoleModels) -> None:
        super().__init__(model)
        self.ReinforceJob = RoleReinforceJob

    def finetune(
        self,
        job: TrainingJob,
        model: str,
        train_data: Sequence[Mapping[str, Any]],
        train_data_format: TrainDataFormat | str | None,
        train_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Not done here.

        Raises:
            UserError: Always.
        """
        raise UserError(f"{model} has a model for each role, which fine-tuning cannot tell apart; start from one model")
