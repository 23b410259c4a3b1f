"""A memory system that a test scripts, run by the real worker in this interpreter."""

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

ITEM = Session(id="D1", turns=(Turn(id="D1:1", speaker="Ann", text="I moved to Lisbon."),))
PLAIN = """
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
"""A class that keeps texts and lists them."""


def script(place: Path, methods: str = "") -> Path:
    """Writes the file of a system that has these methods in the place of the plain ones."""
    place.mkdir()
    body = textwrap.indent(textwrap.dedent(methods).strip() or "pass", "    ")
    (place / "scripted.py").write_text(
        f"{PLAIN}\n\nclass System(Plain):\n{body}\n", encoding="utf-8"
    )
    return place / "scripted.py"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a system with a test's methods; everything that was started is closed at the end."""
    with ExitStack() as open_ones:
        number = iter(range(100))

        def make(methods: str = "") -> System:
            file = script(tmp_path / f"system-{next(number)}", methods)
            made = System(
                "scripted", Path(sys.executable), file, {}, file.parent / "folder", embedder()
            )
            return open_ones.enter_context(closing(made))

        yield make
