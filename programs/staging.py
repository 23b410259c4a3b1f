"""Staging: which predictors of a program an optimizer may change, and whether it answers.

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
    answers: bool = True
    """Whether the program answers; if not, it remembers and recalls alone."""

    @property
    def tunes_writing(self) -> bool:
        """Whether an optimizer may change how memories are written, and has to see that."""
        return self.stage != "read"


def make_staging(stage: Stage, predictors: Iterable[str], writers: Iterable[str]) -> Staging:
    """Return which predictors are frozen for an optimizer, and which model writes meanwhile.

    Args:
        stage: "write" freezes all predictors that do not write memories, "read" those that do, and
            "all" freezes none.
        predictors: The names of all predictors.
        writers: The names of the predictors that write memories.
    """
    if stage == "write":
        return Staging(stage, frozen_predictors=frozenset(predictors).difference(writers))
    if stage == "read":
        # To sample several answers, an optimizer changes the settings of the model. Memories are
        # cached by the model that wrote them, so they would be written anew each time. As they are
        # not what is tuned, the present model goes on writing them.
        return Staging(stage, frozen_predictors=frozenset(writers), writing_lm=dspy.settings.lm)
    # Here, as in stage "write", writing is tuned. So the optimizer's model writes the memories.
    return Staging(stage)


def copy_prompts(sources: Mapping[str, dspy.Predict], targets: Mapping[str, dspy.Predict]) -> None:
    """Copy the prompts of predictors to the predictors of the same names.

    Copied are instructions, fields, demos and settings, and nothing else that an optimizer may
    leave in a predictor, such as a model.

    Args:
        sources: Predictors by name; one for every target.
        targets: The predictors that get the prompts.
    """
    for name, target in targets.items():
        source = sources[name]
        target.signature = copy_signature(source)
        target.demos = list(source.demos)
        target.config = dict(source.config)
        target.fields = dict(source.fields)
        # How many demos a prompt shows; a plain `dspy.Predict` shows all.
        if isinstance(target, Predictor) and isinstance(source, Predictor):
            target.nearest = source.nearest
