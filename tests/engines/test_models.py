"""Named models and embedders: names that are refused before anything is asked, GGUF files, endpoints, what is kept."""

import hashlib
import json
import re
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dspy
import mempiler
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mempiler.engines import weights
from mempiler.engines.cache_folder import cache_folder
from mempiler.engines.call_context import Deadline, call_context
from mempiler.engines.embedders import DIMENSION, TextEmbedder, embedder
from mempiler.engines.endpoint import Waits
from mempiler.engines.endpoint.errors import AbandonedCallError
from mempiler.engines.limits import DEAD_AFTER, BudgetGuard
from mempiler.engines.lm import LoadedModels, language_model
from mempiler.engines.meter import Meter
from mempiler.engines.model_checks import check_endpoint, check_key
from mempiler.engines.model_config import ModelConfig
from mempiler.engines.prices import litellm_module
from mempiler.engines.weights import File, Weights
from mempiler.errors import EndpointError, MissingDependencyError, UserError

from ..stub_server import StubServer

CONTENT = b"GGUF" + bytes(range(200))
HISTORY = mempiler.History.from_messages(
    [{"role": "user", "name": "Ann", "content": "I live in Oslo."}]
)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A file of one's own."""
    path = tmp_path / "own.gguf"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands for xllamacpp: its server is a stub that answers as the offline engine does."""

    def serve(wanted: Any) -> Any:
        if Path(wanted.model.path).stat().st_size < 10:
            raise RuntimeError("Failed to init server, please check the input params!")
        module.seen.append(wanted)
        return Mock(listening_address=stub.url.removesuffix("/v1"))

    module = Mock(seen=[])
    module.CommonParams.side_effect, module.Server.side_effect = (
        lambda: Mock(no_extra_bufts=False),
        serve,
    )
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    with StubServer() as stub:
        yield module


def test_a_gguf_model_answers_and_keeps_its_endpoint_to_itself(llama: Any, own: Path) -> None:
    loaded = LoadedModels()
    lm = language_model(f"gguf:{own}", loaded=loaded, slots=3)
    with dspy.context(lm=lm):
        assert (
            mempiler.build("turn-rag")(history=HISTORY, question="Where does Ann live?").answer
            == "I live in Oslo."
        )
    (wanted,) = llama.seen
    assert wanted.n_parallel == 3
    assert wanted.n_ctx == 3 * 8192
    assert wanted.sampling.temp == 0
    assert wanted.no_extra_bufts is False
    assert wanted.api_keys == [lm.engine.key]
    assert wanted.speculative.types == [
        llama.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE
    ]
    assert language_model(f"gguf:{own}", loaded=loaded).model == lm.model
    assert len(llama.seen) == 1
    assert lm.copy(temperature=0.5).engine.server is loaded.gguf[f"gguf:{own}"]
    own.write_bytes(CONTENT + b"!")
    other = language_model(f"gguf:{own}").model
    assert other != lm.model
    assert other.startswith("openai/own@")


def test_weights_that_differ_in_the_middle_alone_are_other_weights(llama: Any, own: Path) -> None:
    """Their answers are kept under other names."""
    rest = bytes(3 << 20)
    own.write_bytes(b"GGUF" + rest + b"end")
    names = [language_model(f"gguf:{own}").model]
    with own.open("r+b") as file:
        file.seek(len(rest) // 2)
        file.write(b"!")
    names.append(language_model(f"gguf:{own}").model)
    assert names[0] != names[1]


def test_all_parts_of_a_model_in_several_files_count(llama: Any, tmp_path: Path) -> None:
    first, second = (tmp_path / f"big-0000{n}-of-00002.gguf" for n in (1, 2))
    for part in (first, second):
        part.write_bytes(CONTENT)
    before = language_model(f"gguf:{first}").model
    assert language_model(f"gguf:{first}").model == before
    second.write_bytes(CONTENT + b"!")
    assert language_model(f"gguf:{first}").model != before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such GGUF file"),
        (b"PK\3\4 no model", "is no GGUF file"),
        (b"GGUF", "cannot serve it"),
    ],
)
def test_a_gguf_model_that_cannot_be_served_is_refused(
    llama: Any, own: Path, monkeypatch: Any, content: Any, said: str
) -> None:
    own.unlink() if content is None else own.write_bytes(content)
    with pytest.raises(UserError, match=said):
        language_model(f"gguf:{own}")
    own.write_bytes(CONTENT)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingDependencyError, match=r"\[models\]"):
        language_model(f"gguf:{own}")


def test_an_answer_has_an_end_unless_a_longer_one_is_wanted(
    llama: Any, own: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("MEMPILER_MODELS", str(own.parent))
    file = File(own.name, hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
    named = Weights("tiny", "language model", "Who/Tiny-GGUF", "main", "Apache-2.0", (file,))
    monkeypatch.setitem(weights.WEIGHTS, "tiny", named)
    loaded = LoadedModels()
    assert language_model("gguf:tiny", loaded=loaded).kwargs["max_tokens"] == 1024
    # With one slot an answer does not depend on what the cache held: a resumed run ends as an unbroken one.
    off = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    assert llama.seen[0].no_extra_bufts is True
    assert llama.seen[0].flash_attn_type == off
    assert language_model("gguf:tiny", loaded=loaded, max_tokens=5000).kwargs["max_tokens"] == 5000
    with pytest.raises(UserError, match="is no language model; use it as --embedder minilm"):
        language_model("gguf:minilm")
    own.write_bytes(CONTENT[:-1] + b"!")
    with pytest.raises(
        UserError, match=r"is not tiny .*; delete it, then run: mempiler fetch tiny"
    ):
        language_model("gguf:tiny")
    own.unlink()
    with pytest.raises(UserError, match="mempiler fetch tiny"):
        language_model("gguf:tiny")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "MISTRAL_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
    )
    for name in keys:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch/model", "no provider is known"),
        ("openai/gpt-4.1-mini", "set OPENAI_API_KEY"),
        ("anthropic/claude-x", "set ANTHROPIC_API_KEY"),
        ("mistral/x", "set MISTRAL_API_KEY"),
    ],
)
def test_a_model_that_cannot_be_asked_is_one_line(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=message) as raised:
        check_key(language_model(name))
    assert repr(name) in str(raised.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "base", "keys"),
    [
        ("offline", None, ()),
        ("openai/gpt-4.1-mini", None, ("OPENAI_API_KEY",)),
        ("hosted_vllm/m", "http://127.0.0.1:9/v1", ()),
        ("bedrock/x", None, ()),
        ("openai/x", None, ("OPENAI_BASE_URL", "OPENAI_API_KEY")),
    ],
)
def test_a_model_that_may_be_asked_is_not_refused(
    name, base, keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in keys:
        monkeypatch.setenv(variable, "http://127.0.0.1:9/v1")
    check_key(language_model(name, api_base=base))


HAS = ["gpt-4.1-mini", "gpt-4.1", "o9", "models/gemini-3"]


@pytest.mark.parametrize(
    ("model", "models", "fault", "asked", "said"),
    [
        ("gemini-3", HAS, "404", 0, None),
        ("gpt-4.1-minni", HAS, "404", 1, "has no such model; it has gpt-4.1-mini, gpt-4.1, ..."),
        ("another", HAS[2:], "404", 1, "has no such model; it has o9, models/gemini-3"),
        # Some servers take any name, and some lists are not whole.
        ("whatever", HAS, None, 1, None),
        ("whatever", [], "404", 0, None),
        ("whatever", None, "404", 0, None),
        # A list that cannot be read is none.
        ("whatever", b"[" * 100_000, "404", 0, None),
    ],
)
def test_a_model_is_refused_only_where_its_provider_says_that_there_is_none(
    stub, model, models, fault, asked, said
):
    server = stub(lambda n, text: fault, models=models)
    lm = language_model(f"openai/{model}", api_base=server.url)
    if said is None:
        check_endpoint(lm)
    else:
        with pytest.raises(UserError, match=f"'openai/{model}': its provider {re.escape(said)}$"):
            check_endpoint(lm)
    assert len(server.requests) == asked


def test_offline_vectors_are_a_promise():
    vectors = embedder().embed(["Ann moved to Lisbon", "ＬＩＳＢＯＮ", "他在北京工作"])
    found = [
        {int(at): round(float(row[at]), 4) for at in np.flatnonzero(np.abs(row) > 0.4)}
        for row in vectors
    ]
    assert found == [{1: -0.4082, 122: 0.4082, 206: -0.4082}, {122: 0.7071}, {51: 0.4264}]
    assert np.count_nonzero(vectors, axis=1).tolist() == [36, 16, 29]


@settings(max_examples=25)
@given(st.lists(st.text(max_size=30), max_size=8))
@example(["Ann moved to Lisbon", "", "  \n", "and the of", "北京", "x" * 10_000])
def test_offline_batch_equals_one_by_one_and_rows_have_length_one_or_none(texts):
    batch = embedder().embed(texts)
    assert batch.shape == (len(texts), DIMENSION)
    assert batch.dtype == np.float32
    assert all(
        np.array_equal(row, embedder().embed([text])[0])
        for row, text in zip(batch, texts, strict=True)
    )
    lengths = np.linalg.norm(batch, axis=1)
    assert np.minimum(abs(lengths - 1), lengths) == pytest.approx(0, abs=1e-6)


def counting():
    calls = []

    def compute(texts):
        calls.append(list(texts))
        return np.array([[len(text), 1.0] for text in texts])

    return TextEmbedder("counting", compute), calls


def test_distinct_texts_are_computed_once_and_forgotten_when_they_were_used_longest_ago(
    monkeypatch,
):
    monkeypatch.setattr("mempiler.engines.embedders.MAX_CACHED_BYTES", 2 * 8)
    counted, calls = counting()
    first = counted.embed(["a", "bb", "a", ""])
    second = counted.embed(["bb", "a"])
    assert calls == [["a", "bb"]]
    assert np.array_equal(first[[1, 0]], second)
    assert np.array_equal(first[0], first[2])
    first[:] = 7  # a result is its caller's own
    assert np.array_equal(counted.embed(["bb", "a"]), second)
    for text in ("bb", "a", "ccc", "a", "bb"):
        counted.embed([text])
    assert calls[1:] == [["ccc"], ["bb"]]


@pytest.mark.parametrize(
    "answer",
    [np.ones((2, 3)), np.ones(3), np.full((1, 3), np.nan), np.ones((1, 4))],
    ids=["too many rows", "no rows", "not a number", "another dimension"],
)
def test_an_answer_of_the_wrong_shape_is_an_endpoint_error(answer):
    with pytest.raises(EndpointError, match="'odd' answered"):
        TextEmbedder("odd", lambda texts: answer, dimension=3).embed(["a"])


def test_slips_are_named_in_one_line():
    for mistake, message in (
        (lambda: embedder("offline", "http://localhost:1/v1"), "runs in this process"),
        (lambda: embedder().embed("text"), "put it in a list"),
    ):
        with pytest.raises(UserError, match=rf"{message}.*\Z"):
            mistake()


class Embedding(StubServer):
    """Gives vectors of three numbers, in another order; `replies` holds (status, body) that come before."""

    def __init__(self):
        super().__init__(headers={"retry-after-ms": "1"})
        self.replies = []

    def reply(self, body):
        status, said = self.replies.pop(0) if self.replies else (200, good(body))
        return status, json.dumps(said).encode()

    @property
    def texts_of(self):
        return [text for _, _, body in self.requests for text in body["input"]]


@pytest.fixture
def server(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with Embedding() as found:
        yield found


def good(request, numbers=(3.0, 4.0)):
    rows = [
        {"index": at, "embedding": [len(text), *numbers]}
        for at, text in enumerate(request["input"])
    ]
    return {
        "object": "list",
        "model": request["model"],
        "data": rows[::-1],
        "usage": {"prompt_tokens": 1},
    }


FAILED = {"error": {"message": "out of\nservice", "type": "server_error"}}


def test_a_server_is_asked_in_batches_again_where_it_is_busy_and_its_rows_are_put_in_order(
    server, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    remote = embedder("openai/bge-m3", server.url)
    texts = ["x" * n for n in range(1, 101)]
    assert remote.dimension == 0
    server.replies = [(503, FAILED), (429, FAILED)]
    vectors = remote.embed(texts)
    asked = [(len(body["input"]), body["model"]) for _, _, body in server.requests]
    assert asked == [(64, "bge-m3")] * 3 + [(36, "bge-m3")]
    assert np.allclose(vectors[:, 0] / vectors[:, 1] * 3, range(1, 101), rtol=1e-4)
    sent = [
        {name.lower(): value for name, value in headers.items()}
        for _, headers, _ in server.requests
    ]
    assert {headers["authorization"] for headers in sent} == {"Bearer sk-test"}
    assert remote.dimension == 3
    assert remote.name == "openai/bge-m3"


@pytest.mark.parametrize(
    ("replies", "error", "message"),
    [
        ([(503, FAILED)] * 9, EndpointError, "^embedder 'm': status 503: out of service$"),
        ([(401, FAILED)], UserError, "embedder 'm': the key was refused; check OPENAI_API_KEY"),
        ([(404, FAILED)], UserError, "embedder 'm' was refused, check its name"),
        (
            [(200, {"object": "list", "data": [{"index": 0}]})],
            EndpointError,
            "answered no list of vectors: KeyError",
        ),
        ([(200, "hello")], EndpointError, "answered no list of vectors"),
    ],
    ids=["down", "key", "model", "no vector", "no object"],
)
def test_a_fault_of_an_embedding_endpoint_is_one_line(server, replies, error, message):
    server.replies = replies
    with pytest.raises(error, match=message):
        embedder("m", server.url).embed(["a"])


def test_without_a_key_the_variable_is_named(monkeypatch):
    for each in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(each, raising=False)
    for name, variable in (
        ("openai/text-embedding-3-small", "OPENAI_API_KEY"),
        ("gemini/g", "GEMINI_API_KEY"),
    ):
        with pytest.raises(UserError, match=rf"{variable}.*\Z"):
            embedder(name).embed(["a"])


def test_other_names_go_through_litellm(server, monkeypatch):
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.url)
    vectors = embedder("hosted_vllm/bge-m3").embed(["a", "bb"])
    assert np.allclose(vectors[:, 0] / vectors[:, 1] * 3, [1, 2])
    assert server.requests[0][2]["model"] == "bge-m3"


@pytest.fixture(params=["m", "hosted_vllm/m"])
def hanging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An embedder whose endpoint never answers: a server of one's own, and one that litellm asks."""
    with StubServer(embedding_fault=lambda: "stall") as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.url)
        litellm_module()  # its import takes seconds, which are no time of the request's
        yield embedder(request.param, server.url if request.param == "m" else None)


