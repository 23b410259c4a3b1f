"""Adapters of other people's systems declare the texts and numbers that can be set.

The adapter is the file that runs in the environment of the system. Only there the package can be
imported, and only the package knows the defaults of its texts.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest
from mempiler.engines.embedders import embedder
from mempiler.errors import UserError
from mempiler.systems.catalog import SYSTEMS
from mempiler.systems.declaration import Declaration, read_declaration
from mempiler.systems.process import System

from .conftest import write_system


def declaration_of(adapter: str, folder: Path) -> Declaration:
    """Return what an adapter declares, given as Python code; it runs under this interpreter."""
    file = folder / "adapter.py"
    file.write_text(adapter, encoding="utf-8")
    return read_declaration("scripted", Path(sys.executable), file)


def test_texts_numbers_and_export_are_read_from_the_adapter(tmp_path: Path) -> None:
    """`EXPORT` is code that uses the package with the texts, without Mempiler."""
    adapter = """
print("a package greets")

DEFAULT = "Keep names."
TEXTS = {"rules": DEFAULT}
NUMBERS = {"limit": {"default": 5, "low": 1, "high": 30}}
EXPORT = "memory = configure(rules=$rules)"
"""

    declaration = declaration_of(adapter, tmp_path)

    assert declaration.texts == {"rules": "Keep names."}
    assert declaration.numbers == {"limit": {"default": 5, "low": 1, "high": 30}}
    assert declaration.default_numbers() == {"limit": 5}
    assert declaration.export == "memory = configure(rules=$rules)"


def test_a_package_that_cannot_be_imported_is_to_be_installed_anew(tmp_path: Path) -> None:
    """The error ends with the command for that."""
    with pytest.raises(UserError) as caught:
        declaration_of("import no_such_package", tmp_path)

    message = str(caught.value)
    assert "the system scripted cannot be imported" in message
    assert "No module named 'no_such_package'" in message
    assert message.endswith("mempiler fetch system:scripted")


def test_an_adapter_gets_no_key_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the adapter declares its whole environment as its texts."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")

    declaration = declaration_of("import os\nTEXTS = dict(os.environ)", tmp_path)

    assert declaration.texts["OPENAI_API_KEY"] == "none"


def test_a_system_is_given_its_texts_and_numbers(tmp_path: Path) -> None:
    """A user or an optimizer sets the text "rules" and the number "limit".

    The search of this system returns what it was given.
    """
    search = """
        def search(self, query, k):
            return [self.settings["texts"]["rules"], str(self.settings["numbers"]["limit"])]
    """
    system = System(
        "scripted",
        Path(sys.executable),
        write_system(tmp_path / "system", search),
        {},
        tmp_path / "folder",
        embedder(),
        texts={"rules": "Keep dates."},
        numbers={"limit": 7},
    )

    with closing(system):
        assert system.search("x", k=2) == ["Keep dates.", "7"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_catalog_knows_which_adapters_declare_texts(name: str) -> None:
    """An adapter declares texts by a dictionary with the name TEXTS."""
    system = SYSTEMS[name]

    declares_texts = "\nTEXTS = {" in system.file.read_text(encoding="utf-8")

    assert declares_texts == system.has_texts
