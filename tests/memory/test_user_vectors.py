"""Vectors of a user's texts lie in the store: a new process computes none, and forgetting leaves none."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mempiler import MemoryProgram, Store, build
from mempiler.engines.embedders import TextEmbedder, hashed
from mempiler.engines.models import language_model
from mempiler.engines.vectors import CachedVectors, VectorFile
from mempiler.memory.store.owner import Owner

from .conftest import ADA, BOB, session

METHODS = ["turn-rag", "memory-r2", "h2memory"]
SAID = ["I moved to Lisbon with my dog Rex.", "My sister Carla likes old boats.", "I sold the green bicycle in May."]


class Process:
    """What a new process has: a store that is opened anew, a program, and an embedder that counts its texts."""

    def __init__(self, method: str, store: Store, folder: Path) -> None:
        self.store, self.texts = store, list[str]()
        kept = CachedVectors("counted", VectorFile(folder / "vectors.sqlite"))
        told = {"query": "query: ", "passage": "passage: "}
        self.embedder = TextEmbedder("counted", self._compute, kept=kept, **told)
        self.program: MemoryProgram = build(method, embedder=self.embedder)

    def _compute(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += texts
        return hashed(texts)

    def memory(self, owner: Owner = ADA) -> Any:
        return self.program.memory(self.store, owner.user, lm=language_model("offline"))

    def say(self, *texts: str, owner: Owner = ADA, remember: bool = True) -> None:
        for text in texts:
            self.memory(owner).add([{"role": "user", "name": "Ada", "content": text}], remember=remember)


@pytest.fixture
def start(open_store: Callable[..., Store], tmp_path: Path) -> Callable[..., Process]:
    return lambda method="turn-rag": Process(method, open_store(), tmp_path)


@pytest.mark.parametrize("method", METHODS)
def test_a_new_process_computes_what_is_asked_alone(start: Callable[..., Process], method: str, tmp_path: Path) -> None:
    first = start(method)
    first.say(*SAID)
    first.memory().ask("Where does Ada live?")
    # An index is made with the first search of what is in it: one that waits is no reason to embed twice.
    first.say("The harbour is loud at night.", remember=False)
    asked = first.memory().ask("What is loud?").answer
    assert len(first.texts) > 3

    second = start(method)
    assert second.memory().ask("What is loud?").answer == asked
    assert all(text.startswith("query: ") for text in second.texts)
    assert not (tmp_path / "vectors.sqlite").exists()


def test_a_text_that_two_users_said_is_kept_with_each(start: Callable[..., Process]) -> None:
    first = start()
    for owner in (ADA, BOB):
        first.say("Okay, thanks!", owner=owner)
        first.memory(owner).ask("Who said thanks?")
    assert first.texts.count("passage: Okay, thanks!") == 1
    first.memory(ADA).forget()
    second = start()
    second.memory(BOB).ask("Who said thanks?")
    assert second.texts == ["query: Who said thanks?"]


@pytest.mark.parametrize("what", ["user", "session", "open session"])
def test_what_began_before_a_forgetting_keeps_no_vector(store: Store, what: str) -> None:
    for owner in (ADA, BOB):
        store.items.add(owner, session(SAID[0], id="session"))
        store.open_sessions.append(owner, "open session", session(SAID[1]).turns)
    since = store.forgetting.count()
    assert store.vectors.put(ADA, {b"1": bytes(4)}, since)
    assert store.forgetting.forget_user(ADA) if what == "user" else store.forgetting.forget_session(ADA, what)
    assert not store.vectors.put(ADA, {b"2": bytes(4)}, since)
    assert store.vectors.put(BOB, {b"2": bytes(4)}, since)
    assert store.vectors.get(ADA, [b"1", b"2"]) == {}
    # What begins now is another matter, unless there is no such user any more.
    assert store.vectors.put(ADA, {b"3": bytes(4)}, store.forgetting.count()) == (what != "user")
