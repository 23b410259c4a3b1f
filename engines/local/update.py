"""Gradient steps on a local model: accumulation, clipping, and a state to resume from.

The model stays in evaluation mode, without dropout: otherwise the ratio of new to old probabilities would not start at
1. A step whose gradient is not finite is left out and counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from .model import LocalModel


class Update:
    """AdamW over the trainable weights of a model.

    Args:
        model: What learns.
        learning_rate: Unless a step says otherwise.
        max_grad_norm: Gradients are scaled down to it.
        weight_decay: As in AdamW.
    """

    def __init__(
        self, model: LocalModel, learning_rate: float, max_grad_norm: float = 1.0, weight_decay: float = 0.0
    ) -> None:
        import torch

        self.model, self.learning_rate, self.max_grad_norm = model, learning_rate, max_grad_norm
        self.skipped = 0
        """Steps left out because their gradient was not finite."""
        self._parameters = model.parameters()
        self._optimizer = torch.optim.AdamW(self._parameters, lr=learning_rate, weight_decay=weight_decay)

    def step(self, parts: Sequence[Callable[[], Tensor]], learning_rate: float | None = None) -> float:
        """One step on the sum of the parts' losses; their gradients are accumulated one by one.

        Returns:
            The loss before the step.
        """
        import torch

        with self.model.lock, torch.enable_grad():
            self._optimizer.zero_grad(set_to_none=True)
            loss = 0.0
            for part in parts:
                found = part()
                found.backward()
                loss += float(found.detach())
            norm = torch.nn.utils.clip_grad_norm_(self._parameters, self.max_grad_norm)
            if not math.isfinite(float(norm)):
                self.skipped += 1
            else:
                for group in self._optimizer.param_groups:
                    group["lr"] = self.learning_rate if learning_rate is None else learning_rate
                self._optimizer.step()
                self.model.updated()
            self._optimizer.zero_grad(set_to_none=True)
        return loss

    def state(self) -> dict[str, Any]:
        """The optimizer's moments and counters."""
        return self._optimizer.state_dict()

    def load_state(self, state: dict[str, Any]) -> None:
        """Puts back what `state` gave."""
        self._optimizer.load_state_dict(state)


def chunks(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """Consecutive parts of at most `size` items."""
    return [items[start : start + size] for start in range(0, len(items), size)]
