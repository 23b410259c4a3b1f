"""A tiny model that has seen demonstrations of Memory-R2, for tests of trainings."""

from pathlib import Path
from typing import Any


def save_demonstrated_model(folder: Path, steps: int) -> Path:
    """Save a model of a few thousand weights in a new folder; return the folder.

    After 120 steps, what it writes is right now and then, and now and then it cannot be read.

    Args:
        folder: The folder of the model.
        steps: Steps of supervised training on the demonstrations of eight conversations.
    """
    from mempiler.data.memory_env import vocabulary
    from mempiler.engines.embedders import embedder
    from mempiler.engines.local import sft
    from mempiler.engines.local.model import LocalModel
    from mempiler.engines.local.settings import Finetuning
    from mempiler.engines.local.tiny import create
    from mempiler.optimizers.demonstrations import demonstrate
    from mempiler.programs.catalog import build, preset
    from mempiler.programs.compact_adapter import CompactAdapter

    settings = preset("memory-r2", "memory-env")
    method: Any = build("memory-r2", "memory-lookup", embedder(), **settings).method
    demonstrations = demonstrate(method, CompactAdapter(), 8, sessions=2, seed=1)
    memory_ids = [f"m{number}" for number in range(1, 9)]
    turn_ids = ["D1:1", "D1:2", "D2:1", "D2:2"]

    create(folder, demonstrations, [*vocabulary(), *memory_ids, *turn_ids], seed=0)
    model = LocalModel.load(folder, device="cpu")
    sft.fit(model, demonstrations, Finetuning(learning_rate=3e-3, steps=steps))
    return model.save(folder)
