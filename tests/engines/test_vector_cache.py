"""Vectors on disk: they outlive a process, and a damaged file costs time and nothing else.

A tiny encoder stands for "minilm". The fixture `texts_through_network` lists the texts that went
through its network: a text whose vector is read from the file is not among them.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mempiler.engines.cache_folder import cache_folder
from mempiler.engines.embedders import embedder
from mempiler.engines.encoder import TextEncoding
from mempiler.engines.vector_cache import CachedVectors, VectorFile

# Each of these takes the content of the file and one of the vectors in it, and returns the content
# of a damaged file.


def cut_in_half(content: bytes, vector: bytes) -> bytes:
    return content[: len(content) // 2]


def replace_by_noise(content: bytes, vector: bytes) -> bytes:
    return b"no database" * 500


def overwrite_the_start_of_a_vector_with_zeros(content: bytes, vector: bytes) -> bytes:
    start = content.index(vector)
    return content[:start] + bytes(8) + content[start + 8 :]


@pytest.mark.parametrize(
    "damage", [cut_in_half, replace_by_noise, overwrite_the_start_of_a_vector_with_zeros]
)
def test_a_damaged_file_is_repaired_and_gives_no_wrong_vector(
    texts_through_network: list[str], damage: Callable[[bytes, bytes], bytes]
) -> None:
    """A new embedder stands for a new process: it has nothing in memory, but reads the file."""
    texts = ["Ann moved to Lisbon.", "Bob likes jazz"]
    vectors = embedder("minilm").embed(texts)
    path = cache_folder() / "vectors.sqlite"
    path.write_bytes(damage(path.read_bytes(), vectors[0].tobytes()))

    assert np.array_equal(embedder("minilm").embed(texts), vectors)
    assert np.array_equal(embedder("minilm").embed(texts), vectors)
    # The file is repaired by now, so a further process computes nothing.
    texts_through_network.clear()
    assert np.array_equal(embedder("minilm").embed(texts), vectors)
    assert texts_through_network == []


def test_the_oldest_vectors_are_removed_first(tmp_path: Path) -> None:
    """The file has room for six numbers of four bytes: three vectors of two numbers."""
    vector_of_two_numbers = bytes(8)
    vector_file = VectorFile(tmp_path / "vectors.sqlite", max_numbers=6)

    for key in (b"first", b"second", b"third", b"fourth"):
        vector_file.write({key: vector_of_two_numbers})

    kept_vectors = vector_file.read([b"first", b"second", b"third", b"fourth"])
    assert kept_vectors.keys() == {b"second", b"third", b"fourth"}


def test_a_file_that_cannot_be_written_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mempiler").write_text("a file in the place of the folder")
    path = tmp_path / "mempiler" / "vectors.sqlite"
    vector_file = VectorFile(path)

    for _ in range(3):
        vector_file.write({b"key": bytes(4)})
        assert vector_file.read([b"key"]) == {}

    (warning,) = caplog.messages
    assert warning.startswith(f"{path}: ")
    assert warning.endswith("every process computes its vectors anew")


def written_and_read(path: Path, tokens: bool) -> TextEncoding:
    """Write the encoding of the text "Ann", and return what another process reads.

    Args:
        path: The file of vectors.
        tokens: Whether the file also keeps a vector of each token, which rerankers need.
    """
    encoding = TextEncoding(
        vector=np.array([1, 1], np.float32), tokens=np.array([[1, -2], [3, 4]], np.int8)
    )
    writer = CachedVectors("embedder", VectorFile(path), tokens=tokens)
    writer.write({"Ann": encoding}, new_texts=["Ann"])
    reader = CachedVectors("embedder", VectorFile(path), tokens=tokens)
    return reader.read(["Ann"])["Ann"]


def test_an_encoding_is_read_as_it_was_written(tmp_path: Path) -> None:
    encoding = written_and_read(tmp_path / "vectors.sqlite", tokens=True)

    assert encoding.vector.tolist() == [1, 1]
    assert encoding.tokens.tolist() == [[1, -2], [3, 4]]


def test_tokens_are_not_kept_for_an_embedder_without_a_reranker(tmp_path: Path) -> None:
    encoding = written_and_read(tmp_path / "vectors.sqlite", tokens=False)

    assert encoding.vector.tolist() == [1, 1]
    assert encoding.tokens.tolist() == []


def test_an_embedder_does_not_read_the_vectors_of_another_one(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    encoding = TextEncoding(vector=np.ones(2, np.float32), tokens=np.zeros((0, 2), np.int8))
    CachedVectors("embedder", VectorFile(path)).write({"Ann": encoding}, new_texts=["Ann"])

    assert CachedVectors("other embedder", VectorFile(path)).read(["Ann"]) == {}
    assert CachedVectors("embedder", VectorFile(path)).read(["Ann"]).keys() == {"Ann"}
