"""The rungs of a ladder as its run keeps them, so that a run that was broken off goes on after its last whole rung.

    ladder/RUNG/step.json     written last: a rung that has none is climbed again
    ladder/RUNG/program       what it tuned; its model, where weights were trained, is beside

Gains are computed anew, of the scores that are kept.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...engines.meter import Usage
from ...errors import DataError
from ...optimizers.logo_grpo.policy import PolicyScore
from ...records.whole_file import replacing
from ..results import Evaluation, difference
from .rungs import Step, sampled_difference, sureness

FILE = "step.json"
_COUNTED = ("cached", "failed", "input_tokens", "output_tokens", "cost", "unpriced", "estimated")


def keep_step(step: Step, dev: Evaluation, folder: Path) -> None:
    """Writes a rung that was scored in full, at once or not at all."""
    plain = {
        "label": step.label,
        "optimizer": step.optimizer,
        "begun_from": step.begun_from,
        "evaluation": step.evaluation.model_dump(mode="json"),
        "dev": dev.model_dump(mode="json"),
        "sampled": asdict(step.sampled),
        "kept": step.kept,
        "used": _counts(step.used),
        "seconds": step.seconds,
        "scoring": _counts(step.scoring),
        "scoring_seconds": step.scoring_seconds,
        "program": step.program,
        "model": step.model,
        "told": step.told,
    }
    with replacing(folder / FILE) as file:
        json.dump(plain, file)


def kept_step(folder: Path, before: Step | None, dev_before: Evaluation | None) -> tuple[Step, Evaluation] | None:
    """A rung and its dev questions as they were; None where it was not scored in full.

    Args:
        folder: Of the rung.
        before: What it began from; None at the start.
        dev_before: The dev questions of that.

    Raises:
        DataError: The file is not what a run writes.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        dev, test = (Evaluation.model_validate(found.pop(name)) for name in ("dev", "evaluation"))
        sampled = PolicyScore(**{name: _fixed(value) for name, value in found.pop("sampled").items()})
        usage = {name: _usage(found.pop(name)) for name in ("used", "scoring")}
        step = Step(
            evaluation=test,
            sampled=sampled,
            dev=(None if dev_before is None else dev_before.score, dev.score),
            dev_n=dev.n,
            dev_interval=sureness(dev),
            gain=None if before is None else difference(before.evaluation, test),
            sampled_gain=None if before is None else sampled_difference(before.sampled, sampled),
            **usage,
            **found,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: is not what a ladder writes ({error}); start the run again") from error
    return step, dev


def _counts(used: Usage) -> dict[str, Any]:
    return {"calls": dict(used.calls), **{name: getattr(used, name) for name in _COUNTED}}


def _usage(counts: dict[str, Any]) -> Usage:
    return Usage(calls=Counter(counts.pop("calls")), **counts)


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
