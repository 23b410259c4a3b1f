"""Vectors by spelling, the embedder's cache in memory, and embedders that answer nonsense.

`embedder()` is the offline embedder, which makes a vector from the words of a text and their
letters, without a network.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mempiler.engines.embedders import DIMENSION, TextEmbedder, embedder
from mempiler.errors import EndpointError, UserError


@pytest.mark.parametrize(
    ("text", "non_zero_count", "largest_values"),
    [
        ("Ann moved to Lisbon", 36, {1: -0.4082, 122: 0.4082, 206: -0.4082}),
        ("ＬＩＳＢＯＮ", 16, {122: 0.7071}),
        ("他在北京工作", 29, {51: 0.4264}),
    ],
)
def test_offline_vectors_never_change(
    text: str, non_zero_count: int, largest_values: dict[int, float]
) -> None:
    """Vectors that were stored by an earlier version are compared with new ones.

    `largest_values` has the numbers of the vector that are larger than 0.4, by their place.
    """
    vector = embedder().embed([text])[0]

    large_numbers: dict[int, float] = {}
    for place, number in enumerate(vector.tolist()):
        if abs(number) > 0.4:
            large_numbers[place] = round(number, 4)
    assert large_numbers == largest_values
    assert np.count_nonzero(vector) == non_zero_count


lists_of_texts = st.lists(st.text(max_size=30), max_size=8)
ODD_TEXTS = ["Ann moved to Lisbon", "", "  \n", "and the of", "北京", "x" * 10_000]


@settings(max_examples=25)
@given(lists_of_texts)
@example(ODD_TEXTS)
def test_an_offline_vector_does_not_depend_on_the_texts_beside_it(texts: list[str]) -> None:
    vectors = embedder().embed(texts)

    assert vectors.shape == (len(texts), DIMENSION)
    assert vectors.dtype == np.float32
    for text, vector in zip(texts, vectors, strict=True):
        vector_alone = embedder().embed([text])[0]
        assert np.array_equal(vector, vector_alone)


@settings(max_examples=25)
@given(lists_of_texts)
@example(ODD_TEXTS)
def test_an_offline_vector_has_length_1_or_0(texts: list[str]) -> None:
    lengths = np.linalg.norm(embedder().embed(texts), axis=1)
    for length in lengths:
        is_zero = length == pytest.approx(0, abs=1e-6)
        is_one = length == pytest.approx(1, abs=1e-6)
        assert is_zero or is_one, length


# The cache in memory.


class TextRecorder:
    """Computes vectors of texts, from their lengths, and records the texts of each call."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.calls.append(list(texts))
        return np.array([[len(text), 1.0] for text in texts])


def test_distinct_texts_that_are_not_blank_are_computed_once() -> None:
    recorder = TextRecorder()
    counting_embedder = TextEmbedder("counting", recorder)

    vectors = counting_embedder.embed(["a", "bb", "a", ""])
    later_vectors = counting_embedder.embed(["bb", "a"])

    assert recorder.calls == [["a", "bb"]]
    vector_of_a, vector_of_bb, second_vector_of_a, _ = vectors
    assert np.array_equal(second_vector_of_a, vector_of_a)
    assert np.array_equal(later_vectors, [vector_of_bb, vector_of_a])


def test_a_caller_may_change_the_vectors_that_it_gets() -> None:
    counting_embedder = TextEmbedder("counting", TextRecorder())
    vectors = counting_embedder.embed(["a"])
    unchanged_vectors = vectors.copy()

    vectors[:] = 7

    assert np.array_equal(counting_embedder.embed(["a"]), unchanged_vectors)


def test_vectors_that_were_not_used_for_the_longest_time_leave_memory_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bytes_of_two_vectors = 2 * 8  # a vector is two numbers of four bytes
    monkeypatch.setattr("mempiler.engines.embedders.MAX_CACHED_BYTES", bytes_of_two_vectors)
    recorder = TextRecorder()
    counting_embedder = TextEmbedder("counting", recorder)

    counting_embedder.embed(["bb", "a"])  # fills the memory
    counting_embedder.embed(["bb"])
    counting_embedder.embed(["a"])
    counting_embedder.embed(["ccc"])  # takes the place of "bb"
    counting_embedder.embed(["a"])
    counting_embedder.embed(["bb"])  # computed anew, in the place of "ccc"

    assert recorder.calls == [["bb", "a"], ["ccc"], ["bb"]]


# Mistakes.


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(np.ones((2, 3)), id="too many rows"),
        pytest.param(np.ones(3), id="no rows"),
        pytest.param(np.full((1, 3), np.nan), id="not a number"),
        pytest.param(np.ones((1, 4)), id="another dimension"),
    ],
)
def test_vectors_of_the_wrong_shape_are_an_endpoint_error(answer: np.ndarray) -> None:
    """The embedder promises a vector of three numbers for the one text."""
    odd_embedder = TextEmbedder("odd", lambda texts: answer, dimension=3)
    with pytest.raises(EndpointError, match="'odd' answered"):
        odd_embedder.embed(["a"])


def test_the_offline_embedder_takes_no_address() -> None:
    with pytest.raises(UserError, match="runs in this process") as caught:
        embedder("offline", "http://localhost:1/v1")
    assert "\n" not in str(caught.value)


def test_a_string_in_the_place_of_a_list_of_texts_is_refused() -> None:
    """Python would take it for a list of letters."""
    with pytest.raises(UserError, match="put it in a list") as caught:
        embedder().embed("text")
    assert "\n" not in str(caught.value)
