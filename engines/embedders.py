"""Embedders by name: hashed spelling, models that run here, and endpoints; all rows have length 1.

Example:
    >>> from mempiler.engines.embedders import embedder
    >>> a, b, c = embedder().embed(["Ann moved to Lisbon", "When did Ann move?", "Bob likes jazz"])
    >>> bool(a @ b > a @ c)
    True
"""

from __future__ import annotations

import functools
import importlib.metadata
import mmap
import os
import re
import threading
import zlib
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from cachetools import LRUCache

from ..async_bridge import off_loop
from ..errors import DataError, EndpointError, UserError
from ..records.normalize import normalize_text
from ..records.shared_by_copies import SharedByCopies
from ..validation import check_address
from .encoder import Encoded, Encoder
from .endpoint.address import address_in_environment, normal_address
from .endpoint.embeddings import EndpointEmbedding
from .file_digests import remembered_digest
from .rerankers import TOKENS, FastEmbed, FastEmbedVectors, TokenMatch
from .vectors import CachedVectors
from .weights import installed_weights, verify

OFFLINE = "offline"
"""Its name. Saved indexes rely on its vectors: change them only together with the name."""
DIMENSION = 384

_WORDS = """
a about also am an and are as at be been being but by can could d did do does for from had has have he her hers him his
how i if in into is it its just ll m may me my no not of on or our re s she should so t than that the their them then
there these they this those to too us ve very was we were what when where which who whom whose why will with would you
your
"""
# A list of its own, not that of memory.search.tokens: improving one kind of search must not change the vectors stored for the
# other.
_FUNCTION_WORDS = frozenset(_WORDS.split())
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_RUN = re.compile(rf"(?P<han>[{_HAN}]+)|[^\W_{_HAN}]+")
_LONGEST = 64
"""Characters of a word that count; longer ones are keys and links, not words."""
Compute = Callable[[Sequence[str]], "np.ndarray | Sequence[Encoded]"]
"""Embeds distinct texts, none of them blank, as [n, dimension], or with their tokens."""
ROOM = 128_000_000
"""Bytes of vectors and tokens that an embedder holds in memory, at most."""


MODELS = {"minilm": (256, "", ""), "e5": (512, "query: ", "passage: ")}
"""Models that run in this process: most tokens of a text, what a query begins with, and what is searched.

Both find as much beside BM25, and MiniLM takes a third of the time. Alone E5 finds more, in any language.
"""
IN_PROCESS = (OFFLINE, *MODELS)
"""Embedders that send nothing anywhere."""
ONNX, FASTEMBED = "onnx:", "fastembed:"
"""What the name of a folder with an ONNX file begins with, and that of a model of fastembed's list."""
NO_RERANKER = "none"


