"""The tasks of the suite by name."""

from __future__ import annotations

from ...errors import UnknownNameError
from .answering import MultipleChoice, PersonalResponse, QuestionAnswering
from .behavior import BehaviorPrediction
from .lookup import MemoryLookup
from .pal import DialogueReply, RequirementRestatement, SolutionProposal, SolutionSelection
from .task import Task

TASKS: dict[str, type[Task]] = {
    "question-answering": QuestionAnswering,
    "multiple-choice": MultipleChoice,
    "personal-response": PersonalResponse,
    "memory-lookup": MemoryLookup,
    "requirement-restatement": RequirementRestatement,
    "solution-proposal": SolutionProposal,
    "solution-selection": SolutionSelection,
    "dialogue-reply": DialogueReply,
    "behavior-prediction": BehaviorPrediction,
}
"""Tasks by the name that their class has."""


def task_class(name: str) -> type[Task]:
    """Return the class of a task.

    Raises:
        UnknownNameError: There is no such task.
    """
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return TASKS[name]
