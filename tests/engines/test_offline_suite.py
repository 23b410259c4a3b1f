"""The engine knows no prompt of the suite by its names or wording: every signature of `mempiler.signatures` is filled
as its renamed, rewritten twin is, without demos and with one.

Inputs are made from the types of the fields, see `generality` in conftest.py. That a signature passes also says that
its own instructions hold no cue the engine obeys, so that demos alone shape its answers.
"""

import importlib
import pkgutil
from typing import Any

import dspy
import mempiler.signatures
import pytest


def _suite() -> list[Any]:
    """Every signature that a module of `mempiler.signatures` defines."""
    names = [found.name for found in pkgutil.walk_packages(mempiler.signatures.__path__, "mempiler.signatures.")]
    modules = [importlib.import_module(name) for name in names]
    kinds = [(module, kind) for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return [kind for module, kind in kinds if issubclass(kind, dspy.Signature) and kind.__module__ == module.__name__]


SUITE = _suite()
ADAPTERS = {"chat": dspy.ChatAdapter(use_json_adapter_fallback=False), "json": dspy.JSONAdapter()}

each_signature = pytest.mark.parametrize("signature", SUITE, ids=lambda signature: signature.__name__)
each_adapter = pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)


def test_the_walk_finds_signatures_of_every_room() -> None:
    names = {signature.__name__ for signature in SUITE}
    assert {"AnswerFromContext", "ExtractFacts", "ManageMemory", "AnswerFromMemories"} <= names


@each_adapter
@each_signature
def test_names_and_wording_of_the_suite_do_not_matter(generality: Any, signature: Any, adapter: Any) -> None:
    generality.check(signature, adapter=adapter)


@each_adapter
@each_signature
def test_names_of_the_suite_do_not_matter_where_a_demo_teaches(generality: Any, signature: Any, adapter: Any) -> None:
    generality.check(signature, [generality.demo(signature)], adapter)


@each_signature
def test_every_output_of_the_suite_says_something(generality: Any, signature: Any) -> None:
    """Twins that are both empty would be equal, and prove nothing."""
    outputs = generality.outputs(signature, generality.samples(signature), [], ADAPTERS["chat"])
    assert all(outputs)
