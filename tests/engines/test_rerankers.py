"""Rerankers: tokens of a tiny encoder, and a cross-encoder and a late interaction model of fastembed's, made here."""

import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.engines.encoder import WIDTH, Encoded, _projection
from mempiler.engines.rerankers import TokenMatch
from mempiler.engines.vectors import VectorFile
from mempiler.errors import EndpointError, MissingDependencyError, UserError
from mempiler.memory.index import DIALOGUE, Entry, Index

from tests.engines.tiny_encoder import TABLE, WORDS


def test_tokens_come_with_the_vector_and_do_not_depend_on_the_batch(asked: list[str], monkeypatch: Any) -> None:
    texts = ["Ann moved to Lisbon", "jazz", "Bob likes jazz in Oslo with friends"]
    found = embedder("minilm")
    found.embed(texts)
    together = found.tokens([*texts, " "])
    assert sorted(asked) == sorted(texts)
    rows = TABLE[[WORDS.index(word) for word in texts[0].lower().split()]]
    assert np.array_equal(together[0], np.round(127 * rows / np.linalg.norm(rows, axis=1, keepdims=True)))
    assert len(together[3]) == 0
    monkeypatch.setattr(VectorFile, "read", lambda self, keys: {})
    assert all(
        np.array_equal(embedder("minilm").tokens([text])[0], rows)
        for text, rows in zip(texts, together[:3], strict=True)
    )
    assert np.array_equal(embedder("minilm").embed(texts[1:2])[0], found.embed(texts)[1])


def test_wide_tokens_are_projected_without_losing_their_angles() -> None:
    rows = np.random.default_rng(3).standard_normal((2, 384)).astype(np.float32)
    assert np.array_equal(_projection(WIDTH), np.eye(WIDTH))
    assert _projection(384).shape == (384, WIDTH)
    near = rows[0] + 0.3 * rows[1]
    a, b = rows[0] @ _projection(384), near @ _projection(384)
    assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.9


def test_words_of_a_query_are_those_of_its_tokens(tiny: Path) -> None:
    assert embedder("minilm").query_tokens("Where does Ann live?")[1] == ["Where", "does", "Ann", "live", "?"]
    assert embedder("e5").query_tokens("Oslo jazz")[1] == ["", "", "Oslo", "jazz"]
    assert embedder("minilm").query_tokens(" ")[1] == []


class Rows:
    """Tokens of one number each: a letter is its place in the alphabet as a direction."""

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array([self._row(sign) for sign in text], np.int8).reshape(-1, 26) for text in texts]

    def query_tokens(self, query: str) -> tuple[np.ndarray, list[str]]:
        return self.tokens([query])[0], list(query)

    def _row(self, sign: str) -> list[int]:
        return [127 * (sign == chr(97 + n)) for n in range(26)]


def test_token_match_sums_the_weights_of_what_the_best_passage_holds() -> None:
    texts = [["ab"], ["a"], ["b", "ab"], ["xyz"], [""], ["c", "a"]]
    found = TokenMatch(Rows()).scores("abz", texts, {"a": 2.0, "b": 0.5, "z": 0.0}.__getitem__)
    assert found.tolist() == pytest.approx([2.5, 2, 2.5, 0, 0, 2])
    assert not TokenMatch(Rows()).scores("", texts, lambda word: 1.0).any()


def test_what_the_length_of_long_texts_explains_counts_nothing() -> None:
    long, longer = "c" * 200 + "a", "c" * 800 + "ab"
    found = TokenMatch(Rows()).scores("ab", [["c"], [long], [longer]], lambda word: 1.0)
    assert np.ptp(found) < 0.5
    short = TokenMatch(Rows()).scores("ab", [["c"], ["cca"], ["cccccab"]], lambda word: 1.0)
    assert short.tolist() == pytest.approx([0, 1, 2])


def test_an_index_ranks_by_tokens_where_its_embedder_has_some(tiny: Path) -> None:
    entries = [Entry(id=str(n), text=text) for n, text in enumerate(["Ann likes jazz", "Bob saw Oslo", "jazz in Oslo"])]
    index = Index(embedder("minilm"), hybrid=True)
    index.add(entries)
    assert index.search(["Who likes jazz?"], 3)[0][0].id == "0"


