"""The names of the methods, without importing one: what the command line lists.

The `__init__` of a folder in `programs/` declares the methods of the suite; an installed package
declares its own as entry points of the group `mempiler.methods`; any other method is named
`module:Class`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from .. import programs as package

PLUGINS = "mempiler.methods"
"""The group of entry points under which packages offer methods of their own."""

_POLICY_SUFFIX = "+"
"""How the name of a policy ends where it is declared."""


@dataclass(frozen=True)
class MethodEntry:
    """One line of `mempiler list`."""

    path: str
    """Where the class is: "package.module:Class"."""
    summary: str


def plugins() -> dict[str, EntryPoint]:
    """Return the methods of installed packages by name.

    A package cannot replace a method of the suite: an equal name is left out.
    """
    points = entry_points(group=PLUGINS)
    return {point.name: point for point in points if point.name not in METHODS}


def _declared_entries() -> dict[str, MethodEntry]:
    """Return the methods and policies of the suite by name.

    A folder in `programs/` declares its methods in its `__init__`, by name with class and summary:

        METHODS = {"turn-rag": ("turn_rag:TurnRAG", "search the turns as they are"), ...}
    """
    entries: dict[str, MethodEntry] = {}
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.ispkg:
            continue

        folder = importlib.import_module(module.name)
        # Folders such as `tasks` have no methods.
        declared = getattr(folder, "METHODS", {})
        for name, (class_path, summary) in declared.items():
            entries[name] = MethodEntry(f"{module.name}.{class_path}", summary)
    return entries


def _methods_of(entries: Mapping[str, MethodEntry]) -> dict[str, MethodEntry]:
    return {name: entry for name, entry in entries.items() if not name.endswith(_POLICY_SUFFIX)}


def _policies_of(entries: Mapping[str, MethodEntry]) -> dict[str, MethodEntry]:
    policies: dict[str, MethodEntry] = {}
    for name, entry in entries.items():
        if name.endswith(_POLICY_SUFFIX):
            policies[name.removesuffix(_POLICY_SUFFIX)] = entry
    return policies


_ENTRIES = _declared_entries()
METHODS: Mapping[str, MethodEntry] = _methods_of(_ENTRIES)
"""The methods of the suite, by name."""
POLICIES: Mapping[str, MethodEntry] = _policies_of(_ENTRIES)
"""Prefixes of another method's name: `pgr+turn-rag`, `logs+session-rag`."""
