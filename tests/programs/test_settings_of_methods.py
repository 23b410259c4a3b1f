"""What is saved of a method's settings, and what of them decides the key of its memories.

A memory is stored under a digest of its writer. If a setting of a writer gets another name or
another default, every stored memory is written, and paid for, anew. A component is a method, its
writer or its reader; the snapshots are the two JSON files beside this one.

`python tests/programs/test_settings_of_methods.py` writes the snapshots anew, where that is meant.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler import build
from mempiler.programs._component import Component
from mempiler.programs.identity import writer_digest
from mempiler.programs.names import METHODS, POLICIES

SETTINGS_SNAPSHOT = Path(__file__).with_name("settings_of_methods.json")
"""The settings of every component, by method and then by the component's path."""
DIGESTS_SNAPSHOT = Path(__file__).with_name("writer_digests.json")
"""The digest of every method's writer, without an embedder."""

COMBINED = ["logs+pgr+turn-rag", "pgr+logs+turn-rag", "logs+recursive-summary"]
NAMES = [*METHODS, *[f"{policy}+turn-rag" for policy in POLICIES], *COMBINED]


def settings_by_component(name: str) -> dict[str, Any]:
    """Return the settings of a method's components: of itself, its writer and its reader."""
    settings: dict[str, Any] = {}
    for path, component in build(name).method.named_sub_modules(Component):
        settings[f"{path} ({type(component).__name__})"] = component.config
    return settings


def digest_of_writer(name: str) -> str:
    return writer_digest(build(name).method.writer)


def load_snapshot(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def json_text(settings: Any) -> str:
    """Return settings as text, in which 10 and 10.0 differ: a digest differs by that as well."""
    return json.dumps(settings, indent=2, sort_keys=True)


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_all_components_are_those_of_the_snapshot(name: str) -> None:
    """Saved programs hold these settings, so a program with a renamed setting cannot be loaded.

    The components of a method are the method itself, its writer and its reader. The snapshot is a
    JSON file beside this test.
    """
    snapshot = load_snapshot(SETTINGS_SNAPSHOT)
    assert json_text(settings_by_component(name)) == json_text(snapshot[name])


@pytest.mark.parametrize("name", NAMES)
def test_writer_has_the_digest_of_the_snapshot(name: str) -> None:
    """A store keeps each memory under the digest of its writer.

    With another digest no stored memory would be found, and all would be written, and paid for,
    anew. The snapshot is a JSON file beside this test.
    """
    assert digest_of_writer(name) == load_snapshot(DIGESTS_SNAPSHOT)[name]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_made_without_arguments_has_the_defaults_of_its_settings(name: str) -> None:
    """Users may make a method by its class, and not only by `build`."""
    method_class: Any = type(build(name).method)

    config = method_class().config

    defaults = method_class.Settings().model_dump(mode="json")
    assert json_text(config) == json_text(defaults)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_made_without_settings_has_their_defaults(policy: str) -> None:
    """A policy is a method over another one, here over turn-rag."""
    policy_class: Any = type(build(f"{policy}+turn-rag").method)
    inner = build("turn-rag").method

    config = policy_class(inner).config

    # The settings of the method beneath stand beside its own.
    own_settings = {name: value for name, value in config.items() if not name.startswith("inner_")}
    defaults = policy_class.Settings().model_dump(mode="json")
    assert json_text(own_settings) == json_text(defaults)


def write_snapshots() -> None:
    settings = {name: settings_by_component(name) for name in NAMES}
    SETTINGS_SNAPSHOT.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    digests = {name: digest_of_writer(name) for name in NAMES}
    DIGESTS_SNAPSHOT.write_text(json.dumps(digests, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_snapshots()
