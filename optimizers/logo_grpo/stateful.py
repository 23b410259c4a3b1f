"""LoGo-GRPO for a plain `dspy.Module` that keeps a state: three methods are all it needs (`Stateful`).

    state = module.initial_state()
    for session in history.items: state = module.step(state, session)
    prediction = module.answer(state, question=...)

The state is the snapshot that local groups start from: every step is given a copy of its own, so a step may change what
it is given. Predictors that `step` calls are trained; those that `answer` calls are asked under the reader's language
model. A step whose answer cannot be read leaves the state as it was, and costs the format penalty. A memory's length is
the number of words in the texts of the state.

Example:
    >>> import dspy
    >>> from mempiler.optimizers.logo_grpo.stateful import Stateful
    >>> class Diary(dspy.Module):
    ...     def initial_state(self): return []
    ...     def step(self, state, session): return [*state, *session.lines()]
    ...     def answer(self, state, question): return dspy.Prediction(answer=state[-1])
    >>> isinstance(Diary(), Stateful)
    True
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Protocol, runtime_checkable

import dspy
from pydantic import ConfigDict, TypeAdapter, field_serializer

from ...errors import UserError
from ...memory.memory import Memory
from ...programs.failing import LOST, concerns_prompt, failure_of
from ...programs.method import Writer
from ...programs.predictor import adopt
from ...programs.program import MemoryProgram
from ...programs.recording import record_failure
from ...records import History, Item

METHODS = ("initial_state", "step", "answer")


@runtime_checkable
class Stateful(Protocol):
    """What a module must have to be trained."""

    def initial_state(self) -> Any:
        """The state before the first session; anything that can be copied."""
        ...

    def step(self, state: Any, session: Item) -> Any:
        """The state after one more session.

        Args:
            state: The state before; a copy, which may be changed.
            session: The session, with `turns` and `lines()`.
        """
        ...

    def answer(self, state: Any, **asked: Any) -> dspy.Prediction:
        """The answer to a question about what is past.

        Args:
            state: The state at that moment.
            **asked: The inputs of the training example, without `history` and `focus`.
        """
        ...


class StateMemory(Memory):
    """A state as a memory."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    begun: bool = False
    state: Any = None

    @field_serializer("state")
    def _plain(self, state: Any) -> Any:
        return TypeAdapter(Any).dump_python(state, mode="json", fallback=str)


class StateWriter(Writer):
    """Takes sessions in by a module's `step`.

    Args:
        module: The module; its predictors are made such that their calls are recorded.
    """

    Memory = StateMemory

    def __init__(self, module: Any) -> None:
        super().__init__()
        adopt(module)
        self.module = module

    def write(self, memory: StateMemory, item: Item, prepared: Any = None) -> StateMemory:
        state = copy.deepcopy(memory.state) if memory.begun else self.module.initial_state()
        try:
            after = self.module.step(state, item)
        except LOST as error:
            if not concerns_prompt(error):
                raise
            record_failure(failure_of("step", error))
            return memory
        return memory.model_copy(update={"begun": True, "state": after})


class StateProgram:
    """A module with a state in the place of a `MemoryProgram`.

    Args:
        module: Copied: it is not changed.
    """

    def __init__(self, module: Any) -> None:
        self.module = module.deepcopy()
        self.name = type(module).__name__
        self.method = SimpleNamespace(writer=StateWriter(self.module))

    def asking(self) -> dspy.Adapter:
        """The adapter of `dspy.settings`, or else DSPy's own."""
        return dspy.settings.adapter or dspy.ChatAdapter()

    def query_of(self, example: dspy.Example, history: History) -> dict[str, Any]:
        """What an example asks."""
        return {name: value for name, value in example.inputs().items() if name not in ("history", "focus")}

    def answer(self, memory: StateMemory, query: dict[str, Any]) -> dspy.Prediction:
        """Asks the state; that of no session, where nothing could be read yet."""
        state = copy.deepcopy(memory.state) if memory.begun else self.module.initial_state()
        return self.module.answer(state, **query)


def trainable(student: Any, examples: Sequence[dspy.Example], weights: str = "shared") -> Any:
    """The program that stands for a student.

    Args:
        student: A `MemoryProgram`, or a module with a state.
        examples: What it is trained and validated on.
        weights: "separate" gives each predictor a model of its own, which only those of a `MemoryProgram` find again.

    Raises:
        UserError: The module keeps no state, or an example has no history, or it cannot have several models.
    """
    if isinstance(student, MemoryProgram):
        return student
    missing = [name for name in METHODS if not callable(getattr(student, name, None))]
    if missing:
        raise UserError(
            f"{type(student).__name__} cannot be trained: it has no {', '.join(missing)}; LoGo-GRPO takes a "
            f"MemoryProgram, or a dspy.Module with {', '.join(METHODS)} (docs/extend.md)"
        )
    if weights == "separate":
        raise UserError(f"weights = separate is for a MemoryProgram; train {type(student).__name__} with shared")
    for example in examples:
        if not isinstance(example.get("history"), History):
            raise UserError(f"an example for {type(student).__name__} has no history that is a mempiler.History")
    return StateProgram(student)