def test_an_embedding_request_that_hangs_ends_at_its_deadline(hanging: Any) -> None:
    hanging.account.waits = Waits(deadline=0.4)
    begun = time.monotonic()
    with pytest.raises(EndpointError, match=r"embedder .*: no whole answer came in 0\.4 s"):
        hanging.embed(["a"])
    assert 0.4 <= time.monotonic() - begun < 5


def test_an_embedding_request_that_hangs_ends_with_the_work_that_wants_it(hanging: Any) -> None:
    begun = time.monotonic()
    with call_context(deadline=Deadline(0.4)), pytest.raises(AbandonedCallError):
        hanging.embed(["a"])
    assert 0.4 <= time.monotonic() - begun < 5


def test_an_endpoint_that_fails_again_and_again_ends_the_run(server):
    remote, guard, meter = embedder("m", server.url), BudgetGuard(), Meter()
    remote.account.waits = Waits(retries=0)
    remote.account.open(meter, guard)
    server.replies = [(503, FAILED)] * 100
    for n in range(DEAD_AFTER):
        with pytest.raises(EndpointError, match="embedder 'm': status 503"):
            remote.embed([f"text {n}"])
    with pytest.raises(EndpointError, match=f"failed {DEAD_AFTER} times in a row"):
        remote.embed(["one more"])
    assert len(server.requests) == meter.read().failed == DEAD_AFTER


