"""The model `local:tiny`, and the demonstrations of a teacher that warm it up.

`local:tiny` is trained from nothing until it knows the form of every answer, and then cached. It
sees two teachers:

1. A good teacher, from whom it learns to copy, and to tell a changed fact from a new one.
2. A poor teacher, who makes a set share of mistakes. He brings the model down to about half right,
   so that reinforcement learning has something to improve.

A teacher answers in place of the method's predictors. So the model meets the prompts of its later
training, with earlier mistakes in the memory. The users are none of the benchmark's.
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
from dataclasses import dataclass
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
"""Added to seeds: users of the benchmark have smaller ones, so nobody is both shown and tested."""

SESSIONS = 32
"""Sessions of the longest history; the tokenizer knows the ids of their turns."""
ENTRIES = 96
"""Entries of the largest memory; the tokenizer knows their ids."""

USERS = 400
"""Users of the good teacher's demonstrations; the poor teacher has half as many."""
STEPS = 600
"""Training steps on the good teacher's demonstrations."""
RATE = 3e-3
"""The learning rate of these steps."""
FIRST_STEPS = 20
"""Small steps before them, at a quarter of the learning rate."""
POOR_STEPS = 200
"""Training steps on the poor teacher's demonstrations."""
POOR_RATE = 1e-3
"""The learning rate of these steps."""
BATCH = 24
"""Demonstrations of one step."""
EXTRACTIONS = 0.3
"""Share of the extractions that is kept: they are easier than managing a memory."""


@dataclass(frozen=True)
class TeacherErrors:
    """How often a teacher is wrong."""

    wrong_operations: Mapping[Any, float]
    """Share of wrong operations, by what a fact means for the memory."""
    missed_facts: float
    """Share of facts that are passed over."""
    misheard_facts: float
    """Share of facts that are noted with a wrong value."""


POOR_TEACHER = TeacherErrors(ERRORS, MISSED, MISHEARD)
GOOD_TEACHER = TeacherErrors({}, 0.0, 0.0)


def demonstrate(
    method: MemoryR2,
    adapter: dspy.ChatAdapter,
    conversations: int,
    sessions: int = 8,
    seed: int = 0,
    errors: TeacherErrors = POOR_TEACHER,
) -> list[Example]:
    """Return the calls of both writing predictors with a teacher's answers, in their order.

    Args:
        method: Memory-R2 with the settings of the later training; it is not changed.
        adapter: Renders prompts and answers.
        conversations: How many users are written.
        sessions: Sessions of each user.
        seed: Of the users and of the errors.
        errors: How often the teacher is wrong.
    """
    rng = random.Random(f"teacher {seed}")
    examples: list[Example] = []

    def answer_facts(**inputs: Any) -> dict[str, Any]:
        facts = teach_facts(inputs["dialogue"], rng, errors.missed_facts, errors.misheard_facts)
        return {"facts": facts}

    def answer_operations(**inputs: Any) -> dict[str, Any]:
        operations = teach_operations(
            inputs["memories"], inputs["new_facts"], rng, errors.wrong_operations
        )
        return {"operations": operations}

    writer = copy.deepcopy(method.writer)
    _replace_predictor(writer, "extract_facts", adapter, answer_facts, examples)
    _replace_predictor(writer, "manage", adapter, answer_operations, examples)

    for number in range(conversations):
        memory = writer.Memory()
        conversation = Conversation.make(SEED_OFFSET + seed, number, sessions)
        # Threads would draw the errors in any order.
        with in_order():
            for item in conversation.history.items:
                memory = write_items(writer, memory, [item])
    return examples


class _TaughtPredictor:
    """Answers by a teacher in place of a predictor, and records prompts and answers."""

    def __init__(
        self,
        signature: type[dspy.Signature],
        adapter: dspy.ChatAdapter,
        answer: Callable[..., Mapping[str, Any]],
        examples: list[Example],
    ) -> None:
        self.signature = signature
        self._adapter = adapter
        self._answer = answer
        self._examples = examples

    def __call__(self, **inputs: Any) -> dspy.Prediction:
        outputs = dict(self._answer(**inputs))
        data = self._adapter.format_finetune_data(self.signature, [], inputs, outputs)
        *prompt, answer = data["messages"]
        self._examples.append((prompt, answer["content"]))
        return dspy.Prediction(**outputs)