def test_rerankers_by_name(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert embedder().reranker is None
    assert embedder("minilm").reranker.name == "tokens"
    assert embedder("minilm", reranker="none").reranker is None
    assert embedder("minilm", reranker="fastembed:x/y").reranker.name == "fastembed:x/y"
    assert embedder("openai/text-embedding-3-small").reranker is None
    for name, reranker, told in [
        ("openai/e", "tokens", "needs an embedder such as minilm"),
        ("offline", "fastembed:x", "needs an embedder such as minilm"),
        ("minilm", "colbert", "needs none, tokens or fastembed:NAME"),
    ]:
        with pytest.raises(UserError, match=told):
            embedder(name, reranker=reranker)
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(MissingDependencyError, match="rerank"):
        embedder("fastembed:x").embed(["Oslo"])


class Fake:
    """What of fastembed is called."""

    def __init__(self, name: str) -> None:
        if "broken" in name:
            raise ValueError("Could not load model from any source.")

    @classmethod
    def list_supported_models(cls) -> list[dict[str, Any]]:
        return [{"model": name} for name in cls.models]

    models: tuple[str, ...] = ()


class Vectors(Fake):
    models = ("m/vectors", "m/broken")

    def embed(self, texts: list[str], batch_size: int) -> Any:
        return (np.array([1.0, len(text)]) for text in texts)


class Cross(Fake):
    models = ("m/cross",)

    def rerank(self, query: str, texts: list[str]) -> Any:
        return (float(text.count(query)) for text in texts)


class Late(Fake):
    models = ("m/late",)

    def query_embed(self, query: str) -> Any:
        return iter([np.eye(2)])

    def embed(self, texts: list[str]) -> Any:
        return (np.array([[text.count("x"), text.count("y")]] * 3) for text in texts)


@pytest.fixture
def fastembed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {name: ModuleType(name) for name in ("fastembed", "fastembed.rerank")}
    cross: Any = ModuleType("fastembed.rerank.cross_encoder")
    made["fastembed"].TextEmbedding, made["fastembed"].LateInteractionTextEmbedding = Vectors, Late
    cross.TextCrossEncoder = Cross
    for name, module in {**made, cross.__name__: cross}.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_models_of_fastembed_embed_and_rank(fastembed: None, tiny: Path) -> None:
    assert embedder("fastembed:m/vectors").embed(["x", "xyz"])[1] == pytest.approx(np.array([1, 3]) / 10**0.5)
    texts = [["x", "yyx"], ["y"], ["xx"]]
    ranks = [embedder("minilm", reranker=f"fastembed:m/{kind}").reranker for kind in ("cross", "late")]
    assert ranks[0].scores("y", texts, len).tolist() == [2, 1, 0]
    assert ranks[1].scores("y", texts, len).tolist() == [3, 1, 2]
    with pytest.raises(UserError, match="fastembed has no TextCrossEncoder 'm/none'"):
        embedder("minilm", reranker="fastembed:m/none").reranker.scores("y", texts, len)
    with pytest.raises(EndpointError, match="fastembed cannot load m/broken: Could not load"):
        embedder("fastembed:m/broken").embed(["x"])


class Drawn:
    """Stands for an encoder, whose pass of a query costs as much as all else at 600 turns."""

    def __call__(self, texts: Sequence[str]) -> list[Encoded]:
        draw = np.random.default_rng(len(texts))
        rows = [draw.integers(-40, 40, (len(text.split()), WIDTH), np.int8) for text in texts]
        return [Encoded(draw.standard_normal(384, np.float32), tokens) for tokens in rows]

    def words(self, text: str, start: int = 0) -> list[str]:
        return text.split()


@pytest.mark.slow
def test_a_query_of_twenty_times_the_turns_costs_four_times_as_much_at_most() -> None:
    encoder: Any = Drawn()
    draw, costs, shares = np.random.default_rng(1), dict[int, float](), 1 / np.arange(1, 5001)
    queries = [f"What did Ann say of {' '.join(f'w{n}' for n in draw.choice(5000, 6))} in May 2023?" for _ in range(40)]
    for size in (600, 12_000):
        made = TextEmbedder("drawn", encoder, 384, encoder=encoder)
        made.reranker = TokenMatch(made)
        index, drawn = Index(made, hybrid=True), draw.choice(5000, (size, 25), p=shares / shares.sum())
        entries = list[Entry]()
        for n, row in enumerate(drawn):
            text, said = " ".join(f"w{word}" for word in row), datetime(2023, 1 + n * 11 // size, 1)
            entries.append(Entry(id=str(n), text=text, speaker="AB"[n % 2], time=said, tags={DIALOGUE: str(n // 20)}))
        index.add(entries)
        index.search(queries, 10)
        taken = list[float]()
        for query in queries:
            begun = time.process_time()
            index.search([query], 10)
            taken.append(time.process_time() - begun)
        costs[size] = sorted(taken)[len(taken) // 4]
    assert costs[12_000] <= 4 * costs[600]


def test_a_saved_program_ranks_as_it_was_made_and_loads_nothing_from_afar(tiny: Path, tmp_path: Path) -> None:
    from mempiler.programs.catalog import build
    from mempiler.runs.artifact import load, save

    def loaded(reranker: str | None) -> Any:
        save(build("turn-rag", embedder=embedder("minilm", reranker=reranker)), tmp_path / f"program {reranker}")
        made: Any = load(tmp_path / f"program {reranker}").method.embedder
        return getattr(made.reranker, "name", None)

    assert (loaded(None), loaded("none")) == ("tokens", None)
    with pytest.raises(UserError, match="fastembed:x/y: was made with --reranker fastembed:x/y; give that"):
        loaded("fastembed:x/y")