def test_an_answer_and_a_refused_text_are_no_failures_of_the_endpoint(server):
    remote, guard = embedder("m", server.url), BudgetGuard()
    remote.account.open(Meter(), guard)
    for n in range(2 * DEAD_AFTER):
        server.replies = [(400, FAILED)]
        with pytest.raises(UserError, match="was refused"):
            remote.embed([f"text {n}"])
    assert remote.embed(["a"]).shape == (1, 3)
    assert guard.fatal_error is None


@pytest.mark.parametrize("reported", [1, 0, -5, float("nan"), "many", None, [1], 10**400])
def test_tokens_of_texts_are_estimated_where_the_reported_number_cannot_be_true(server, reported):
    remote, guard, meter = embedder("m", server.url), BudgetGuard(), Meter()
    remote.account.open(meter, guard)
    texts = ["word " * 200, "words " * 200]
    server.replies = [
        (200, {**good({"input": texts, "model": "m"}), "usage": {"prompt_tokens": reported}})
    ]
    assert remote.embed(texts).shape == (2, 3)
    used = meter.read()
    assert used.failed == 0
    assert used.estimated == 1
    assert used.input_tokens == 550
    assert guard.spent().tokens == 550


def test_an_embedder_that_cuts_long_texts_is_believed(server):
    remote, meter = embedder("m", server.url), Meter()
    remote.account.open(meter, BudgetGuard())
    texts = ["word " * 2000]
    server.replies = [
        (200, {**good({"input": texts, "model": "m"}), "usage": {"prompt_tokens": 256}})
    ]
    remote.embed(texts)
    assert meter.read().input_tokens == 256
    assert meter.read().estimated == 0


