"""Staging: which predictors of a program an optimizer may change.

An optimizer may change all prompts of a program, only those that write memories, or only those that
read them. A `MemoryProgram` has one `Staging`; `MemoryProgram.staged` makes a copy with another:

    student = program.staged("read")             # the writing prompts are hidden
    compiled = teleprompter.compile(student, trainset=train)
    result = program.with_prompts_of(compiled)   # a whole program again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import dspy

from ..records.shared_by_copies import SharedByCopies
from .predictor import Predictor
from .state import copy_signature

Stage = Literal["read", "write", "all"]
"""What an optimizer may change: the predictors that read memories, that write them, or all."""


@dataclass(frozen=True)
class Staging(SharedByCopies):
    """Which predictors an optimizer may change, and under which model the others write."""

    stage: Stage = "all"
    frozen_predictors: frozenset[str] = frozenset()
    """Names of the predictors that optimizers do not see."""
    writing_lm: dspy.BaseLM | None = None
    """The model that writes memories; None takes that of `dspy.settings` at the time."""

    @property
    def tunes_writing(self) -> bool:
        """Whether an optimizer may change how memories are written, and has to see that."""
        return self.stage != "read"


def make_staging(stage: Stage, predictors: Iterable[str], writers: Iterable[str]) -> Staging:
    """Return the staging for an optimizer that may change the predictors of one stage.

    Frozen writing predictors write under the language model of this moment: an optimizer that
    samples would otherwise have every memory written anew.

    Args:
        stage: The stage.
        predictors: Names of all predictors.
        writers: Names of those that write memories.
    """
    if stage == "write":
        return Staging(stage, frozenset(predictors).difference(writers))
    if stage == "read":
        return Staging(stage, frozenset(writers), dspy.settings.lm)
    return Staging(stage)


def copy_prompts(sources: Mapping[str, dspy.Predict], targets: Mapping[str, dspy.Predict]) -> None:
    """Let every target ask as the source of the same name does.

    Instructions, fields, demos and settings are copied. A bound model, marks and logs are not.
    """
    for name, target in targets.items():
        source = sources[name]
        target.signature = copy_signature(source)
        target.demos = list(source.demos)
        target.config = dict(source.config)
        target.fields = dict(source.fields)
        if isinstance(target, Predictor) and isinstance(source, Predictor):
            target.nearest = source.nearest
