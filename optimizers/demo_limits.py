"""How long demos may be: settings of all optimizers that make demos."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DemoLimits:
    """How long demos may be, in estimated tokens."""

    demo_context_tokens: int = 300
    """Tokens of the recalled context that a labelled demo shows."""
    max_demo_tokens: int = 6000
    """Tokens of all demos of one prompt."""
