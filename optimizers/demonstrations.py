"""Demonstrations of Memory-R2 by a teacher, and `local:tiny`, a model that is warmed up on them.

`local:tiny` is a model so small that reinforcement learning with it takes minutes on two cores. An
untrained model would write nothing readable, and so get no reward to learn from. So it first learns
from demonstrations, which is called its warm-up.

A teacher replaces the two predictors that write, and makes a set share of mistakes. All else is the
method itself: so a model that is warmed up meets the prompts of its later training, with what
earlier mistakes left in the memory.

`local:tiny` is made from nothing, and cached:

    good teacher    no mistakes     the model learns the form of every answer, to copy words, and to
                                    tell a changed fact from a new one
    poor teacher    many mistakes   the model gets about half right afterwards, so that
                                    reinforcement learning has something to improve

The users of the demonstrations are none of the benchmark's. The model's folder is named by a digest
of everything that the model depends on, code included.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dspy

from ..data.memory_env import UTTERANCES, Conversation, Kind, vocabulary
from ..data.synthesis.memory_teacher import ERRORS, MISHEARD, MISSED, teach_facts, teach_operations
from ..engines.cache_folder import cache_folder
from ..errors import UserError
from ..programs.compact_adapter import CompactAdapter
from ..programs.memory_r2.method import MemoryR2, MemoryR2Settings
from ..programs.threads import in_order
from ..programs.writing import write_items

SEED_OFFSET = 1_000_000
"""Added to the seed, as the benchmark's users have smaller seeds: nobody is shown and tested."""

SESSIONS = 32
"""Sessions whose turn ids the tokenizer knows: those of the longest histories."""
ENTRIES = 96
"""Memory entries whose ids the tokenizer knows."""
USERS = 400
"""Users of the good teacher's demonstrations."""
STEPS = 600
"""Steps of the optimizer on the good teacher's demonstrations."""
RATE = 3e-3
"""The learning rate of these steps."""
POOR_USERS = 200
"""Users of the poor teacher's demonstrations: fewer, since fewer steps are made on them."""
POOR_STEPS = 200
POOR_RATE = 1e-3
FIRST_STEPS = 20
"""Steps at a small learning rate before all others."""
FIRST_RATE = RATE / 4
"""The learning rate of these steps."""
BATCH = 24
"""Demonstrations of one step."""
EXTRACTION_SHARE = 0.3
"""The share of the extractions that is learned from: they are easier than a manager's work."""


class Demonstration(NamedTuple):
    """A prompt, and the answer to it."""

    messages: list[dict[str, str]]
    answer: str


class TeacherErrors(NamedTuple):
    """How often a teacher is wrong; the default is the poor teacher."""

    operations: Mapping[Kind, float] = ERRORS
    """The share of wrong operations, by situation."""
    missed: float = MISSED
    """The share of facts that are passed over."""
    misheard: float = MISHEARD
    """The share of facts that are noted with a wrong value."""


GOOD_TEACHER = TeacherErrors(operations={}, missed=0.0, misheard=0.0)
POOR_TEACHER = TeacherErrors()


def demonstrate(
    method: MemoryR2,
    adapter: dspy.ChatAdapter,
    conversations: int,
    sessions: int = 8,
    seed: int = 0,
    errors: TeacherErrors = POOR_TEACHER,
) -> list[Demonstration]:
    """Return the calls of both writing predictors with a teacher's answers, in order.

    Args:
        method: Memory-R2 with the settings of later; it does not change.
        adapter: Renders prompts and answers.
        conversations: How many users are written.
        sessions: Sessions of each.
        seed: Decides the users and the errors.
        errors: How often the teacher is wrong.
    """
    rng = random.Random(f"teacher {seed}")

    def extract_facts(**inputs: Any) -> dict[str, Any]:
        facts = teach_facts(inputs["dialogue"], rng, errors.missed, errors.misheard)
        return {"facts": facts}

    def manage(**inputs: Any) -> dict[str, Any]:
        operations = teach_operations(
            inputs["memories"], inputs["new_facts"], rng, errors.operations
        )
        return {"operations": operations}

    demonstrations: list[Demonstration] = []
    writer = copy.deepcopy(method.writer)
    for name, teach in (("extract_facts", extract_facts), ("manage", manage)):
        signature: Any = getattr(writer, name).signature
        setattr(writer, name, TeachingPredictor(signature, adapter, teach, demonstrations))

    for number in range(conversations):
        conversation = Conversation.make(SEED_OFFSET + seed, number, sessions)
        memory = writer.Memory()
        # Threads would draw the errors in any order.
        with in_order():
            for item in conversation.history.items:
                memory = write_items(writer, memory, [item])
    return demonstrations


class TeachingPredictor:
    """Stands in for a predictor: has the teacher answer, and records prompt and answer.

    Args:
        signature: The signature of the predictor.
        adapter: Renders prompts and answers.
        teach: Returns the outputs of a call from its inputs.
        demonstrations: The list that demonstrations are added to.
    """

    def __init__(
        self,
        signature: type[dspy.Signature],
        adapter: dspy.ChatAdapter,
        teach: Callable[..., dict[str, Any]],
        demonstrations: list[Demonstration],
    ) -> None:
        self.signature = signature
        self._adapter = adapter
        self._teach = teach
        self._demonstrations = demonstrations

    def __call__(self, **inputs: Any) -> dspy.Prediction:
        outputs = self._teach(**inputs)
        chat = self._adapter.format_finetune_data(self.signature, [], inputs, outputs)
        *prompt, answer = chat["messages"]
        self._demonstrations.append(Demonstration(prompt, answer["content"]))
        return dspy.Prediction(**outputs)


