"""Demonstrations of a memory method by a teacher, as the messages and answers that its model would see and give.

Only the predictors of the method are replaced, by a teacher who makes a set share of mistakes: a model that is warmed
up meets the same prompts as later in training, earlier mistakes in the memory included.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from typing import Any

import dspy

from ..data.memory_env import Conversation
from ..data.synthesis.memory_teacher import ERRORS, MISHEARD, MISSED, teach_facts, teach_operations
from ..programs.fold import Steps, fold
from ..programs.memory_r2.method import MemoryR2
from ..programs.threads import in_order

Example = tuple[list[dict[str, str]], str]
"""Messages and the answer to them."""

UNSEEN = 1_000_000
"""Added to the seed: users of the benchmark have smaller seeds, so that no user is both shown and tested."""


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

    for name, teach in (("extract", facts), ("manage", operations)):
        signature: Any = getattr(writer, name).signature
        object.__setattr__(writer, name, _Taught(signature, adapter, teach, found))
    for number in range(conversations):
        memory = writer.Memory()
        # Sequential: threads would draw the errors in any order.
        with in_order():
            for item in Conversation.make(UNSEEN + seed, number, sessions).history.items:
                memory = fold([item], memory, Steps(writer), settle=False)
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
