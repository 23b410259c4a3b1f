"""Embedding models behind an endpoint: requests, failures, usage, secrets, and cached vectors."""

import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mempiler.engines.cache_folder import cache_folder
from mempiler.engines.call_context import Deadline, call_context
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.engines.endpoint import Waits
from mempiler.engines.endpoint.errors import AbandonedCallError
from mempiler.engines.limits import DEAD_AFTER, BudgetGuard
from mempiler.engines.meter import Meter
from mempiler.engines.prices import litellm_module
from mempiler.errors import EndpointError, UserError

from ...stub_server import Reply, StubServer


class EmbeddingServer(StubServer):
    """A server that gives each text a vector of three numbers: the length of the text, 3, and 4.

    When it refuses a request, it asks for a wait of a millisecond, so that retries take no time.
    """

    def __init__(self) -> None:
        super().__init__(headers={"retry-after-ms": "1"})
        self.replies: list[tuple[int, Any]] = []
        """Replies, as (status, body), which the next requests get in the place of vectors."""

    def reply_to_embedding(self, body: dict[str, Any]) -> Reply:
        if not self.replies:
            return Reply(200, json.dumps(embeddings_of(body["input"])).encode())
        status, reply_body = self.replies.pop(0)
        return Reply(status, json.dumps(reply_body).encode())

    @property
    def embedded_texts(self) -> list[str]:
        """The texts of all requests."""
        texts: list[str] = []
        for request in self.requests:
            texts.extend(request.body["input"])
        return texts


def embeddings_of(
    texts: list[str], other_numbers: tuple[float, ...] = (3.0, 4.0), usage: Any = None
) -> dict[str, Any]:
    """Return the body of an answer to a request for embeddings.

    Args:
        texts: The texts of the request.
        other_numbers: What follows in each vector after the length of the text.
        usage: The usage that the server reports; that of one token if None.
    """
    rows = [
        {"index": index, "embedding": [len(text), *other_numbers]}
        for index, text in enumerate(texts)
    ]
    rows.reverse()  # a client must not rely on their order
    if usage is None:
        usage = {"prompt_tokens": 1}
    return {"object": "list", "model": "m", "data": rows, "usage": usage}


def text_lengths(vectors: np.ndarray) -> np.ndarray:
    """Return the lengths of the texts to which `EmbeddingServer` gave these vectors."""
    # Vectors are scaled to length 1; the second number was 3 before.
    return vectors[:, 0] / vectors[:, 1] * 3


OUT_OF_SERVICE = {"error": {"message": "out of\nservice", "type": "server_error"}}


@pytest.fixture(autouse=True)
def no_keys_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as embedding_server:
        yield embedding_server


def account_of(remote_embedder: TextEmbedder) -> Any:
    """Return the account of an embedder behind an endpoint.

    Its `waits` say how long and how often a request is tried. `open(meter, guard)` has the meter
    count the requests, and the guard limit them, as they do in a run.
    """
    assert remote_embedder.account is not None
    return remote_embedder.account


# Requests.


