"""Forgetting a user of whom something is under way, in this process or in another one: nothing of it is stored."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mempiler import Store, build
from mempiler.engines.embedders import embedder
from mempiler.engines.models import language_model
from mempiler.serving.user_memory import UserMemory

from .conftest import ADA, within


class Gate:
    """A model that answers when it is let."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def reply(self, kind: str, text: str, n: int) -> dict[str, str]:
        if "wait" in text:
            self.asked.set()
            self.go.wait(15)
        return {kind: f"answer {n}", **({"answer": f"answer {n}"} if kind == "reasoning" else {})}


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.go.set()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The users of whom a piece of work began, in order."""
    users, begin = list[str](), UserMemory.begin

    def begins(memory: UserMemory, *given: Any) -> UserMemory:
        found = begin(memory, *given)
        users.append(memory.owner.user)
        return found

    monkeypatch.setattr(UserMemory, "begin", begins)
    return users


def in_background(call: Any) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    return thread, found


@pytest.mark.parametrize("session", ["a", None])
def test_answer_does_not_come_into_a_session_of_later(
    connect: Any, scripted: Any, store: Store, gate: Gate, session: str | None
) -> None:
    client = connect(scripted(gate.reply))
    named = {"metadata": {"session": session}} if session else {}
    thread, found = in_background(lambda: client.chat("wait, my PIN is 4711", **named))
    assert gate.asked.wait(15)
    assert client.delete("/v1/users/ada").json()["turns"] == 1
    client.chat("hello", **named)
    gate.go.set()
    thread.join()
    assert (found[0].status_code, found[0].json()["choices"][0]["message"]["content"]) == (200, "answer 1")
    (opened,) = store.read(ADA).open
    assert [turn.text for turn in opened.turns] == ["hello", "answer 2"]


def test_chat_that_waits_for_its_turn_is_answered_and_not_stored(
    connect: Any, scripted: Any, store: Store, gate: Gate, begun: list[str]
) -> None:
    client = connect(scripted(gate.reply), threads=1)
    first, _ = in_background(lambda: client.chat("wait", user="bob"))
    assert gate.asked.wait(15)
    second, found = in_background(lambda: client.chat("my PIN is 4711"))
    assert within(15, lambda: "ada" in begun)
    store.forget(ADA)
    gate.go.set()
    first.join()
    second.join()
    assert found[0].status_code == 200
    assert [one.owner.user for one in store.users()] == ["bob"]


def test_session_that_waits_for_a_thread_is_refused(
    connect: Any, scripted: Any, store: Store, gate: Gate, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = UserMemory.add

    def late(memory: UserMemory, *given: Any, **named: Any) -> Any:
        if memory.owner.user == "bob":
            gate.asked.set()
            assert gate.go.wait(15)
        return add(memory, *given, **named)

    monkeypatch.setattr(UserMemory, "add", late)
    client = connect(scripted(gate.reply), store_threads=1)
    first, _ = in_background(lambda: client.add("hello", user="bob"))
    assert gate.asked.wait(15)
    second, found = in_background(lambda: client.add("my PIN is 4711"))
    assert within(15, lambda: "ada" in begun)
    store.forget(ADA)
    gate.go.set()
    first.join()
    second.join()
    assert found[0].status_code == 409
    assert [one.owner.user for one in store.users()] == ["bob"]


def test_writer_in_flight_stores_nothing(store: Store, scripted: Any, gate: Gate, tmp_path: Path) -> None:
    program = build("recursive-summary")
    memory = program.memory(store, "ada", "acme", scripted(gate.reply))
    memory.add([{"role": "user", "content": "wait, my PIN is 4711"}], remember=False)
    thread, _ = in_background(memory.remember)
    assert gate.asked.wait(15)
    with Store(tmp_path / "memories.sqlite") as other:
        assert other.forget(ADA).erased
    gate.go.set()
    thread.join()
    assert store.users() == []
    assert not any(b"4711" in path.read_bytes() for path in tmp_path.iterdir())


def secret() -> str:
    """A word that stands nowhere in this file."""
    return "".join(reversed("qqhgulp"))


def kept() -> list[str]:
    """Texts with the word that live in this process."""
    gc.collect()
    word = secret()
    texts = (one for holder in gc.get_objects() if holder is not None for one in gc.get_referents(holder))
    return [
        repr(one)[:80] for one in texts if issubclass(type(one), str | bytes) and one is not word and _holds(one, word)
    ]


def _holds(text: str | bytes, word: str) -> bool:
    return word in text if isinstance(text, str) else word.encode() in text


def use(program: Any, store: Store, lm: Any) -> None:
    """Everything that a user's words go through."""
    from datetime import timedelta

    from mempiler.engines.endpoint.loop import Deadline
    from mempiler.serving.bodies import ChatRequest
    from mempiler.serving.conversation import Conversation

    memory = program.memory(store, "ada", "acme", lm)
    said = f"My word is {secret()} and I moved to Lisbon."
    memory.add([{"role": "user", "name": "Ada", "content": said}])
    memory.add([{"role": "user", "name": "Ada", "content": f"{said} Again."}], remember=False)
    memory.say("chat", [{"role": "user", "content": said}])
    memory.ask(f"Is the word {secret()}, and what moved to Lisbon?")
    memory.recall(f"The word {secret()}?")
    memory.end("chat")
    memory.remember()
    deadline = Deadline(60)
    body = ChatRequest.model_validate({"user": "ada", "messages": [{"role": "user", "content": said}]})
    talk = Conversation(memory, body, timedelta(minutes=30))
    talk.hear()
    found = talk.ask(None)
    talk.end(str(found.answer), found.context, deadline)
    memory.ask("What is the word?")


def test_nothing_of_a_forgotten_user_stays_in_the_process_or_on_disk(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three methods; forgotten here, and by another process."""
    from mempiler.memory.transfer import export_users
    from mempiler.serving.memories import Memories
    from mempiler.serving.writers import Worker

    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    lm, others = language_model("offline"), tmp_path / "others.sqlite"
    here = [(build(method, embedder=embedder()), store) for method in ("turn-rag", "recursive-summary")]
    with Store(others) as elsewhere:
        there = build("memory-r2", embedder=embedder())
        worker = Worker(Memories(there, elsewhere, lm), session_gap=30)
        use(there, elsewhere, lm)
        for program, opened in here:
            use(program, opened, lm)
            assert any(secret().encode() in path.read_bytes() for path in tmp_path.rglob("memories*"))
            assert program.memory(opened, "ada", "acme", lm).forget().erased
        assert kept() != []
        with Store(others) as other:
            assert other.forget(ADA).erased
        worker.watch()
        assert kept() == []
        with (tmp_path / "all.jsonl").open("w") as file:
            export_users(store, file)
        assert not any(secret().encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_question_under_way_leaves_nothing_when_it_ends(store: Store, gate: Gate) -> None:
    """It embeds its words after the user was forgotten."""
    slow: Any = embedder()
    compute = slow._compute

    def wait(texts: Any) -> Any:
        if any("wait" in text for text in texts):
            gate.asked.set()
            gate.go.wait(15)
        return compute(texts)

    slow._compute = wait
    memory = build("memory-r2", embedder=slow).memory(store, "ada", "acme", language_model("offline"))
    memory.add([{"role": "user", "content": f"The word is {secret()}."}])
    thread, _ = in_background(lambda: memory.ask(f"wait, what is the word? {secret()}").answer)
    assert gate.asked.wait(15)
    memory.forget()
    gate.go.set()
    thread.join()
    assert not any(secret() in text for text in slow._cache)