class TextEmbedder(SharedByCopies):
    """An embedder with a cache in memory; make one with `embedder`.

    Args:
        name: What its vectors are known by.
        compute: Turns distinct texts, none of them blank, into vectors; their length need not be 1.
        dimension: Length of a vector; 0 if only the first answer will tell.
        kept: Keeps vectors from one process to the next; None for those that cost too little.
        query: What a query begins with, and what a passage begins with, for models that tell them apart.
        passage: See `query`.
    """

    reranker: Any = None
    """Ranks the first hits of a search by words and vectors again; None leaves them."""

    def __init__(
        self,
        name: str,
        compute: Compute,
        dimension: int = 0,
        kept: CachedVectors | None = None,
        query: str = "",
        passage: str = "",
    ) -> None:
        self.name = name
        self.dimension = dimension
        self._compute = compute
        self._kept = kept
        self.query, self.passage = query, passage
        self.account = compute if isinstance(compute, EndpointEmbedding) else None
        """Counts what an endpoint takes; None where there is none."""
        self.encoder: Encoder | None = compute if isinstance(compute, Encoder) else None
        """What knows of tokens; None where vectors are all that is made."""
        self._cache: LRUCache[str, Encoded] = LRUCache(ROOM, _bytes)
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts.

        Args:
            texts: Any texts; blank ones become rows of zeros.

        Returns:
            float32 of shape [len(texts), dimension], each row of length 1, or 0 where the text has no words. The array
            is the caller's own.

        Raises:
            EndpointError: The endpoint cannot be reached or answers nonsense.
            UserError: The key is missing or refused, or `texts` is a string instead of a list of them.
        """
        return self.embed_as_given(_begun(texts, self.passage))

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds what is searched for, as `embed` does what is searched: some models tell the two apart."""
        return self.embed_as_given(_begun(texts, self.query), queries=True)

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The tokens of texts, each int8 [tokens, width]; from the same pass as their vectors."""
        given, nothing = _begun(texts, self.passage), np.zeros((0, 1), np.int8)
        rows = self._encoded(given, False)
        return [rows[text].tokens if text in rows else nothing for text in given]

    def query_tokens(self, query: str) -> tuple[np.ndarray, list[str]]:
        """The tokens of a query, and the word that each is a part of."""
        text = self.query + query
        rows = self._encoded([text], True)
        if self.encoder is None or text not in rows:
            return np.zeros((0, 1), np.int8), []
        return rows[text].tokens, self.encoder.words(text, len(self.query))

    def check(self) -> None:
        """Refuse an embedder or a reranker that could not be asked, before anything is paid for.

        Raises:
            UserError: There is no such model, or its key is not set.
            EndpointError: Its server cannot be reached.
            MissingDependencyError: A package that it needs is not installed.
        """
        for part in (self._compute, self.reranker):
            if isinstance(part, EndpointEmbedding | FastEmbedVectors | FastEmbed):
                part.check()

    def clear(self) -> None:
        """Drops the texts that this process has seen so far, and their words: a forgotten user's may be among them."""
        with self._lock:
            self._cache.clear()
        if self.encoder is not None:
            self.encoder.clear()
        _features.cache_clear()

    def embed_as_given(self, texts: Sequence[str], queries: bool = False) -> np.ndarray:
        """Embeds texts that begin as a query or a passage already; otherwise as `embed`."""
        if isinstance(texts, str):
            raise UserError(f"embed takes a list of texts, got the string {texts!r:.80}; put it in a list")
        rows = self._encoded(texts, queries)
        if texts and not self.dimension:
            self._learned(["dimension"], {}, queries=True)
        nothing = np.zeros(self.dimension, dtype=np.float32)
        vectors = [rows[text].vector if text in rows else nothing for text in texts]
        return np.stack(vectors) if vectors else np.zeros((0, self.dimension), dtype=np.float32)

    def _encoded(self, texts: Sequence[str], queries: bool) -> dict[str, Encoded]:
        """What is known of the texts that are not blank; in bridged code a thread computes it."""
        return off_loop(functools.partial(self._encoded_here, texts, queries))

    def _encoded_here(self, texts: Sequence[str], queries: bool) -> dict[str, Encoded]:
        with self._lock:
            rows = {text: self._cache[text] for text in texts if text in self._cache}
        missing = [text for text in dict.fromkeys(texts) if text not in rows and text.strip()]
        new = self._learned(missing, rows, queries)
        if self._kept is not None:
            self._kept.write(rows, new, queries)
        return rows

    def _learned(self, texts: list[str], rows: dict[str, Encoded], queries: bool) -> list[str]:
        """Puts the vectors of texts that this process does not know to the others; returns those it had to compute."""
        if not texts:
            return []
        found = self._kept.read(texts, queries) if self._kept is not None else {}
        # Of another length are those of another model that answered under this name.
        found = {text: row for text, row in found.items() if self.dimension in (0, len(row.vector))}
        new = [text for text in texts if text not in found]
        if new:
            found |= self._computed(new)
        if len({len(row.vector) for row in found.values()}) > 1:
            new, found = texts, self._computed(texts)
        rows.update(found)
        with self._lock:
            self.dimension = len(found[texts[0]].vector)
            self._cache.update(found)
        return new

    def _computed(self, texts: list[str]) -> dict[str, Encoded]:
        made = self._compute(texts)
        plain = isinstance(made, np.ndarray)
        vectors = np.asarray(made if plain else [each.vector for each in made], dtype=np.float32)
        fits = vectors.ndim == 2 and len(vectors) == len(texts) and self.dimension in (0, vectors.shape[1])
        if not fits or not np.isfinite(vectors).all():
            wanted = f"({len(texts)}, {self.dimension or 'any'})"
            raise EndpointError(f"embedder {self.name!r} answered {vectors.shape} numbers, expected finite {wanted}")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.where(lengths > 0, lengths, 1)
        tokens = [np.zeros((0, 1), np.int8)] * len(texts) if plain else [each.tokens for each in made]
        return {text: Encoded(row.copy(), of) for text, row, of in zip(texts, vectors, tokens, strict=True)}


def _bytes(encoded: Encoded) -> int:
    return encoded.vector.nbytes + encoded.tokens.nbytes


def embedder(name: str = OFFLINE, api_base: str | None = None, reranker: str | None = None) -> TextEmbedder:
    """Makes an embedder by name; calls start with the first text.

    Args:
        name: "offline"; "minilm" or "e5"; "onnx:" and a folder; "fastembed:" and a model of its list; a model of the
            server at `api_base`; "openai/<model>"; or any embedding model of litellm.
        api_base: URL of an OpenAI-compatible server, up to and including its /v1.
        reranker: Ranks the first hits again: "tokens", by the tokens of an embedder that runs here; "fastembed:" and a
            cross-encoder or late interaction model of its list; or "none". None takes "tokens" where that can be.

    Raises:
        UserError: One of this process is asked for at an `api_base`, or its weights are not here.
        MissingDependencyError: It needs the extra `models`, or `rerank`.
    """
    made = _named(name, api_base)
    if reranker is None:
        reranker = TOKENS if made.encoder else NO_RERANKER
    if reranker == TOKENS and made.encoder:
        made.reranker = TokenMatch(made)
    elif reranker.startswith(FASTEMBED) and name != OFFLINE:
        made.reranker = FastEmbed(reranker.removeprefix(FASTEMBED))
    elif reranker != NO_RERANKER:
        encoder = reranker == TOKENS or name == OFFLINE
        needed = "an embedder such as minilm" if encoder else "none, tokens or fastembed:NAME"
        raise UserError(f"--reranker {reranker} with the embedder {name!r}: needs {needed}")
    return made


