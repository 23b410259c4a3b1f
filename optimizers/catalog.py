"""The optimizers by name: what each changes, needs and costs.

    entry = optimizer("gepa")
    entry.check(job)            # needs are checked before the first paid call
    compiled = entry.run(job)

`mempiler list optimizers` prints this catalog. What a job is, and the way from it to a compiled
program, stands in `job.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UnknownNameError
from .settings import ALL_SETTINGS

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from .job import OptimizerJob


@dataclass(frozen=True)
class Optimizer:
    """One entry of the catalog; `runners.RUNNERS` has the function that runs it."""

    name: str
    settings: Mapping[str, Any]
    """Settings with their defaults."""
    changes: str
    """What it changes in a program."""
    cost: str
    """What it costs, roughly."""
    validates: bool = False
    """Whether it needs a valset, taken from the training questions."""
    needs: str = "training questions"

    def check(self, job: OptimizerJob) -> None:
        """Raise a UserError where a need of the optimizer is not met."""
        check = _runners().CHECKS.get(self.name)
        if check is not None:
            check(job)

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Compile the job's student; return what DSPy's teleprompter returns."""
        return _runners().RUNNERS[self.name](job)


def _runners() -> Any:
    """Import the runners, and DSPy with them, only when one is needed."""
    return import_module(".runners", __package__)


def _read_catalog() -> dict[str, Optimizer]:
    """Return the entries of `catalog.json` with the settings of each, by name."""
    text = Path(__file__).with_name("catalog.json").read_text(encoding="utf-8")
    defaults = {settings.name: settings().to_dict() for settings in ALL_SETTINGS}

    entries: dict[str, Optimizer] = {}
    for name, description in json.loads(text).items():
        entries[name] = Optimizer(name, defaults[name], **description)
    return entries


OPTIMIZERS = _read_catalog()
"""By name."""


def optimizer(name: str) -> Optimizer:
    """Return the entry of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name]
