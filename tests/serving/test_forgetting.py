"""Forgetting a user of whom something is under way, in this process or in another one: nothing of it is stored."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mempiler import Store, UserMemory, build
from mempiler.engines.call_context import Deadline
from mempiler.engines.embedders import DIMENSION, TextEmbedder, embedder
from mempiler.engines.lm import language_model
from mempiler.engines.offline.hashed_vectors import hashed_vectors
from mempiler.serving.http.conversation import Conversation
from mempiler.serving.http.schemas import ChatRequest
from mempiler.serving.memories.memories import Memories
from mempiler.serving.memories.transfer import export_users
from mempiler.serving.worker.worker import Worker

from .conftest import ADA, within


class Gate:
    """A model that answers when it is let, and threads in which others wait for it."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.asked, self.go, self.begin = threading.Event(), threading.Event(), pool.submit

    def reply(self, kind: str, text: str, n: int) -> dict[str, str]:
        if "wait" in text:
            self.asked.set()
            self.go.wait(15)
        return {kind: f"answer {n}", **({"answer": f"answer {n}"} if kind == "reasoning" else {})}


@pytest.fixture
def gate() -> Iterator[Gate]:
    with ThreadPoolExecutor() as pool:
        made = Gate(pool)
        yield made
        made.go.set()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The users of whom a piece of work began, in order."""
    users, begin = list[str](), UserMemory.bind_view

    def begins(memory: UserMemory, *given: Any) -> UserMemory:
        found = begin(memory, *given)
        users.append(memory.owner.user)
        return found

    monkeypatch.setattr(UserMemory, "bind_view", begins)
    return users


@pytest.mark.parametrize("session", ["a", None])
def test_answer_does_not_come_into_a_session_of_later(
    connect, scripted, store, gate, session
) -> None:
    client = connect(scripted(gate.reply))
    named = {"metadata": {"session": session}} if session else {}
    found = gate.begin(client.chat, "wait, my PIN is 4711", **named)
    assert gate.asked.wait(15)
    assert client.delete("/v1/users/ada").json()["turns"] == 1
    client.chat("hello", **named)
    gate.go.set()
    assert found.result().json()["choices"][0]["message"]["content"] == "answer 1"
    (opened,) = store.read(ADA).open_sessions
    assert [turn.text for turn in opened.turns] == ["hello", "answer 2"]


@pytest.mark.parametrize(("what", "status"), [("chat", 200), ("add", 409)])
def test_a_message_that_waits_for_a_thread_is_not_stored_after_its_user_is_forgotten(
    connect, scripted, store, gate, begun, monkeypatch, what, status
):
    """A chat is answered all the same, a session is refused."""
    add = UserMemory.add

    def late(memory: UserMemory, *given: Any, **named: Any) -> Any:
        gate.reply("", "wait" if memory.owner.user == "bob" else "", 0)
        return add(memory, *given, **named)

    monkeypatch.setattr(UserMemory, "add", late)
    client = connect(scripted(gate.reply), threads=1, store_threads=1)
    first = gate.begin(getattr(client, what), "wait", user="bob")
    assert gate.asked.wait(15)
    second = gate.begin(getattr(client, what), "my PIN is 4711")
    assert within(15, lambda: "ada" in begun)
    store.forgetting.forget_user(ADA)
    gate.go.set()
    assert first.result().is_success is True
    assert second.result().status_code == status
    assert [one.owner.user for one in store.users.list_all()] == ["bob"]


def test_writer_in_flight_stores_nothing(
    store: Store, scripted: Any, gate: Gate, tmp_path: Path
) -> None:
    program = build("recursive-summary")
    memory = program.memory(store, "ada", "acme", scripted(gate.reply))
    memory.add([{"role": "user", "content": "wait, my PIN is 4711"}], remember=False)
    writing = gate.begin(memory.remember)
    assert gate.asked.wait(15)
    with Store(tmp_path / "memories.sqlite") as other:
        assert other.forgetting.forget_user(ADA).erased
    gate.go.set()
    writing.result()
    assert store.users.list_all() == []
    assert not any(b"4711" in path.read_bytes() for path in tmp_path.iterdir())


def secret() -> str:
    """A word that stands nowhere in this file."""
    return "".join(reversed("qqhgulp"))


def kept() -> list[str]:
    """Texts with the word that live in this process."""
    gc.collect()
    word = secret()
    texts = (
        one for holder in gc.get_objects() if holder is not None for one in gc.get_referents(holder)
    )
    return [repr(one)[:80] for one in texts if one is not word and _holds(one, word)]


def _holds(one: Any, word: str) -> bool:
    if issubclass(type(one), str):
        return word in one
    return issubclass(type(one), bytes) and word.encode() in one


def use(program: Any, store: Store, lm: Any) -> None:
    """Everything that a user's words go through."""
    memory = program.memory(store, "ada", "acme", lm)
    said = f"My word is {secret()} and I moved to Lisbon."
    memory.add([{"role": "user", "name": "Ada", "content": said}])
    memory.add([{"role": "user", "name": "Ada", "content": f"{said} Again."}], remember=False)
    memory.say("chat", [{"role": "user", "content": said}])
    memory.ask(f"Is the word {secret()}, and what moved to Lisbon?")
    memory.recall(f"The word {secret()}?")
    memory.end("chat")
    memory.remember()
    body = ChatRequest.model_validate(
        {"user": "ada", "messages": [{"role": "user", "content": said}]}
    )
    talk = Conversation(memory, body, timedelta(minutes=30))
    talk.enter_session()
    talk.store_new_turns()
    found = asyncio.run(talk.ask(talk.turns_before_question(), None))
    talk.store_answer(str(found.answer), found.context, Deadline(60))
    memory.ask("What is the word?")


