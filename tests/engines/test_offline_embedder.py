"""Vectors by spelling, the embedder's cache in memory, and embedders that answer nonsense."""

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
    """Saved indexes rely on them."""
    vector = embedder().embed([text])[0]

    places_of_largest = np.flatnonzero(np.abs(vector) > 0.4)
    assert {int(place): round(float(vector[place]), 4) for place in places_of_largest} == (
        largest_values
    )
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
        assert length == pytest.approx(0, abs=1e-6) or length == pytest.approx(1, abs=1e-6)


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
    assert np.array_equal(vectors[0], vectors[2])
    assert np.array_equal(later_vectors, vectors[[1, 0]])


def test_a_caller_may_change_the_vectors_that_it_gets() -> None:
    counting_embedder = TextEmbedder("counting", TextRecorder())
    vectors = counting_embedder.embed(["a"])
    unchanged_vectors = vectors.copy()

    vectors[:] = 7

    assert np.array_equal(counting_embedder.embed(["a"]), unchanged_vectors)


def test_vectors_that_were_not_used_for_the_longest_time_leave_memory_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bytes_of_two_vectors = 2 * 8
    monkeypatch.setattr("mempiler.engines.embedders.MAX_CACHED_BYTES", bytes_of_two_vectors)
    recorder = TextRecorder()
    counting_embedder = TextEmbedder("counting", recorder)
    counting_embedder.embed(["bb", "a"])

    for text in ("bb", "a", "ccc", "a", "bb"):
        counting_embedder.embed([text])

    # "ccc" took the place of "bb", and then "bb" that of "ccc".
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
    odd_embedder = TextEmbedder("odd", lambda texts: answer, dimension=3)
    with pytest.raises(EndpointError, match="'odd' answered"):
        odd_embedder.embed(["a"])


def test_the_offline_embedder_takes_no_address() -> None:
    with pytest.raises(UserError, match=r"runs in this process.*\Z"):
        embedder("offline", "http://localhost:1/v1")


def test_a_string_in_the_place_of_a_list_of_texts_is_refused() -> None:
    with pytest.raises(UserError, match=r"put it in a list.*\Z"):
        embedder().embed("text")
