"""What a searchable memory is: entries go in, ranked hits with their provenance come out.

    entries ── add / remove ──> Index ── search(queries, k, min_score, where) ──> hits per query
                                  ├── SparseIndex   BM25 over stems        (memory/sparse.py)
                                  ├── DenseIndex    cosine of embeddings   (memory/dense.py)
                                  └── HybridIndex   the sum of both        (memory/hybrid.py)

Every index keeps its entries in the order in which their ids were first added; replacing an entry keeps its place.
Hits come best first and equal scores keep that order, so that the same calls always give the same hits. An index is a
folder on disk: `index.json` (kind, settings and the sha256 of the other files), `entries.json`, and for one with
embeddings `vectors.npy`, for words alone `postings.npz`. Nothing in it is a pickle.

Limits: the digests find files that were altered or cut short by accident; they are no authentication. Saving over
an older index replaces its files one by one: a crash in the middle is found when loading, not repaired.
"""

from __future__ import annotations

import contextvars
import gc
import hashlib
import json
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from ..errors import DataError, UserError
from ..records import Hit, Record, read_json

SCHEMA = 1
"""Version of the folder that `save_folder` writes."""

MANIFEST = "index.json"
ENTRIES = "entries.json"
DIALOGUE = "dialogue"
"""The tag of an entry that is a turn: entries with an equal one are the turns of one dialogue, in their order."""
LABEL = "label"
"""The tag that is shown before an entry's text and not searched, e.g. the type of a fact."""

Where = Callable[["Entry"], bool]
"""A filter: only entries for which it is true are searched."""


class Entry(Record):
    """One thing to search for."""

    id: str
    """Unique within its index."""
    text: str
    kind: str = "entry"
    """What it is; see `records.Hit.kind`."""
    sources: tuple[str, ...] = ()
    """Ids of the turns the entry rests on."""
    time: datetime | None = None
    speaker: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    """Free labels that filters look at, e.g. {"layer": "concept"}; `DIALOGUE` names the dialogue of a turn."""

    @property
    def dialogue(self) -> str:
        """The dialogue it is a turn of; "" for anything else. Sparse search lets the turns of one lend their scores."""
        return self.tags.get(DIALOGUE, "")

    def hit(self, score: float = 0.0) -> Hit:
        """The entry as a search result."""
        return Hit(
            id=self.id,
            text=self.text,
            kind=self.kind,
            score=score,
            sources=self.sources,
            time=self.time,
            speaker=self.speaker,
            label=self.tags.get(LABEL, ""),
        )


def entry_of(hit: Hit) -> Entry:
    """What a hit is, as a thing to search for."""
    tags = {LABEL: hit.label} if hit.label else {}
    about = {"kind": hit.kind, "sources": hit.sources, "time": hit.time, "speaker": hit.speaker}
    return Entry.model_validate({"id": hit.id, "text": hit.text, "tags": tags, **about})


@runtime_checkable
class Embedder(Protocol):
    """What a dense index needs to know of an embedder; `engines.embedders` has implementations."""

    @property
    def name(self) -> str:
        """Names the vectors: two embedders of one name give the same ones."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector; 0 until the endpoint has returned one."""
        ...

    @property
    def unrelated(self) -> tuple[float, float] | None:
        """Mean and standard deviation of the cosine of two unrelated texts; None if it was not measured."""
        ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts as float32 of shape [len(texts), dimension]; rows have length 1, or 0 for a text without words.

        Raises:
            EndpointError: The model cannot be reached.
        """
        ...


@runtime_checkable
class QueryEmbedder(Embedder, Protocol):
    """An embedder that tells what is searched for from what is searched; an `Embedder` embeds both alike."""

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds queries; shape and errors as of `embed`."""
        ...


def query_vectors(embedder: Embedder, queries: Sequence[str]) -> np.ndarray:
    """The vectors of queries, by an embedder that tells them from what is searched or by one that does not."""
    name, known = _at_hand.get()
    if queries and name == embedder.name and all(query in known for query in queries):
        return np.stack([known[query] for query in queries])
    return embedder.embed_queries(queries) if isinstance(embedder, QueryEmbedder) else embedder.embed(queries)


_at_hand: contextvars.ContextVar[tuple[str, Mapping[str, np.ndarray]]] = contextvars.ContextVar(
    "mempiler_queries", default=("", {})
)
"""The name of an embedder, and its vectors of queries."""


@contextmanager
def searching_for(embedder: Embedder, queries: Sequence[str]) -> Generator[None]:
    """Embeds queries with one call; searches for them in the block ask the embedder no more."""
    distinct = list(dict.fromkeys(queries))
    vectors = query_vectors(embedder, distinct) if distinct else ()
    token = _at_hand.set((embedder.name, dict(zip(distinct, vectors, strict=True))))
    try:
        yield
    finally:
        _at_hand.reset(token)


class Searchable(Protocol):
    """What can be searched by text."""

    def search(
        self, queries: Sequence[str], k: int, min_score: float = -math.inf, where: Where | None = None
    ) -> list[list[Hit]]:
        """Finds the k best entries for each query; see `Index.search`."""
        ...


