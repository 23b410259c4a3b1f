"""A sentence encoder that runs in this process: an ONNX file and its tokenizer.

For each text, the network returns the last hidden state of each token. Their mean is the vector of
the text; their directions are its tokens, which a reranker compares (`rerankers.TokenMatch`).

Every text goes through the network alone. In a batch, the other texts would decide how a text is
rounded to 8 bits, and its vectors from two batches could have a cosine of only .97.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import DataError
from ..optional_import import require_package
from ..text import one_line
from .cores import usable_cores
from .fair_semaphore import compute_slot
from .tokenizer_cache import clear_word_cache

if TYPE_CHECKING:
    import onnxruntime
    import tokenizers

MAX_THREADS = 4
"""The most texts that an encoder works on at the same time; each takes one core."""
TEXTS_PER_SLOT = 16
"""After so many texts an encoder gives its slot back, so that others have their turn."""
TOKEN_WIDTH = 128
"""The most numbers that are kept of a token.

A random projection from 384 numbers to 128 finds as much as all of them."""

_MAX_UNKNOWN_SHARE = 0.3
"""If more of the tokens are unknown, the model does not know the language of the texts."""
_MIN_TOKENS_OF_SHARE = 200
"""Fewer tokens count as so many, so that a few short texts are not taken for another language."""
_UNKNOWN_TOKENS = ("[UNK]", "<unk>")

_log = logging.getLogger("mempiler.engines.encoder")


class TextEncoding(NamedTuple):
    """What an embedder knows of a text."""

    vector: np.ndarray
    """float32 [dimension]."""
    tokens: np.ndarray
    """int8 [tokens, at most `TOKEN_WIDTH`]: the direction of each token's last hidden state, times
    127. An embedder that is no encoder has no tokens."""


class _Model(NamedTuple):
    """The two files of an encoder, loaded."""

    tokenizer: tokenizers.Tokenizer
    session: onnxruntime.InferenceSession


class Encoder:
    """Encode texts. Many threads may use one encoder; its files are loaded for the first text.

    Args:
        model_file: The ONNX file.
        tokenizer_file: `tokenizer.json`.
        max_tokens: The most tokens of a text that are read.
        check_files: Called before the files are loaded; raises an error if they are not what they
            must be. None loads any files.

    Raises:
        MissingDependencyError: The extra `models` is not installed.
    """

    def __init__(
        self,
        model_file: Path,
        tokenizer_file: Path,
        max_tokens: int,
        check_files: Callable[[], None] | None = None,
    ) -> None:
        for package in ("onnxruntime", "tokenizers"):
            with require_package(package, "models"):
                __import__(package)

        self._model_file = model_file
        self._tokenizer_file = tokenizer_file
        self._max_tokens = max_tokens
        self._check_files = check_files

        self._pool = ThreadPoolExecutor(min(usable_cores(), MAX_THREADS))
        self._lock = threading.Lock()
        self._model: _Model | None = None
        self._token_count = 0
        self._unknown_count = 0
        self._has_warned = False

    def __call__(self, texts: Sequence[str]) -> list[TextEncoding]:
        """Encode texts, each by one pass through the network.

        Raises:
            DataError: The files are no model of this kind.
            AbandonedCallError: The deadline of the call context has passed.
        """
        # Before a slot is held: loading takes seconds.
        self._loaded_model()

        # onnxruntime plans its memory by the shape of a text. Texts of about the same length, one
        # after the other, cost less than texts in any order.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))

        encodings_by_index: dict[int, TextEncoding] = {}
        for start in range(0, len(order), TEXTS_PER_SLOT):
            indexes = order[start : start + TEXTS_PER_SLOT]
            with compute_slot():
                encodings = self._encode_all([texts[index] for index in indexes])
                encodings_by_index.update(zip(indexes, encodings, strict=True))

        self._warn_of_unknown_language()
        return [encodings_by_index[index] for index in range(len(texts))]

    def words(self, text: str, start: int = 0) -> list[str]:
        """Return, for each token of a text, the word that the token is a part of.

        Special tokens, such as the one at the end of a text, are left out.

        Args:
            text: The text.
            start: For words that begin before this character, "" stands instead of the word.
        """
        encoding = self._loaded_model().tokenizer.encode(text)

        # A word begins where its first token does, and ends where its last one does. The tokenizer
        # numbers the words of a text; special tokens have None.
        spans: dict[int | None, slice] = {}
        for word_id, offsets in zip(encoding.word_ids, encoding.offsets, strict=True):
            token_start, token_end = offsets
            word_start = spans[word_id].start if word_id in spans else token_start
            spans[word_id] = slice(word_start, token_end)

        words: list[str] = []
        special_tokens_mask = encoding.special_tokens_mask
        for word_id, is_special in zip(encoding.word_ids, special_tokens_mask, strict=True):
            if is_special:
                continue
            span = spans[word_id]
            words.append(text[span] if span.start >= start else "")
        return words

    def clear(self) -> None:
        """Drop the words that the tokenizer keeps."""
        with self._lock:
            if self._model is not None:
                clear_word_cache(self._model.tokenizer)

    def _loaded_model(self) -> _Model:
        """Return the model, which is loaded by the first call."""
        with self._lock:
            if self._model is None:
                if self._check_files is not None:
                    self._check_files()
                self._model = _Model(self._load_tokenizer(), self._load_network())
            return self._model

    def _load_tokenizer(self) -> tokenizers.Tokenizer:
        """Load the tokenizer.

        Raises:
            DataError: The file is no tokenizer.
        """
        import tokenizers

        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(self._tokenizer_file))
        except Exception as error:  # the package has no class of its own for errors
            reason = one_line(error, 200)
            raise DataError(f"{self._tokenizer_file}: is no tokenizer: {reason}") from error

        # A file may ask for padding, which would make every text as long as the longest.
        tokenizer.no_padding()
        tokenizer.enable_truncation(self._max_tokens)
        return tokenizer

    def _load_network(self) -> onnxruntime.InferenceSession:
        """Load the network.

        Raises:
            DataError: onnxruntime cannot load the file.
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # One thread for each text: `_pool` works on several texts.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # fatal errors only; others are raised
        try:
            return onnxruntime.InferenceSession(
                str(self._model_file), options, ["CPUExecutionProvider"]
            )
        except Exception as error:
            reason = one_line(error, 200)
            raise DataError(f"{self._model_file}: onnxruntime cannot load it: {reason}") from error

    def _encode_all(self, texts: Sequence[str]) -> Iterable[TextEncoding]:
        """Encode texts, several at the same time, in their order."""
        if len(texts) == 1:
            return [self._encode(texts[0])]
        return self._pool.map(self._encode, texts)

    def _encode(self, text: str) -> TextEncoding:
        """Encode one text: its vector is the mean of the last hidden states of its tokens.

        Raises:
            DataError: The network is no sentence encoder.
        """
        tokenizer, session = self._loaded_model()
        encoding = tokenizer.encode(text)
        self._count_tokens(encoding.tokens)

        # Networks differ in which of these inputs they take.
        ids = np.array([encoding.ids], dtype=np.int64)  # [1, tokens]
        known_inputs = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        try:
            inputs = {node.name: known_inputs[node.name] for node in session.get_inputs()}
            outputs: Any = session.run(["last_hidden_state"], inputs)
        except Exception as error:
            reason = one_line(error, 200)
            raise DataError(f"{self._model_file}: is no sentence encoder: {reason}") from error

        hidden_states = outputs[0]  # [1, tokens, dimension]
        states: np.ndarray = hidden_states[0]  # [tokens, dimension]
        # The mean is over all tokens; a reranker compares those of words only.
        is_word = np.array(encoding.special_tokens_mask) == 0  # [tokens]
        return TextEncoding(states.mean(axis=0), _token_directions(states[is_word]))

    def _count_tokens(self, tokens: Sequence[str]) -> None:
        """Count tokens, and those among them that stand for something the model has not learned."""
        unknown_count = sum(token in _UNKNOWN_TOKENS for token in tokens)
        with self._lock:
            self._token_count += len(tokens)
            self._unknown_count += unknown_count

    def _warn_of_unknown_language(self) -> None:
        """Warn, once, if most of the texts are in a language that the model has not learned."""
        with self._lock:
            unknown_share = self._unknown_count / max(self._token_count, _MIN_TOKENS_OF_SHARE)
            if self._has_warned or unknown_share <= _MAX_UNKNOWN_SHARE:
                return
            self._has_warned = True

        _log.warning(
            "%s: %.0f %% of the tokens of these texts are unknown to it: vectors of such texts"
            " mean little; take --embedder e5, or another one that knows their language",
            self._model_file,
            100 * unknown_share,
        )


def _token_directions(states: np.ndarray) -> np.ndarray:
    """Return the directions of hidden states, projected and rounded to 8 bits.

    Args:
        states: float32 [tokens, dimension].

    Returns:
        int8 [tokens, at most `TOKEN_WIDTH`], where 127 stands for 1.
    """
    projected = states @ token_projection(states.shape[1])
    lengths = np.linalg.norm(projected, axis=1, keepdims=True)  # [tokens, 1]
    directions = 127 * projected / np.where(lengths > 0, lengths, 1)
    return np.round(directions).astype(np.int8)


@functools.cache
def token_projection(width: int) -> np.ndarray:
    """Return a random projection with orthogonal columns; always the same one for a width.

    Returns:
        float32 [width, at most `TOKEN_WIDTH`]; the identity if no numbers have to go.
    """
    if width <= TOKEN_WIDTH:
        return np.eye(width, dtype=np.float32)
    random_matrix = np.random.RandomState(0).standard_normal((width, TOKEN_WIDTH))
    orthogonal = np.linalg.qr(random_matrix)[0]
    return orthogonal.astype(np.float32)
