"""Takes the place of sentence-transformers, whose weights would be fetched: the run's embedder."""

from __future__ import annotations

from typing import Any

import numpy as np
import openai


class SentenceTransformer:
    """The run's embedder, whatever model is named."""

    def __init__(self, *names: str, **settings: Any) -> None:
        # The models of the run have time limits and retries of their own.
        self.client = openai.OpenAI(timeout=None, max_retries=0)

    def encode(self, texts: list[str], **settings: Any) -> np.ndarray:
        """Return the vectors of some texts, of shape [texts, dimension]."""
        response = self.client.embeddings.create(model="any", input=texts)
        return np.array([row.embedding for row in response.data], dtype=np.float32)
