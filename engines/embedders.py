"""Embedders: one of our own, two small models that run here, and any OpenAI-compatible or litellm one by its name.

    embedder()                                          "offline": hashed words and character n-grams, 384 numbers
    embedder("minilm"), embedder("e5")                  models in this process, see `mempiler models list`
    embedder("openai/text-embedding-3-small")           OpenAI, key from OPENAI_API_KEY
    embedder("bge-m3", "http://localhost:8000/v1")      any OpenAI-compatible server; a key is optional
    embedder("gemini/gemini-embedding-001")             any name that litellm supports

All are a `TextEmbedder`: rows of length 1, a bounded cache of the texts last seen, each distinct text of a batch
embedded once, usable from many threads. `unrelated` is the mean and deviation of the cosine of texts that have nothing
to do with each other: the zero against which a threshold of this embedder is to be read.

Example:
    >>> from mempiler.engines.embedders import embedder
    >>> a, b, c = embedder().embed(["Ann moved to Lisbon", "When did Ann move?", "Bob likes jazz"])
    >>> bool(a @ b > a @ c)
    True

Limits: the offline embedder compares spelling, not meaning: on the turns of two LoCoMo conversations it finds .34 of
the evidence in the first five, where BM25 finds .55. It is there to run and test everything without a model. The
vectors of an endpoint belong to its name: that a server swapped the model behind a name is not noticed. Those of the
models that run here belong to their weights: they are kept on disk as well (`engines.vectors`), in a file that `clear`
empties.
"""

from __future__ import annotations

import os
import re
import threading
import unicodedata
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Self

import numpy as np

from ..errors import EndpointError, MempilerError, UserError
from .vectors import VectorFile
from .weights import WEIGHTS, present, verify

OFFLINE = "offline"
"""Name of the offline embedder. Saved indexes rely on its vectors: change them only together with the name."""
DIMENSION = 384
OFFLINE_UNRELATED = (0.0124, 0.0543)
"""Mean and deviation of the cosine over all 780 pairs of forty made-up sentences on forty subjects; sentences and
measurement are in tests/engines/test_embedders.py. Turns that start with one of two names are nearer: .16 and .10 over
all pairs of turns of a LoCoMo conversation."""
BATCH = 64
"""Texts per request to an endpoint."""
RETRIES = 3
"""Further attempts of the client library when an endpoint is busy or away."""

_WORDS = """
a about also am an and are as at be been being but by can could d did do does for from had has have he her hers him his
how i if in into is it its just ll m may me my no not of on or our re s she should so t than that the their them then
there these they this those to too us ve very was we were what when where which who whom whose why will with would you
your
"""
# A list of its own, not that of memory.tokens: improving one kind of search must not change the vectors stored for the
# other.
_FUNCTION_WORDS = frozenset(_WORDS.split())
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_RUN = re.compile(rf"(?P<han>[{_HAN}]+)|[^\W_{_HAN}]+")
_LONGEST = 64
"""Characters of a word that count; longer ones are keys and links, not words."""


@dataclass(frozen=True)
class Model:
    """How a model that runs in this process is asked."""

    longest: int
    """Most tokens of a text."""
    unrelated: tuple[float, float]
    """As `OFFLINE_UNRELATED`, of the same sentences."""
    query: str = ""
    """What a query begins with."""
    passage: str = ""
    """What is searched begins with."""


MODELS = {
    "minilm": Model(256, (0.0835, 0.0859)),
    "e5": Model(512, (0.7925, 0.0257), "query: ", "passage: "),
}
"""Models that run in this process, the preferred first; their files are in `engines.weights`.

Both find as much beside BM25, and MiniLM takes a third of the time. Alone E5 finds more, in any language; its
`unrelated` was measured with weights rebuilt from a copy of 4 bits. What was saved relies on the vectors of a name:
other weights need another name.
"""
IN_PROCESS = (OFFLINE, *MODELS)
"""Embedders that send nothing anywhere."""
THREADS = 4
"""Texts that such a model works on at the same time, at most."""