@pytest.mark.parametrize("usage", [[1], "many", 7])
def test_usage_of_another_form_is_none(server, usage):
    server.replies = [(200, {**good({"input": ["a"], "model": "m"}), "usage": usage})]
    assert embedder("m", server.url).embed(["a"]).shape == (1, 3)


@pytest.mark.parametrize("status", [400, 401, 404, 500])
@pytest.mark.parametrize("name", ["m", "hosted_vllm/m"])
def test_an_embedder_whose_endpoint_repeats_the_key_does_not_show_it(name, status, monkeypatch):
    key = "sk-0123456789-of-the-operator"
    for variable in ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY"):
        monkeypatch.setenv(variable, key)
    with StubServer(embedding_fault=lambda: f"echo {status}") as echoing:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", echoing.url)
        remote, guard = embedder(name, None if "/" in name else echoing.url), BudgetGuard()
        remote.account.waits = Waits(retries=0)
        remote.account.open(Meter(), guard)
        with pytest.raises((UserError, EndpointError)) as caught:
            remote.embed(["a"])
        assert f"Bearer {key}" in echoing.requests[0][1].values()
        assert "0123456789" not in f"{caught.value} {caught.value.__cause__} {guard.fatal_error}"


def test_a_password_of_an_address_is_hidden():
    with StubServer(embedding_fault=lambda: "echo 500") as echoing:
        remote = embedder("m", echoing.url.replace("http://", "http://ann:hunter2-and-more@"))
        remote.account.waits = Waits(retries=0)
        with pytest.raises(EndpointError, match="you sent") as caught:
            remote.embed(["a"])
        sent = echoing.requests[0][1]["Authorization"].removeprefix("Basic ")
        assert not any(secret in str(caught.value) for secret in (sent, "hunter2-and-more"))