def _named(name: str, api_base: str | None) -> TextEmbedder:
    if (name in IN_PROCESS or name.startswith((ONNX, FASTEMBED))) and api_base:
        there = "name the model that runs there" if name == OFFLINE else f"name one that runs there 'openai/{name}'"
        raise UserError(f"embedder {name!r} runs in this process, not at {api_base}; {there}")
    if name == OFFLINE:
        return TextEmbedder(name, hashed, DIMENSION)
    if name in MODELS or name.startswith(ONNX):
        return _encoder(name)
    if name.startswith(FASTEMBED):
        vectors = FastEmbedVectors(name.removeprefix(FASTEMBED))
        return TextEmbedder(name, vectors, kept=CachedVectors(f"{name}\0{_fastembed_version()}"))
    if api_base:
        check_address("--embedder-api-base", api_base)
    address = api_base or address_in_environment(name.partition("/")[0])
    # Of other providers litellm reads the variable itself.
    base = address if api_base or name.startswith("openai/") else None

    identity = name
    if address or name.startswith("openai/"):
        identity = f"{name}\0{normal_address(address) if address else ''}"
    return TextEmbedder(name, EndpointEmbedding(name, base), kept=CachedVectors(identity))


def _begun(texts: Sequence[str], beginning: str) -> Sequence[str]:
    if not beginning or isinstance(texts, str):
        return texts
    return [beginning + text if text.strip() else "" for text in texts]


def _encoder(name: str) -> TextEmbedder:
    if name in MODELS:
        found, (longest, query, passage) = installed_weights(name), MODELS[name]
        files, digests = [file.path for file in found.files], [file.sha256 for file in found.files]
    else:
        found, longest, query, passage = None, 512, "", ""
        files = [Path(name.removeprefix(ONNX)) / file for file in ("model.onnx", "tokenizer.json")]
        if missing := [file for file in files if not file.is_file()]:
            raise DataError(f"{missing[0]}: no such file; give onnx:DIR with model.onnx and tokenizer.json in it")
        digests = [remembered_digest(file) for file in (*files, *_data_files(files[0]))]
    encode = Encoder(files[0], files[1], longest, lambda: None if found is None else verify(found))
    kept = CachedVectors(f"{digests} {longest} tokens", tokens=True)
    return TextEmbedder(name, encode, 0, kept, query, passage)


def _fastembed_version() -> str:
    """The version that is installed: another one may give a model of its list other files, or pool otherwise."""
    try:
        return importlib.metadata.version("fastembed")
    except importlib.metadata.PackageNotFoundError:
        return ""  # the first text says that it is missing


def _data_files(model: Path) -> list[Path]:
    """The files from which an ONNX file takes weights that are not in itself: those beside it whose names it holds."""
    if not model.stat().st_size:
        return []
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b"location") < 0:
            return []
        others = [path for path in sorted(model.parent.iterdir()) if path.is_file() and path != model]
        return [path for path in others if content.find(os.fsencode(path.name)) >= 0]


def hashed(texts: Sequence[str]) -> np.ndarray:
    """Embeds texts as [n, 384], of any length, by their words and character n-grams, without a model.

    It compares spelling, not meaning: on the turns of two LoCoMo conversations it finds .34 of the evidence in the
    first five, where BM25 finds .55. It is there to run and test everything without a model.
    """
    return np.stack([_hashed_text(text) for text in texts])


def _hashed_text(text: str) -> np.ndarray:
    """Signed feature hashing: 1 + log(count) of each feature, times its weight, into one of 384 sums."""
    parts = []
    for run in _RUN.finditer(normalize_text(text)):
        if run["han"]:
            # Chinese words are short and not set apart: single characters and pairs stand for them.
            pairs = map("".join, pairwise(run["han"]))
            parts += [_features(piece) for piece in chain(run["han"], pairs)]
        elif run[0] not in _FUNCTION_WORDS:
            parts.append(_features(run[0][:_LONGEST]))
    if not parts:
        return np.zeros(DIMENSION, dtype=np.float32)
    hashes, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    features, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    values = weights[first] * (1 + np.log(counts)) * np.where(features >> 31, 1.0, -1.0)
    return np.bincount(features % DIMENSION, weights=values, minlength=DIMENSION).astype(np.float32)


@functools.lru_cache(maxsize=50_000)
def _features(word: str) -> tuple[np.ndarray, np.ndarray]:
    """Hashes and weights of a word: its stem weighs 1, its character 3- to 5-grams together as much as that."""
    from snowballstemmer import stemmer

    edged = f"<{word}>"
    grams = [edged[start : start + size] for size in (3, 4, 5) for start in range(len(edged) - size + 1)]
    # A stemmer is not safe to share between threads; a new one per distinct word is cheap.
    names = [f"={stemmer('porter').stemWord(word)}", *grams]
    weights = [1.0] + [len(grams) ** -0.5] * len(grams)
    return np.array([zlib.crc32(name.encode()) for name in names], dtype=np.int64), np.array(weights)
