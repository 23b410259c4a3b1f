"""A GGUF file as a model with an endpoint: llama.cpp's server, in this process, on loopback, on the CPU.

Prompts that begin alike are read once. What an answer repeats of its prompt or of itself is guessed from there and read
as one block; what the model does not say is dropped. The engine keeps all cores busy.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..optional_import import require_package
from ..text import one_line
from .file_digests import remembered_digest

CONTEXT = 8192
"""Tokens of a prompt and its answer."""
MOST_SLOTS = 8
_REPEATED, _GUESSED = 6, 12
"""So many tokens that stood before are followed by so many guesses; docs/local_models.md tells what it gives."""

_PART = re.compile(r"(?P<begin>.+-)[0-9]{5}(?P<end>-of-[0-9]{5}\.gguf)")
"""The name of a part of a model: `NAME-00001-of-00003.gguf`."""


class GgufServer:
    """A running server.

    Args:
        path: The GGUF file.
        digest: Of `gguf_digest`, a part of the model's name: answers of other weights are kept under another name.
        slots: Prompts that are worked on at the same time.

    Raises:
        MissingDependencyError: The extra `models` is not installed.
        UserError: The file cannot be loaded.
    """

    def __init__(self, path: Path, digest: str, slots: int = 1) -> None:
        self.key, self.context = secrets.token_hex(16), CONTEXT
        self.model = f"{path.stem}@{digest[:16]}"
        """What the endpoint calls the model."""
        slots = max(1, min(slots, MOST_SLOTS))
        self._server = _serve(path, self.key, self.model, slots)
        self.url = f"{self._server.listening_address}/v1"


def gguf_digest(path: Path) -> str:
    """The sha256 of a GGUF file, or of the digests of all parts where llama.cpp reads several files as one model."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return remembered_digest(path)
    parts = sorted(path.parent.glob(f"{glob.escape(match['begin'])}?????{glob.escape(match['end'])}"))
    digests = [remembered_digest(part) for part in parts]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _serve(path: Path, key: str, name: str, slots: int) -> Any:
    with require_package("xllamacpp", "models"):
        import xllamacpp  # pyright: ignore[reportMissingImports]
    cores = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    wanted: Any = xllamacpp.CommonParams()
    wanted.model.path, wanted.model_alias, wanted.api_keys = str(path), {name}, [key]
    wanted.n_parallel, wanted.n_ctx = slots, slots * CONTEXT
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = cores
    if slots == 1:
        # Packed weights, and flash attention with its tiles of 64 tokens, round otherwise where a block is short.
        # Without both an answer does not depend on how much of its prompt the cache held, short of all of it; beside
        # another slot's tokens it does either way.
        wanted.no_extra_bufts = True
        wanted.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # llama.cpp samples at .8 where a request names no temperature; then no run could be repeated.
    wanted.sampling.temp = 0.0
    # What an answer repeats is guessed ahead.
    ngrams, kinds = wanted.speculative.ngram_simple, xllamacpp.common_speculative_type
    wanted.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    ngrams.size_n, ngrams.size_m = _REPEATED, _GUESSED
    # Without the model's own chat template, it would be asked in another's.
    wanted.use_jinja, wanted.warmup, wanted.ui, wanted.verbosity = True, False, False, -1
    try:
        return xllamacpp.Server(wanted)
    except (RuntimeError, OSError, ValueError) as error:
        reason = one_line(error)
        raise UserError(f"{path}: llama.cpp cannot serve it: {reason}; is the file whole, and memory free?") from error
