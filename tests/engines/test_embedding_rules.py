"""Embedding and reranking are under the rules of a call of a model: deadline, slots, budget.

Two kinds of slots limit how much runs at the same time: those of the call context, for work in this
process, and those of an endpoint, for requests to it.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from mempiler.async_bridge import MAX_THREADS, run_bridged
from mempiler.engines.call_context import Accounting, Deadline, call_context
from mempiler.engines.embedders import DIMENSION, TextEmbedder, embedder
from mempiler.engines.endpoint.errors import AbandonedCallError
from mempiler.engines.fair_semaphore import FairSemaphore, compute_slot
from mempiler.engines.fastembed_models import FastEmbedVectors
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.engines.offline.hashed_vectors import TEXTS_PER_SLOT, TEXTS_WITHOUT_SLOT
from mempiler.engines.rerankers import FastEmbedReranker, TokenMatch
from mempiler.errors import BudgetError, EndpointError, UserError

from ..async_engines import run_within
from ..conftest import within
from ..stub_server import StubServer
from .counting_semaphore import CountingSemaphore
from .fake_fastembed import FakeModelClass, embed_by_length, use_fake_fastembed


@pytest.fixture
def server() -> Generator[StubServer]:
    with StubServer() as stub:
        yield stub


class Remote:
    """An embedder behind an endpoint, with the guard and the meter that limit and count it.

    Args:
        server: The endpoint; it has one slot.
        limits: What may be spent; None for no limits.
    """

    def __init__(self, server: StubServer, limits: Limits | None = None) -> None:
        self.guard = BudgetGuard(limits, in_flight=1)
        self.meter = Meter()
        self.embedder = embedder(server.model, server.url)
        assert self.embedder.account is not None
        self.embedder.account.open(self.meter, self.guard)
        self.slots_at_endpoint = self.guard.slots(server.url)


@pytest.fixture
def remote(server: StubServer) -> Remote:
    return Remote(server)


# Slots and deadlines, at an endpoint.


@pytest.mark.parametrize("wait_for", ["slot of the context", "slot at the endpoint"])
def test_request_that_waits_for_a_slot_beyond_its_deadline_is_not_made_and_not_counted(
    server: StubServer, remote: Remote, wait_for: str
) -> None:
    slots = FairSemaphore(1)
    busy_slots = slots if wait_for == "slot of the context" else remote.slots_at_endpoint

    with (
        busy_slots.slot(),
        call_context(slots=slots, deadline=Deadline(0.2)),
        pytest.raises(AbandonedCallError),
    ):
        remote.embedder.embed(["Ann moved to Lisbon"])

    assert server.requests == []
    assert remote.guard.spent().calls == 0
    assert remote.meter.read().failed == 0
    assert slots.free == 1
    assert remote.slots_at_endpoint.free == 1


def test_embedder_shares_the_slots_of_its_endpoint_with_language_models(
    server: StubServer, remote: Remote
) -> None:
    """A server gets so many requests at a time in all, whatever they ask for."""
    lm = language_model(server.model, api_base=server.url, guard=remote.guard)
    assert remote.guard.slots(lm.endpoint) is remote.slots_at_endpoint


def test_request_that_waits_for_a_slot_is_refused_if_the_endpoint_is_found_dead_meanwhile(
    server: StubServer, remote: Remote
) -> None:
    """After several failures a guard takes an endpoint for dead, and stops the whole run."""
    slots = FairSemaphore(1)

    def embed() -> np.ndarray:
        with call_context(slots=slots):
            return remote.embedder.embed(["Ann moved to Lisbon"])

    with ThreadPoolExecutor(1) as pool:
        with slots.slot():
            waiting = pool.submit(embed)
            assert within(20, lambda: slots.waiting == 1)
            remote.guard.stop(EndpointError("the endpoint is dead"))
        with pytest.raises(EndpointError, match="the endpoint is dead"):
            waiting.result(20)
    assert server.requests == []


def test_number_of_requests_is_limited_exactly(server: StubServer) -> None:
    remote = Remote(server, Limits(max_calls=3))
    for number in range(3):
        remote.embedder.embed([f"text {number}"])

    with pytest.raises(BudgetError, match="max-calls 3"):
        remote.embedder.embed(["one more"])

    assert len(server.requests) == 3
    assert remote.meter.read().calls == {"embedding": 3}


class MiscountingServer(StubServer):
    """A server that gives the last vector of the first request with those of the second request.

    So each vector after it would be taken for that of another text.
    """

    missing_rows: list[Any] | None = None

    def embeddings(self, body: dict[str, Any]) -> bytes:
        answer = json.loads(super().embeddings(body))
        rows = answer["data"]
        if self.missing_rows is None:
            answer["data"] = rows[:-1]
            self.missing_rows = rows[-1:]
        else:
            answer["data"] = [*self.missing_rows, *rows]
        return json.dumps(answer).encode()


def test_server_that_gives_texts_the_vectors_of_other_texts_is_refused() -> None:
    """An embedder sends 64 texts in a request; this server first answers 63 vectors, then 65."""
    texts_of_two_requests = [f"text number {number}" for number in range(2 * 64)]
    with MiscountingServer() as server:
        remote_embedder = embedder(server.model, server.url)
        with pytest.raises(EndpointError, match="answered 63 vectors for 64 texts"):
            remote_embedder.embed(texts_of_two_requests)


@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param("", id="a plain address"),
        pytest.param("ann:secret@", id="an address with a password"),
    ],
)
def test_server_that_the_environment_exempts_from_the_proxy_is_asked_directly(
    server: StubServer, monkeypatch: pytest.MonkeyPatch, credentials: str
) -> None:
    """The variable `no_proxy` names the servers that are asked without the proxy."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    address = server.url.replace("http://", f"http://{credentials}")

    vectors = embedder(server.model, address).embed(["a text"])

    assert vectors.shape[0] == 1
    assert len(server.requests) == 1


