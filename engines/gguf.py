"""A GGUF file as a model with an endpoint: llama.cpp's server in this process, on loopback.

The server runs on the CPU, and keeps all cores busy. Prompts that begin alike are read once.

What an answer repeats of its prompt or of itself is guessed ahead: the server reads the guesses as
one block, which is faster, and drops those that the model does not confirm.
"""

from __future__ import annotations

import glob
import hashlib
import re
import secrets
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..optional_import import require_package
from ..text import one_line
from .cores import usable_cores
from .file_digests import remembered_digest

CONTEXT = 8192
"""Tokens of a prompt and its answer together."""
MAX_SLOTS = 8
"""The most prompts that a server works on at the same time."""

_REPEATED_TOKENS = 6
"""How many tokens must have stood before, in this order, for a guess of what follows them."""
_GUESSED_TOKENS = 12
"""How many tokens are guessed then; docs/local_models.md says how much faster answers become."""

_PART_NAME = re.compile(r"(?P<start>.+-)[0-9]{5}(?P<end>-of-[0-9]{5}\.gguf)")
"""The name of one file of a model in several files: `NAME-00001-of-00003.gguf`."""


class GgufServer:
    """A running server for one GGUF file.

    Args:
        path: The GGUF file.
        digest: Its digest, see `gguf_digest`. It is a part of the model's name, so that answers of
            other weights are kept under another name.
        slots: How many prompts are worked on at the same time, from 1 to `MAX_SLOTS`.

    Raises:
        MissingDependencyError: The extra `models` is not installed.
        UserError: The file cannot be loaded.
    """

    def __init__(self, path: Path, digest: str, slots: int = 1) -> None:
        self.context = CONTEXT
        """Tokens of a prompt and its answer together."""
        self.key = secrets.token_hex(16)
        """The key that requests need."""
        self.model = f"{path.stem}@{digest[:16]}"
        """What the endpoint calls the model."""

        slots = max(1, min(slots, MAX_SLOTS))
        self._server = _start_server(path, self.key, self.model, slots)
        self.url = f"{self._server.listening_address}/v1"


def gguf_digest(path: Path) -> str:
    """Return the sha256 of a GGUF file.

    A model may be split over several files, NAME-00001-of-00003.gguf and so on, which llama.cpp
    reads as one. Then it is the sha256 of the digests of all of them.
    """
    match = _PART_NAME.fullmatch(path.name)
    if match is None:
        return remembered_digest(path)

    # The same name with any five digits as the number of the part.
    pattern = f"{glob.escape(match['start'])}?????{glob.escape(match['end'])}"
    parts = path.parent.glob(pattern)
    digests = [remembered_digest(part) for part in sorted(parts)]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _start_server(path: Path, key: str, model: str, slots: int) -> Any:
    """Start llama.cpp's server, and return it.

    Raises:
        MissingDependencyError: The extra `models` is not installed.
        UserError: The file cannot be loaded.
    """
    with require_package("xllamacpp", "models"):
        import xllamacpp  # pyright: ignore[reportMissingImports]

    # The package has no types.
    llama_cpp: Any = xllamacpp
    parameters = _server_parameters(llama_cpp, path, key, model, slots)
    try:
        return llama_cpp.Server(parameters)
    except (RuntimeError, OSError, ValueError) as error:
        reason = one_line(error)
        raise UserError(
            f"{path}: llama.cpp cannot serve it: {reason}; is the file whole, and memory free?"
        ) from error


def _server_parameters(xllamacpp: Any, path: Path, key: str, model: str, slots: int) -> Any:
    """Return the `CommonParams` of a server."""
    parameters: Any = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.model_alias = {model}
    parameters.api_keys = [key]

    # All slots share one context.
    parameters.n_parallel = slots
    parameters.n_ctx = slots * CONTEXT

    cores = usable_cores()
    parameters.cpuparams.n_threads = cores
    parameters.cpuparams_batch.n_threads = cores

    if slots == 1:
        # An answer must not depend on how much of its prompt was in the cache. It would, because
        # packed weights, and flash attention with its tiles of 64 tokens, round short blocks in
        # another way. (It still does if the cache held the whole prompt.) With several slots an
        # answer depends on the tokens in other slots anyway.
        parameters.no_extra_bufts = True
        flash_attention = xllamacpp.llama_flash_attn_type
        parameters.flash_attn_type = flash_attention.LLAMA_FLASH_ATTN_TYPE_DISABLED

    # If a request names no temperature, llama.cpp takes .8, and no run could be repeated.
    parameters.sampling.temp = 0.0

    kinds_of_guesses = xllamacpp.common_speculative_type
    parameters.speculative.types = [kinds_of_guesses.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    parameters.speculative.ngram_simple.size_n = _REPEATED_TOKENS
    parameters.speculative.ngram_simple.size_m = _GUESSED_TOKENS

    # With the model's own chat template; otherwise it would be asked in another model's form.
    parameters.use_jinja = True
    parameters.warmup = False
    parameters.ui = False
    parameters.verbosity = -1
    return parameters
