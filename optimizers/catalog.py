"""The optimizers by name.

    optimizer = make_optimizer("gepa", {"max_metric_calls": 300})
    optimizer.check_requirements(job)       # before the first paid call
    compiled = optimizer.run(job)

`mempiler list optimizers` prints this catalog. A new optimizer is a file of its own, and a line in
`STEP_OPTIMIZERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UnknownNameError
from .better_together import STEP_OPTIMIZERS, BetterTogether
from .optimizer import Optimizer
from .settings_search import SettingsSearch

# `mempiler list` imports this module, and it is to start fast. So the modules of optimizers import
# DSPy, which takes a second, and what rests on it in the methods that need it.

OPTIMIZERS: dict[str, type[Optimizer]] = {
    optimizer_class.name: optimizer_class
    for optimizer_class in (*STEP_OPTIMIZERS, BetterTogether, SettingsSearch)
}


def optimizer_class_of(name: str) -> type[Optimizer]:
    """Return the class of an optimizer.

    Raises:
        UnknownNameError: There is no optimizer of this name.
    """
    if name not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name]


def make_optimizer(name: str, settings: Mapping[str, Any] | None = None) -> Optimizer:
    """Return an optimizer with these settings; all others have their defaults.

    Raises:
        UnknownNameError: There is no optimizer of this name.
        UserError: A setting is unknown, of the wrong type, or too small.
    """
    from .settings_check import check_settings

    optimizer_class = optimizer_class_of(name)
    check_settings(optimizer_class, settings or {})
    return optimizer_class.from_settings(settings or {})
