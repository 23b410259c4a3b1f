"""A sentence encoder in an ONNX file: tokens, the network, the mean of its last hidden states.

Every text goes through the network alone: in a batch, its neighbours would decide how a text is rounded to 8 bits, and
it would have cosines down to .97 with itself.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, MissingDependencyError, one_line

THREADS = 4
"""Texts that an encoder works on at the same time, at most, each with one core."""
ENOUGH, MOST_UNKNOWN = 200, 0.3
"""Tokens of which the unknown ones are a share, at least, and the share above which a model is the wrong one."""
_log = logging.getLogger("mempiler.engines.encoder")


class Encoder:
    """Encodes texts; the files are read with the first one. Safe under threads.

    Args:
        model: The ONNX file.
        tokenizer: `tokenizer.json`.
        longest: Most tokens of a text; the rest is not read.

    Raises:
        MissingDependencyError: The extra `models` is not installed.
    """

    def __init__(self, model: Path, tokenizer: Path, longest: int) -> None:
        for package in ("onnxruntime", "tokenizers"):
            try:
                __import__(package)
            except ImportError as error:
                raise MissingDependencyError(package, "models") from error
        self._model, self._tokenizer, self._longest = model, tokenizer, longest
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(min(cores, THREADS))
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None
        self._tokens = self._unknown = 0
        self._warned = False

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Encodes texts as float32 of shape [len(texts), width].

        Raises:
            DataError: The files are no model of this kind.
        """
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
        # onnxruntime plans its memory by shape: texts of one length after each other cost less than as they come.
        places = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        run = self._pool.map if len(texts) > 1 else map
        rows = dict(zip(places, run(self._encode, [texts[place] for place in places]), strict=True))
        self._warn()
        return np.stack([rows[place] for place in range(len(texts))])

    def _load(self) -> tuple[Any, Any]:
        import onnxruntime
        import tokenizers

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

    def _encode(self, text: str) -> np.ndarray:
        assert self._loaded is not None
        tokenizer, session = self._loaded
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
        return hidden[0].mean(axis=0)

    def _warn(self) -> None:
        """Says once that most of what is encoded is in a language that the model has not learned."""
        with self._lock:
            share = self._unknown / max(self._tokens, ENOUGH)
            if self._warned or share <= MOST_UNKNOWN:
                return
            self._warned = True
        told = "vectors of such texts mean little; take --embedder e5, or another one that knows their language"
        _log.warning("%s: %.0f %% of the tokens of these texts are unknown to it: %s", self._model, 100 * share, told)