def test_model_without_a_known_price_ends_a_run_that_has_a_limit_of_cost(
    server: StubServer,
) -> None:
    """Without a price nobody could tell when the dollar is spent, so nothing is asked at all."""
    guard = BudgetGuard(Limits(max_usd=1))
    model_without_known_price = embedder("bge-m3", server.url)
    with (
        call_context(accounting=Accounting(Meter(), guard)),
        pytest.raises(UserError, match="price"),
    ):
        model_without_known_price.embed(["a text"])

    assert isinstance(guard.fatal_error, UserError)
    assert server.requests == []


# Slots and deadlines, in this process.


def use_fastembed_with_two_models(
    monkeypatch: pytest.MonkeyPatch, on_load: Callable[[str], None] | None = None
) -> None:
    """Use a fake fastembed with the embedder `m/vectors` and the reranker `m/cross`.

    Args:
        monkeypatch: Takes it away after the test.
        on_load: Called with the name of a model while it is loaded.
    """

    def rerank(query: str, passages: Sequence[str]) -> list[float]:
        return [1.0] * len(passages)

    use_fake_fastembed(
        monkeypatch,
        text_embedding=FakeModelClass("m/vectors", on_load=on_load, embed=embed_by_length),
        cross_encoder=FakeModelClass("m/cross", on_load=on_load, rerank=rerank),
    )


MANY_TEXTS = [f"text {number}" for number in range(TEXTS_WITHOUT_SLOT + 1)]
"""So many that the offline embedder takes a slot for them."""


def embed_by_fastembed() -> Any:
    return FastEmbedVectors("m/vectors")(["Oslo"])


def rerank_by_tokens() -> Any:
    return TokenMatch(embedder()).scores("jazz", [["x"]], weights={})


def rerank_by_fastembed() -> Any:
    return FastEmbedReranker("m/cross").scores("jazz", [["x"]], weights={})


WORK: dict[str, Callable[[], Any]] = {
    "embed": lambda: embedder().embed(MANY_TEXTS),
    "embed queries": lambda: embedder().embed_queries(MANY_TEXTS),
    "embed by fastembed": embed_by_fastembed,
    "rerank by tokens": rerank_by_tokens,
    "rerank by fastembed": rerank_by_fastembed,
}


@pytest.fixture(params=WORK.values(), ids=list(WORK))
def embed_or_rerank(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Any]:
    """A function that embeds or reranks in this process, for each of the ways in `WORK`."""
    use_fastembed_with_two_models(monkeypatch)
    return request.param


def test_work_in_this_process_waits_for_a_slot_until_its_deadline(
    embed_or_rerank: Callable[[], Any],
) -> None:
    """A slot is the permission to work in this process. The only one is taken here."""
    slots = FairSemaphore(1)

    with (
        slots.slot(),
        call_context(slots=slots, deadline=Deadline(0.2)),
        pytest.raises(AbandonedCallError),
    ):
        embed_or_rerank()

    # With a free slot the same work is done.
    assert slots.free == 1
    with call_context(slots=slots):
        embed_or_rerank()


def test_work_in_this_process_does_not_begin_after_its_deadline(
    embed_or_rerank: Callable[[], Any],
) -> None:
    with call_context(deadline=Deadline(0.0)), pytest.raises(AbandonedCallError):
        embed_or_rerank()


def test_a_few_texts_are_embedded_offline_without_a_slot_but_within_their_deadline() -> None:
    slots = FairSemaphore(1)
    # The only slot is taken, and the text is embedded all the same.
    with slots.slot(), call_context(slots=slots, deadline=Deadline(20)):
        assert embedder().embed(["Oslo"]).shape == (1, DIMENSION)
    with call_context(deadline=Deadline(0.0)), pytest.raises(AbandonedCallError):
        embedder().embed(["Oslo"])


