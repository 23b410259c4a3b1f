"""A memory system that a test scripts, run by the real worker in this interpreter."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from mempiler.engines.embedders import embedder
from mempiler.records import Session, Turn
from mempiler.systems.process import System

Start = Callable[..., System]
"""The fixture `start`: `start("def add(self, session): ...")` starts a system with this method."""

PLAIN_SYSTEM = """
import contextlib, json, os, pathlib, signal, subprocess, sys, time, urllib.request

print("greetings")
os.write(1, b'{"result": "garbage"}\\n')

def ask(path, **body):
    headers = {
        "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
        "Content-Type": "application/json",
    }
    url = os.environ["OPENAI_BASE_URL"] + path
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return {"status": error.code, **json.load(error)}

class Plain:
    def __init__(self, folder, settings):
        self.folder, self.settings = pathlib.Path(folder), settings
        path = self.folder / "texts.json"
        self.texts = json.loads(path.read_text()) if path.exists() else []
    def add(self, session):
        self.texts += [[turn["id"], turn["text"]] for turn in session["turns"]]
    def search(self, query, k):
        return [{"text": text, "ids": [name]} for name, text in self.texts]
    def close(self):
        (self.folder / "texts.json").write_text(json.dumps(self.texts))
"""
"""A class that keeps texts and lists them, and a function that asks the run's models.

What it prints, by Python and into the file of the standard output, must not be taken for answers of
the worker.
"""


def session_of_ann(text: str) -> Session:
    """Return the session "D1" of one turn, "D1:1", in which Ann says a text."""
    return Session(id="D1", turns=(Turn(id="D1:1", speaker="Ann", text=text),))


def write_system(folder: Path, methods: str = "") -> Path:
    """Write the file of a system in a new folder, and return it.

    The methods take the place of those of the plain system.
    """
    folder.mkdir()
    body = textwrap.indent(textwrap.dedent(methods).strip() or "pass", "    ")
    file = folder / "scripted.py"
    file.write_text(f"{PLAIN_SYSTEM}\n\nclass System(Plain):\n{body}\n", encoding="utf-8")
    return file


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts a system with these methods; the system is closed after the test."""
    file_folders: list[Path] = []
    with ExitStack() as open_systems:

        def start_system(methods: str = "") -> System:
            file_folder = tmp_path / f"system-{len(file_folders)}"
            file_folders.append(file_folder)
            file = write_system(file_folder, methods)
            system = System(
                "scripted", Path(sys.executable), file, {}, file_folder / "folder", embedder()
            )
            return open_systems.enter_context(closing(system))

        yield start_system
