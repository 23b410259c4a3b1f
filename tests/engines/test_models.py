"""Names of models: which are refused before anything is asked, and those of GGUF files, served to this process."""

import hashlib
import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dspy
import mempiler
import pytest
from mempiler.engines import weights
from mempiler.engines.models import check_askable, check_known, language_model
from mempiler.engines.weights import File, Weights
from mempiler.errors import MissingDependencyError, UserError

from tests.stub_server import StubServer

CONTENT = b"GGUF" + bytes(range(200))
HISTORY = mempiler.History.from_messages([{"role": "user", "name": "Ann", "content": "I live in Oslo."}])


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
    module.CommonParams.side_effect, module.Server.side_effect = lambda: Mock(no_extra_bufts=False), serve
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    with StubServer() as stub:
        yield module


def test_a_gguf_model_answers_and_keeps_its_endpoint_to_itself(llama: Any, own: Path) -> None:
    loaded: dict[str, Any] = {}
    lm = language_model(f"gguf:{own}", loaded=loaded, slots=3)
    with dspy.context(lm=lm):
        assert mempiler.build("turn-rag")(history=HISTORY, question="Where does Ann live?").answer == "I live in Oslo."
    (wanted,) = llama.seen
    assert (wanted.n_parallel, wanted.n_ctx, wanted.sampling.temp) == (3, 3 * 8192, 0)
    assert (wanted.no_extra_bufts, wanted.api_keys) == (False, [lm.engine.key])
    assert wanted.speculative.types == [llama.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    assert language_model(f"gguf:{own}", loaded=loaded).model == lm.model
    assert len(llama.seen) == 1
    assert lm.copy(temperature=0.5).engine.server is loaded[f"gguf:{own}"]
    own.write_bytes(CONTENT + b"!")
    other = language_model(f"gguf:{own}").model
    assert other != lm.model
    assert other.startswith("openai/own@")


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no such GGUF file"), (b"PK\3\4 no model", "is no GGUF file"), (b"GGUF", "cannot serve it")],
)
def test_what_cannot_be_served_is_refused(llama: Any, own: Path, monkeypatch: Any, content: Any, said: str) -> None:
    own.unlink() if content is None else own.write_bytes(content)
    with pytest.raises(UserError, match=said):
        language_model(f"gguf:{own}")
    own.write_bytes(CONTENT)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingDependencyError, match=r"\[models\]"):
        language_model(f"gguf:{own}")


def test_an_answer_has_an_end_unless_a_longer_one_is_wanted(llama: Any, own: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MEMPILER_MODELS", str(own.parent))
    file = File(own.name, hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
    named = Weights("tiny", "language model", "Who/Tiny-GGUF", "main", "Apache-2.0", (file,))
    monkeypatch.setitem(weights.WEIGHTS, "tiny", named)
    loaded: dict[str, Any] = {}
    assert language_model("gguf:tiny", loaded=loaded).kwargs["max_tokens"] == 1024
    # With one slot an answer does not depend on what the cache held: a resumed run ends as an unbroken one.
    off = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    assert (llama.seen[0].no_extra_bufts, llama.seen[0].flash_attn_type) == (True, off)
    assert language_model("gguf:tiny", loaded=loaded, max_tokens=5000).kwargs["max_tokens"] == 5000
    with pytest.raises(UserError, match="is no language model; use it as --embedder minilm"):
        language_model("gguf:minilm")
    own.unlink()
    with pytest.raises(UserError, match="mempiler fetch tiny"):
        language_model("gguf:tiny")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "MISTRAL_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE")
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
def test_a_model_that_cannot_be_asked_is_one_line(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=message) as raised:
        check_askable(language_model(name))
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
def test_a_model_that_may_be_asked_is_not_refused(name, base, keys, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in keys:
        monkeypatch.setenv(variable, "http://127.0.0.1:9/v1")
    check_askable(language_model(name, api_base=base))


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
    ],
)
def test_a_model_is_refused_only_where_its_provider_says_that_there_is_none(stub, model, models, fault, asked, said):
    server = stub(lambda n, text: fault, models=models)
    lm = language_model(f"openai/{model}", api_base=server.url)
    if said is None:
        check_known(lm)
    else:
        with pytest.raises(UserError, match=f"'openai/{model}': its provider {re.escape(said)}$"):
            check_known(lm)
    assert len(server.requests) == asked