class SlotsThatCancel(CountingSemaphore):
    """One slot; a deadline is cancelled as soon as the slot was taken and given back."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__(1)
        self._deadline = deadline

    @contextmanager
    def slot(self) -> Generator[None]:
        with super().slot():
            yield
        self._deadline.cancel()


def test_offline_embedder_stops_between_two_batches() -> None:
    deadline = Deadline()
    slots = SlotsThatCancel(deadline)
    texts_of_three_batches = [f"text {number}" for number in range(3 * TEXTS_PER_SLOT)]

    with call_context(slots=slots, deadline=deadline), pytest.raises(AbandonedCallError):
        embedder().embed(texts_of_three_batches)

    assert slots.times_taken == 1  # for the first of the three batches


# Models of fastembed.


@pytest.mark.parametrize("use_model", [embed_by_fastembed, rerank_by_fastembed])
def test_fastembed_loads_a_model_while_no_slot_is_held(
    use_model: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading may download a model for minutes, and others need the slot meanwhile."""
    slots = FairSemaphore(1)
    free_while_loading: list[int] = []

    def record_free_slots(name: str) -> None:
        free_while_loading.append(slots.free)

    use_fastembed_with_two_models(monkeypatch, on_load=record_free_slots)

    with call_context(slots=slots):
        use_model()

    assert free_while_loading == [1]


def test_fastembed_loads_a_model_once_for_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    thread_count = 4
    all_threads_are_there = threading.Barrier(thread_count)
    loaded_models: list[str] = []

    def load_slowly(name: str) -> None:
        loaded_models.append(name)
        time.sleep(0.2)  # the other threads come meanwhile

    use_fastembed_with_two_models(monkeypatch, on_load=load_slowly)
    reranker = FastEmbedReranker("m/cross")

    def rerank() -> list[float]:
        all_threads_are_there.wait(timeout=20)
        return reranker.scores("y", [["x"]], weights={}).tolist()

    with ThreadPoolExecutor(thread_count) as pool:
        calls = [pool.submit(rerank) for _ in range(thread_count)]
        for call in calls:
            assert call.result(timeout=20) == [1.0]
    assert loaded_models == ["m/cross"]


# Threads under asyncio: whoever holds a slot must not wait for a thread, since all threads may be
# waiting for that slot.


def more_calls_than_threads(text_embedder: TextEmbedder) -> list[Awaitable[np.ndarray]]:
    """Return calls of an embedder under asyncio, more than there are threads."""
    texts = [f"text {number}" for number in range(MAX_THREADS + 10)]
    return [run_bridged(partial(text_embedder.embed, [text])) for text in texts]


def test_reranking_under_asyncio_ends_while_all_threads_wait_for_its_slot() -> None:
    """The only slot goes from call to call. More calls wait for it than there are threads.

    If reranking took the slot and then waited for a thread, no call could ever go on.
    """

    @compute_slot()
    def compute_with_slot(texts: Sequence[str]) -> np.ndarray:
        return np.ones((len(texts), 2))

    embedder_with_slot = TextEmbedder("with-slot", compute_with_slot)
    reranker = TokenMatch(embedder())

    async def rerank_and_embed() -> list[Any]:
        two_texts = [["Oslo"], ["jazz"]]
        rerank = run_bridged(partial(reranker.scores, "jazz", two_texts, weights={}))
        return await asyncio.gather(rerank, *more_calls_than_threads(embedder_with_slot))

    # With a deadline, so that threads of a failed test end.
    with call_context(slots=FairSemaphore(1), deadline=Deadline(20)):
        scores, *vectors = run_within(30, rerank_and_embed())

    assert len(scores) == 2
    assert len(vectors) > MAX_THREADS


def test_model_under_asyncio_ends_while_all_threads_wait_for_a_slot_at_its_endpoint(
    server: StubServer, remote: Remote
) -> None:
    """The endpoint answers one request at a time, so it has one slot.

    More texts are embedded than there are threads, and each thread waits for the slot. If a
    question took the slot and then waited for a thread, no call could ever go on.
    """
    lm = language_model(server.model, api_base=server.url, guard=remote.guard)

    async def ask_and_embed() -> list[Any]:
        answer = lm.acall("question: Where is Ann?")
        return await asyncio.gather(answer, *more_calls_than_threads(remote.embedder))

    # With a deadline, so that threads of a failed test end.
    with call_context(deadline=Deadline(40)):
        answer, *vectors = run_within(50, ask_and_embed())

    assert answer
    assert len(vectors) > MAX_THREADS
    assert remote.slots_at_endpoint.free == 1
