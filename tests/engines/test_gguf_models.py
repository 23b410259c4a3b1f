"""GGUF files as models: how their server is started, what they are called, which are refused.

A GGUF file holds a language model for llama.cpp, which the package xllamacpp runs as a server in
this process. No test needs the package: a stub server stands for it.
"""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dspy
import mempiler
import pytest
from mempiler.engines.lm import LoadedModels, language_model
from mempiler.engines.weights import WEIGHTS, File, Weights
from mempiler.errors import MissingDependencyError, UserError

from ..stub_server import StubServer

CONTENT = b"GGUF" + bytes(range(200))


class FakeLlamaCpp:
    """Stands for the module xllamacpp: the servers that it starts are one stub server.

    Args:
        url: The address of the stub server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.started: list[Any] = []
        """The parameters of the servers that were started."""
        self.llama_flash_attn_type = Mock()
        self.common_speculative_type = Mock()

    def CommonParams(self) -> Mock:  # noqa: N802 - a class of xllamacpp
        return Mock(no_extra_bufts=False)

    def Server(self, parameters: Any) -> Mock:  # noqa: N802 - a class of xllamacpp
        if Path(parameters.model.path).stat().st_size < 10:
            raise RuntimeError("Failed to init server, please check the input params!")
        self.started.append(parameters)
        return Mock(listening_address=self._url.removesuffix("/v1"))


@pytest.fixture
def fake_llama_cpp(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLlamaCpp]:
    """A module xllamacpp whose server answers as the offline engine does."""
    with StubServer() as stub_server:
        module = FakeLlamaCpp(stub_server.url)
        monkeypatch.setitem(sys.modules, "xllamacpp", module)
        yield module


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    """A GGUF file of the user's."""
    path = tmp_path / "own.gguf"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.usefixtures("fake_llama_cpp")
def test_a_gguf_model_answers(gguf_file: Path) -> None:
    """The server of the model is a stub, which answers with a sentence of the prompt."""
    messages = [{"role": "user", "name": "Ann", "content": "I live in Oslo."}]
    history = mempiler.History.from_messages(messages)
    program = mempiler.build("turn-rag")

    with dspy.context(lm=language_model(f"gguf:{gguf_file}")):
        prediction = program(history=history, question="Where does Ann live?")

    assert prediction.answer == "I live in Oslo."


def test_the_server_of_a_gguf_model_is_started_with_these_parameters(
    fake_llama_cpp: FakeLlamaCpp, gguf_file: Path
) -> None:
    lm = language_model(f"gguf:{gguf_file}", slots=3)

    (parameters,) = fake_llama_cpp.started
    assert parameters.n_parallel == 3
    assert parameters.n_ctx == 3 * 8192  # a context of 8,192 tokens for each slot
    assert parameters.sampling.temp == 0
    # Nobody but this process knows the key.
    assert parameters.api_keys == [lm.engine.key]
    # The next tokens are guessed where the text repeats itself.
    kinds_of_guesses = fake_llama_cpp.common_speculative_type
    assert parameters.speculative.types == [kinds_of_guesses.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]


def test_with_one_slot_an_answer_does_not_depend_on_what_the_server_has_cached(
    fake_llama_cpp: FakeLlamaCpp, gguf_file: Path
) -> None:
    """Two settings of llama.cpp make answers depend on the server's cache; both are off here.

    With them a resumed run could end differently from one that was not interrupted.
    """
    language_model(f"gguf:{gguf_file}")

    (parameters,) = fake_llama_cpp.started
    flash_attention = fake_llama_cpp.llama_flash_attn_type
    assert parameters.no_extra_bufts is True
    assert parameters.flash_attn_type == flash_attention.LLAMA_FLASH_ATTN_TYPE_DISABLED


def test_a_gguf_file_is_loaded_once_for_all_models_of_it(
    fake_llama_cpp: FakeLlamaCpp, gguf_file: Path
) -> None:
    loaded = LoadedModels()
    first_lm = language_model(f"gguf:{gguf_file}", loaded=loaded)
    second_lm = language_model(f"gguf:{gguf_file}", loaded=loaded)

    assert first_lm.model == second_lm.model
    assert len(fake_llama_cpp.started) == 1
    server_of_file = loaded.gguf[f"gguf:{gguf_file}"]
    assert first_lm.copy(temperature=0.5).engine.server is server_of_file


