"""Stands in for sentence-transformers, whose weights would be fetched: the run's embedder."""

from __future__ import annotations

from typing import Any

import numpy as np
import openai


class SentenceTransformer:
    """The run's embedder, whatever model is named."""

    def __init__(self, *named: str, **settings: Any) -> None:
        self.client = openai.OpenAI()

    def encode(self, texts: list[str], **settings: Any) -> np.ndarray:
        """Vectors of texts."""
        found = self.client.embeddings.create(model="any", input=texts).data
        return np.array([each.embedding for each in found], dtype=np.float32)
