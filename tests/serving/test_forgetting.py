"""Forgetting a user for whom work is in progress, in this process or in another one.

To forget a user is to delete all that the user has said. Nothing of the work in progress is stored
afterwards, and no word of the user stays on disk or in memory.
"""

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mempiler import Store, build
from mempiler.engines.call_context import Deadline
from mempiler.engines.embedders import DIMENSION, TextEmbedder, embedder
from mempiler.engines.lm import language_model
from mempiler.memory.store.queries import load_queries
from mempiler.serving.http.conversation import Conversation
from mempiler.serving.http.schemas import ChatRequest
from mempiler.serving.memories.memories import Memories
from mempiler.serving.memories.transfer import export_users
from mempiler.serving.worker.worker import Worker

from ..conftest import listening
from .conftest import (
    ADA,
    HangingEmbedding,
    PausingModel,
    StartService,
    first_request_hangs_in_store,
    turns_of_ada,
    within,
)


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    """Threads for requests that are held up while the test goes on."""
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def model(background: ThreadPoolExecutor) -> Iterator[PausingModel]:
    """A model that is held up at every prompt with the word "wait", until `go_on` is called.

    It goes on at the latest when the test is over, so that `background` can end.
    """
    pausing_model = PausingModel(word="wait", answer="late answer", other_answer="quick answer")
    yield pausing_model
    pausing_model.go_on()


class BoundRequests:
    """The requests that are bound to the state of the store.

    A request is bound when it reads how often somebody was forgotten. From then on, the store
    refuses what the request wants to store of a user who was forgotten since.
    """

    def __init__(self) -> None:
        self._query = str(load_queries("sqlite")["select_forget_count"])
        self._count = 0

    def after_statement(
        self, connection: Any, cursor: Any, statement: str, *_arguments: Any
    ) -> None:
        """Note a statement that was sent to the database."""
        # The worker reads the count from time to time, for no request.
        is_worker = threading.current_thread().name.startswith("mempiler-worker")
        if statement == self._query and not is_worker:
            self._count += 1

    @contextmanager
    def wait_for_one_more(self) -> Iterator[None]:
        """Wait at the end of the block until a request is bound that was not before the block."""
        count_before = self._count
        yield
        assert within(15, lambda: self._count > count_before)


@pytest.fixture
def bound_requests() -> Iterator[BoundRequests]:
    """The requests of the test that are bound to the state of the store."""
    requests = BoundRequests()
    with listening("after_cursor_execute", requests.after_statement):
        yield requests


# Work in progress stores nothing


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"session": "a"}, id="the same session"),
        pytest.param(None, id="unnamed sessions"),
    ],
)
def test_a_late_answer_is_not_stored_for_a_user_who_was_forgotten_and_came_back(
    start_service: StartService,
    scripted: Any,
    store: Store,
    background: ThreadPoolExecutor,
    model: PausingModel,
    metadata: dict[str, str] | None,
) -> None:
    """The word "wait" holds the model up. Ada is forgotten, and comes back, in the meantime."""
    client = start_service(scripted(model.reply))
    old_chat = background.submit(client.chat, "wait, my PIN is 4711", metadata=metadata)
    model.wait_until_it_is_asked()
    assert turns_of_ada(store) == ["user: wait, my PIN is 4711"]

    client.delete("/v1/users/ada")
    client.chat("hello, I am new here", metadata=metadata)
    model.go_on()

    # Whoever sent the old chat gets its answer, but the store has only the new chat.
    assert "late answer" in old_chat.result().text
    assert turns_of_ada(store) == ["user: hello, I am new here", "assistant: quick answer"]


