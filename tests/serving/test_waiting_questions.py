"""More questions than threads wait for the model at the same time, and hold up nobody else."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from mempiler import build
from mempiler.async_bridge import MAX_THREADS
from mempiler.engines.embedders import DIMENSION, TextEmbedder
from mempiler.engines.fair_semaphore import FairSemaphore
from mempiler.engines.lm import language_model

from ..async_engines import MAX_NEW_THREADS, awaited_lm, run_within
from .conftest import TOKENS, Api, HangingEmbedding, StartService

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


@asynccontextmanager
async def waiting_questions(api: Api, engine: PatientEngine) -> AsyncIterator[None]:
    """Ask `QUESTIONS` questions of four users; the block begins when all wait for the engine.

    At its end the engine answers, and every question must have been answered.
    """

    def ask(client: httpx.AsyncClient, number: int) -> Awaitable[httpx.Response]:
        path = f"/v1/users/user-{number % USERS}/ask"
        return client.post(path, json={"question": f"Where is place {number}?"})

    async with async_client(api) as client:
        questions = [asyncio.ensure_future(ask(client, number)) for number in range(QUESTIONS)]
        try:
            await wait_until(lambda: engine.waiting_calls == QUESTIONS)
            yield
        finally:
            engine.may_answer.set()
        responses = await asyncio.gather(*questions)
    assert {response.status_code for response in responses} == {200}


@pytest.fixture
def patient_engine() -> PatientEngine:
    return PatientEngine()


@pytest.fixture
def busy_api(start_service: StartService, patient_engine: PatientEngine) -> Api:
    """A service with the engine that waits; each of four users has one session.

    There are as many places (`threads`) as questions, and no place to queue for them.
    """
    api = start_service(awaited_lm(patient_engine), threads=QUESTIONS, queue=0, tenant_share=1.0)
    for number in range(USERS):
        api.add("I moved to Lisbon.", user=f"user-{number}")
    return api


def test_a_question_takes_a_place_and_no_thread_while_it_waits_for_the_model(
    busy_api: Api, patient_engine: PatientEngine
) -> None:
    """Two hundred questions wait. A few threads come for other things, such as event loops."""
    assert QUESTIONS == 200
    assert MAX_NEW_THREADS < QUESTIONS

    async def count_new_threads() -> int:
        threads_before = threading.active_count()
        async with waiting_questions(busy_api, patient_engine):
            assert busy_api.requests_in_progress() == QUESTIONS
            return threading.active_count() - threads_before

    new_threads = run_within(60, count_new_threads())

    assert new_threads <= MAX_NEW_THREADS
    # The questions have given their places back.
    assert busy_api.requests_in_progress() == 0


def ask(client: httpx.AsyncClient, question: str) -> Awaitable[httpx.Response]:
    """Ask a question about Ada's memory."""
    return client.post("/v1/users/ada/ask", json={"question": question})


def test_one_tenant_cannot_take_up_the_threads_of_all(
    start_service: StartService, hanging_embedding: HangingEmbedding
) -> None:
    """An embedder is called in a thread. One of two tenants may have half of the threads.

    The embedder hangs at texts with the word "hang", which only the tenant `acme` sends.
    """
    program = build("turn-rag", embedder=TextEmbedder("stub", hanging_embedding, DIMENSION))
    api = start_service(program=program, threads=4 * MAX_THREADS)
    # So many slots for embedding that only threads are scarce.
    api.service.memories.lane = FairSemaphore(10 * MAX_THREADS)
    api.add("I moved to Lisbon.")
    api.as_tenant("globex").add("I moved to Lisbon.")

    async def ask_as_both_tenants() -> None:
        async with async_client(api) as acme, async_client(api, "globex") as globex:
            hanging_questions = [
                asyncio.ensure_future(ask(acme, f"Does {number} hang?"))
                for number in range(MAX_THREADS)
            ]
            await wait_until(lambda: len(hanging_embedding.hanging_texts) == MAX_THREADS // 2)
            assert await seconds_until_status(ask(globex, "Where do I live?"), 200) < 5
            assert len(hanging_embedding.hanging_texts) == MAX_THREADS // 2

            hanging_embedding.may_go_on.set()
            await asyncio.gather(*hanging_questions)

    run_within(60, ask_as_both_tenants())