@runtime_checkable
class Index(Protocol):
    """Entries that can be searched by text. Every method may be called from many threads at once."""

    @property
    def kind(self) -> str:
        """Which of the three: "sparse", "dense" or "hybrid"."""
        ...

    def add(self, entries: Iterable[Entry]) -> None:
        """Adds entries; one whose id is known replaces the old one."""
        ...

    def remove(self, ids: Iterable[str]) -> None:
        """Takes entries out; unknown ids are passed over."""
        ...

    def search(
        self, queries: Sequence[str], k: int, min_score: float = -math.inf, where: Where | None = None
    ) -> list[list[Hit]]:
        """Finds the k best entries for each query.

        Args:
            queries: What to look for; a query without words finds nothing.
            k: The most hits per query.
            min_score: Hits that score lower are left out; of a `HybridIndex`, whose scores are no cosines, those with a
                lower cosine.
            where: A pure filter of entries; the k best *of those* are found.

        Returns:
            One list of hits per query, best first, equal scores in the order of `ids`.

        Raises:
            UserError: k is negative, or `queries` is a string instead of a list of them.
        """
        ...

    def __len__(self) -> int:
        """The number of entries."""
        ...

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all entries, in order of first addition."""
        ...

    def save(self, folder: str | Path) -> None:
        """Writes the index to a folder.

        Raises:
            DataError: The folder cannot be written.
        """
        ...

    @classmethod
    def load(cls, folder: str | Path, embedder: Embedder | None = None) -> Self:
        """Reads an index that `save` wrote; one with embeddings needs the embedder that made it.

        Raises:
            DataError: A file is missing, altered or of another kind.
            ProgramError: The embedder is not the one the index was made with.
        """
        ...


def check_search(queries: Sequence[str], k: int) -> None:
    """Refuses the arguments of `Index.search` that can only be slips.

    Raises:
        UserError: k is negative, or `queries` is one string.
    """
    if isinstance(queries, str):
        raise UserError(f"search takes a list of queries, got the string {queries!r:.80}; put it in a list")
    if k < 0:
        raise UserError(f"search for k={k} hits; k must be 0 or more")


def save_folder(
    folder: str | Path, kind: str, entries: Sequence[Entry], about: Mapping[str, Any], files: Mapping[str, bytes]
) -> None:
    """Writes an index folder: entries, further files, and the manifest last, each moved into place when complete.

    Args:
        folder: Where to; made if missing.
        kind: "sparse", "dense" or "hybrid"; `load_folder` insists on it.
        entries: All entries, in order.
        about: Settings that the manifest keeps.
        files: Contents of further files by name.

    Raises:
        DataError: The folder cannot be written.
    """
    folder = Path(folder)
    contents = {ENTRIES: TypeAdapter(list[Entry]).dump_json(list(entries), indent=1), **files}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    manifest = {"schema": SCHEMA, "kind": kind, "about": dict(about), "sha256": digests}
    contents[MANIFEST] = json.dumps(manifest, indent=1).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            part = folder / f"{name}.part"
            part.write_bytes(content)
            part.replace(folder / name)
    except OSError as error:
        raise DataError(f"{folder}: cannot save the index here: {error.strerror}") from error


def load_folder(
    folder: str | Path, kind: str, names: Sequence[str] = (), more: Sequence[str] = ()
) -> tuple[list[Entry], dict[str, Any], dict[str, bytes]]:
    """Reads and verifies what `save_folder` wrote.

    Args:
        folder: The index folder.
        kind: The kind it has to be.
        names: The further files it has to hold.
        more: Files that it may hold.

    Returns:
        The entries, the settings, and the contents of the further files by name.

    Raises:
        DataError: A file is missing, altered, or of another kind or schema.
    """
    folder = Path(folder)
    found: JsonValue = read_json(folder / MANIFEST)
    manifest: dict[str, JsonValue] = found if isinstance(found, dict) else {}
    about, digests = manifest.get("about"), manifest.get("sha256")
    if not isinstance(about, dict) or not isinstance(digests, dict):
        raise DataError(f"{folder / MANIFEST}: not the manifest of an index; point to a folder that save() wrote")
    if manifest.get("schema") != SCHEMA:
        raise DataError(f"{folder / MANIFEST}: schema {manifest.get('schema')!r}, this version reads {SCHEMA}; rebuild")
    if manifest.get("kind") != kind:
        raise DataError(f"{folder}: holds a {manifest.get('kind')} index, not a {kind} one; load it as what it is")
    contents = {
        name: _verified(folder / name, digests.get(name)) for name in (ENTRIES, *names, *sorted({*more} & {*digests}))
    }
    try:
        with _collector_paused():
            entries = TypeAdapter(list[Entry]).validate_json(contents.pop(ENTRIES))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{folder / ENTRIES}: {where}: {first['msg']}; rebuild the index") from error
    if len({entry.id for entry in entries}) != len(entries):
        raise DataError(f"{folder / ENTRIES}: two entries have the same id; rebuild the index")
    return entries, about, contents


@contextmanager
def _collector_paused() -> Generator[None]:
    """Many objects are made that all stay: looking for cycles among them took three quarters of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Who found it paused by another thread leaves it to that one.
        if was_on:
            gc.enable()


def _verified(path: Path, digest: object) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; rebuild the index") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError(f"{path}: is not as it was saved (sha256 differs); restore it or rebuild the index")
    return content
