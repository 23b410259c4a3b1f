"""Every signature class of the suite, for tests that hold for each of them."""

import importlib
import inspect
import pkgutil

import dspy
from mempiler import signatures


def suite() -> list[type[dspy.Signature]]:
    """The classes, each from the module that defines it, by module and name."""
    found: list[type[dspy.Signature]] = []
    for each in pkgutil.walk_packages(signatures.__path__, f"{signatures.__name__}."):
        module = importlib.import_module(each.name)
        members = (kind for _, kind in inspect.getmembers(module, inspect.isclass))
        found += [kind for kind in members if issubclass(kind, dspy.Signature) and kind.__module__ == each.name]
    return found
