"""Rerankers: how they score texts, which embedder has which, and models of fastembed.

`scores(query, texts, weights)` returns a score for each text. A text is a list of passages, and has
the score of its best passage. The weights say what each word of the query counts; models of
fastembed do not use them.
"""

import json
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mempiler import EndpointError, MissingDependencyError, UserError, build, load, save
from mempiler.engines.call_context import Deadline, call_context
from mempiler.engines.embedders import embedder
from mempiler.engines.endpoint.errors import AbandonedCallError
from mempiler.engines.rerankers import FastEmbedReranker, QueryTokens, TokenMatch

from .fake_fastembed import FakeModelClass, embed_by_length, use_fake_fastembed
from .tiny_encoder import DATA, WORDS, tokenizer_json

# The reranker that compares tokens: each token of the query looks for its nearest in a passage.


class LetterEmbedder:
    """An embedder for which every letter is a word, and only the same letter is similar to it.

    The token of a letter has the number 127, which stands for 1, at its place in the alphabet.
    """

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [self._tokens_of_text(text) for text in texts]

    def query_tokens(self, query: str) -> QueryTokens:
        return QueryTokens(self._tokens_of_text(query), words=list(query))

    def _tokens_of_text(self, text: str) -> np.ndarray:
        tokens = np.zeros((len(text), 26), np.int8)
        for place, letter in enumerate(text):
            tokens[place, ord(letter) - ord("a")] = 127
        return tokens


def scores_by_letters(query: str, texts: list[list[str]], weights: dict[str, float]) -> list[float]:
    """Return the scores of texts for a query, where every letter is a word.

    Args:
        query: The query.
        texts: The passages of each text.
        weights: What each letter of the query counts.
    """
    return TokenMatch(LetterEmbedder()).scores(query, texts, weights).tolist()


def test_a_text_scores_the_weights_of_the_words_that_it_shares_with_the_query() -> None:
    """Every letter is a word here, and each text has one passage. The word "z" counts nothing."""
    texts = [["ab"], ["a"], ["b"], ["xyz"], [""]]

    scores = scores_by_letters("abz", texts, weights={"a": 2.0, "b": 0.5, "z": 0.0})

    assert scores == pytest.approx([2.5, 2.0, 0.5, 0.0, 0.0])


def test_a_text_scores_like_its_best_passage() -> None:
    """Every letter is a word here. The best passages are "ab" and "a"."""
    texts = [["b", "ab"], ["c", "a"]]

    scores = scores_by_letters("ab", texts, weights={"a": 2.0, "b": 0.5})

    assert scores == pytest.approx([2.5, 2.0])


def test_all_texts_have_the_score_0_for_a_blank_query() -> None:
    assert scores_by_letters("", [["ab"], ["a"]], weights={"a": 1.0, "b": 1.0}) == [0, 0]


def test_a_long_text_has_no_advantage_from_its_length() -> None:
    """The longer a text is, the more words of a query it has by chance. Its score is lowered by it.

    Every letter is a word here. Without the correction, a text would score 1 for each letter of the
    query that it has.
    """
    no_letter_of_the_query = ["c"]
    one_letter_in_200 = ["c" * 200 + "a"]
    two_letters_in_800 = ["c" * 800 + "ab"]
    texts = [no_letter_of_the_query, one_letter_in_200, two_letters_in_800]

    scores = scores_by_letters("ab", texts, weights={"a": 1.0, "b": 1.0})

    assert max(scores) - min(scores) < 0.5


def test_the_length_of_short_texts_does_not_matter() -> None:
    """Every letter is a word here. Each letter of the query that a text has counts 1."""
    texts = [["c"], ["cca"], ["cccccab"]]

    scores = scores_by_letters("ab", texts, weights={"a": 1.0, "b": 1.0})

    assert scores == pytest.approx([0, 1, 2])


# Which embedder has which reranker.


def name_of_reranker(name: str, reranker: str | None = None) -> str | None:
    """Return the name of the reranker of an embedder; None if it has none."""
    actual_reranker = embedder(name, reranker=reranker).reranker
    return None if actual_reranker is None else actual_reranker.name


