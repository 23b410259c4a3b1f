"""The optimizers by name: what each changes, needs and costs, and the job that each is run with.

Needs are checked before the first paid call. `mempiler list optimizers` prints this catalog.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UnknownNameError
from .settings import ALL_SETTINGS

if TYPE_CHECKING:
    import dspy

    from ..programs.program import MemoryProgram
    from .metric_views import MetricViews

MAX_ERRORS = 1_000_000
"""Errors an optimizer tolerates: the guard at the LM boundary decides when to stop, not a count of ten."""


@dataclass(frozen=True)
class OptimizerJob:
    """Everything an optimizer is run with."""

    student: MemoryProgram
    train: Sequence[dspy.Example]
    """Examples to learn from; for optimizers without a valset, all of them."""
    val: Sequence[dspy.Example]
    """Examples to choose by; empty for optimizers without a valset."""
    metric_views: MetricViews
    task_lm: Any
    prompt_lm: Any
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    threads: int = 8
    on_failure: Callable[[Exception], None] = lambda error: None
    """Told what ended a step of several, which the others outlive."""
    category: Callable[[dspy.Example], str] = lambda example: ""
    """The category of a question: labelled demos are spread over them."""
    on_note: Callable[[str], None] = lambda line: None
    """Told what a user should know of the result, in one line."""


@dataclass(frozen=True)
class Optimizer:
    """One entry of the catalog: `runners.run_NAME` runs it."""

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

    def run(self, job: OptimizerJob) -> Any:
        """Runs it; what DSPy's teleprompter returns."""
        return getattr(_runners(), f"run_{self.name.replace('-', '_')}")(job)

    def check(self, job: OptimizerJob) -> None:
        """Raises a UserError where a need is not met."""
        if check := getattr(_runners(), f"check_{self.name.replace('-', '_')}", None):
            check(job)


def _runners() -> Any:
    # Imported for that only, since it takes DSPy, which to list names does not.
    return import_module(".runners", __package__)


_CATALOG = json.loads(Path(__file__).with_name("catalog.json").read_text(encoding="utf-8"))
_DEFAULTS = {kind.name: kind().to_dict() for kind in ALL_SETTINGS}
OPTIMIZERS = {name: Optimizer(name, _DEFAULTS[name], **entry) for name, entry in _CATALOG.items()}
"""By name."""


def optimizer(name: str) -> Optimizer:
    """The entry of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name]
