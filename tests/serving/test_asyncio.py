"""`aask` for asyncio: no thread waits for a model, whatever the task; places at the endpoint hold."""

import asyncio
import inspect
import threading
import time
from typing import Any

import pytest
from mempiler import Store, UserMemory, build
from mempiler.engines.endpoint.loop import THREADS
from mempiler.engines.guard import Guard
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.engines.models import language_model

SAID = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]


class Waiting:
    """An engine for asyncio that takes its time; counts who waits, and how many threads there are meanwhile."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now, self.most, self.threads = seconds, 0, 0, 0

    async def complete(self, request: Any) -> Any:
        from dspy.lm15 import Message, Response, Usage

        self.now += 1
        self.most, self.threads = max(self.most, self.now), max(self.threads, threading.active_count())
        await asyncio.sleep(self.seconds)
        self.now -= 1
        text = "[[ ## answer ## ]]\nLisbon\n\n[[ ## completed ## ]]"
        return Response(
            id=None, model=request.model, message=Message.assistant(text), finish_reason="stop", usage=Usage()
        )

    async def stream(self, request: Any) -> Any:
        raise NotImplementedError

    async def aclose(self) -> None:
        pass


def model(engine: Waiting, scripted: Any, places: int = 128) -> MeteredLM:
    """A language model that answers asyncio only."""

    def reply(kind: str, text: str, n: int) -> str:
        raise AssertionError("a thread asked")

    blocking = scripted(reply).engine
    return MeteredLM(
        "waiting/test", Meter(), guard=Guard(in_flight=places), engine=blocking, async_engine=engine, cache=False
    )


def test_two_hundred_questions_take_one_latency_and_few_threads(store: Store, scripted: Any) -> None:
    program, engine, before = build("turn-rag"), Waiting(3.0), threading.active_count()
    memory = program.memory(store, "ada", lm=model(engine, scripted, places=200))
    memory.add(SAID, remember=False)

    async def all_at_once() -> list[Any]:
        return list(await asyncio.gather(*(memory.aask("Where does Ada live?") for _ in range(200))))

    begun = time.monotonic()
    found = asyncio.run(all_at_once())
    took = time.monotonic() - begun
    assert [one.answer for one in found] == ["Lisbon"] * 200
    assert engine.most > 100
    assert engine.threads - before <= THREADS + 16
    assert took < 200 * engine.seconds / THREADS


@pytest.mark.parametrize(
    ("method", "task", "query"),
    [
        ("turn-rag", "question-answering", {}),
        ("turn-rag", "multiple-choice", {"options": ["(a) Lisbon", "(b) Oslo"]}),
        ("turn-rag", "personal-response", {}),
        ("turn-rag", "behavior-prediction", {"options": ["Lisbon", "Oslo"]}),
        ("turn-rag", "dialogue-reply", {}),
        ("turn-rag", "memory-lookup", {}),
        ("memory-r2", "question-answering", {}),
    ],
)
def test_asyncio_answers_as_a_thread_does(store: Store, method: str, task: str, query: Any) -> None:
    memory = build(method, task=task).memory(store, "ada", lm=language_model("offline"))
    memory.add(SAID)
    awaited = asyncio.run(memory.aask("Where did Ada move?", **query))
    answered = memory.ask("Where did Ada move?", **query)
    assert {**awaited.toDict(), "memory": None} == {**answered.toDict(), "memory": None}


def test_forms_for_asyncio_take_what_others_take() -> None:
    """But for what the rest of the package hands from one call to the next."""
    forms = [name for name in dir(UserMemory) if name[:1] == "a" and hasattr(UserMemory, name[1:])]
    assert forms == ["aadd", "aask", "asearch"]
    for name in forms:
        given = inspect.signature(getattr(UserMemory, name)).parameters
        whole = inspect.signature(getattr(UserMemory, name[1:])).parameters
        missing = whole.keys() - given.keys()
        assert missing <= {"seen", "begin", "asked"}, name
        assert {one: whole[one].default for one in given} == {one: given[one].default for one in given}, name