# The name of a model has a digest of its weights, since answers are cached under it.


@pytest.mark.usefixtures("fake_llama_cpp")
def test_a_change_in_the_middle_of_the_weights_gives_the_model_another_name(
    gguf_file: Path,
) -> None:
    """Answers are cached under the name, and other weights would give other answers."""
    zeros = bytes(2_000_000)
    gguf_file.write_bytes(b"GGUF" + zeros + b"0" + zeros)
    name = language_model(f"gguf:{gguf_file}").model

    gguf_file.write_bytes(b"GGUF" + zeros + b"1" + zeros)
    new_name = language_model(f"gguf:{gguf_file}").model

    assert name.startswith("openai/own@")
    assert new_name.startswith("openai/own@")
    assert new_name != name


@pytest.mark.usefixtures("fake_llama_cpp")
def test_a_model_of_several_files_has_another_name_if_one_of_them_changes(tmp_path: Path) -> None:
    first_file = tmp_path / "big-00001-of-00002.gguf"
    second_file = tmp_path / "big-00002-of-00002.gguf"
    first_file.write_bytes(CONTENT)
    second_file.write_bytes(CONTENT)
    name = language_model(f"gguf:{first_file}").model
    assert language_model(f"gguf:{first_file}").model == name

    second_file.write_bytes(CONTENT + b"!")

    assert language_model(f"gguf:{first_file}").model != name


# Files that are refused.


@pytest.mark.usefixtures("fake_llama_cpp")
def test_a_gguf_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such GGUF file"):
        language_model(f"gguf:{tmp_path / 'missing.gguf'}")


@pytest.mark.usefixtures("fake_llama_cpp")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"PK\3\4 no model", "is no GGUF file", id="another format"),
        pytest.param(b"GGUF", "cannot serve it", id="cut after four bytes"),
    ],
)
def test_a_file_that_llama_cpp_cannot_load_is_refused(
    gguf_file: Path, content: bytes, message: str
) -> None:
    gguf_file.write_bytes(content)
    with pytest.raises(UserError, match=message):
        language_model(f"gguf:{gguf_file}")


def test_without_llama_cpp_the_extra_to_install_is_named(
    gguf_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # an import of it fails
    with pytest.raises(MissingDependencyError, match=r"\[models\]"):
        language_model(f"gguf:{gguf_file}")


# Weights of known names.


@pytest.fixture
def tiny_weights(gguf_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stored file of the weights with the name `tiny`."""
    monkeypatch.setenv("MEMPILER_MODELS", str(gguf_file.parent))
    file = File(gguf_file.name, sha256=hashlib.sha256(CONTENT).hexdigest(), size=len(CONTENT))
    weights = Weights(
        name="tiny",
        kind="language model",
        repository="Who/Tiny-GGUF",
        revision="main",
        licence="Apache-2.0",
        files=(file,),
    )
    monkeypatch.setitem(WEIGHTS, "tiny", weights)
    return gguf_file


@pytest.mark.usefixtures("fake_llama_cpp", "tiny_weights")
def test_an_answer_of_a_gguf_model_has_at_most_1024_tokens_unless_another_limit_is_set() -> None:
    assert language_model("gguf:tiny").kwargs["max_tokens"] == 1024
    assert language_model("gguf:tiny", max_tokens=5000).kwargs["max_tokens"] == 5000


@pytest.mark.usefixtures("fake_llama_cpp")
def test_stored_weights_with_other_bytes_are_refused(tiny_weights: Path) -> None:
    tiny_weights.write_bytes(CONTENT[:-1] + b"!")
    message = r"is not tiny .*; delete it, then run: mempiler fetch tiny"
    with pytest.raises(UserError, match=message):
        language_model("gguf:tiny")


@pytest.mark.usefixtures("fake_llama_cpp")
def test_weights_that_are_not_stored_are_refused_with_the_command_that_fetches_them(
    tiny_weights: Path,
) -> None:
    tiny_weights.unlink()
    with pytest.raises(UserError, match="mempiler fetch tiny"):
        language_model("gguf:tiny")


@pytest.mark.usefixtures("fake_llama_cpp")
def test_the_weights_of_an_embedder_are_no_language_model() -> None:
    with pytest.raises(UserError, match="is no language model; use it as --embedder minilm"):
        language_model("gguf:minilm")
