import json

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.errors import DataError, ProgramError
from mempiler.memory.dense import DenseIndex
from mempiler.memory.index import Entry
from mempiler.memory.sparse import SparseIndex

ENTRIES = [
    Entry(id="f1", text="Ann moved to Lisbon", sources=("D1:3",), time="2023-05-08T13:56:00", speaker="Ann"),
    Entry(id="f2", text="她在北京的大学教书", tags={"kind": "fact"}),
    Entry(id="f3", text=""),
    Entry(id="f4", text="Bob likes jazz, Lisbon and “quotes”\nand lines"),
]
QUERIES = ["Who moved to Lisbon?", "北京", "jazz", ""]
MAKERS = {"sparse": SparseIndex, "dense": lambda: DenseIndex(embedder())}
LOADERS = {"sparse": SparseIndex.load, "dense": lambda folder: DenseIndex.load(folder, embedder())}
KINDS = pytest.mark.parametrize("kind", ["sparse", "dense"])


def saved(kind, folder, entries=ENTRIES):
    index = MAKERS[kind]()
    index.add(entries)
    index.save(folder)
    return index


@KINDS
@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_loaded_index_answers_as_the_saved_one(kind, count, tmp_path):
    index = saved(kind, tmp_path / "new" / "index", ENTRIES[:count])
    loaded = LOADERS[kind](tmp_path / "new" / "index")
    assert loaded.ids == index.ids
    assert loaded.search(QUERIES, k=4) == index.search(QUERIES, k=4)


@KINDS
def test_tags_survive_and_a_loaded_index_can_be_changed(kind, tmp_path):
    saved(kind, tmp_path)
    loaded = LOADERS[kind](tmp_path)
    loaded.remove(["f1"])
    loaded.add([Entry(id="f5", text="Lisbon again"), Entry(id="f4", text="Lisbon too")])
    assert loaded.ids == ("f2", "f3", "f4", "f5")
    assert {hit.id for hit in loaded.search(["Lisbon"], k=9, min_score=0.01)[0]} == {"f4", "f5"}
    assert [hit.id for hit in loaded.search(["北京"], k=9, where=lambda entry: "kind" in entry.tags)[0]] == ["f2"]


@KINDS
def test_an_index_with_holes_is_saved_in_order(kind, tmp_path):
    index = saved(kind, tmp_path)
    index.remove(["f2"])
    index.add([Entry(id="f1", text="Ann moved to Lisbon"), ENTRIES[1]])
    index.save(tmp_path)
    loaded = LOADERS[kind](tmp_path)
    assert loaded.ids == ("f1", "f3", "f4", "f2")
    assert loaded.search(QUERIES, k=4) == index.search(QUERIES, k=4)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("sparse", "index.json"),
        ("sparse", "entries.json"),
        ("dense", "index.json"),
        ("dense", "entries.json"),
        ("dense", "vectors.npy"),
    ],
)
@pytest.mark.parametrize("harm", ["missing", "altered", "cut", "emptied"])
def test_a_harmed_file_is_named_in_one_line(kind, name, harm, tmp_path):
    saved(kind, tmp_path)
    path = tmp_path / name
    content = path.read_bytes()
    harmed = {"altered": b"[" + content[1:-1] + b"!", "cut": content[: len(content) // 2], "emptied": b""}
    path.unlink() if harm == "missing" else path.write_bytes(harmed[harm])
    with pytest.raises(DataError, match=name.replace(".", r"\.")) as caught:
        LOADERS[kind](tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, "schema 99, this version reads 1"),
        ({"kind": "other"}, "holds a other index, not a sparse one"),
        ({"about": None}, "not the manifest of an index"),
        ({"sha256": {}}, "sha256 differs"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(change, message, tmp_path):
    saved("sparse", tmp_path)
    manifest = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps(manifest | change))
    with pytest.raises(DataError, match=message):
        SparseIndex.load(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '"text"',
        "not json",
    ],
)
def test_a_foreign_index_json_is_refused(content, tmp_path):
    (tmp_path / "index.json").write_text(content)
    with pytest.raises(DataError, match=r"index\.json"):
        SparseIndex.load(tmp_path)


def test_each_kind_refuses_the_folder_of_the_other(tmp_path):
    saved("sparse", tmp_path / "sparse")
    saved("dense", tmp_path / "dense")
    with pytest.raises(DataError, match="holds a dense index"):
        SparseIndex.load(tmp_path / "dense")
    with pytest.raises(DataError, match="holds a sparse index"):
        DenseIndex.load(tmp_path / "sparse", embedder())


def test_a_dense_index_wants_the_embedder_it_was_made_with(tmp_path):
    saved("dense", tmp_path)
    other = TextEmbedder("other", lambda texts: np.ones((len(texts), 384)), 384)
    smaller = TextEmbedder("offline", lambda texts: np.ones((len(texts), 8)), 8)
    for given, message in [(other, "'offline', got 'other'"), (None, "no embedder"), (smaller, "384.*now 8")]:
        with pytest.raises(ProgramError, match=message) as caught:
            DenseIndex.load(tmp_path, given)
        assert "rebuild" in str(caught.value)


def test_an_embedder_whose_dimension_is_not_known_yet_is_checked_when_it_is(tmp_path):
    saved("dense", tmp_path)
    late = TextEmbedder("offline", lambda texts: np.ones((len(texts), 8)))
    loaded = DenseIndex.load(tmp_path, late)
    with pytest.raises(ProgramError, match="gives 8 numbers a text, the index holds 384"):
        loaded.search(["jazz"], k=1)


def test_loading_embeds_nothing(tmp_path):
    def compute(texts):
        raise AssertionError("the vectors are in the folder")

    saved("dense", tmp_path)
    assert len(DenseIndex.load(tmp_path, TextEmbedder("offline", compute, 384))) == 4


@KINDS
def test_a_place_that_cannot_be_written_is_named(kind, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot save the index here"):
        saved(kind, tmp_path / "file")


@KINDS
def test_a_folder_holds_no_pickle(kind, tmp_path):
    saved(kind, tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} <= {".json", ".npy", ".npz"}
    for path in tmp_path.glob("*.npz"):
        with np.load(path, allow_pickle=False) as arrays:
            assert all(arrays[name].dtype != object for name in arrays)
    for path in tmp_path.glob("*.npy"):
        assert np.load(path, allow_pickle=False).dtype == np.float32
