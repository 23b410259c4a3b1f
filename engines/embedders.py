"""Embedders by name: by spelling, models that run in this process, and endpoints.

All vectors have length 1, so the product of two is their cosine.

Example:
    >>> from mempiler.engines.embedders import embedder
    >>> a, b, c = embedder().embed(["Ann moved to Lisbon", "When did Ann move?", "Bob likes jazz"])
    >>> bool(a @ b > a @ c)
    True

What an embedder computes is under the rules of a model's call: it ends at the deadline of the call
context, and waits for its slots. Requests to an endpoint also keep to a budget, see
`endpoint.embeddings`.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from cachetools import LRUCache

from ..async_bridge import off_loop
from ..errors import DataError, EndpointError, UserError
from ..records.shared_by_copies import SharedByCopies
from ..validation import check_address
from .encoder import Encoder, TextEncoding
from .endpoint.address import address_in_environment, normal_address
from .endpoint.embeddings import EndpointEmbedding
from .fastembed_models import FastEmbedVectors, fastembed_version
from .file_digests import remembered_digest
from .offline.hashed_vectors import DIMENSION, clear_feature_cache, hashed_vectors
from .rerankers import TOKENS, FastEmbedReranker, QueryTokens, TokenMatch
from .vector_cache import CachedVectors
from .weights import installed_weights, verify

OFFLINE = "offline"
"""The embedder by spelling. Saved indexes rely on its vectors."""
ONNX = "onnx:"
"""The prefix of a folder with an ONNX file."""
FASTEMBED = "fastembed:"
"""The prefix of a model of fastembed's list."""
NO_RERANKER = "none"

MAX_CACHED_BYTES = 128_000_000
"""The most bytes of vectors and tokens that an embedder holds in memory."""

Compute = Callable[[Sequence[str]], "np.ndarray | Sequence[TextEncoding]"]
"""Embeds distinct texts, none of them blank. Returns [texts, dimension], or vectors with tokens."""


@dataclass(frozen=True)
class EncoderModel:
    """How a known encoder takes texts."""

    max_tokens: int
    """Of a text; the rest is not read."""
    query_prefix: str = ""
    """What a query begins with."""
    passage_prefix: str = ""
    """What a text begins with that is searched."""


MODELS = {
    "minilm": EncoderModel(max_tokens=256),
    "e5": EncoderModel(max_tokens=512, query_prefix="query: ", passage_prefix="passage: "),
}
"""Models that run in this process.

Beside BM25 both find as much, and MiniLM takes a third of the time. Alone, E5 finds more, and it
knows many languages."""
UNKNOWN_MODEL = EncoderModel(max_tokens=512)
"""How the encoder in a folder of the user's takes texts."""

IN_PROCESS = (OFFLINE, *MODELS)
"""Embedders that send nothing anywhere."""

_NO_TOKENS = np.zeros((0, 1), np.int8)