def _replace_predictor(
    writer: Any,
    name: str,
    adapter: dspy.ChatAdapter,
    answer: Callable[..., Mapping[str, Any]],
    examples: list[Example],
) -> None:
    """Put a teacher in the place of a writer's predictor.

    Args:
        writer: The writer; it is changed.
        name: The attribute that holds the predictor.
        adapter: Renders prompts and answers.
        answer: The teacher's answer to the inputs of the predictor.
        examples: Receives each prompt with its answer.
    """
    taught = _TaughtPredictor(getattr(writer, name).signature, adapter, answer, examples)
    setattr(writer, name, taught)


def tiny_folder(seed: int = 0, method: MemoryR2 | None = None) -> Path:
    """Return the folder of the warmed-up model.

    If the cache lacks it, it is made, which takes a minute or two on one core. Its name has a
    digest of everything that it depends on, code included.

    Args:
        seed: Of weights, demonstrations and order.
        method: Memory-R2 with the settings of the later training; those of memory-env if None.

    Raises:
        MissingDependencyError: torch or transformers is not installed.
        UserError: The cache cannot be written.
    """
    method = method or MemoryR2(MemoryR2Settings(**MemoryR2.preset("memory-env")))
    adapter = CompactAdapter()
    good_examples = demonstrate(method, adapter, USERS, seed=2 * seed, errors=GOOD_TEACHER)
    poor_examples = demonstrate(method, adapter, USERS // 2, seed=2 * seed + 1)
    good_examples = _drop_extractions(good_examples, seed)
    poor_examples = _drop_extractions(poor_examples, seed)

    folder = cache_folder() / f"tiny-{_digest(good_examples, poor_examples, seed)}"
    if (folder / "config.json").is_file():
        return folder
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        # Made beside its place and then moved, so that the cache never holds half a model.
        with tempfile.TemporaryDirectory(dir=cache_folder()) as temporary:
            model_folder = Path(temporary) / "model"
            saved_folder = _make_model(model_folder, good_examples, poor_examples, seed)
            if not folder.exists():
                saved_folder.rename(folder)
    except OSError as error:
        raise UserError(
            f"{cache_folder()}: cannot be written: {error}; set XDG_CACHE_HOME"
        ) from error
    return folder


def _drop_extractions(examples: list[Example], seed: int) -> list[Example]:
    """Return the examples with `EXTRACTIONS` of those that extract facts, drawn at random."""
    rng = random.Random(seed)
    kept_examples: list[Example] = []
    for messages, answer in examples:
        is_extraction = "-> facts" in messages[0]["content"]
        if not is_extraction or rng.random() < EXTRACTIONS:
            kept_examples.append((messages, answer))
    return kept_examples


def _make_model(
    folder: Path, good_examples: list[Example], poor_examples: list[Example], seed: int
) -> Path:
    """Create the model, train it on both teachers' examples, and return its folder."""
    from ..engines.local import sft
    from ..engines.local.model import LocalModel
    from ..engines.local.settings import Finetuning
    from ..engines.local.tiny import create

    words = [f"m{number}" for number in range(1, ENTRIES + 1)]
    for session in range(1, SESSIONS + 1):
        for utterance in range(1, UTTERANCES + 1):
            words.append(f"D{session}:{utterance}")
    words.extend(vocabulary())
    create(folder, [*good_examples, *poor_examples], words, seed)
    model = LocalModel.load(folder, device="cpu")

    def train(
        examples: list[Example], steps: int, rate: float, seed: int, cosine: bool = True
    ) -> None:
        settings = Finetuning(batch_size=BATCH, micro_batch_size=BATCH, steps=steps)
        changes = {"learning_rate": rate, "seed": seed, "cosine": cosine}
        sft.fit(model, examples, settings.model_copy(update=changes))

    # A few small steps first: Adam's first ones are too long for an untrained model.
    train(good_examples, FIRST_STEPS, RATE / 4, seed + 1, cosine=False)
    train(good_examples, STEPS, RATE, seed)
    train(poor_examples, POOR_STEPS, POOR_RATE, seed)
    return model.save(folder)


def _digest(good_examples: list[Example], poor_examples: list[Example], seed: int) -> str:
    """Return a digest of the examples and of the code that makes the model of them."""
    from ..engines.local import rows, sft, tiny, update

    modules = [rows, sft, tiny, update, sys.modules[__name__]]
    code = [inspect.getsource(module) for module in modules]
    text = json.dumps([good_examples, poor_examples, seed, code], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
