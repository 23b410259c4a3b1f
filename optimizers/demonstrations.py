"""Demonstrations of a memory method by a teacher, and the start of `local:tiny`, which is warmed up on them.

Only the predictors of the method are replaced, by a teacher who makes a set share of mistakes: a model that is warmed
up meets the same prompts as later in training, earlier mistakes in the memory included.

`local:tiny` is a model from scratch, warmed up until it knows the form of every answer, and cached. A good teacher
comes first: copying, and telling a changed fact from a new one, are learned from clean demonstrations. A poor teacher's
then bring the policy down to about half right, so that reinforcement learning has something to do. The users are none
of the benchmark's. The folder is named by a digest of everything it depends on, code included.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dspy

from ..data.memory_env import UTTERANCES, Conversation, vocabulary
from ..data.synthesis.memory_teacher import ERRORS, MISHEARD, MISSED, teach_facts, teach_operations
from ..engines.cache_folder import cache_folder
from ..errors import UserError
from ..programs.compact_adapter import CompactAdapter
from ..programs.memory_r2.method import MemoryR2, MemoryR2Settings
from ..programs.threads import in_order
from ..programs.writing import write_items

Example = tuple[list[dict[str, str]], str]
"""Messages and the answer to them."""

SEED_OFFSET = 1_000_000
"""Added to the seed: users of the benchmark have smaller seeds, so that no user is both shown and tested."""

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


def demonstrate(
    method: MemoryR2,
    adapter: dspy.ChatAdapter,
    conversations: int,
    sessions: int = 8,
    seed: int = 0,
    errors: Mapping[Any, float] | None = None,
    missed: float = MISSED,
    misheard: float = MISHEARD,
) -> list[Example]:
    """Calls of both writing predictors with a poor teacher's answers, in the order they were made.

    Args:
        method: Memory-R2 with the settings of later; it is not changed.
        adapter: Renders prompts and answers.
        conversations: How many users are written.
        sessions: Sessions of each.
        seed: Of the users and of the errors.
        errors: Share of wrong operations by situation; None for the poor teacher's own.
        missed: Share of facts passed over.
        misheard: Share of facts noted with a wrong value.
    """
    rng = random.Random(f"teacher {seed}")
    wrong = ERRORS if errors is None else errors
    writer, found = copy.deepcopy(method.writer), []

    def facts(**inputs: Any) -> Any:
        return {"facts": teach_facts(inputs["dialogue"], rng, missed, misheard)}

    def operations(**inputs: Any) -> Any:
        return {"operations": teach_operations(inputs["memories"], inputs["new_facts"], rng, wrong)}

    for name, teach in (("extract_facts", facts), ("manage", operations)):
        signature: Any = getattr(writer, name).signature
        object.__setattr__(writer, name, _Taught(signature, adapter, teach, found))
    for number in range(conversations):
        memory = writer.Memory()
        # Sequential: threads would draw the errors in any order.
        with in_order():
            for item in Conversation.make(SEED_OFFSET + seed, number, sessions).history.items:
                memory = write_items(writer, memory, [item])
    return found


class _Taught:
    """Replaces a predictor: calls the teacher, and records the prompt and the answer."""

    def __init__(
        self,
        signature: type[dspy.Signature],
        adapter: dspy.ChatAdapter,
        teach: Callable[..., Mapping[str, Any]],
        found: list[Example],
    ) -> None:
        self.signature, self._adapter, self._teach, self._found = signature, adapter, teach, found

    def __call__(self, **inputs: Any) -> dspy.Prediction:
        outputs = dict(self._teach(**inputs))
        made = self._adapter.format_finetune_data(self.signature, [], inputs, outputs)["messages"]
        self._found.append((made[:-1], made[-1]["content"]))
        return dspy.Prediction(**outputs)


def tiny_folder(seed: int = 0, method: MemoryR2 | None = None) -> Path:
    """The folder of the warmed-up model; made if the cache has none (a minute or two on one core).

    Args:
        seed: Of weights, demonstrations and order.
        method: Memory-R2 with the settings of later; those of memory-env if None.

    Raises:
        MissingDependencyError: torch or transformers is not installed.
        UserError: The cache cannot be written.
    """
    method = method or MemoryR2(MemoryR2Settings(**MemoryR2.preset("memory-env")))
    clean: dict[str, Any] = {"errors": {}, "missed": 0.0, "misheard": 0.0}
    good = _thinned(demonstrate(method, CompactAdapter(), USERS, seed=2 * seed, **clean), seed)
    poor = _thinned(demonstrate(method, CompactAdapter(), USERS // 2, seed=2 * seed + 1), seed)
    folder = cache_folder() / f"tiny-{_digest(good, poor, seed)}"
    if not (folder / "config.json").is_file():
        try:
            cache_folder().mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache_folder()) as temporary:
                made = _make(Path(temporary) / "model", good, poor, seed)
                if not folder.exists():
                    made.rename(folder)
        except OSError as error:
            raise UserError(f"{cache_folder()}: cannot be written: {error}; set XDG_CACHE_HOME") from error
    return folder


def _thinned(examples: list[Example], seed: int) -> list[Example]:
    rng = random.Random(seed)
    return [each for each in examples if "-> facts" not in each[0][0]["content"] or rng.random() < EXTRACTIONS]


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
    from ..engines.local import rows, sft, tiny, update

    code = [inspect.getsource(module) for module in (rows, sft, tiny, update, sys.modules[__name__])]
    return hashlib.sha256(json.dumps([good, poor, seed, code], default=str).encode()).hexdigest()[:16]
