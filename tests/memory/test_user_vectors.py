"""The vectors of a user's texts are stored beside the memory.

A search compares vectors, which an embedder computes of texts; a hosted one is paid for that. So a
new process computes none of them again, and forgetting leaves none behind. Vectors of texts that
are no user's are kept in a file for all, the file of vectors.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from mempiler import MemoryProgram, Store, UserMemory, build
from mempiler.engines.embedders import TextEmbedder
from mempiler.engines.lm import language_model
from mempiler.engines.offline.hashed_vectors import hashed_vectors
from mempiler.engines.vector_cache import CachedVectors, VectorFile
from mempiler.memory.store.owner import Owner

from .conftest import ADA, BOB, session

METHOD_NAMES = ["turn-rag", "memory-r2", "h2memory"]


class Process:
    """What a process of its own has: a store that it opened, a program, and an embedder."""

    def __init__(self, method_name: str, store: Store, folder: Path) -> None:
        self.store = store
        self.computed_texts: list[str] = []
        """The texts whose vectors the process computed, with the prefix of their kind."""
        embedder = TextEmbedder(
            "counted",
            self._compute,
            cached_vectors=CachedVectors("counted", VectorFile(folder / "vectors.sqlite")),
            query_prefix="query: ",
            passage_prefix="passage: ",
        )
        self.program: MemoryProgram = build(method_name, embedder=embedder)

    def memory(self, owner: Owner = ADA) -> UserMemory:
        return self.program.memory(self.store, owner.user, lm=language_model("offline"))

    def add(self, text: str, owner: Owner = ADA, remember: bool = True) -> None:
        message = {"role": "user", "name": "Ada", "content": text}
        self.memory(owner).add([message], remember=remember)

    def _compute(self, texts: Sequence[str]) -> np.ndarray:
        self.computed_texts.extend(texts)
        return hashed_vectors(texts)


StartProcess = Callable[[str], Process]


@pytest.fixture
def start_process(open_store: Callable[[], Store], tmp_path: Path) -> StartProcess:
    """A function that does what a new process does first, for a memory of this method."""

    def start(method_name: str) -> Process:
        return Process(method_name, open_store(), tmp_path)

    return start


@pytest.mark.parametrize("method_name", METHOD_NAMES)
def test_new_process_computes_vectors_of_queries_alone(
    start_process: StartProcess, method_name: str
) -> None:
    """The first process stores the vectors of all texts, so the second one need not compute them.

    This includes a text that still waits to be written into the memory.
    """
    first_process = start_process(method_name)
    first_process.add("I moved to Lisbon with my dog Rex.")
    first_process.add("My sister Carla likes old boats.")
    first_process.add("The harbour is loud at night.", remember=False)
    first_answer = first_process.memory().ask("What is loud?").answer
    texts_of_first_process = first_process.computed_texts

    second_process = start_process(method_name)
    second_answer = second_process.memory().ask("What is loud?").answer

    assert second_answer == first_answer
    assert any(text.startswith("passage: ") for text in texts_of_first_process)
    assert second_process.computed_texts != []
    assert all(text.startswith("query: ") for text in second_process.computed_texts)


@pytest.mark.parametrize("method_name", METHOD_NAMES)
def test_vectors_of_users_are_not_written_to_the_file_of_vectors(
    start_process: StartProcess, method_name: str, tmp_path: Path
) -> None:
    first_process = start_process(method_name)
    first_process.add("I moved to Lisbon with my dog Rex.")
    first_process.memory().ask("Where does Ada live?")

    second_process = start_process(method_name)
    second_process.memory().ask("Where does Ada live?")

    assert first_process.computed_texts != []
    assert not (tmp_path / "vectors.sqlite").exists()


def let_ada_and_bob_say_and_search(process: Process, text: str) -> None:
    """Let both users say the same text, and then search for it."""
    for owner in (ADA, BOB):
        process.add(text, owner)
        process.memory(owner).ask("Who said thanks?")


def test_vector_of_a_text_of_two_users_is_computed_once(start_process: StartProcess) -> None:
    process = start_process("turn-rag")

    let_ada_and_bob_say_and_search(process, "Okay, thanks!")

    assert process.computed_texts.count("passage: Okay, thanks!") == 1


def test_vector_of_a_text_of_two_users_stays_with_the_one_who_is_not_forgotten(
    start_process: StartProcess,
) -> None:
    """Bob's copy of the vector must not be deleted with Ada's. Only the query is computed anew."""
    first_process = start_process("turn-rag")
    let_ada_and_bob_say_and_search(first_process, "Okay, thanks!")

    first_process.memory(ADA).forget()
    second_process = start_process("turn-rag")
    second_process.memory(BOB).ask("Who said thanks?")

    assert second_process.computed_texts == ["query: Who said thanks?"]


@pytest.fixture
def store_of_ada_and_bob(store: Store) -> Store:
    """A store in which Ada and Bob have a session and an open session each."""
    for owner in (ADA, BOB):
        store.items.add(owner, session("I moved to Lisbon.", id="closed session"))
        store.open_sessions.append(owner, "open session", session("I like boats.").turns)
    return store


def forget_of_ada(store: Store, forgotten: str) -> None:
    """Forget "everything" of Ada, or her session of this id."""
    if forgotten == "everything":
        assert store.forgetting.forget_user(ADA)
    else:
        assert store.forgetting.forget_session(ADA, forgotten)


VECTOR = bytes(4)
"""Four zero bytes, for a vector is stored as bytes."""


@pytest.mark.parametrize("forgotten", ["everything", "closed session", "open session"])
def test_work_that_began_before_a_forgetting_stores_no_vector(
    store_of_ada_and_bob: Store, forgotten: str
) -> None:
    """The vectors may be those of a text that was forgotten meanwhile, so they are refused.

    What is forgotten is everything of Ada, or one of her two sessions.
    """
    count_before = store_of_ada_and_bob.forgetting.count()
    assert store_of_ada_and_bob.vectors.put(ADA, {b"early text": VECTOR}, count_before)

    forget_of_ada(store_of_ada_and_bob, forgotten)
    late_was_stored = store_of_ada_and_bob.vectors.put(ADA, {b"late text": VECTOR}, count_before)

    assert not late_was_stored
    assert store_of_ada_and_bob.vectors.get(ADA, [b"early text", b"late text"]) == {}


@pytest.mark.parametrize("forgotten", ["everything", "closed session", "open session"])
def test_forgetting_of_one_user_lets_work_for_another_go_on(
    store_of_ada_and_bob: Store, forgotten: str
) -> None:
    count_before = store_of_ada_and_bob.forgetting.count()

    forget_of_ada(store_of_ada_and_bob, forgotten)

    assert store_of_ada_and_bob.vectors.put(BOB, {b"late text": VECTOR}, count_before)


@pytest.mark.parametrize("forgotten", ["closed session", "open session"])
def test_work_that_begins_after_a_session_was_forgotten_stores_vectors(
    store_of_ada_and_bob: Store, forgotten: str
) -> None:
    forget_of_ada(store_of_ada_and_bob, forgotten)

    count_after = store_of_ada_and_bob.forgetting.count()
    assert store_of_ada_and_bob.vectors.put(ADA, {b"new text": VECTOR}, count_after)


def test_no_vector_is_stored_of_a_user_who_was_forgotten(store_of_ada_and_bob: Store) -> None:
    """The work began after the forgetting, but there is no user any more."""
    forget_of_ada(store_of_ada_and_bob, "everything")

    count_after = store_of_ada_and_bob.forgetting.count()
    assert not store_of_ada_and_bob.vectors.put(ADA, {b"new text": VECTOR}, count_after)
