"""What is scored that is no method of ours and no saved program: resolved here from a name, or given in Python.

system:NAME                       a shipped adapter of somebody's memory system (`systems`)
module:thing, http://...          or an object: `programs.external.resolve`
answers.jsonl                     `answers`
"""

from __future__ import annotations

import inspect
from typing import Any

from ..programs.external.resolve import WEB, kind_of, takes_embedder, thing_of
from ..programs.external.stores import parameters
from .answers import ANSWERS, Answers

SYSTEM = "system:"


def resolve_external(name: str) -> Any | None:
    """What a name stands for, if that is no method of ours; of a shipped system its factory.

    Raises:
        UserError: There is no such system, module or file, or the system is not installed.
    """
    if name.endswith(ANSWERS):
        return Answers(name)
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


def name_in_tables(thing: Any) -> str:
    """The name of what is scored: `module:name`; of a file of answers without its folder, which is private."""
    if isinstance(thing, Answers):
        return thing.path.name
    kind = thing if inspect.isroutine(thing) or isinstance(thing, type) else type(thing)
    return thing if isinstance(thing, str) else f"{kind.__module__}:{kind.__qualname__}"


def plannable(name: str) -> bool:
    """Whether what something takes can be measured in advance, under another model.

    Raises:
        UserError: There is no such system, module or file.
    """
    thing = resolve_external(name)
    return thing is None or (kind_of(thing) == "answer" and not isinstance(thing, Answers))