Compute = Callable[[Sequence[str]], np.ndarray]
"""Embeds distinct texts as [n, dimension]; `TextEmbedder` sees to length 1 and to blank texts."""


class TextEmbedder:
    """An embedder with a cache in memory; make one with `embedder`.

    Args:
        name: What its vectors are known by.
        compute: Turns distinct texts, none of them blank, into vectors.
        dimension: Length of a vector; 0 if only the first answer will tell.
        unrelated: Mean and deviation of the cosine of unrelated texts, if measured.
        capacity: The most texts the cache holds (10 000 vectors of 384 numbers are 15 MB).
        disk: Where vectors are kept from one process to the next.
        query: What a query begins with, and what a passage begins with, for models that tell them apart.
        passage: See `query`.
    """

    def __init__(
        self,
        name: str,
        compute: Compute,
        dimension: int = 0,
        unrelated: tuple[float, float] | None = None,
        capacity: int = 10_000,
        disk: VectorFile | None = None,
        query: str = "",
        passage: str = "",
    ) -> None:
        self.name = name
        self.dimension = dimension
        self.unrelated = unrelated
        self._compute = compute
        self._capacity = capacity
        self._disk = disk
        self.query, self.passage = query, passage
        self._cache: OrderedDict[str, np.ndarray] = OrderedDict()
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
        return self.embed_as_given(_begun(texts, self.query))

    def embed_as_given(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts that begin as a query or a passage already; otherwise as `embed`."""
        if isinstance(texts, str):
            raise UserError(f"embed takes a list of texts, got the string {texts!r:.80}; put it in a list")
        rows = self._known(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in rows and text.strip()]
        if missing:
            rows.update(self._learn(missing))
        elif texts and not self.dimension:
            self._learn(["dimension"])
        vectors = [rows.get(text, np.zeros(self.dimension, dtype=np.float32)) for text in texts]
        return np.stack(vectors) if vectors else np.zeros((0, self.dimension), dtype=np.float32)

    def clear(self) -> None:
        """Forgets the texts seen so far, and their words; the vectors on disk, too."""
        with self._lock:
            self._cache.clear()
        if self._disk is not None:
            self._disk.clear()
        _features.cache_clear()

    def __deepcopy__(self, memo: object = None) -> Self:
        # DSPy copies programs freely; an embedder has no state but its cache, and sharing that is the point of it.
        return self

    def _known(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        with self._lock:
            rows = {text: self._cache[text] for text in texts if text in self._cache}
            for text in rows:
                self._cache.move_to_end(text)
            return rows

    def _learn(self, texts: list[str]) -> dict[str, np.ndarray]:
        rows = self._disk.read(texts) if self._disk is not None else {}
        new = [text for text in texts if text not in rows]
        if new:
            computed = self._computed(new)
            rows.update(computed)
            if self._disk is not None:
                self._disk.write(computed)
        with self._lock:
            self.dimension = len(rows[texts[0]])
            self._cache.update(rows)
            while len(self._cache) > self._capacity:
                self._cache.popitem(last=False)
        return rows

    def _computed(self, texts: list[str]) -> dict[str, np.ndarray]:
        vectors = np.asarray(self._compute(texts), dtype=np.float32)
        fits = vectors.ndim == 2 and len(vectors) == len(texts) and self.dimension in (0, vectors.shape[1])
        if not fits or not np.isfinite(vectors).all():
            wanted = f"({len(texts)}, {self.dimension or 'any'})"
            raise EndpointError(f"embedder {self.name!r} answered {vectors.shape} numbers, expected finite {wanted}")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.where(lengths > 0, lengths, 1)
        return dict(zip(texts, (vector.copy() for vector in vectors), strict=True))


def embedder(name: str = OFFLINE, api_base: str | None = None, threads: int | None = None) -> TextEmbedder:
    """Makes an embedder by name; imports and calls start with the first text.

    Args:
        name: "offline"; "minilm" or "e5"; a model of the server at `api_base`; "openai/<model>"; or any embedding model
            of litellm.
        api_base: URL of an OpenAI-compatible server, up to and including its /v1.
        threads: Texts that a model in this process works on at the same time, each with one core; None takes those
            there are, at most `THREADS`.

    Raises:
        UserError: The name is empty, or one of this process is asked for at an `api_base`, or its weights are not here.
        MissingDependencyError: It needs the extra `models`.
    """
    if not name.strip():
        raise UserError(f"embedder name {name!r} is empty; use 'offline' or a model such as 'openai/<model>'")
    if name in IN_PROCESS and api_base:
        there = "name the model that runs there" if name == OFFLINE else f"name one that runs there 'openai/{name}'"
        raise UserError(f"embedder {name!r} runs in this process, not at {api_base}; {there}")
    if name == OFFLINE:
        return TextEmbedder(name, _hashed, DIMENSION, OFFLINE_UNRELATED)
    if name in MODELS:
        return _model(name, threads)
    if api_base or name.startswith("openai/"):
        return TextEmbedder(name, _openai(name, api_base))
    return TextEmbedder(name, _litellm(name))


def _begun(texts: Sequence[str], beginning: str) -> Sequence[str]:
    """The texts behind a beginning; one without words stays one, and what is no list is refused elsewhere."""
    if not beginning or isinstance(texts, str):
        return texts
    return [beginning + text if text.strip() else "" for text in texts]


def default_embedder() -> str:
    """The best embedder that is here: a model whose weights were fetched, or "offline"."""
    installed = all(find_spec(package) for package in ("onnxruntime", "tokenizers"))
    return next((name for name in MODELS if installed and WEIGHTS[name].here), OFFLINE)


def measure_unrelated(embedder: TextEmbedder, texts: Sequence[str]) -> tuple[float, float]:
    """Measures the cosine of unrelated texts, and sets `embedder.unrelated` to it.

    Args:
        embedder: What to measure.
        texts: At least three distinct texts, of which no two are about the same thing.

    Returns:
        Mean and standard deviation over all pairs.

    Raises:
        UserError: There are fewer than three distinct texts.
    """
    distinct = list(dict.fromkeys(texts))
    if len(distinct) < 3:
        raise UserError(f"{len(distinct)} distinct texts are too few to measure unrelated pairs; give 3 or more")
    vectors = embedder.embed(distinct).astype(np.float64)
    cosines = (vectors @ vectors.T)[np.triu_indices(len(distinct), 1)]
    embedder.unrelated = (float(cosines.mean()), float(cosines.std()))
    return embedder.unrelated


def _hashed(texts: Sequence[str]) -> np.ndarray:
    return np.stack([_hashed_text(text) for text in texts])


def _hashed_text(text: str) -> np.ndarray:
    """Signed feature hashing: 1 + log(count) of each feature, times its weight, into one of 384 sums."""
    parts = []
    for run in _RUN.finditer(unicodedata.normalize("NFKC", text).lower()):
        if run["han"]:
            parts += [_features(piece) for piece in _pieces(run["han"])]
        elif run[0] not in _FUNCTION_WORDS:
            parts.append(_features(run[0][:_LONGEST]))
    if not parts:
        return np.zeros(DIMENSION, dtype=np.float32)
    hashes, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    features, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    values = weights[first] * (1 + np.log(counts)) * np.where(features >> 31, 1.0, -1.0)
    return np.bincount(features % DIMENSION, weights=values, minlength=DIMENSION).astype(np.float32)


def _pieces(han: str) -> list[str]:
    """Chinese words are short and not set apart: single characters and pairs stand for them."""
    return [*han, *(han[start : start + 2] for start in range(len(han) - 1))]


@lru_cache(maxsize=50_000)
def _features(word: str) -> tuple[np.ndarray, np.ndarray]:
    """Hashes and weights of a word: its stem weighs 1, its character 3- to 5-grams together as much as that."""
    from snowballstemmer import stemmer

    edged = f"<{word}>"
    grams = [edged[start : start + size] for size in (3, 4, 5) for start in range(len(edged) - size + 1)]
    # A stemmer is not safe to share between threads; a new one per distinct word is cheap.
    names = [f"={stemmer('porter').stemWord(word)}", *grams]
    weights = [1.0] + [len(grams) ** -0.5] * len(grams)
    return np.array([zlib.crc32(name.encode()) for name in names], dtype=np.int64), np.array(weights)


def _model(name: str, threads: int | None) -> TextEmbedder:
    from .onnx.encoder import Encoder, check_installed

    check_installed()
    found, model = present(name), MODELS[name]
    encoder, tokenizer = (file.path for file in found.files)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    encode = Encoder(encoder, tokenizer, model.longest, threads or min(cores, THREADS))

    @lru_cache(maxsize=1)
    def checked() -> Compute:
        verify(found)
        return encode

    disk = VectorFile(f"{[file.sha256 for file in found.files]} {model.longest}")
    compute: Compute = lambda texts: checked()(texts)  # noqa: E731
    return TextEmbedder(name, compute, 0, model.unrelated, disk=disk, query=model.query, passage=model.passage)


def _openai(name: str, api_base: str | None) -> Compute:
    model = name.removeprefix("openai/")

    @lru_cache(maxsize=1)
    def client() -> Any:
        import openai

        base = api_base or os.environ.get("OPENAI_BASE_URL") or None
        key = os.environ.get("OPENAI_API_KEY")
        if not key and not base:
            raise UserError(
                f"embedder {name!r} needs a key; set OPENAI_API_KEY, or give the api_base of another server"
            )
        # Servers of one's own mostly want no key, but the client insists on one.
        return openai.OpenAI(base_url=base, api_key=key or "none", max_retries=RETRIES)

    def compute(texts: Sequence[str]) -> np.ndarray:
        request = client().embeddings.create
        return _batches(name, texts, lambda batch: request(model=model, input=batch, encoding_format="float").data)

    return compute


def _litellm(name: str) -> Compute:
    def compute(texts: Sequence[str]) -> np.ndarray:
        # At import litellm otherwise fetches its price list from the network.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        import litellm

        # It otherwise prints advertisements to stdout with every error.
        litellm.suppress_debug_info = True
        request: Callable[..., Any] = litellm.embedding
        try:
            return _batches(name, texts, lambda batch: request(model=name, input=batch, max_retries=RETRIES).data)
        except MempilerError as error:
            # Asked only now: some providers take credentials from elsewhere, such as AWS profiles.
            missing = litellm.validate_environment(name)["missing_keys"]
            if missing:
                raise UserError(f"{error}; set {' or '.join(missing)} if the key is what is missing") from error
            raise

    return compute


def _batches(name: str, texts: Sequence[str], request: Callable[[list[str]], Any]) -> np.ndarray:
    """Asks for `BATCH` texts at a time; errors of both clients (litellm's derive from openai's) become ours."""
    import openai

    rows: list[Any] = []
    try:
        for start in range(0, len(texts), BATCH):
            data = request(list(texts[start : start + BATCH]))
            plain = [row if isinstance(row, dict) else row.model_dump() for row in data]
            rows += [row["embedding"] for row in sorted(plain, key=lambda row: row["index"])]
        return np.array(rows, dtype=np.float32)
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        raise UserError(f"embedder {name!r}: the key was refused; check OPENAI_API_KEY or the provider's") from error
    except (openai.BadRequestError, openai.NotFoundError) as error:
        raise UserError(f"embedder {name!r} was refused, check its name: {_one_line(error)}") from error
    except openai.OpenAIError as error:
        raise EndpointError(f"embedder {name!r}: {_one_line(error)}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EndpointError(f"embedder {name!r} answered no list of vectors: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
