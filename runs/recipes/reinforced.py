"""The rung of LoGo-GRPO: a copy of the model is trained from the weights and prompts that the rung begins from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import dspy

from ...data.benchmark import Benchmark
from ...data.dataset import Split
from ...engines.local.settings import Reinforcement
from ...errors import UserError
from ...optimizers.logo_grpo.settings import TrainingSettings
from ...optimizers.logo_grpo.teleprompter import LoGoGRPO
from ...programs.program import MemoryProgram
from ..course import Course
from ..setup import Setup

_STAGES = {"horizons": "horizons", "steps": "steps", "budget": "tokens"}
_SHORT = {"rollouts": "num_rollouts"}
_NOT_HERE = {"objective", "seed", "curriculum", "reward", "weights"}


def course(lm: str, settings: Mapping[str, Any], seed: int = 0) -> Course:
    """The course of a model with a rung's settings.

    Args:
        lm: As `--lm` names it; `local:tiny` has a course of its own.
        settings: `horizons`, `steps`, `budget`, `rollouts`, `lora`, the fields of `TrainingSettings`, and what the
            trainer takes (`learning_rate`, `beta`, ...).
        seed: Of the training.

    Raises:
        UserError: A setting is unknown or does not fit.
    """
    found = Course.for_model(lm)
    known = {field.name for field in fields(TrainingSettings)} - _NOT_HERE
    trainer = {field.name for field in fields(Reinforcement)} - {"output_dir", "seed"}
    stages, own, kwargs = {}, {}, dict(found.train_kwargs)
    lora = found.lora
    for name, value in settings.items():
        if name in _STAGES:
            stages[_STAGES[name]] = tuple(value) if isinstance(value, list | tuple) else value
        elif name == "lora":
            lora = value
        elif _SHORT.get(name, name) in known:
            own[_SHORT.get(name, name)] = value
        elif name in trainer:
            kwargs[name] = value
        else:
            names = ", ".join(sorted({*_STAGES, *_SHORT, "lora", *known, *trainer}))
            raise UserError(f"logo-grpo has no setting {name!r}; it has: {names}")
    if "steps" in stages and "tokens" not in stages:
        stages["tokens"] = None
    try:
        curriculum = replace(found.settings.curriculum, **stages)
        shaped = replace(found.settings, seed=seed, curriculum=curriculum, **own)
    except TypeError as error:
        raise UserError(f"a setting of logo-grpo is of the wrong kind: {error}") from error
    kwargs = {"seed": seed, **kwargs}
    Reinforcement.parse(kwargs)
    return replace(found, settings=shaped, train_kwargs=kwargs, lora=lora)


def reinforce(
    program: MemoryProgram,
    lm: Any,
    benchmark: Benchmark,
    split: Split,
    settings: Mapping[str, Any],
    setup: Setup,
    folder: Path,
) -> tuple[MemoryProgram, Any, str]:
    """Trains a copy of an LM's model on a program's memory operations.

    An adapter that an earlier rung trained is worked into the copy's weights: the KL term's reference, which is a model
    without its adapter, is then what this training begins from.

    Args:
        program: Whose prompts are asked; not changed.
        lm: Over the local model to begin from; not changed.
        benchmark: Whose metric rewards.
        split: Train conversations, and dev questions that choose the checkpoint.
        settings: See `course`.
        setup: The model's name and the seed.
        folder: For the journal, checkpoints and the model.

    Returns:
        The program, an LM over the trained copy, and how the training went in words.

    Raises:
        UserError: A setting does not fit, or there is nothing to train on.
    """
    from ...engines.local.capture import capture

    chosen = course(setup.lm, settings, setup.seed)
    folder.mkdir(parents=True, exist_ok=True)
    trained = lm.over(_begun(lm.engine.model, chosen.lora, folder, setup.seed))

    def metric(example: dspy.Example, prediction: dspy.Prediction) -> float:
        return float(benchmark.score(example, prediction).value)

    asked = benchmark.questions_after
    teleprompter = LoGoGRPO(
        metric, chosen.settings, chosen.train_kwargs, asked, None, folder, capture, counts=benchmark.counts
    )
    with dspy.context(lm=trained):
        made = teleprompter.compile(program, trainset=split.train, valset=split.dev)
    progress = teleprompter.progress
    trained.engine.model.name = str(folder / "model")
    best = f", weights of step {progress.best.step}" if progress.best else ""
    return made, trained, "; ".join((f"{progress.step} steps{best}", *progress.remarks))


def _begun(model: Any, lora: int | None, folder: Path, seed: int) -> Any:
    """An independent copy of the model: an earlier adapter merged, and a new one if a rank is set."""
    from ...engines.local.model import LocalModel

    adapted = hasattr(model.model, "disable_adapter")
    if lora is None and not adapted:
        return model.copy()
    base = model.name
    if adapted or model.version:
        # An adapter is saved with the name of its base model alone: trained weights need a folder to be found in.
        base = str(model.save(folder / "base", merge=True))
    return LocalModel.load(base, lora=None if lora is None else {"r": lora}, seed=seed)
