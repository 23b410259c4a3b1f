"""The start of `local:tiny`: a model from scratch, warmed up until it knows the form of every answer, and cached.

A good teacher comes first: copying, and telling a changed fact from a new one, are learned from clean demonstrations. A
poor teacher's then bring the policy down to about half right, so that reinforcement learning has something to do. The
users are none of the benchmark's. The folder is named by a digest of everything it depends on, code included.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import sys
import tempfile
from pathlib import Path

from ..data.memory_env import UTTERANCES, vocabulary
from ..engines.embedders import embedder
from ..engines.weights import cache
from ..errors import UserError
from ..optimizers.demonstrations import Example, demonstrate
from ..programs.compact_adapter import CompactAdapter
from ..programs.memory_r2.method import MemoryR2, MemoryR2Settings

SESSIONS, ENTRIES = 32, 96
"""Turns and memory entries whose ids the tokenizer knows: those of the longest histories."""
USERS = 400
"""Users of the good teacher's demonstrations; the poor one's are half as many."""
STEPS, RATE = 600, 3e-3
"""Steps on the good teacher's demonstrations, and their learning rate."""
POOR_STEPS, POOR_RATE = 200, 1e-3
BATCH = 24
EXTRACTIONS = 0.3
"""Share of the extractions that is kept: they are easier than what a manager has to do."""


def tiny_folder(seed: int = 0, method: MemoryR2 | None = None) -> Path:
    """The folder of the warmed-up model; made if the cache has none (a minute or two on one core).

    Args:
        seed: Of weights, demonstrations and order.
        method: Memory-R2 with the settings of later; those of memory-env if None.

    Raises:
        MissingDependencyError: torch or transformers is not installed.
        UserError: The cache cannot be written.
    """
    good, poor = demonstrations(method or MemoryR2(embedder(), MemoryR2Settings(**MemoryR2.preset("memory-env"))), seed)
    folder = cache() / f"tiny-{_digest(good, poor, seed)}"
    if not (folder / "config.json").is_file():
        try:
            cache().mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache()) as temporary:
                made = _make(Path(temporary) / "model", good, poor, seed)
                if not folder.exists():
                    made.rename(folder)
        except OSError as error:
            raise UserError(f"{cache()}: cannot be written: {error}; set XDG_CACHE_HOME") from error
    return folder


def demonstrations(
    method: MemoryR2, seed: int, users: int = USERS, extractions: float = EXTRACTIONS
) -> tuple[list[Example], list[Example]]:
    """What the good and the poor teacher show."""
    adapter = CompactAdapter()

    def thinned(examples: list[Example]) -> list[Example]:
        rng = random.Random(seed)
        return [each for each in examples if "-> facts" not in each[0][0]["content"] or rng.random() < extractions]

    good = demonstrate(method, adapter, users, seed=2 * seed, errors={}, missed=0.0, misheard=0.0)
    return thinned(good), thinned(demonstrate(method, adapter, users // 2, seed=2 * seed + 1))


def _make(folder: Path, good: list[Example], poor: list[Example], seed: int) -> Path:
    from ..engines.local import sft
    from ..engines.local.model import LocalModel
    from ..engines.local.settings import Finetuning
    from ..engines.local.tiny import create

    ids = [f"m{n}" for n in range(1, ENTRIES + 1)]
    turns = [f"D{s}:{n}" for s in range(1, SESSIONS + 1) for n in range(1, UTTERANCES + 1)]
    create(folder, [*good, *poor], [*ids, *turns, *vocabulary()], seed)
    model = LocalModel.load(folder, device="cpu")

    def warm(examples: list[Example], steps: int, rate: float, seed: int, cosine: bool = True) -> None:
        sizes = Finetuning(batch_size=BATCH, micro_batch_size=BATCH, steps=steps)
        sft.fit(model, examples, sizes.model_copy(update={"learning_rate": rate, "seed": seed, "cosine": cosine}))

    # A few small steps first: Adam's first ones are too long for an untrained model.
    warm(good, 20, RATE / 4, seed + 1, cosine=False)
    warm(good, STEPS, RATE, seed)
    warm(poor, POOR_STEPS, POOR_RATE, seed)
    return model.save(folder)


def _digest(good: list[Example], poor: list[Example], seed: int) -> str:
    from ..engines.local import sft, tiny, update

    code = [inspect.getsource(module) for module in (sft, tiny, update, sys.modules[__name__])]
    return hashlib.sha256(json.dumps([good, poor, seed, code], default=str).encode()).hexdigest()[:16]
