"""What is scored that is no method of ours and no saved program: resolved here from a name, or given in Python.

system:NAME          a shipped adapter of somebody's memory system (`systems`)
module:thing, http://..., answers.jsonl, or an object        `programs.external.resolve`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..errors import UserError
from ..programs.external.answers import Answers
from ..programs.external.program import parameters
from ..programs.external.resolve import ANSWERS, WEB, kind_of, name_of, takes_embedder, thing_of

SYSTEM = "system:"


def resolve_external(name: str) -> Any | None:
    """What a name stands for, if that is no method of ours; of a shipped system its factory.

    Raises:
        UserError: There is no such system, module or file, or the system is not installed.
    """
    if not name.startswith(SYSTEM):
        return thing_of(name)
    from ..systems.catalog import factory

    return factory(name.removeprefix(SYSTEM))


def in_subprocess(name: str, thing: Any) -> Any:
    """A class or factory of stores that is named, in processes of its own, one for each history; else what it was.

    One that asks for the run's embedder has it in this process only.
    """
    made = isinstance(thing, type) or not hasattr(thing, "add")
    if name.startswith((SYSTEM, *WEB)) or not made or kind_of(thing) == "answer" or takes_embedder(thing):
        return thing
    from ..systems.catalog import isolated

    make: Any = isolated(name, "folder" in parameters(thing))
    make.asks = kind_of(thing) == "ask"
    return make


def read_answers(thing: Any) -> Any:
    """What a run scores: a file of answers is read, once; anything else is what it was."""
    return thing_of(thing) if isinstance(thing, str) and thing.endswith(ANSWERS) else thing


def name_in_tables(thing: Any) -> str:
    """The name of what is scored; of a file without its folder, which is private."""
    if isinstance(thing, Answers):
        return thing.path.name
    return thing if isinstance(thing, str) else name_of(thing)


def plannable(name: str) -> bool:
    """Whether what something takes can be measured in advance, under another model.

    Raises:
        UserError: There is no such system, module or file.
    """
    thing = resolve_external(name)
    return thing is None or (kind_of(thing) == "answer" and not isinstance(thing, Answers))


def with_answers(thing: Any, benchmark: Benchmark, examples: Sequence[dspy.Example]) -> Sequence[dspy.Example]:
    """The questions, with their recorded answers where such are scored.

    Raises:
        DataError: Questions and answers do not fit.
        UserError: The benchmark's answers are conversations, which cannot be recorded so.
    """
    if not isinstance(thing, Answers):
        return examples
    if benchmark.interaction is not None:
        raise UserError(f"{benchmark.name} is a simulated conversation: there is nothing to record one answer of")
    return thing.given(examples, [str(each.id) for each in benchmark.examples])
