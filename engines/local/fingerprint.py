"""What identifies a local model: every weight, how it is computed with, and how text becomes tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 24
"""Elements of a tensor that are looked at together: 64 MiB of float32."""
THREADS = 4
"""Tensors that are hashed at the same time."""
UNSTEADY = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"}
"""Settings of a model that say where it came from or how it is run, and decide nothing about its answers."""


def tensors_digest(tensors: Mapping[str, Tensor]) -> bytes:
    """The digest of all elements of tensors, with their names and shapes.

    A tensor of 16 bits and the same numbers in 32 bits have one digest: training turns the one into the other.
    """
    digest = hashlib.sha256()
    with ThreadPoolExecutor(THREADS) as pool:
        contents = pool.map(_content_digest, tensors.values())
        for (name, tensor), content in zip(tensors.items(), contents, strict=True):
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(content)
    return digest.digest()


def frozen_tensors(model: Any, trainable: Iterable[str]) -> dict[str, Tensor]:
    """The parameters that are not trained, and the buffers that are saved with a model, by name."""
    trained, saved = set(trainable), model.state_dict().keys()
    parameters = {name: tensor for name, tensor in model.named_parameters() if name not in trained}
    buffers = {name: tensor for name, tensor in model.named_buffers() if name in saved}
    return parameters | buffers


def settings_digest(model: Any, tokenizer: Any, ends: Iterable[int]) -> bytes:
    """The digest of what decides about answers beside the weights: configuration, tokenizer, scale of adapters."""
    config = {name: value for name, value in model.config.to_dict().items() if name not in UNSTEADY}
    template = getattr(tokenizer, "chat_template", None)
    settings = [config, _tokenizer_settings(tokenizer), template, sorted(ends), _adapter_scales(model)]
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).digest()


def _content_digest(tensor: Tensor) -> bytes:
    import torch

    digest = hashlib.sha256()
    for chunk in tensor.detach().reshape(-1).split(CHUNK):
        wide = chunk.float() if chunk.dtype in (torch.bfloat16, torch.float16) else chunk
        digest.update(wide.cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.digest()


def _adapter_scales(model: Any) -> dict[str, dict[str, float]]:
    """How much each adapter adds to the output of a layer, by the layer's name."""
    scales: dict[str, dict[str, float]] = {}
    for name, module in model.named_modules():
        scaling = getattr(module, "scaling", None)
        if isinstance(scaling, dict):
            scales[name] = scaling
    return scales


def _tokenizer_settings(tokenizer: Any) -> Any:
    """Everything that a tokenizer does with a text, as JSON, without what each call sets anew."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return tokenizer.get_vocab()
    settings = json.loads(backend.to_str())
    for name in ("padding", "truncation"):
        settings.pop(name, None)
    return settings