def test_a_waiting_chat_of_a_user_who_is_forgotten_is_answered_but_not_stored(
    start_service: StartService,
    scripted: Any,
    store: Store,
    background: ThreadPoolExecutor,
    model: PausingModel,
    bound_requests: BoundRequests,
) -> None:
    """With `threads=1` Ada's chat waits for Bob's, which the word "wait" holds up at the model."""
    client = start_service(scripted(model.reply), threads=1)
    chat_of_bob = background.submit(client.chat, "wait", user="bob")
    model.wait_until_it_is_asked()
    with bound_requests.wait_for_one_more():
        chat_of_ada = background.submit(client.chat, "my PIN is 4711")

    store.forgetting.forget_user(ADA)
    model.go_on()

    assert chat_of_bob.result().status_code == 200
    assert chat_of_ada.result().status_code == 200
    assert [status.owner.user for status in store.users.list_all()] == ["bob"]


def test_a_waiting_session_of_a_user_who_is_forgotten_is_refused(
    start_service: StartService,
    store: Store,
    background: ThreadPoolExecutor,
    bound_requests: BoundRequests,
) -> None:
    """With `store_threads=1` Ada's request waits for Bob's, which hangs in the store."""
    client = start_service(store_threads=1)
    client.add("hello", user="bob")

    with first_request_hangs_in_store() as hanging:
        request_of_bob = background.submit(client.get, "/v1/users/bob/memory")
        hanging.wait_until_it_hangs()
        with bound_requests.wait_for_one_more():
            request_of_ada = background.submit(client.add, "my PIN is 4711")

        store.forgetting.forget_user(ADA)
        hanging.go_on()

        assert request_of_bob.result().status_code == 200
        # A conflict: Ada was forgotten after this request had come.
        assert request_of_ada.result().status_code == 409
    assert [status.owner.user for status in store.users.list_all()] == ["bob"]


def test_a_writer_stores_nothing_after_another_process_has_forgotten_its_user(
    store: Store,
    scripted: Any,
    background: ThreadPoolExecutor,
    model: PausingModel,
    tmp_path: Path,
) -> None:
    """A model writes summaries of sessions. The word "wait" holds it up at Ada's session."""
    program = build("recursive-summary")
    memory = program.memory(store, "ada", "acme", scripted(model.reply))
    memory.add([{"role": "user", "content": "wait, my PIN is 4711"}], remember=False)
    writing = background.submit(memory.remember)
    model.wait_until_it_is_asked()

    # A second `Store` over the same file has its own connections, like one of another process.
    with Store(tmp_path / "memories.sqlite") as store_of_another_process:
        assert store_of_another_process.forgetting.forget_user(ADA).erased
    model.go_on()
    writing.result()

    assert store.users.list_all() == []
    assert files_with(b"4711", tmp_path) == []


# No word of a forgotten user stays


def secret_word() -> str:
    """Return a word that stands nowhere in this file, so the code itself does not contain it."""
    return "".join(reversed("qqhgulp"))


def with_subclasses(cls: type) -> set[type]:
    """Return a class and all classes that inherit from it."""
    classes = {cls}
    for subclass in cls.__subclasses__():
        classes |= with_subclasses(subclass)
    return classes


def secret_texts_in_process() -> list[str]:
    """Return the beginnings of all texts in this process that contain the secret word.

    The garbage collector of Python knows all containers, and what each of them refers to.
    """
    gc.collect()
    word = secret_word()
    word_as_bytes = word.encode()
    # There are millions of values. To look their types up in a set is the fastest way to pass over
    # all that are no texts. (`isinstance` would also compute the `__class__` of some proxies.)
    text_types = with_subclasses(str)
    bytes_types = with_subclasses(bytes)

    # Listed before the result exists, which is such an object itself.
    objects = gc.get_objects()
    texts: list[str] = []
    for holder in objects:
        for value in gc.get_referents(holder):
            value_type = type(value)
            if value_type in text_types:
                is_found = word in value and value is not word
            elif value_type in bytes_types:
                is_found = word_as_bytes in value and value is not word_as_bytes
            else:
                continue
            if is_found:
                texts.append(repr(value)[:80])
    return texts


