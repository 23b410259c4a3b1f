"""GGUF weights as a model that can be trained: de-quantised once, and kept in the format of transformers.

    smollm2 ──> FILE.gguf ── transformers' reader ──> .../models/FILE-DIGEST/ (float16, 2 bytes a weight)

So `gguf:NAME`, which llama.cpp runs, and `local:NAME`, which is trained, are the same weights. The folder is made when
it is first needed (a minute for SmolLM2 on a busy core) and belongs to that file's digest.

Limits: weights are rounded to float16, whose steps are finer than those of the quantised file. Training starts from
what quantising has left, not from the weights that were published before it.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from ...errors import UserError
from ..gguf.server import fingerprint
from ..weights import WEIGHTS, folder, gguf_file
from .loading import MissingLocalError, quiet

SUFFIX = ".gguf"


def is_gguf(name: str) -> bool:
    """Whether a model name stands for a GGUF file."""
    return name in WEIGHTS or name.endswith(SUFFIX)


def dequantized(name: str) -> Path:
    """The folder of the de-quantised model.

    Args:
        name: Of weights, or the path of a GGUF file.

    Raises:
        MissingDependencyError: The reader is not installed.
        UserError: The file is not there, cannot be read as a language model, or the folder cannot be written.
    """
    file = gguf_file(name)
    made = folder() / f"{file.stem}-{fingerprint(file)}"
    if not made.is_dir():
        _make(file, made)
    return made


def _make(file: Path, made: Path) -> None:
    """Writes beside and renames, so that a folder with that name is whole; whoever comes second keeps the first's."""
    if importlib.util.find_spec("gguf") is None:
        raise MissingLocalError("gguf")
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=made.parent, prefix=f".{made.name}.") as part, quiet():
            model, tokenizer = _read(file)
            inside = Path(part) / "model"
            model.save_pretrained(inside)
            tokenizer.save_pretrained(inside)
            inside.rename(made)
    except Exception as error:  # A file that is cut or foreign fails in as many ways as the reader has lines.
        if made.is_dir():
            return  # another process was first
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{file}: cannot be de-quantised for training: {reason}") from error


def _read(file: Path) -> tuple[Any, Any]:
    import torch
    import transformers

    where = {"gguf_file": file.name, "trust_remote_code": False}
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **where)
    read = transformers.AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float16, **where)
    # What was read calls itself quantised and refuses to be saved; its numbers in a new model of its shape do not.
    config: Any = read.config
    del config.quantization_config
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float16)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    return model, tokenizer
