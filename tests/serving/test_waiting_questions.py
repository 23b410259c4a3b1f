"""More questions than threads wait for the model at the same time, and hold up nobody else."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from mempiler import build
from mempiler.async_bridge import MAX_THREADS
from mempiler.engines.embedders import DIMENSION, TextEmbedder
from mempiler.engines.fair_semaphore import FairSemaphore
from mempiler.engines.lm import language_model
from mempiler.engines.offline.hashed_vectors import hashed_vectors

from ..async_engines import MAX_NEW_THREADS, awaited_lm, run_within
from .conftest import TOKENS

QUESTIONS = 200


class PatientEngine:
    """Answers no call until `answer_all` is set."""

    def __init__(self) -> None:
        self.waiting = 0
        self.answer_all = threading.Event()

    async def complete(self, request: Any) -> Any:
        self.waiting += 1
        try:
            while not self.answer_all.is_set():
                await asyncio.sleep(0.05)
        finally:
            self.waiting -= 1
        return await asyncio.to_thread(language_model("offline").engine.complete, request)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def seconds_of(request: Awaitable[httpx.Response], status: int) -> float:
    started = time.monotonic()
    response = await request
    assert response.status_code == status
    return time.monotonic() - started


def ask(client: httpx.AsyncClient, number: int) -> Awaitable[httpx.Response]:
    path = f"/v1/users/user-{number % 4}/ask"
    return client.post(path, json={"question": f"Where is place {number}?"})


def async_client(client: Any, tenant: str = "acme") -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=client.address,
        headers={"Authorization": f"Bearer {TOKENS[tenant]}"},
        timeout=60,
        limits=httpx.Limits(max_connections=None),
    )


def test_more_questions_than_threads_wait_for_the_model_and_others_are_served(connect: Any) -> None:
    engine = PatientEngine()
    client = connect(awaited_lm(engine), threads=QUESTIONS, queue=0, tenant_share=1.0)
    for number in range(4):
        client.add("I moved to Lisbon.", user=f"user-{number}")

    async def ask_all() -> None:
        threads_before = threading.active_count()
        async with async_client(client) as asking, async_client(client) as other:
            answers = [asyncio.ensure_future(ask(asking, n)) for n in range(QUESTIONS)]
            await until(lambda: engine.waiting == QUESTIONS)
            assert client.service.model_pool.running == QUESTIONS
            assert threading.active_count() - threads_before <= MAX_NEW_THREADS < QUESTIONS

            # No question can be taken any more, and everything else is answered at once.
            assert await seconds_of(ask(other, 0), status=503) < 2
            assert await seconds_of(other.get("/health"), status=200) < 2
            assert await seconds_of(other.get("/ready"), status=503) < 2
            assert await seconds_of(other.get("/v1/users"), status=200) < 2

            engine.answer_all.set()
            responses = await asyncio.gather(*answers)
        assert {response.status_code for response in responses} == {200}

    try:
        run_within(60, ask_all())
    finally:
        engine.answer_all.set()
    assert client.service.model_pool.held.total() == 0


def test_one_tenant_cannot_take_up_the_threads_of_all(connect: Any) -> None:
    embed_all, computing = threading.Event(), list[int]()

    def embed(texts: Any) -> Any:
        if "hang" in texts[0]:
            computing.append(1)
            embed_all.wait(60)
        return hashed_vectors(texts)

    program = build("turn-rag", embedder=TextEmbedder("stub", embed, DIMENSION))
    client = connect(program=program, threads=4 * MAX_THREADS)
    client.service.memories.lane = FairSemaphore(10 * MAX_THREADS)
    others = client.as_tenant("globex")
    for tenant in (client, others):
        tenant.add("I moved to Lisbon.", user="user-0")

    async def ask_all() -> None:
        async with async_client(client) as hanging, async_client(client, "globex") as other:
            questions = [
                asyncio.ensure_future(
                    hanging.post("/v1/users/user-0/ask", json={"question": f"Does {n} hang?"})
                )
                for n in range(MAX_THREADS)
            ]
            await until(lambda: len(computing) == MAX_THREADS // 2)
            assert await seconds_of(ask(other, 0), status=200) < 5
            assert len(computing) == MAX_THREADS // 2
            embed_all.set()
            responses = await asyncio.gather(*questions)
        assert {response.status_code for response in responses} == {200}

    try:
        run_within(60, ask_all())
    finally:
        embed_all.set()
