"""Predictions of the offline engine at temperature zero, for its tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dspy
from mempiler.engines.offline.engine import OfflineEngine

make_signature: Any = dspy.Signature
"""Typed loosely: its metaclass takes arguments that type checkers do not see."""


def chat() -> Any:
    """DSPy's own adapter, without a second attempt in JSON."""
    return dspy.ChatAdapter(use_json_adapter_fallback=False)


def make_lm() -> dspy.LM:
    """The engine as a model that remembers nothing."""
    return dspy.LM("offline/extractive-1", engine=OfflineEngine(), temperature=0.0, cache=False)


def predict(signature: Any, demos: Iterable[dict[str, Any]] = (), adapter: Any = None, **inputs: Any) -> Any:
    """Fills a signature, by the chat adapter unless another is given."""
    program = dspy.Predict(signature)
    program.demos = list(demos)
    with dspy.context(lm=make_lm(), adapter=adapter or chat()):
        return program(**inputs)
