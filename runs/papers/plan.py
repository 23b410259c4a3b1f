"""`reproduce --plan`: what the sections of a paper will take, before anything is spent.

Each variant is planned as `evaluate --plan` and `compile --plan` do it, one that several sections have once.

Limits: memories that variants share are counted for each of them; judges and systems of others are not counted, and the
notes say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...errors import UserError
from ...optimizers.compile import Compilation
from ..course import Course
from ..external import plannable
from ..planning import Plan, plan_compile, plan_evaluate, plan_train
from ..setup import Setup
from .arrangement import arrange, repeated, settings_of
from .paper import Paper, Variant
from .reproduction import LOGO


def plan_paper(
    paper: Paper,
    setup: Setup,
    names: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    seeds: int | None = None,
) -> tuple[Plan, tuple[str, ...]]:
    """The plan of `reproduce`, with a phase for each section, and what it leaves out; arguments and errors as there."""
    arranged, notes = arrange(paper, setup, names, files, seeds)
    known, told = set[str](), dict.fromkeys(notes)
    parts: dict[str, Plan] = {}
    for each in arranged:
        plans = list[Plan]()
        for label in each.labels:
            variant = paper.variants[label]
            if not plannable(variant.program):
                told[f"not counted: what {label} ({variant.program}) takes, which is not known before"] = None
                continue
            for repeat in repeated(variant, each):
                settings = settings_of(variant, repeat)
                key = json.dumps([repeat.decisive, variant.program, settings, variant.tuned, each.part], default=str)
                if key in known:
                    continue
                known.add(key)
                plans.append(plan_evaluate(variant.program, repeat, each.part, settings))
                if variant.tuned is not None and not repeat.repeat:
                    plans += _tuning(label, variant, repeat, told)
        if each.setup.judge_lm:
            told["not counted: calls of the judge"] = None
        parts[each.section.name] = sum(plans, Plan())
    total = sum(parts.values(), Plan())
    return replace(total, phases={name: part.calls for name, part in parts.items()}), tuple(told)


def _tuning(label: str, variant: Variant, setup: Setup, told: dict[str, None]) -> list[Plan]:
    """The plan of a variant's compile or training; none, and a note, where it cannot be planned."""
    tuned, program = variant.tuned, variant.program
    if tuned is None:
        return []
    try:
        if tuned.optimizer == LOGO:
            return [plan_train(program, setup, Course.for_model(setup.lm).changed(tuned.settings), variant.settings)]
        how = Compilation(tuned.optimizer, tuned.stage, settings=dict(tuned.settings), seed=setup.seed)
        return [plan_compile(program, setup, how, variant.settings)]
    except UserError as error:
        told[f"not counted: the tuning of {label}: {error}"] = None
        return []