def tiny_folder(seed: int = 0, method: MemoryR2 | None = None) -> Path:
    """Return the folder of the model `local:tiny`; make it first if the cache does not have it.

    The model has learned from demonstrations to write memories in the form that Memory-R2 asks for,
    so that reinforcement learning can begin with it. Making it takes a minute or two on one core.

    Args:
        seed: Decides the weights, the demonstrations and their order.
        method: The method that the model will be used with; if None, Memory-R2 with its
            settings for the benchmark memory-env.

    Raises:
        MissingDependencyError: torch or transformers is not installed.
        UserError: The cache cannot be written.
    """
    if method is None:
        method = MemoryR2(MemoryR2Settings(**MemoryR2.preset("memory-env")))
    # Demonstrations are cheap to make, and the cached model is found by their digest. Even and odd
    # seeds, so that each teacher has users of its own.
    good = _demonstrations(method, USERS, 2 * seed, GOOD_TEACHER, seed)
    poor = _demonstrations(method, POOR_USERS, 2 * seed + 1, POOR_TEACHER, seed)

    folder = cache_folder() / f"tiny-{_digest(good, poor, seed)}"
    if (folder / "config.json").is_file():
        return folder

    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        # The folder appears in the cache in one piece, so no process sees half a model.
        with tempfile.TemporaryDirectory(dir=cache_folder()) as temporary:
            model_folder = _make_model(Path(temporary) / "model", good, poor, seed)
            # If another process was faster, its model is the same.
            if not folder.exists():
                model_folder.rename(folder)
    except OSError as error:
        raise UserError(
            f"{cache_folder()}: cannot be written: {error}; set XDG_CACHE_HOME"
        ) from error
    return folder


def _demonstrations(
    method: MemoryR2, users: int, users_seed: int, errors: TeacherErrors, seed: int
) -> list[Demonstration]:
    """Return the demonstrations of a teacher, but only `EXTRACTION_SHARE` of its extractions.

    Args:
        method: Memory-R2.
        users: How many users there are, each with a history that the teacher writes into a memory.
        users_seed: Decides the users and the teacher's errors.
        errors: How often the teacher is wrong.
        seed: Draws which extractions are left out.
    """
    demonstrations = demonstrate(method, CompactAdapter(), users, seed=users_seed, errors=errors)
    rng = random.Random(seed)
    selected: list[Demonstration] = []
    for demonstration in demonstrations:
        # A demonstration does not name its predictor, but `CompactAdapter` begins a prompt with the
        # names of inputs and outputs, as in "dialogue -> facts". Only the predictor that extracts
        # has the output "facts".
        is_extraction = "-> facts" in demonstration.messages[0]["content"]
        # Extractions are easy to learn, so a few of them are enough.
        if not is_extraction or rng.random() < EXTRACTION_SHARE:
            selected.append(demonstration)
    return selected


def _make_model(
    folder: Path, good: Sequence[Demonstration], poor: Sequence[Demonstration], seed: int
) -> Path:
    """Create the model, warm it up on both teachers, and return the folder that it is saved in."""
    from ..engines.local import sft
    from ..engines.local.model import LocalModel
    from ..engines.local.settings import Finetuning
    from ..engines.local.tiny import create

    # The tokenizer is made from the demonstrations, these ids and the benchmark's words.
    create(folder, [*good, *poor], [*_ids(), *vocabulary()], seed)
    model = LocalModel.load(folder, device="cpu")

    # At the full learning rate, Adam's first updates are too large for an untrained model.
    first_steps = Finetuning(
        batch_size=BATCH,
        micro_batch_size=BATCH,
        steps=FIRST_STEPS,
        learning_rate=FIRST_RATE,
        # Another order of the demonstrations than that of the steps which follow.
        seed=seed + 1,
        cosine=False,
    )
    good_steps = Finetuning(
        batch_size=BATCH, micro_batch_size=BATCH, steps=STEPS, learning_rate=RATE, seed=seed
    )
    poor_steps = Finetuning(
        batch_size=BATCH,
        micro_batch_size=BATCH,
        steps=POOR_STEPS,
        learning_rate=POOR_RATE,
        seed=seed,
    )
    sft.fit(model, good, first_steps)
    sft.fit(model, good, good_steps)
    # The poor teacher comes last, so that the model makes mistakes that training can correct.
    sft.fit(model, poor, poor_steps)
    return model.save(folder)


def _ids() -> list[str]:
    """Return the ids of memory entries and turns that the tokenizer has to know."""
    entry_ids = [f"m{number}" for number in range(1, ENTRIES + 1)]
    turn_ids: list[str] = []
    for session in range(1, SESSIONS + 1):
        for turn in range(1, UTTERANCES + 1):
            turn_ids.append(f"D{session}:{turn}")
    return entry_ids + turn_ids


def _digest(good: Sequence[Demonstration], poor: Sequence[Demonstration], seed: int) -> str:
    """Return a digest of everything that the model depends on: its data, its seed and the code.

    The digest names the folder of the cached model, so any change leads to a new model.
    """
    from ..engines.local import rows, sft, tiny, update

    modules = (rows, sft, tiny, update, sys.modules[__name__])
    sources = [inspect.getsource(module) for module in modules]
    content = json.dumps([good, poor, seed, sources], default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
