"""Gradient checkpointing: the forward pass keeps each layer's input alone, the backward pass computes the rest again.

About a third more work for a fraction of the memory. Layers are those that transformers marks for it. They are wrapped
for one pass, rather than switched on as transformers does it: that needs the training mode, whose dropout would change
the ratio of new to old probabilities, and it would drop the cache of sampling. Frozen inputs, as with LoRA, need no
gradient of their own here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import UserError


def layers(model: Any) -> list[Any]:
    """The layers of a model that can be computed again.

    Raises:
        UserError: It has none.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    found = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not found:
        raise UserError(f"gradient_checkpointing: {type(model).__name__} has no layers for it; leave it off")
    return found


@contextmanager
def checkpointed(model: Any) -> Iterator[None]:
    """Forward passes inside keep only the inputs of layers; their backward passes may come after it.

    Raises:
        UserError: The model has no such layers.
    """
    from torch.utils.checkpoint import checkpoint

    found = layers(model)
    own = [layer.__dict__.get("forward") for layer in found]
    for layer in found:
        settings: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
        layer.forward = functools.partial(checkpoint, layer.forward, **settings)
    try:
        yield
    finally:
        for layer, before in zip(found, own, strict=True):
            if before is None:
                del layer.forward
            else:
                layer.forward = before
