"""What is saved of a method's settings, and what of them decides the key of its memories.

A memory is stored under a digest of its writer. If a setting of a writer gets another name or
another default, every stored memory is written, and paid for, anew.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler import build
from mempiler.programs._component import Component
from mempiler.programs.names import METHODS, POLICIES

SNAPSHOT = Path(__file__).with_name("settings_of_methods.json")
"""The settings of every component, by method and then by the component's path."""

COMBINED = ["logs+pgr+turn-rag", "pgr+logs+turn-rag", "logs+recursive-summary"]
NAMES = [*METHODS, *[f"{policy}+turn-rag" for policy in POLICIES], *COMBINED]


def settings_by_component(name: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for path, component in build(name).method.named_sub_modules(Component):
        settings[f"{path} ({type(component).__name__})"] = component.config
    return settings


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_all_components_are_those_of_the_snapshot(name: str) -> None:
    snapshot = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    assert settings_by_component(name) == snapshot[name]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_made_without_arguments_has_the_defaults_of_its_settings(name: str) -> None:
    method_class: Any = type(build(name).method)
    assert method_class().config == method_class.Settings().model_dump(mode="json")
