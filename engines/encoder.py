"""A sentence encoder in an ONNX file: tokens, the network, its last hidden states and their mean.

Every text goes through the network alone: in a batch, its neighbours would decide how a text is rounded to 8 bits, and
it would have cosines down to .97 with itself.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError
from ..optional_import import require_package
from ..text import one_line
from .fair_semaphore import compute_slot
from .tokenizer_cache import clear_word_cache

THREADS = 4
"""Texts that an encoder works on at the same time, at most, each with one core."""
AT_ONCE = 16
"""Texts after which others have their turn."""
ENOUGH, MOST_UNKNOWN = 200, 0.3
"""Tokens of which the unknown ones are a share, at least, and the share above which a model is the wrong one."""
WIDTH = 128
"""Numbers that are kept of a token; a random projection of 384 to so many finds as much as all of them."""
_log = logging.getLogger("mempiler.engines.encoder")


class Encoded(NamedTuple):
    """What is known of a text."""

    vector: np.ndarray
    """float32 [dimension]."""
    tokens: np.ndarray
    """int8 [tokens, at most `WIDTH`]: the direction of each token's last hidden state; none from other embedders."""


class Encoder:
    """Encodes texts; the files are read with the first one. Safe under threads.

    Args:
        model: The ONNX file.
        tokenizer: `tokenizer.json`.
        longest: Most tokens of a text; the rest is not read.
        check: Looks at the files before they are read.

    Raises:
        MissingDependencyError: The extra `models` is not installed.
    """

    def __init__(self, model: Path, tokenizer: Path, longest: int, check: Callable[[], None]) -> None:
        for package in ("onnxruntime", "tokenizers"):
            with require_package(package, "models"):
                __import__(package)
        self._model, self._tokenizer, self._longest, self._check = model, tokenizer, longest, check
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(min(cores, THREADS))
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None
        self._tokens = self._unknown = 0
        self._warned = False

    def __call__(self, texts: Sequence[str]) -> list[Encoded]:
        """Encodes texts, each with one pass through the network.

        Raises:
            DataError: The files are no model of this kind.
        """
        self._ready()  # before a place is held
        # onnxruntime plans its memory by shape: texts of one length after each other cost less than as they come.
        places = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        run = self._pool.map if len(texts) > 1 else map
        rows: dict[int, Encoded] = {}
        for start in range(0, len(places), AT_ONCE):
            part = places[start : start + AT_ONCE]
            with compute_slot():
                rows.update(zip(part, run(self._encode, [texts[place] for place in part]), strict=True))
        self._warn()
        return [rows[place] for place in range(len(texts))]

    def words(self, text: str, start: int = 0) -> list[str]:
        """The word that each token of a text is a part of; "" for what is before `start`."""
        found = self._ready()[0].encode(text)
        spans = dict[Any, tuple[int, int]]()
        for word, (begin, end) in zip(found.word_ids, found.offsets, strict=True):
            spans[word] = spans.get(word, (begin, end))[0], end
        own = zip(found.word_ids, found.special_tokens_mask, strict=True)
        return [text[slice(*spans[word])] if spans[word][0] >= start else "" for word, special in own if not special]

    def clear(self) -> None:
        """Drop the words that the tokenizer keeps."""
        with self._lock:
            if self._loaded is not None:
                clear_word_cache(self._loaded[0])

    def _ready(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> tuple[Any, Any]:
        import onnxruntime
        import tokenizers

        self._check()
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(self._tokenizer))
        except Exception as error:  # Its errors have no class of their own.
            raise DataError(f"{self._tokenizer}: is no tokenizer: {one_line(error, 200)}") from error
        # A file may ask for texts that are all filled up to one length.
        tokenizer.no_padding()
        tokenizer.enable_truncation(self._longest)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            return tokenizer, onnxruntime.InferenceSession(str(self._model), options, ["CPUExecutionProvider"])
        except Exception as error:
            raise DataError(f"{self._model}: onnxruntime cannot load it: {one_line(error, 200)}") from error

    def _encode(self, text: str) -> Encoded:
        tokenizer, session = self._ready()
        tokens = tokenizer.encode(text)
        with self._lock:
            self._tokens += len(tokens.ids)
            self._unknown += sum(token in ("[UNK]", "<unk>") for token in tokens.tokens)
        ids = np.array([tokens.ids], dtype=np.int64)
        ready = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        try:
            taken = {each.name: ready[each.name] for each in session.get_inputs()}
            (hidden,) = session.run(["last_hidden_state"], taken)
        except Exception as error:
            raise DataError(f"{self._model}: is no sentence encoder: {one_line(error, 200)}") from error
        own = hidden[0][np.array(tokens.special_tokens_mask) == 0] @ _projection(hidden.shape[2])
        lengths = np.linalg.norm(own, axis=1, keepdims=True)
        return Encoded(hidden[0].mean(axis=0), np.round(127 * own / np.where(lengths > 0, lengths, 1)).astype(np.int8))

    def _warn(self) -> None:
        """Says once that most of what is encoded is in a language that the model has not learned."""
        with self._lock:
            share = self._unknown / max(self._tokens, ENOUGH)
            if self._warned or share <= MOST_UNKNOWN:
                return
            self._warned = True
        told = "vectors of such texts mean little; take --embedder e5, or another one that knows their language"
        _log.warning("%s: %.0f %% of the tokens of these texts are unknown to it: %s", self._model, 100 * share, told)


@functools.cache
def _projection(width: int) -> np.ndarray:
    """An orthogonal one, always the same, as float32 [width, at most `WIDTH`]."""
    if width <= WIDTH:
        return np.eye(width, dtype=np.float32)
    return np.linalg.qr(np.random.RandomState(0).standard_normal((width, WIDTH)))[0].astype(np.float32)
