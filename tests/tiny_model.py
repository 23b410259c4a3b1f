"""A model of a few thousand weights that has seen demonstrations: right now and then, and malformed now and then."""

from pathlib import Path
from typing import Any


def warmed_up(folder: Path, conversations: int, **tuning: Any) -> Path:
    """Makes it below a folder, for the small world of `memory-env` and a compact adapter."""
    from mempiler.data.memory_env import vocabulary
    from mempiler.engines.embedders import embedder
    from mempiler.engines.local import sft
    from mempiler.engines.local.model import LocalModel
    from mempiler.engines.local.settings import Finetuning
    from mempiler.engines.local.tiny import create
    from mempiler.optimizers.demonstrations import demonstrate
    from mempiler.programs.catalog import build, preset
    from mempiler.programs.compact_adapter import CompactAdapter

    method: Any = build("memory-r2", "memory-lookup", embedder(), **preset("memory-r2", "memory-env")).method
    shown = demonstrate(method, CompactAdapter(), conversations, sessions=2, seed=1)
    words = [*vocabulary(), *(f"m{n}" for n in range(1, 9)), *(f"D{s}:{t}" for s in (1, 2) for t in (1, 2))]
    create(folder, shown, words, seed=0)
    model = LocalModel.load(folder, device="cpu")
    sft.fit(model, shown, Finetuning(learning_rate=3e-3, **tuning))
    return model.save(folder)