def test_texts_are_sent_in_batches_and_their_vectors_come_back_in_order(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    texts = ["x" * length for length in range(1, 101)]

    vectors = embedder("openai/bge-m3", server.url).embed(texts)

    assert np.allclose(text_lengths(vectors), range(1, 101), rtol=1e-4)
    assert [len(request.body["input"]) for request in server.requests] == [64, 36]
    for request in server.requests:
        assert request.headers["Authorization"] == "Bearer sk-test"
        assert request.body["model"] == "bge-m3"


def test_a_busy_server_is_asked_again(server: EmbeddingServer) -> None:
    server.replies = [(503, OUT_OF_SERVICE), (429, OUT_OF_SERVICE)]

    vectors = embedder("m", server.url).embed(["a", "bb"])

    assert np.allclose(text_lengths(vectors), [1, 2])
    # Two refusals, and the third request is answered.
    assert [request.body["input"] for request in server.requests] == [["a", "bb"]] * 3


def test_the_dimension_of_a_remote_embedder_is_known_after_its_first_answer(
    server: EmbeddingServer,
) -> None:
    remote_embedder = embedder("openai/bge-m3", server.url)
    assert remote_embedder.name == "openai/bge-m3"
    assert remote_embedder.dimension == 0  # not known yet

    remote_embedder.embed(["a"])

    assert remote_embedder.dimension == 3  # the server gives vectors of three numbers


def test_a_provider_that_only_litellm_knows_is_asked_through_it(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.url)

    vectors = embedder("hosted_vllm/bge-m3").embed(["a", "bb"])

    assert np.allclose(text_lengths(vectors), [1, 2])
    assert server.requests[0].body["model"] == "bge-m3"


@pytest.mark.parametrize(
    ("name", "variable"),
    [("openai/text-embedding-3-small", "OPENAI_API_KEY"), ("gemini/g", "GEMINI_API_KEY")],
)
def test_an_error_for_a_missing_key_names_in_one_line_the_variable_to_set(
    name: str, variable: str
) -> None:
    with pytest.raises(UserError, match=variable) as caught:
        embedder(name).embed(["a"])
    assert "\n" not in str(caught.value)


# Failures.


@pytest.mark.parametrize(
    ("replies", "error", "message"),
    [
        pytest.param(
            [(503, OUT_OF_SERVICE)] * 9,  # more than an embedder has retries
            EndpointError,
            "^embedder 'm': status 503: out of service$",
            id="down",
        ),
        pytest.param(
            [(401, OUT_OF_SERVICE)],
            UserError,
            "embedder 'm': the key was refused; check OPENAI_API_KEY",
            id="refused key",
        ),
        pytest.param(
            [(404, OUT_OF_SERVICE)],
            UserError,
            "embedder 'm' was refused, check its name",
            id="unknown model",
        ),
        pytest.param(
            [(200, {"object": "list", "data": [{"index": 0}]})],
            EndpointError,
            "answered no list of vectors: KeyError",
            id="no vector",
        ),
        pytest.param(
            [(200, "hello")], EndpointError, "answered no list of vectors", id="no object"
        ),
    ],
)
def test_a_failure_of_an_endpoint_is_an_error_in_one_line(
    server: EmbeddingServer,
    replies: list[tuple[int, Any]],
    error: type[Exception],
    message: str,
) -> None:
    """The message of the server, "out of\\nservice", has two lines."""
    server.replies = replies
    with pytest.raises(error, match=message) as caught:
        embedder("m", server.url).embed(["a"])
    assert "\n" not in str(caught.value)


@pytest.fixture(params=["own server", "provider of litellm"])
def hanging_embedder(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TextEmbedder]:
    """An embedder whose endpoint never answers."""
    with StubServer(embedding_fault=lambda: "stall") as stalling_server:
        if request.param == "own server":
            yield embedder("m", stalling_server.url)
        else:
            monkeypatch.setenv("HOSTED_VLLM_API_BASE", stalling_server.url)
            litellm_module()  # imported now: it takes seconds, which the tests would measure
            yield embedder("hosted_vllm/m")


def test_a_request_without_an_answer_ends_at_its_own_deadline(
    hanging_embedder: TextEmbedder,
) -> None:
    account_of(hanging_embedder).waits = Waits(deadline=0.4)
    start = time.monotonic()
    with pytest.raises(EndpointError, match=r"embedder .*: no whole answer came in 0\.4 s"):
        hanging_embedder.embed(["a"])
    assert 0.4 <= time.monotonic() - start < 5


def test_a_request_without_an_answer_ends_at_the_deadline_of_its_work(
    hanging_embedder: TextEmbedder,
) -> None:
    start = time.monotonic()
    with call_context(deadline=Deadline(0.4)), pytest.raises(AbandonedCallError):
        hanging_embedder.embed(["a"])
    assert 0.4 <= time.monotonic() - start < 5


def test_an_endpoint_that_fails_several_times_in_a_row_is_not_asked_any_more(
    server: EmbeddingServer,
) -> None:
    remote_embedder = embedder("m", server.url)
    meter = Meter()
    account_of(remote_embedder).waits = Waits(retries=0)
    account_of(remote_embedder).open(meter, BudgetGuard())
    server.replies = [(503, OUT_OF_SERVICE)] * 100

    for number in range(DEAD_AFTER):
        with pytest.raises(EndpointError, match="embedder 'm': status 503"):
            remote_embedder.embed([f"text {number}"])
    with pytest.raises(EndpointError, match=f"failed {DEAD_AFTER} times in a row"):
        remote_embedder.embed(["one more"])

    assert len(server.requests) == DEAD_AFTER
    assert meter.read().failed == DEAD_AFTER


def test_refused_texts_are_no_failures_of_the_endpoint(server: EmbeddingServer) -> None:
    """After several failures an endpoint is declared dead, which ends a run.

    A few bad texts, which it refuses with status 400, must not do that.
    """
    remote_embedder = embedder("m", server.url)
    guard = BudgetGuard()
    account_of(remote_embedder).open(Meter(), guard)

    for number in range(2 * DEAD_AFTER):  # as failures, half of them would be enough
        server.replies = [(400, OUT_OF_SERVICE)]
        with pytest.raises(UserError, match="was refused"):
            remote_embedder.embed([f"text {number}"])

    assert remote_embedder.embed(["a"]).shape == (1, 3)
    assert guard.fatal_error is None


# Usage.


@pytest.mark.parametrize("reported_tokens", [1, 0, -5, float("nan"), "many", None, [1], 10**400])
def test_tokens_are_estimated_if_the_reported_number_cannot_be_true(
    server: EmbeddingServer, reported_tokens: Any
) -> None:
    remote_embedder = embedder("m", server.url)
    guard = BudgetGuard()
    meter = Meter()
    account_of(remote_embedder).open(meter, guard)
    text_of_250_tokens = "word " * 200  # a token is estimated for every four characters
    report = {"prompt_tokens": reported_tokens}
    server.replies = [(200, embeddings_of([text_of_250_tokens], usage=report))]

    remote_embedder.embed([text_of_250_tokens])

    usage = meter.read()
    assert usage.failed == 0
    assert usage.estimated == 1
    assert usage.input_tokens == 250
    assert guard.spent().tokens == 250


def test_a_server_that_counts_fewer_tokens_since_it_cuts_long_texts_is_believed(
    server: EmbeddingServer,
) -> None:
    remote_embedder = embedder("m", server.url)
    meter = Meter()
    account_of(remote_embedder).open(meter, BudgetGuard())
    texts = ["word " * 2000]  # 10,000 characters would be estimated as 2,500 tokens
    server.replies = [(200, embeddings_of(texts, usage={"prompt_tokens": 256}))]

    remote_embedder.embed(texts)

    assert meter.read().input_tokens == 256
    assert meter.read().estimated == 0


@pytest.mark.parametrize("usage", [[1], "many", 7])
def test_usage_that_is_no_object_does_not_spoil_the_answer(
    server: EmbeddingServer, usage: Any
) -> None:
    server.replies = [(200, embeddings_of(["a"], usage=usage))]
    assert embedder("m", server.url).embed(["a"]).shape == (1, 3)


# Secrets, of endpoints that repeat the request in their errors.


@pytest.mark.parametrize("status", [400, 401, 404, 500])
@pytest.mark.parametrize("is_asked_by_litellm", [False, True])
def test_an_error_hides_the_key_that_the_endpoint_repeats(
    is_asked_by_litellm: bool, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message of the server repeats the headers of the request, with the key."""
    key = "sk-0123456789-of-the-operator"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", key)
    guard = BudgetGuard()

    with StubServer(embedding_fault=lambda: f"echo {status}") as echoing_server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", echoing_server.url)
        if is_asked_by_litellm:
            remote_embedder = embedder("hosted_vllm/m")
        else:
            remote_embedder = embedder("m", echoing_server.url)
        account_of(remote_embedder).waits = Waits(retries=0)
        account_of(remote_embedder).open(Meter(), guard)
        with pytest.raises((UserError, EndpointError)) as caught:
            remote_embedder.embed(["a"])

    assert f"Bearer {key}" in echoing_server.requests[0].headers.values()
    assert "0123456789" not in str(caught.value)
    assert "0123456789" not in str(caught.value.__cause__)
    assert "0123456789" not in str(guard.fatal_error)


def test_an_error_hides_the_password_of_the_address() -> None:
    """The message of the server repeats the headers of the request, with the password."""
    with StubServer(embedding_fault=lambda: "echo 500") as echoing_server:
        address = echoing_server.url.replace("http://", "http://ann:hunter2-and-more@")
        remote_embedder = embedder("m", address)
        account_of(remote_embedder).waits = Waits(retries=0)

        with pytest.raises(EndpointError, match="you sent") as caught:
            remote_embedder.embed(["a"])

        sent_headers = echoing_server.requests[0].headers
        encoded_password = sent_headers["Authorization"].removeprefix("Basic ")
        assert encoded_password not in str(caught.value)
        assert "hunter2-and-more" not in str(caught.value)


def test_an_error_hides_a_key_in_the_place_of_a_number(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-0123456789-of-the-operator"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    rows = [{"index": 0, "embedding": [key]}]
    server.replies = [(200, {"object": "list", "data": rows})]
    with pytest.raises(EndpointError, match=r"answered no list of vectors: .*\[secret\]") as caught:
        embedder("m", server.url).embed(["a"])
    assert key not in str(caught.value)


# Cached vectors.


def test_a_new_process_does_not_ask_for_vectors_that_an_earlier_one_got(
    server: EmbeddingServer,
) -> None:
    """A new embedder stands for a new process: it has nothing in memory, but reads the disk."""
    first_vectors = embedder("m", server.url).embed(["a", "bb", ""])
    second_vectors = embedder("m", server.url).embed(["bb", "a", "ccc"])
    query_vectors = embedder("m", server.url).embed_queries(["a"])

    assert server.embedded_texts == ["a", "bb", "ccc"]
    assert np.array_equal(second_vectors[0], first_vectors[1])
    assert np.array_equal(second_vectors[1], first_vectors[0])
    assert query_vectors.shape == (1, 3)


def test_cached_vectors_belong_to_a_model_and_an_address(server: EmbeddingServer) -> None:
    with EmbeddingServer() as other_server:
        embedder("m", server.url).embed(["a"])
        embedder("other", server.url).embed(["a"])
        embedder("m", other_server.url).embed(["a"])

        assert server.embedded_texts == ["a", "a"]
        assert other_server.embedded_texts == ["a"]


def test_all_spellings_of_an_address_share_cached_vectors(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    spellings = [
        server.url,
        f"{server.url}/",
        server.url.replace("http://", "HTTP://ann:secret@"),
    ]
    for address in spellings:
        embedder("openai/m", address).embed(["a"])
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    embedder("openai/m").embed(["a"])

    assert server.embedded_texts == ["a"]


def test_cached_vectors_belong_to_the_address_in_the_environment(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddingServer() as other_server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.url)
        embedder("hosted_vllm/bge-m3").embed(["a"])
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", other_server.url)
        embedder("hosted_vllm/bge-m3").embed(["a"])

        assert server.embedded_texts == ["a"]
        assert other_server.embedded_texts == ["a"]


def test_the_file_of_vectors_holds_no_text_and_no_secret_and_is_for_its_owner_alone(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    address = server.url.replace("://", "://user:password@")
    embedder("m", address).embed(["Ann moved to Lisbon"])

    path = cache_folder() / "vectors.sqlite"
    content = path.read_bytes()
    assert b"Lisbon" not in content
    assert b"sk-secret" not in content
    assert b"password" not in content
    assert b"127.0.0.1" not in content
    assert path.stat().st_mode & 0o777 == 0o600


def test_cached_vectors_of_another_length_are_computed_anew(server: EmbeddingServer) -> None:
    """A server may run another model under the same name one day."""
    embedder("m", server.url).embed(["a", "bb", "ccc"])  # caches vectors of three numbers
    texts = ["dddd", "a", "bb", "ccc"]
    new_numbers = (2.0, 3.0, 4.0)  # follow the length of a text, so vectors have four numbers now
    server.replies = [
        # The only text that is not cached; its vector shows that the others are outdated.
        (200, embeddings_of(["dddd"], new_numbers)),
        (200, embeddings_of(texts, new_numbers)),
    ]

    assert embedder("m", server.url).embed(texts).shape == (4, 4)
    assert embedder("m", server.url).embed(["a", "bb", "ccc", "dddd"]).shape == (4, 4)

    # First three texts, then the one that was not cached, then all four anew.
    assert [len(request.body["input"]) for request in server.requests] == [3, 1, 4]
