"""The start of `local:tiny`: a model from scratch, warmed up until it knows the form of every answer, and cached.

A good teacher comes first: copying, and telling a changed fact from a new one, are learned from clean demonstrations. A
poor teacher's then bring the policy down to about half right, so that reinforcement learning has something to do. The
users are none of the benchmark's. The folder is named by a digest of everything it depends on, code included.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import random
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from ..data.benchmark import Benchmark
from ..data.memory_env import MemoryEnv
from ..data.synthesis.memory_env import UTTERANCES, vocabulary
from ..engines.embedders import embedder
from ..errors import UserError
from ..optimizers.demonstrations import Example, demonstrate
from ..programs.compact_adapter import CompactAdapter
from ..programs.memory_r2.method import MemoryR2, MemoryR2Settings
from ..programs.program import MemoryProgram

SESSIONS, ENTRIES = 32, 96
"""Turns and memory entries whose ids the tokenizer knows: those of the longest histories."""


@dataclass(frozen=True)
class WarmUp:
    """How the tiny model is warmed up."""

    users: int = 400
    """Users of the good teacher's demonstrations; the poor one's are half as many."""
    steps: int = 600
    """Steps on the good teacher's demonstrations."""
    poor_steps: int = 200
    """Steps on the poor teacher's."""
    learning_rate: float = 3e-3
    poor_learning_rate: float = 1e-3
    batch: int = 24
    extractions: float = 0.3
    """Share of the extractions that is kept: they are easier than what a manager has to do."""


def tiny_folder(seed: int = 0, warm_up: WarmUp | None = None, method: MemoryR2 | None = None) -> Path:
    """The folder of the warmed-up model; made if the cache has none (a minute or two on one core).

    Args:
        seed: Of weights, demonstrations and order.
        warm_up: How long and on what.
        method: Memory-R2 with the settings of later; those of memory-env if None.

    Raises:
        MissingDependencyError: torch or transformers is not installed.
        UserError: The cache cannot be written.
    """
    settings = warm_up or WarmUp()
    writer = method or MemoryR2(embedder(), MemoryR2Settings(**MemoryR2.preset("memory-env")))
    good, poor = demonstrations(writer, settings, seed)
    folder = _cache() / f"tiny-{_digest(good, poor, settings, seed)}"
    if not (folder / "config.json").is_file():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                made = _make(Path(temporary) / "model", good, poor, settings, seed)
                if not folder.exists():
                    made.rename(folder)
        except OSError as error:
            raise UserError(f"{folder.parent}: cannot be written: {error}; set XDG_CACHE_HOME") from error
    return folder


def make_start(program: MemoryProgram, benchmark: Benchmark, folder: Path, seed: int) -> None:
    """Puts the warmed-up model for a program into a run's folder.

    Raises:
        UserError: The tiny model knows only Memory-R2 on memory-env under the compact adapter.
    """
    method = program.method
    if not isinstance(method, MemoryR2) or not isinstance(benchmark, MemoryEnv):
        raise UserError(
            "local:tiny knows nothing but memory-r2 on memory-env; take these, or a model that has read something: "
            "--lm local:NAME"
        )
    shutil.copytree(tiny_folder(seed, method=method), folder, dirs_exist_ok=True)


def resolve(name: str, seed: int = 0) -> str:
    """A model's name with `local:tiny` replaced by `local:` and the folder of the warmed-up model."""
    return f"local:{tiny_folder(seed)}" if name == "local:tiny" else name


def demonstrations(method: MemoryR2, settings: WarmUp, seed: int) -> tuple[list[Example], list[Example]]:
    """What the good and the poor teacher show."""
    adapter = CompactAdapter()
    good = demonstrate(method, adapter, settings.users, seed=2 * seed, errors={}, missed=0.0, misheard=0.0)
    poor = demonstrate(method, adapter, settings.users // 2, seed=2 * seed + 1)
    return _thinned(good, settings.extractions, seed), _thinned(poor, settings.extractions, seed)


def _thinned(examples: list[Example], share: float, seed: int) -> list[Example]:
    rng = random.Random(seed)
    return [example for example in examples if "-> facts" not in example[0][0]["content"] or rng.random() < share]


def _make(folder: Path, good: list[Example], poor: list[Example], settings: WarmUp, seed: int) -> Path:
    from ..engines.local import sft
    from ..engines.local.model import LocalModel
    from ..engines.local.settings import Finetuning
    from ..engines.local.tiny import create

    ids = [f"m{n}" for n in range(1, ENTRIES + 1)]
    turns = [f"D{s}:{n}" for s in range(1, SESSIONS + 1) for n in range(1, UTTERANCES + 1)]
    create(folder, [*good, *poor], [*ids, *turns, *vocabulary()], seed)
    model = LocalModel.load(folder, device="cpu", threads=1)

    def warm(examples: list[Example], steps: int, rate: float, seed: int, cosine: bool = True) -> None:
        how = Finetuning(
            steps=steps,
            learning_rate=rate,
            seed=seed,
            cosine=cosine,
            batch_size=settings.batch,
            micro_batch_size=settings.batch,
        )
        sft.fit(model, examples, how)

    # A few small steps first: Adam's first ones are too long for an untrained model.
    warm(good, 20, settings.learning_rate / 4, seed + 1, cosine=False)
    warm(good, settings.steps, settings.learning_rate, seed)
    warm(poor, settings.poor_steps, settings.poor_learning_rate, seed)
    return model.save(folder)


def _digest(good: list[Example], poor: list[Example], settings: WarmUp, seed: int) -> str:
    from ..engines.local import sft, tiny, update

    code = [inspect.getsource(module) for module in (sft, tiny, update)] + [inspect.getsource(_make)]
    told = json.dumps([good, poor, asdict(settings), seed, code], default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mempiler"