def test_nothing_of_a_forgotten_user_stays_in_the_process_or_on_disk(
    store, tmp_path, monkeypatch
) -> None:
    """Of three methods; forgotten here, and by another process."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    lm, others = language_model("offline", cache=True), tmp_path / "others.sqlite"
    here = [
        (build(method, embedder=embedder()), store) for method in ("turn-rag", "recursive-summary")
    ]
    with Store(others) as elsewhere:
        there = build("memory-r2", embedder=embedder())
        worker = Worker(Memories(there, elsewhere, lm), session_gap=30)
        use(there, elsewhere, lm)
        for program, opened in here:
            use(program, opened, lm)
            assert any(
                secret().encode() in path.read_bytes() for path in tmp_path.rglob("memories*")
            )
            assert program.memory(opened, "ada", "acme", lm).forget().erased
        assert kept() != []
        with Store(others) as other:
            assert other.forgetting.forget_user(ADA).erased
        worker.watch()
        assert kept() == []
        with (tmp_path / "all.jsonl").open("w") as file:
            export_users(store, file)
        assert not any(
            secret().encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
        )


def test_question_under_way_leaves_nothing_when_it_ends(store: Store, gate: Gate) -> None:
    """It embeds its words after the user was forgotten."""
    computed = list[str]()

    def wait(texts: Any) -> Any:
        computed.extend(texts)
        if any("wait" in text for text in texts):
            gate.asked.set()
            gate.go.wait(15)
        return hashed_vectors(texts)

    slow = TextEmbedder("slow", wait, DIMENSION)
    memory = build("memory-r2", embedder=slow).memory(
        store, "ada", "acme", language_model("offline")
    )
    memory.add([{"role": "user", "content": f"The word is {secret()}."}])
    asking = gate.begin(lambda: memory.ask(f"wait, what is the word? {secret()}").answer)
    assert gate.asked.wait(15)
    memory.forget()
    gate.go.set()
    asking.result()
    # What the embedder kept, it would not compute again.
    secrets = sorted({text for text in computed if secret() in text})
    assert len(secrets) == 2
    computed.clear()
    slow.embed_prefixed(secrets)
    assert sorted(computed) == secrets