def test_encoders_compare_tokens_unless_another_reranker_is_named(tiny_minilm: Path) -> None:
    """Only an encoder that runs in this process, such as minilm, gives the tokens of a text."""
    assert name_of_reranker("minilm") == "tokens"
    assert name_of_reranker("minilm", reranker="none") is None
    assert name_of_reranker("minilm", reranker="fastembed:x/y") == "fastembed:x/y"


def test_other_embedders_have_no_reranker_unless_one_is_named() -> None:
    assert name_of_reranker("offline") is None
    assert name_of_reranker("openai/text-embedding-3-small") is None


@pytest.mark.parametrize(
    ("name", "reranker", "message"),
    [
        ("openai/e", "tokens", "needs an embedder such as minilm"),
        ("offline", "fastembed:x", "needs an embedder such as minilm"),
        ("minilm", "colbert", "needs none, tokens or fastembed:NAME"),
    ],
)
def test_a_reranker_that_does_not_go_with_the_embedder_is_refused(
    tiny_minilm: Path, name: str, reranker: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        embedder(name, reranker=reranker)


def save_and_load_embedder(folder: Path, program_embedder: Any) -> Any:
    """Save a program with an embedder, and return the embedder of the program that is loaded."""
    save(build("turn-rag", embedder=program_embedder), folder)
    method: Any = load(folder).method
    return method.embedder


def test_a_saved_program_has_the_reranker_with_which_it_was_built(
    tiny_minilm: Path, tmp_path: Path
) -> None:
    loaded_embedder = save_and_load_embedder(tmp_path / "program", embedder("minilm"))
    assert loaded_embedder.reranker.name == "tokens"


def test_a_program_that_was_saved_without_a_reranker_has_none(
    tiny_minilm: Path, tmp_path: Path
) -> None:
    embedder_without_reranker = embedder("minilm", reranker="none")
    loaded_embedder = save_and_load_embedder(tmp_path / "program", embedder_without_reranker)
    assert loaded_embedder.reranker is None


def test_a_saved_program_does_not_decide_to_download_a_reranker(
    tiny_minilm: Path, tmp_path: Path
) -> None:
    """A model of fastembed is downloaded, so whoever loads the program must name it again."""
    built_embedder = embedder("minilm", reranker="fastembed:x/y")
    save(build("turn-rag", embedder=built_embedder), tmp_path / "program")
    message = "was made with --reranker fastembed:x/y; give --reranker fastembed:x/y"
    with pytest.raises(UserError, match=message):
        load(tmp_path / "program")


# Models of fastembed.


def load_model(name: str) -> None:
    """Fail for a model of the name `m/broken`, as fastembed fails if it cannot download one."""
    if name == "m/broken":
        raise ValueError("Could not load model from any source.")


def embed_by_letters(passages: Sequence[str]) -> Generator[np.ndarray]:
    """Give each passage three tokens, which count its letters "x" and "y"."""
    for passage in passages:
        token = [passage.count("x"), passage.count("y")]
        yield np.array([token, token, token])


def count_query(query: str, passages: Sequence[str]) -> Generator[float]:
    """Score each passage by how often it has the query in it."""
    for passage in passages:
        yield float(passage.count(query))


@pytest.fixture
def fake_fastembed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fastembed with the models `m/vectors`, `m/broken`, `m/late` and `m/cross`."""
    use_fake_fastembed(
        monkeypatch,
        text_embedding=FakeModelClass(
            "m/vectors", "m/broken", on_load=load_model, embed=embed_by_length
        ),
        late_interaction=FakeModelClass(
            "m/late", query_embed=lambda query: iter([np.eye(2)]), embed=embed_by_letters
        ),
        cross_encoder=FakeModelClass("m/cross", rerank=count_query),
    )


def test_a_model_of_fastembed_embeds_texts(fake_fastembed: None) -> None:
    vector = embedder("fastembed:m/vectors").embed(["xyz"])[0]
    # Fastembed's vector is (1, 3), which has the length of the square root of 10.
    assert vector == pytest.approx(np.array([1, 3]) / 10**0.5)


def test_a_cross_encoder_of_fastembed_scores_the_best_passage_of_each_text(
    fake_fastembed: None,
) -> None:
    """The model m/cross counts how often the query, here "y", is in a passage."""
    passages_of_texts = [["x", "yyx"], ["y"], ["xx"]]

    scores = FastEmbedReranker("m/cross").scores("y", passages_of_texts, weights={})

    assert scores.tolist() == [2, 1, 0]


def test_a_late_interaction_model_of_fastembed_scores_the_best_passage_of_each_text(
    fake_fastembed: None,
) -> None:
    """The model m/late counts how often "x" and "y" are in a passage, whatever the query."""
    passages_of_texts = [["x", "yyx"], ["y"], ["xx"]]

    scores = FastEmbedReranker("m/late").scores("y", passages_of_texts, weights={})

    assert scores.tolist() == [3, 1, 2]


def test_a_reranker_that_fastembed_does_not_know_is_refused(fake_fastembed: None) -> None:
    with pytest.raises(UserError, match="fastembed has no TextCrossEncoder 'm/none'"):
        FastEmbedReranker("m/none").scores("y", [["x"]], weights={})


def test_a_model_that_fastembed_cannot_load_is_an_endpoint_error(fake_fastembed: None) -> None:
    with pytest.raises(EndpointError, match="fastembed cannot load m/broken: Could not load"):
        embedder("fastembed:m/broken").embed(["x"])


def test_without_fastembed_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)  # an import of it fails
    with pytest.raises(MissingDependencyError, match="rerank"):
        embedder("fastembed:x").embed(["Oslo"])


@pytest.mark.parametrize(
    ("name", "reranker"),
    [("fastembed:m/broken", None), ("minilm", "fastembed:m/late"), ("offline", None)],
)
def test_a_check_finds_the_model_in_fastembeds_lists_and_loads_nothing(
    fake_fastembed: None, tiny_minilm: Path, name: str, reranker: str | None
) -> None:
    """To load "m/broken" would raise an error."""
    embedder(name, reranker=reranker).check()


@pytest.mark.parametrize(
    ("name", "reranker"),
    [
        pytest.param("fastembed:m/late", None, id="a reranker as embedder"),
        pytest.param("minilm", "fastembed:m/vectors", id="an embedder as reranker"),
    ],
)
def test_a_check_refuses_a_model_of_the_wrong_kind(
    fake_fastembed: None, tiny_minilm: Path, name: str, reranker: str | None
) -> None:
    with pytest.raises(UserError, match="fastembed has no Text"):
        embedder(name, reranker=reranker).check()


def pretend_version_of_fastembed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    """Have Python find the metadata of an installed fastembed of this version."""
    site_packages = tmp_path / f"site-packages {version}"
    metadata_folder = site_packages / f"fastembed-{version}.dist-info"
    metadata_folder.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: fastembed\nVersion: {version}\n"
    (metadata_folder / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(str(site_packages))


def test_cached_vectors_belong_to_a_version_of_fastembed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version may give a text another vector, so the text is embedded again."""
    embedded_texts: list[str] = []

    def record_and_embed(texts: Sequence[str], batch_size: int) -> Any:
        embedded_texts.extend(texts)
        return embed_by_length(texts, batch_size)

    model_class = FakeModelClass("m/vectors", embed=record_and_embed)
    use_fake_fastembed(monkeypatch, text_embedding=model_class)

    pretend_version_of_fastembed(monkeypatch, tmp_path, "0.7.3")
    embedder("fastembed:m/vectors").embed(["Oslo"])
    embedder("fastembed:m/vectors").embed(["Oslo"])
    assert embedded_texts == ["Oslo"]

    pretend_version_of_fastembed(monkeypatch, tmp_path, "0.8.0")
    embedder("fastembed:m/vectors").embed(["Oslo"])
    assert embedded_texts == ["Oslo", "Oslo"]


# Deadlines.


class CancellingModel:
    """A model of fastembed. While it works on a passage, the deadline of the work is cancelled."""

    def __init__(self) -> None:
        self.deadline = Deadline()
        self.passages_so_far: list[str] = []

    def rerank(self, query: str, passages: Sequence[str]) -> Generator[float]:
        """Score each passage, as a cross-encoder does."""
        for passage in passages:
            self._work_on(passage)
            yield 1.0

    def query_embed(self, query: str) -> Generator[np.ndarray]:
        """Give a query two tokens."""
        yield np.eye(2)

    def embed(self, passages: Sequence[str]) -> Generator[np.ndarray]:
        """Give each passage two tokens, as a model of late interaction does."""
        for passage in passages:
            self._work_on(passage)
            yield np.eye(2)

    def _work_on(self, passage: str) -> None:
        self.passages_so_far.append(passage)
        self.deadline.cancel()


def test_a_cross_encoder_stops_after_the_passage_during_which_the_deadline_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = CancellingModel()
    cross_encoder = FakeModelClass("m/cross", rerank=model.rerank)
    use_fake_fastembed(monkeypatch, cross_encoder=cross_encoder)

    with call_context(deadline=model.deadline), pytest.raises(AbandonedCallError):
        FastEmbedReranker("m/cross").scores("y", [["x"], ["y"], ["z"]], weights={})

    assert model.passages_so_far == ["x"]


def test_a_late_interaction_model_stops_after_the_passage_during_which_the_deadline_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = CancellingModel()
    late_interaction = FakeModelClass("m/late", query_embed=model.query_embed, embed=model.embed)
    use_fake_fastembed(monkeypatch, late_interaction=late_interaction)

    with call_context(deadline=model.deadline), pytest.raises(AbandonedCallError):
        FastEmbedReranker("m/late").scores("y", [["x"], ["y"], ["z"]], weights={})

    assert model.passages_so_far == ["x"]


# The package fastembed itself, with tiny networks in the place of downloaded ones.


def write_model_for_fastembed(folder: Path, onnx_file: Path, file_name: str) -> None:
    """Write the files of a model into a folder, as fastembed finds them in its cache."""
    folder.mkdir()
    (folder / file_name).write_bytes(onnx_file.read_bytes())
    special_tokens = {"pad_token": "[UNK]", "mask_token": "[MASK]"}
    configs = {
        "special_tokens_map.json": special_tokens,
        "tokenizer_config.json": {**special_tokens, "model_max_length": 64},
        "config.json": {"pad_token_id": 0},
    }
    for name, config in configs.items():
        (folder / name).write_text(json.dumps(config))
    # Late interaction needs a token for masks; "?" is in none of the texts.
    (folder / "tokenizer.json").write_text(tokenizer_json().replace('"?"', '"[MASK]"'))


@pytest.fixture
def fastembed_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of the package fastembed, which must be installed."""
    pytest.importorskip("fastembed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    return tmp_path


def sum_of_places(text: str) -> int:
    """Return the sum of the places of a text's words in the vocabulary."""
    return sum(WORDS.index(word) for word in text.split())


def test_a_cross_encoder_of_the_package_fastembed_ranks_texts(fastembed_cache: Path) -> None:
    from fastembed.common.model_description import ModelSource  # pyright: ignore[reportMissingImports]
    from fastembed.rerank.cross_encoder import TextCrossEncoder  # pyright: ignore[reportMissingImports]

    # This network sums up the places in `WORDS` of all words of the query and of the passage.
    write_model_for_fastembed(fastembed_cache / "cross", DATA / "cross.onnx", "model.onnx")
    source = ModelSource(url="https://nowhere/cross.tar.gz")
    TextCrossEncoder.add_custom_model("t/cross", source, model_file="model.onnx")

    passages_of_texts = [["bob moved to oslo"], ["jazz", "ann likes jazz"], ["jazz"]]

    reranker = FastEmbedReranker("t/cross")
    scores = reranker.scores("ann likes jazz", passages_of_texts, weights={})

    query_sum = sum_of_places("ann likes jazz")
    expected_scores = [
        query_sum + sum_of_places("bob moved to oslo"),
        query_sum + sum_of_places("ann likes jazz"),  # the better passage of the second text
        query_sum + sum_of_places("jazz"),
    ]
    assert scores.tolist() == pytest.approx(expected_scores, abs=0.001)


def test_a_late_interaction_model_of_the_package_fastembed_ranks_texts(
    fastembed_cache: Path,
) -> None:
    """The second text has a passage with all words of the query, so it scores highest.

    The exact scores are those that were measured once.
    """
    folder = fastembed_cache / "answerai-colbert-small-v1"
    write_model_for_fastembed(folder, DATA / "late.onnx", "vespa_colbert.onnx")

    passages_of_texts = [["bob moved to oslo"], ["jazz", "ann likes jazz"], ["jazz"]]

    reranker = FastEmbedReranker("answerdotai/answerai-colbert-small-v1")
    scores = reranker.scores("ann likes jazz", passages_of_texts, weights={})

    assert scores.tolist() == pytest.approx([62.018, 62.797, 59.005], abs=0.001)
