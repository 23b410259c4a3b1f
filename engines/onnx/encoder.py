"""A sentence encoder in an ONNX file: tokens, the network, the mean of its last hidden states.

    text ── tokenizer.json ──> tokens ── model.onnx ──> [tokens, width] ── mean ──> vector

Every text goes through the network alone. In a batch, the range of its neighbours would decide how a text is rounded to
8 bits: the same text had cosines down to .97 with itself in batches of 8 to 32, for 20 % less work. Alone it has one
vector, whatever is asked for beside it. Several texts are worked on by `threads` threads, each with one core.

Limits: of a text longer than `longest` tokens the rest is not read.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError, MissingDependencyError, one_line


class Encoder:
    """Encodes texts; the files are read with the first one. Safe under threads.

    Args:
        model: The ONNX file.
        tokenizer: `tokenizer.json`.
        longest: Most tokens of a text.
        threads: Texts that are worked on at the same time.
    """

    def __init__(self, model: Path, tokenizer: Path, longest: int, threads: int) -> None:
        self._model, self._tokenizer, self._longest, self._threads = model, tokenizer, longest, threads
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any, list[str], ThreadPoolExecutor] | None = None

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Encodes texts as float32 of shape [len(texts), width].

        Raises:
            DataError: The files are no model of this kind.
            MissingDependencyError: The extra `models` is not installed.
        """
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
        pool = self._loaded[-1]
        # onnxruntime plans its memory by shape: texts of one length after each other cost less than as they come.
        places = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        run = pool.map if min(len(texts), self._threads) > 1 else map
        found = run(self._encode, [texts[place] for place in places])
        rows = dict(zip(places, found, strict=True))
        return np.stack([rows[place] for place in range(len(texts))])

    def _load(self) -> tuple[Any, Any, list[str], ThreadPoolExecutor]:
        check_installed()
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
            session = onnxruntime.InferenceSession(str(self._model), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise DataError(f"{self._model}: onnxruntime cannot load it: {one_line(error, 200)}") from error
        return tokenizer, session, [each.name for each in session.get_inputs()], ThreadPoolExecutor(self._threads)

    def _encode(self, text: str) -> np.ndarray:
        assert self._loaded is not None
        tokenizer, session, names, _ = self._loaded
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        ready = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        try:
            (hidden,) = session.run(["last_hidden_state"], {name: ready[name] for name in names})
        except Exception as error:
            raise DataError(f"{self._model}: is no sentence encoder: {one_line(error, 200)}") from error
        return hidden[0].mean(axis=0)


def check_installed() -> None:
    """Checks for the packages that run an encoder.

    Raises:
        MissingDependencyError: The extra `models` is not installed.
    """
    for package in ("onnxruntime", "tokenizers"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingDependencyError(package, "models") from error
