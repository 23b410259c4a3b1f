"""The weights of a model: their digest, a frozen copy, putting them back, working an adapter in."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

_WHOLE = 1 << 16
"""Elements up to which a tensor enters the digest whole; of larger ones, so many evenly spaced elements do."""


def fingerprint(model: Any) -> str:
    """Digest of the trainable weights, or of all where none is trainable."""
    named = list(model.named_parameters())
    digest = hashlib.sha256()
    for name, parameter in [(n, p) for n, p in named if p.requires_grad] or named:
        flat = parameter.detach().reshape(-1)
        taken = flat[:: max(1, flat.numel() // _WHOLE)].float().cpu().numpy()
        digest.update(f"{name}{tuple(parameter.shape)}".encode())
        digest.update(taken.tobytes())
    return digest.hexdigest()


def frozen_copy(model: Any) -> Any:
    """A copy that is not trained."""
    return copy.deepcopy(model).eval().requires_grad_(False)


def duplicate(model: Any) -> Any:
    """A copy that is trained as the model is."""
    return copy.deepcopy(model)


def restore(model: Any, state: Mapping[str, Tensor], name: str) -> None:
    """Puts trainable weights back.

    Raises:
        UserError: Names or shapes are not those of the model.
    """
    import torch

    trainable = {key: p for key, p in model.named_parameters() if p.requires_grad}
    wrong = set(trainable) ^ set(state)
    wrong |= {key for key in trainable if key in state and trainable[key].shape != state[key].shape}
    if wrong:
        raise UserError(f"the weights are not those of {name}: {min(wrong)} differs; load their own model")
    with torch.no_grad():
        for key, parameter in trainable.items():
            if parameter.dtype != state[key].dtype:
                parameter.data = parameter.data.to(state[key].dtype)
            parameter.copy_(state[key])


def merged(model: Any) -> Any:
    """A copy with its adapter worked in; the model itself where it has none."""
    return copy.deepcopy(model).merge_and_unload() if hasattr(model, "merge_and_unload") else model