def files_with(word: bytes, folder: Path) -> list[Path]:
    """Return the files below a folder that contain a word."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files != []
    return [path for path in files if word in path.read_bytes()]


def files_with_secret(folder: Path) -> list[Path]:
    """Return the files below a folder that contain the secret word."""
    return files_with(secret_word().encode(), folder)


def say_secret_everywhere(program: Any, store: Store, lm: Any) -> None:
    """Let Ada say the secret word to everything that takes words: the Python API and a chat."""
    memory = program.memory(store, "ada", "acme", lm, feedback=True)
    text = f"My word is {secret_word()} and I moved to Lisbon."

    # The Python API.
    memory.add([{"role": "user", "name": "Ada", "content": text}])
    memory.add([{"role": "user", "name": "Ada", "content": f"{text} Again."}], remember=False)
    memory.say("chat", [{"role": "user", "content": text}])
    answer = memory.ask(f"Is the word {secret_word()}, and what moved to Lisbon?")
    memory.feedback(answer.answer_id, correction=f"The word is {secret_word()}.")
    memory.recall(f"The word {secret_word()}?")
    memory.end("chat")
    memory.remember()

    # A chat over HTTP.
    body = ChatRequest.model_validate(
        {"user": "ada", "messages": [{"role": "user", "content": text}]}
    )
    conversation = Conversation(memory, body, timedelta(minutes=30))
    conversation.enter_session()
    conversation.store_new_turns()
    prediction = asyncio.run(conversation.ask(conversation.turns_before_question(), None))
    conversation.store_answer(str(prediction.answer), prediction.context, Deadline(60))

    memory.ask("What is the word?")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder below which everything is written that Mempiler writes."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("method", ["turn-rag", "recursive-summary"])
def test_nothing_of_a_user_who_is_forgotten_here_stays_in_the_process_or_on_disk(
    store: Store, home: Path, method: str
) -> None:
    """The secret word is searched in all files below `home` and in all objects of this process."""
    program = build(method, embedder=embedder())
    lm = language_model("offline", cache=True)
    say_secret_everywhere(program, store, lm)
    assert files_with_secret(home) != []
    assert secret_texts_in_process() != []

    assert program.memory(store, "ada", "acme", lm).forget().erased

    assert secret_texts_in_process() == []
    with (home / "all.jsonl").open("w") as file:
        export_users(store, file)
    assert files_with_secret(home) == []


def test_nothing_of_a_user_whom_another_process_forgot_stays_in_the_process_or_on_disk(
    store: Store, home: Path
) -> None:
    """This process learns of it from the store, where its worker looks every two seconds."""
    program = build("memory-r2", embedder=embedder())
    lm = language_model("offline", cache=True)
    worker = Worker(Memories(program, store, lm), session_gap=30)
    say_secret_everywhere(program, store, lm)

    with Store(home / "memories.sqlite") as store_of_another_process:
        assert store_of_another_process.forgetting.forget_user(ADA).erased
    assert secret_texts_in_process() != []
    worker.watch()

    assert secret_texts_in_process() == []
    assert files_with_secret(home) == []


def test_a_question_that_ends_after_the_forgetting_leaves_no_embedding(
    store: Store, background: ThreadPoolExecutor, hanging_embedding: HangingEmbedding
) -> None:
    """An embedder keeps the vectors of texts. This one hangs at the question with the word "hang".

    It goes on when the user is forgotten.
    """
    slow_embedder = TextEmbedder("slow", hanging_embedding, DIMENSION)
    program = build("memory-r2", embedder=slow_embedder)
    memory = program.memory(store, "ada", "acme", language_model("offline"))
    memory.add([{"role": "user", "content": f"The word is {secret_word()}."}])
    asking = background.submit(memory.ask, f"Does the word {secret_word()} hang?")
    assert within(15, lambda: hanging_embedding.hanging_texts != [])

    memory.forget()
    hanging_embedding.may_go_on.set()
    asking.result()

    secret_texts = sorted({text for text in hanging_embedding.texts if secret_word() in text})
    assert len(secret_texts) == 2  # the message and the question
    hanging_embedding.texts.clear()
    slow_embedder.embed_prefixed(secret_texts)
    # It had to compute both again, so it had kept neither.
    assert sorted(hanging_embedding.texts) == secret_texts
