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
from .conftest import TOKENS, Api, Connect

QUESTIONS = 200
"""How many questions wait at the same time."""
USERS = 4


class PatientEngine:
    """An engine that answers no call until `may_answer` is set."""

    def __init__(self) -> None:
        self.waiting_calls = 0
        self.may_answer = threading.Event()

    async def complete(self, request: Any) -> Any:
        self.waiting_calls += 1
        try:
            while not self.may_answer.is_set():
                await asyncio.sleep(0.05)
        finally:
            self.waiting_calls -= 1
        return await asyncio.to_thread(language_model("offline").engine.complete, request)


async def wait_until(condition: Callable[[], object]) -> None:
    """Wait for a condition; `run_within` ends a test in which it never comes true."""
    while not condition():
        await asyncio.sleep(0.02)


async def seconds_until_status(request: Awaitable[httpx.Response], status: int) -> float:
    """Send a request, check the status of its response, and return the seconds that it took."""
    started = time.monotonic()
    response = await request
    assert response.status_code == status
    return time.monotonic() - started


def async_client(api: Api, tenant: str = "acme") -> httpx.AsyncClient:
    """Return a client with any number of connections."""
    return httpx.AsyncClient(
        base_url=api.address,
        headers={"Authorization": f"Bearer {TOKENS[tenant]}"},
        timeout=60,
        limits=httpx.Limits(max_connections=None),
    )


def test_more_questions_than_threads_wait_for_the_model_and_others_are_served(
    connect: Connect,
) -> None:
    """A question takes no thread while it waits, but it takes one of the places of the service."""
    engine = PatientEngine()
    # There are as many places (`threads`) as questions, and no place to queue for them.
    api = connect(awaited_lm(engine), threads=QUESTIONS, queue=0, tenant_share=1.0)
    for number in range(USERS):
        api.add("I moved to Lisbon.", user=f"user-{number}")

    def ask(client: httpx.AsyncClient, number: int) -> Awaitable[httpx.Response]:
        path = f"/v1/users/user-{number % USERS}/ask"
        return client.post(path, json={"question": f"Where is place {number}?"})

    async def ask_all() -> None:
        threads_before = threading.active_count()
        async with async_client(api) as asking_client, async_client(api) as other_client:
            questions = [
                asyncio.ensure_future(ask(asking_client, number)) for number in range(QUESTIONS)
            ]
            await wait_until(lambda: engine.waiting_calls == QUESTIONS)
            assert api.service.model_pool.running == QUESTIONS
            new_threads = threading.active_count() - threads_before
            assert new_threads <= MAX_NEW_THREADS
            # Otherwise the assertion before this one would show nothing.
            assert MAX_NEW_THREADS < QUESTIONS

            # No further question is taken, and everything else is answered at once.
            assert await seconds_until_status(ask(other_client, number=0), 503) < 2
            assert await seconds_until_status(other_client.get("/health"), 200) < 2
            assert await seconds_until_status(other_client.get("/ready"), 503) < 2
            assert await seconds_until_status(other_client.get("/v1/users"), 200) < 2

            engine.may_answer.set()
            responses = await asyncio.gather(*questions)
        assert {response.status_code for response in responses} == {200}

    try:
        run_within(60, ask_all())
    finally:
        engine.may_answer.set()
    assert api.service.model_pool.held.total() == 0


def test_one_tenant_cannot_take_up_the_threads_of_all(connect: Connect) -> None:
    """An embedder turns texts into vectors, by which they are found. It is called in a thread.

    Here it hangs at texts with the word "hang", which only one of the two tenants sends.
    """
    may_embed = threading.Event()
    hanging_texts: list[str] = []

    def embed(texts: Any) -> Any:
        if "hang" in texts[0]:
            hanging_texts.append(texts[0])
            may_embed.wait(60)
        return hashed_vectors(texts)

    program = build("turn-rag", embedder=TextEmbedder("stub", embed, DIMENSION))
    api = connect(program=program, threads=4 * MAX_THREADS)
    # So many slots for embedding that only threads are scarce.
    api.service.memories.lane = FairSemaphore(10 * MAX_THREADS)
    api.add("I moved to Lisbon.", user="user-0")
    api.as_tenant("globex").add("I moved to Lisbon.", user="user-0")
    path = "/v1/users/user-0/ask"

    async def ask_all() -> None:
        async with async_client(api) as acme, async_client(api, "globex") as globex:
            hanging_questions = [
                asyncio.ensure_future(acme.post(path, json={"question": f"Does {number} hang?"}))
                for number in range(MAX_THREADS)
            ]
            # One of two tenants may have half of the threads.
            await wait_until(lambda: len(hanging_texts) == MAX_THREADS // 2)
            question_of_globex = globex.post(path, json={"question": "Where is place 0?"})
            assert await seconds_until_status(question_of_globex, 200) < 5
            assert len(hanging_texts) == MAX_THREADS // 2

            may_embed.set()
            responses = await asyncio.gather(*hanging_questions)
        assert {response.status_code for response in responses} == {200}

    try:
        run_within(60, ask_all())
    finally:
        may_embed.set()
