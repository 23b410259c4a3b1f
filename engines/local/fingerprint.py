"""The fingerprint of a local model: its weights, its precision, and how text becomes tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CHUNK_ELEMENTS = 1 << 24
"""Elements of a tensor that are hashed at a time: 64 MiB of float32."""

HASHING_THREADS = 4
"""Tensors that are hashed at the same time."""

IGNORED_SETTINGS = {
    "_name_or_path",
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}
"""Settings of a model about where it came from or how it is run; they do not change its answers."""


@dataclass(frozen=True)
class _FrozenPart:
    """The digest of everything about a model that training leaves as it is."""

    trained_names: tuple[str, ...]
    """The names of the weights that are trained: the digest does not cover these."""
    digest: bytes


class Fingerprinter:
    """Compute fingerprints of one model; what is not trained is hashed only the first time.

    A large base model under an adapter is therefore not read again after every update.
    """

    def __init__(self) -> None:
        self._frozen_part: _FrozenPart | None = None

    def fingerprint(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: Iterable[int],
        in_bfloat16: bool,
    ) -> str:
        """Return the digest of the weights, the precision, the configuration and the tokenizer.

        Args:
            model: The model.
            tokenizer: Its tokenizer.
            end_ids: The tokens that end a completion.
            in_bfloat16: Whether the model computes in bfloat16.
        """
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}

        # What training leaves as it is: hashed once, and again if other weights are trained.
        trained_names = tuple(trained)
        if self._frozen_part is None or self._frozen_part.trained_names != trained_names:
            frozen_digest = tensors_digest(frozen_tensors(model, trained_names))
            frozen_digest += settings_digest(model, tokenizer, end_ids)
            self._frozen_part = _FrozenPart(trained_names, frozen_digest)

        digest = hashlib.sha256(self._frozen_part.digest)
        digest.update(b"bfloat16" if in_bfloat16 else b"float32")
        digest.update(tensors_digest(trained))
        return digest.hexdigest()


def tensors_digest(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the digest of all elements of tensors, with their names and shapes.

    A tensor of 16 bits has the same digest as the same numbers in 32 bits, because training turns
    the one into the other.
    """
    digest = hashlib.sha256()
    with ThreadPoolExecutor(HASHING_THREADS) as pool:
        content_digests = pool.map(_content_digest, tensors.values())
        for (name, tensor), content_digest in zip(tensors.items(), content_digests, strict=True):
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(content_digest)
    return digest.digest()


def frozen_tensors(model: PreTrainedModel, trained_names: Iterable[str]) -> dict[str, Tensor]:
    """Return the parameters that are not trained and the buffers that a model saves, by name."""
    trained = set(trained_names)
    saved = model.state_dict().keys()
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if name not in trained:
            tensors[name] = parameter
    for name, buffer in model.named_buffers():
        if name in saved:
            tensors[name] = buffer
    return tensors


def settings_digest(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, end_ids: Iterable[int]
) -> bytes:
    """Return the digest of what decides the answers besides the weights.

    That is the configuration, the tokenizer, the chat template, and the scales of adapters.
    """
    config = {
        name: value
        for name, value in model.config.to_dict().items()
        if name not in IGNORED_SETTINGS
    }
    settings = [
        config,
        _tokenizer_settings(tokenizer),
        getattr(tokenizer, "chat_template", None),
        sorted(end_ids),
        _adapter_scales(model),
    ]
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).digest()


def _content_digest(tensor: Tensor) -> bytes:
    """Return the digest of a tensor's elements, those of 16 bits as float32."""
    import torch

    digest = hashlib.sha256()
    for chunk in tensor.detach().reshape(-1).split(CHUNK_ELEMENTS):
        is_short = chunk.dtype in (torch.bfloat16, torch.float16)
        numbers = chunk.float() if is_short else chunk
        digest.update(numbers.cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.digest()


def _adapter_scales(model: PreTrainedModel) -> dict[str, dict[str, float]]:
    """Return the factor of each adapter's output in each layer, by layer and adapter.

    For LoRA it is `lora_alpha` divided by the rank. It changes answers, but is no weight.
    """
    scales: dict[str, dict[str, float]] = {}
    for name, module in model.named_modules():
        # A layer of peft has a dict by adapter. Other modules have a number, or nothing.
        scaling = getattr(module, "scaling", None)
        if isinstance(scaling, dict):
            scales[name] = scaling
    return scales


def _tokenizer_settings(tokenizer: PreTrainedTokenizerBase) -> Any:
    """Return all that a tokenizer does with a text, as JSON, without what every call sets anew."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return tokenizer.get_vocab()
    settings = json.loads(backend.to_str())
    for name in ("padding", "truncation"):
        settings.pop(name, None)
    return settings