class TextEmbedder(SharedByCopies):
    """An embedder with a cache in memory; `embedder` makes one by name.

    Args:
        name: The name; two embedders with one name return the same vectors.
        compute: Computes vectors, whose lengths need not be 1.
        dimension: The length of a vector; 0 if only the first answer will tell.
        cached_vectors: Keeps vectors from one process to the next. None for vectors that cost too
            little.
        query_prefix: What a query begins with, for models that tell queries from passages.
        passage_prefix: What a text begins with that is searched.
    """

    reranker: TokenMatch | FastEmbedReranker | None = None
    """Puts the first hits of a search in a better order; None leaves them as they are."""

    def __init__(
        self,
        name: str,
        compute: Compute,
        dimension: int = 0,
        cached_vectors: CachedVectors | None = None,
        query_prefix: str = "",
        passage_prefix: str = "",
    ) -> None:
        self.name = name
        self.dimension = dimension
        self.query_prefix = query_prefix
        self.passage_prefix = passage_prefix
        self.account = compute if isinstance(compute, EndpointEmbedding) else None
        """Limits and counts the requests to an endpoint; None if there is no endpoint."""
        self.encoder = compute if isinstance(compute, Encoder) else None
        """Makes tokens beside vectors; None if the embedder makes vectors only."""

        self._compute = compute
        self._cached_vectors = cached_vectors
        self._lock = threading.Lock()
        # In memory, by text.
        self._encodings: LRUCache[str, TextEncoding] = LRUCache(MAX_CACHED_BYTES, _byte_count)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts that are searched; `embed_queries` embeds what is searched for.

        Args:
            texts: Any texts. The model's prefix for such texts is put before each of them.

        Returns:
            float32 of shape [len(texts), dimension], each row of length 1, or 0 if its text has no
            words. It is a copy, which the caller may change.

        Raises:
            EndpointError: The endpoint cannot be reached, or answers nonsense.
            UserError: The key is missing or refused, or `texts` is a string instead of a list.
            BudgetError: A limit is reached.
            AbandonedCallError: The deadline of the call context has passed.
        """
        return self.embed_prefixed(_with_prefix(texts, self.passage_prefix))

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embed search queries; arguments, result and errors are those of `embed`."""
        return self.embed_prefixed(_with_prefix(texts, self.query_prefix), is_query=True)

    def embed_prefixed(self, texts: Sequence[str], is_query: bool = False) -> np.ndarray:
        """Embed texts as `embed` does, but add no prefix: they begin with one already.

        Args:
            texts: Any texts.
            is_query: Whether they are search queries; a user's queries are not kept on disk.

        Returns:
            float32 [len(texts), dimension], with zeros for blank texts.
        """
        if isinstance(texts, str):
            raise UserError(
                f"embed takes a list of texts, got the string {texts!r:.80}; put it in a list"
            )

        encodings = self._encodings_of(texts, is_query)
        # If all texts are blank, nothing has been computed yet, and the dimension may be unknown.
        if texts and not self.dimension:
            self._learn_dimension()

        zeros = np.zeros(self.dimension, dtype=np.float32)
        rows = [encodings[text].vector if text in encodings else zeros for text in texts]
        if not rows:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return np.stack(rows)

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the tokens of texts that are searched, each int8 [tokens, width].

        Tokens and vectors come from the same pass through the network. Blank texts have no tokens,
        and neither have the texts of an embedder that makes vectors only.
        """
        texts = _with_prefix(texts, self.passage_prefix)
        encodings = self._encodings_of(texts, is_query=False)
        return [encodings[text].tokens if text in encodings else _NO_TOKENS for text in texts]

    def query_tokens(self, query: str) -> QueryTokens:
        """Return the tokens of a query, and the word that each is a part of."""
        text = self.query_prefix + query
        encodings = self._encodings_of([text], is_query=True)
        if self.encoder is None or text not in encodings:
            return QueryTokens(_NO_TOKENS, [])
        words = self.encoder.words(text, start=len(self.query_prefix))
        return QueryTokens(encodings[text].tokens, words)

    def check(self) -> None:
        """Refuse an embedder or a reranker that could not be asked, before anything is paid for.

        The offline embedder and encoders of this process need no check: they were found when the
        embedder was made.

        Raises:
            UserError: There is no such model, or its key is not set.
            EndpointError: Its server cannot be reached.
            MissingDependencyError: A package that it needs is not installed.
        """
        if isinstance(self._compute, EndpointEmbedding | FastEmbedVectors):
            self._compute.check()
        if isinstance(self.reranker, FastEmbedReranker):
            self.reranker.check()

    def stop_disk_cache(self) -> None:
        """Neither read nor write vectors on the disk from now on."""
        self._cached_vectors = None

    def clear(self) -> None:
        """Drop all texts and words in memory: those of a forgotten user may be among them."""
        with self._lock:
            self._encodings.clear()
        if self.encoder is not None:
            self.encoder.clear()
        clear_feature_cache()

    def _encodings_of(self, texts: Sequence[str], is_query: bool) -> dict[str, TextEncoding]:
        """Return the encodings of texts by text; blank texts have none.

        They come from memory, else from an earlier process, else they are computed. Under asyncio
        that happens in a thread, so that the event loop can go on.
        """
        return off_loop(partial(self._find_or_compute, texts, is_query))

    def _learn_dimension(self) -> None:
        """Embed an arbitrary word, because only an answer tells how long the vectors are."""
        off_loop(partial(self._read_or_compute, ["dimension"], is_query=True))

    def _find_or_compute(self, texts: Sequence[str], is_query: bool) -> dict[str, TextEncoding]:
        """Return the encodings of texts by text: from memory, else from the disk, else computed.

        Blank texts have none. What is computed is held in memory and kept on the disk.
        """
        with self._lock:
            encodings = {text: self._encodings[text] for text in texts if text in self._encodings}

        distinct_texts = dict.fromkeys(texts)
        missing_texts = [text for text in distinct_texts if text not in encodings and text.strip()]
        computed_texts: list[str] = []
        if missing_texts:
            new = self._read_or_compute(missing_texts, is_query)  # holds them in memory, too
            encodings.update(new.encodings)
            computed_texts = new.computed_texts

        if self._cached_vectors is not None:
            # All of them, not only the computed ones: the cache of a user may lack a text that is
            # in memory because another user said the same.
            self._cached_vectors.write(encodings, computed_texts, is_query)
        return encodings

    def _read_or_compute(self, texts: list[str], is_query: bool) -> _NewEncodings:
        """Read the encodings of texts from the disk, or compute them, and hold them in memory.

        It sets the dimension, too, which may have been unknown.

        Args:
            texts: At least one text. None of them is blank, and none is in memory.
            is_query: Whether they are search queries.
        """
        encodings = self._read_cached(texts, is_query)
        computed_texts = [text for text in texts if text not in encodings]
        if computed_texts:
            encodings.update(self._compute_encodings(computed_texts))

        vector_lengths = {len(encoding.vector) for encoding in encodings.values()}
        if len(vector_lengths) > 1:
            # Some of the cached vectors are those of another model that answered under this name.
            computed_texts = texts
            encodings = self._compute_encodings(texts)

        with self._lock:
            self.dimension = len(encodings[texts[0]].vector)
            self._encodings.update(encodings)
        return _NewEncodings(encodings, computed_texts)

    def _read_cached(self, texts: list[str], is_query: bool) -> dict[str, TextEncoding]:
        """Return what earlier processes have computed, except vectors of another length."""
        if self._cached_vectors is None:
            return {}
        encodings = self._cached_vectors.read(texts, is_query)
        if not self.dimension:
            return encodings
        # Vectors of another length are those of another model that answered under this name.
        return {
            text: encoding
            for text, encoding in encodings.items()
            if len(encoding.vector) == self.dimension
        }

    def _compute_encodings(self, texts: list[str]) -> dict[str, TextEncoding]:
        """Compute vectors of length 1 or 0, with their tokens, if there are any.

        Raises:
            EndpointError: The vectors are not finite, or not one of the right length for each text.
        """
        answer = self._compute(texts)
        if isinstance(answer, np.ndarray):
            rows = answer
            tokens = [_NO_TOKENS] * len(texts)
        else:
            rows = [encoding.vector for encoding in answer]
            tokens = [encoding.tokens for encoding in answer]

        vectors = np.asarray(rows, dtype=np.float32)
        self._check_vectors(vectors, len(texts))
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)  # [texts, 1]
        vectors = vectors / np.where(lengths > 0, lengths, 1)

        encodings: dict[str, TextEncoding] = {}
        for text, vector, tokens_of_text in zip(texts, vectors, tokens, strict=True):
            # A copy, or else each row would keep the memory of all.
            encodings[text] = TextEncoding(vector.copy(), tokens_of_text)
        return encodings

    def _check_vectors(self, vectors: np.ndarray, text_count: int) -> None:
        """Refuse vectors that are not finite or have the wrong shape.

        Raises:
            EndpointError: They are refused.
        """
        fits = (
            vectors.ndim == 2
            and len(vectors) == text_count
            and self.dimension in (0, vectors.shape[1])
        )
        if not fits or not np.isfinite(vectors).all():
            expected_shape = f"({text_count}, {self.dimension or 'any'})"
            raise EndpointError(
                f"embedder {self.name!r} answered {vectors.shape} numbers, "
                f"expected finite {expected_shape}"
            )


class _NewEncodings(NamedTuple):
    """What an embedder has just learned of some texts."""

    encodings: dict[str, TextEncoding]
    """By text."""
    computed_texts: list[str]
    """The texts that had to be computed; the others are from earlier processes."""


def _byte_count(encoding: TextEncoding) -> int:
    return encoding.vector.nbytes + encoding.tokens.nbytes


def _with_prefix(texts: Sequence[str], prefix: str) -> Sequence[str]:
    """Put a prefix before texts; blank ones become empty."""
    if not prefix or isinstance(texts, str):  # a string is refused later
        return texts
    return [prefix + text if text.strip() else "" for text in texts]


# Embedders by name.


def embedder(
    name: str = OFFLINE, api_base: str | None = None, reranker: str | None = None
) -> TextEmbedder:
    """Make an embedder by name. It loads a model or asks an endpoint when it embeds a text.

    Args:
        name: In this process: "offline" (by spelling), "minilm", "e5", "onnx:FOLDER", or
            "fastembed:MODEL" with a model of fastembed's list. At an endpoint: a model of the
            server at `api_base`, "openai/MODEL", or any embedding model of litellm.
        api_base: URL of an OpenAI-compatible server, up to and including its /v1.
        reranker: Puts the first hits of a search in a better order: "tokens" compares the tokens of
            an encoder ("minilm", "e5", "onnx:FOLDER"), "fastembed:MODEL" runs a cross-encoder or
            late-interaction model, "none" leaves the order. By default "tokens" for encoders, and
            "none" for other embedders.

    Raises:
        UserError: A model of this process is asked for at an `api_base`, its weights are not here,
            or the reranker does not go with it.
        DataError: The folder has no model.
        MissingDependencyError: The embedder needs the extra `models`, or `rerank`.
    """
    new_embedder = _embedder_by_name(name, api_base)
    new_embedder.reranker = _reranker_by_name(reranker, new_embedder)
    return new_embedder


def _embedder_by_name(name: str, api_base: str | None) -> TextEmbedder:
    """Return an embedder without a reranker."""
    runs_here = name in IN_PROCESS or name.startswith((ONNX, FASTEMBED))
    if not runs_here:
        return _endpoint_embedder(name, api_base)

    if api_base:
        fix = f"name one that runs there 'openai/{name}'"
        if name == OFFLINE:
            fix = "name the model that runs there"
        raise UserError(f"embedder {name!r} runs in this process, not at {api_base}; {fix}")

    if name == OFFLINE:
        return TextEmbedder(name, hashed_vectors, DIMENSION)
    if name in MODELS:
        return _known_encoder(name)
    if name.startswith(ONNX):
        return _encoder_in_folder(name)
    return _fastembed_embedder(name)


def _reranker_by_name(
    name: str | None, embedder: TextEmbedder
) -> TokenMatch | FastEmbedReranker | None:
    """Return what ranks the first hits of a search again; None if nothing does.

    Args:
        name: "none", "tokens" (compares the vectors of single words) or "fastembed:MODEL". None is
            "tokens" where that is possible.
        embedder: The embedder of the search. The vectors of single words come from its encoder,
            which only embedders of this process have.

    Raises:
        UserError: There is no such reranker, or it does not go with the embedder.
    """
    if name is None:
        name = TOKENS if embedder.encoder else NO_RERANKER
    if name == NO_RERANKER:
        return None
    if name == TOKENS and embedder.encoder:
        return TokenMatch(embedder)
    # The offline embedder is for tests and demonstrations, which load no weights.
    if name.startswith(FASTEMBED) and embedder.name != OFFLINE:
        return FastEmbedReranker(name.removeprefix(FASTEMBED))

    # Either the reranker is known and needs another embedder, or its name is unknown.
    needed = "none, tokens or fastembed:NAME"
    if name == TOKENS or embedder.name == OFFLINE:
        needed = "an embedder such as minilm"
    raise UserError(f"--reranker {name} with the embedder {embedder.name!r}: needs {needed}")


def _known_encoder(name: str) -> TextEmbedder:
    """Return the embedder of a model of `MODELS`.

    Raises:
        UserError: Its weights are not here.
        MissingDependencyError: The extra `models` is not installed.
    """
    model = MODELS[name]
    weights = installed_weights(name)
    model_file, tokenizer_file = (file.path for file in weights.files)
    encoder = Encoder(model_file, tokenizer_file, model.max_tokens, partial(verify, weights))
    return _encoder_embedder(name, encoder, model, [file.sha256 for file in weights.files])


def _encoder_in_folder(name: str) -> TextEmbedder:
    """Return the embedder of a folder with an ONNX file.

    Args:
        name: "onnx:" and the folder.

    Raises:
        DataError: A file is missing.
        MissingDependencyError: The extra `models` is not installed.
    """
    folder = Path(name.removeprefix(ONNX))
    model_file = folder / "model.onnx"
    tokenizer_file = folder / "tokenizer.json"
    for file in (model_file, tokenizer_file):
        if not file.is_file():
            raise DataError(
                f"{file}: no such file; give onnx:DIR with model.onnx and tokenizer.json in it"
            )

    files = [model_file, tokenizer_file, *_data_files(model_file)]
    digests = [remembered_digest(file) for file in files]
    encoder = Encoder(model_file, tokenizer_file, UNKNOWN_MODEL.max_tokens)
    return _encoder_embedder(name, encoder, UNKNOWN_MODEL, digests)


def _encoder_embedder(
    name: str, encoder: Encoder, model: EncoderModel, digests: list[str]
) -> TextEmbedder:
    """Return the embedder of an encoder.

    Args:
        name: The name of the embedder.
        encoder: The encoder.
        model: How it takes texts.
        digests: Those of all its files.
    """
    # Vectors are kept under this text, so it must stay the same.
    identity = f"{digests} {model.max_tokens} tokens"
    return TextEmbedder(
        name,
        encoder,
        cached_vectors=CachedVectors(identity, tokens=True),
        query_prefix=model.query_prefix,
        passage_prefix=model.passage_prefix,
    )


def _data_files(model_file: Path) -> list[Path]:
    """Return the files beside an ONNX file that hold a part of its weights.

    An ONNX file names them, with the word "location" before. A file that is named for another
    reason may be among them.
    """
    if not model_file.stat().st_size:
        return []  # an empty file cannot be mapped

    with (
        model_file.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if content.find(b"location") < 0:
            return []

        data_files: list[Path] = []
        for path in sorted(model_file.parent.iterdir()):
            is_named = content.find(os.fsencode(path.name)) >= 0
            if path != model_file and path.is_file() and is_named:
                data_files.append(path)
        return data_files


def _fastembed_embedder(name: str) -> TextEmbedder:
    """Return the embedder of a model of fastembed's list.

    Args:
        name: "fastembed:" and the model.
    """
    # Another version may give the model other files, or compute its vectors in another way.
    identity = f"{name}\0{fastembed_version()}"
    vectors = FastEmbedVectors(name.removeprefix(FASTEMBED))
    return TextEmbedder(name, vectors, cached_vectors=CachedVectors(identity))


def _endpoint_embedder(name: str, api_base: str | None) -> TextEmbedder:
    """Return the embedder of a model behind an endpoint.

    Args:
        name: The name of the model, with its provider if there is no address.
        api_base: The address of an OpenAI-compatible server.

    Raises:
        UserError: `api_base`, or the provider's variable for it, is not an address.
    """
    if api_base:
        check_address("--embedder-api-base", api_base)
    provider = name.partition("/")[0]
    address = api_base or address_in_environment(provider)

    # Without `api_base`, only OpenAI's client is told the address that the environment sets. Other
    # providers are asked by litellm, which reads their variables itself.
    is_openai = name.startswith("openai/")
    client_address = address if api_base or is_openai else None

    embedding = EndpointEmbedding(name, client_address)
    cached_vectors = CachedVectors(_endpoint_identity(name, address))
    return TextEmbedder(name, embedding, cached_vectors=cached_vectors)


def _endpoint_identity(name: str, address: str | None) -> str:
    r"""Return the text under which the vectors of an endpoint's model are kept on the disk.

    It has the address, because two servers may have different models under one name. Vectors that
    are on the disk already are found by it, so it must stay the same: names of OpenAI's provider
    have the separator `\0` behind them without an address, too.
    """
    if address:
        return f"{name}\0{normal_address(address)}"
    if name.startswith("openai/"):
        return f"{name}\0"
    return name