def test_vectors_that_quote_the_key_do_not_show_it(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789-of-the-operator")
    rows = [{"index": 0, "embedding": ["sk-0123456789-of-the-operator"]}]
    server.replies = [(200, {"object": "list", "data": rows})]
    with pytest.raises(EndpointError, match=r"answered no list of vectors: .*\[secret\]"):
        embedder("m", server.url).embed(["a"])


# Vectors that outlive a process: a new object is what a new process has.


def test_a_new_process_asks_an_endpoint_for_nothing_it_was_asked_before(server):
    first = embedder("m", server.url).embed(["a", "bb", ""])
    again = embedder("m", server.url).embed(["bb", "a", "ccc"])
    assert server.texts_of == ["a", "bb", "ccc"]
    assert np.array_equal(first[[1, 0]], again[:2])
    assert embedder("m", server.url).embed_queries(["a"]).shape == (1, 3)
    assert len(server.requests) == 2


def test_vectors_belong_to_a_model_and_its_address(server):
    with Embedding() as elsewhere:
        for name, address in (("m", server.url), ("other", server.url), ("m", elsewhere.url)):
            embedder(name, address).embed(["a"])
        assert server.texts_of == ["a", "a"]
        assert elsewhere.texts_of == ["a"]


def test_vectors_are_those_of_an_address_in_any_spelling(server, monkeypatch):
    for address in (
        server.url,
        f"{server.url}/",
        server.url.replace("http://", "HTTP://ann:secret@"),
    ):
        embedder("openai/m", address).embed(["a"])
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    embedder("openai/m").embed(["a"])
    assert server.texts_of == ["a"]


def test_vectors_belong_to_the_address_that_a_variable_names(server, monkeypatch):
    with Embedding() as elsewhere:
        for each in (server, elsewhere):
            monkeypatch.setenv("HOSTED_VLLM_API_BASE", each.url)
            embedder("hosted_vllm/bge-m3").embed(["a"])
        assert server.texts_of == ["a"]
        assert elsewhere.texts_of == ["a"]


def test_neither_text_nor_key_is_in_the_file(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    address = server.url.replace("://", "://user:password@")
    embedder("m", address).embed(["Ann moved to Lisbon"])
    content = (cache_folder() / "vectors.sqlite").read_bytes()
    assert (cache_folder() / "vectors.sqlite").stat().st_mode & 0o777 == 0o600
    assert not any(word in content for word in (b"Lisbon", b"sk-secret", b"password", b"127.0.0.1"))


def test_vectors_of_another_length_are_those_of_another_model(server):
    embedder("m", server.url).embed(["a", "bb", "ccc"])
    longer = [
        good({"input": texts, "model": "m"}, (2.0, 3.0, 4.0))
        for texts in (["dddd"], ["dddd", "a", "bb", "ccc"])
    ]
    server.replies = [(200, each) for each in longer]
    assert embedder("m", server.url).embed(["dddd", "a", "bb", "ccc"]).shape == (4, 4)
    assert embedder("m", server.url).embed(["a", "bb", "ccc", "dddd"]).shape == (4, 4)
    assert [len(body["input"]) for _, _, body in server.requests] == [3, 1, 4]


def test_a_config_and_keywords_make_the_same_model():
    config = ModelConfig(
        api_base="http://elsewhere:1/v1",
        timeout=3,
        retries=0,
        deadline=9,
        cache=False,
        settings={"temperature": 0.5},
    )
    by_config = language_model("openai/any", config)
    by_keywords = language_model(
        "openai/any",
        api_base="http://elsewhere:1/v1",
        timeout=3,
        retries=0,
        deadline=9,
        cache=False,
        temperature=0.5,
    )
    engine = by_config.engine
    assert engine.address == "http://elsewhere:1/v1"
    assert engine.timeout == 3
    assert engine.retries == 0
    assert engine.seconds == 9
    assert vars(engine) == vars(by_keywords.engine)
    assert by_config.kwargs == by_keywords.kwargs
    assert by_config.kwargs["temperature"] == 0.5
    assert not by_config.cache
    assert not by_keywords.cache


def test_keywords_change_a_config_for_one_model():
    config = ModelConfig(timeout=3, retries=0, settings={"temperature": 0.5, "max_tokens": 7})
    lm = language_model("openai/any", config, timeout=5, max_tokens=9)
    assert lm.engine.timeout == 5
    assert lm.engine.retries == 0
    assert lm.kwargs["temperature"] == 0.5
    assert lm.kwargs["max_tokens"] == 9
    assert config == ModelConfig(
        timeout=3, retries=0, settings={"temperature": 0.5, "max_tokens": 7}
    )


def test_a_config_does_not_show_its_key():
    assert "secret" not in repr(ModelConfig(api_key="secret"))
