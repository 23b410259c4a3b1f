"""The names of the methods, without importing one: what the command line lists.

A method of the suite is declared by the `__init__` of its folder; one of an installed package is an entry point of the
group `mempiler.methods`; any other is named `module:Class`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from .. import programs as package


@dataclass(frozen=True)
class MethodEntry:
    """One line of `mempiler list`."""

    path: str
    """Where the class is: "package.module:Class"."""
    summary: str


_ALL = {
    name: MethodEntry(f"{found.name}.{path}", told)
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    if found.ispkg
    for name, (path, told) in getattr(importlib.import_module(found.name), "METHODS", {}).items()
}
METHODS: Mapping[str, MethodEntry] = {name: entry for name, entry in _ALL.items() if not name.endswith("+")}
POLICIES: Mapping[str, MethodEntry] = {name[:-1]: entry for name, entry in _ALL.items() if name.endswith("+")}
"""Prefixes of another method's name: `pgr+turn-rag`, `logs+session-rag`."""
PLUGINS = "mempiler.methods"
"""The group of entry points under which packages offer methods of their own."""


def plugins() -> dict[str, EntryPoint]:
    """Methods of installed packages by name: their entry points of the group `mempiler.methods`."""
    return {each.name: each for each in entry_points(group=PLUGINS) if each.name not in METHODS}
