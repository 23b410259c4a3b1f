"""The precision that a local model computes in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def autocast(device: torch.device, in_bfloat16: bool) -> AbstractContextManager[object]:
    """Return a context in which torch computes in bfloat16 if `in_bfloat16`, and else as usual."""
    import torch

    if not in_bfloat16:
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
