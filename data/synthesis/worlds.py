"""The synthetic worlds of memory-env: who makes their users, and who teaches a model to write them down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import dependent_env, dependent_teacher, memory_teacher
from .memory_env import Conversation


@dataclass(frozen=True)
class World:
    """A kind of users."""

    make: Callable[[int, int, int], Conversation]
    """Seed, number and sessions to a user."""
    teach_facts: Callable[..., list[Any]]
    teach_operations: Callable[..., list[Any]]
    errors: Mapping[Any, float]
    """How often the poor teacher errs, by situation."""
    shown: int
    """Sessions of a user that is shown to a model: it knows no other ids of turns and entries."""


INDEPENDENT, DEPENDENT = "independent", "dependent"
WORLDS: Mapping[str, World] = {
    INDEPENDENT: World(
        Conversation.make, memory_teacher.teach_facts, memory_teacher.teach_operations, memory_teacher.ERRORS, shown=8
    ),
    DEPENDENT: World(
        dependent_env.make,
        dependent_teacher.teach_facts,
        dependent_teacher.teach_operations,
        dependent_teacher.ERRORS,
        shown=32,
    ),
}
