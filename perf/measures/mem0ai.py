"""Measures adding a session of three facts, and a search, in mem0; run by the interpreter that has mem0.

Its own `Memory` with its faiss store on disk; language model and embedder answer at once. Prints a JSON object: CPU
milliseconds of an add and of a search after it, medians, beside so many entries.

Usage:
    $ python -m venv /tmp/mem0 && /tmp/mem0/bin/pip install mem0ai faiss-cpu
    $ /tmp/mem0/bin/python perf/measures/mem0ai.py 1000
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable
from statistics import median
from typing import Any

DIMENSION, ROUNDS = 384, 15


class Model:
    """Three new facts a call."""

    number = 0

    def generate_response(self, *given: Any, **named: Any) -> str:
        """The answer to any prompt."""
        self.number += 3
        return json.dumps({"memory": [{"text": f"Ada has the piano number {self.number + n}"} for n in range(3)]})


class Embedder:
    """A vector drawn by the text."""

    def embed(self, text: str, action: Any = None) -> list[float]:
        """A vector of length 1."""
        import numpy as np

        vector = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIMENSION)
        return (vector / np.linalg.norm(vector)).tolist()

    def embed_batch(self, texts: list[str], action: Any = None) -> list[list[float]]:
        """Their vectors."""
        return [self.embed(text) for text in texts]


def measured(folder: str, size: int) -> dict[str, float]:
    """Milliseconds of an add and a search."""
    from mem0 import Memory

    store = {"collection_name": "bench", "path": f"{folder}/faiss", "embedding_model_dims": DIMENSION}
    memory = Memory.from_config(
        {"vector_store": {"provider": "faiss", "config": store}, "history_db_path": f"{folder}/history.db"}
    )
    memory.llm, memory.embedding_model = Model(), Embedder()
    texts = [f"Ada has the garden number {n}" for n in range(size)]
    about = [{"data": text, "hash": text, "user_id": "ada", "text_lemmatized": text} for text in texts]
    memory.vector_store.insert(memory.embedding_model.embed_batch(texts), about, [str(uuid.uuid4()) for _ in texts])
    adds, searches = list[float](), list[float]()
    for n in range(ROUNDS):
        said = [{"role": "user", "content": f"I have the bicycle number {n}."}]
        adds.append(taken(lambda said=said: memory.add(said, user_id="ada")))
        searches.append(taken(lambda n=n: memory.search(f"Which piano {n}?", filters={"user_id": "ada"})))
    return {"add": median(adds[2:]), "search": median(searches[2:])}


def taken(work: Callable[[], Any]) -> float:
    """Milliseconds of CPU."""
    begun = time.process_time()
    work()
    return 1000 * (time.process_time() - begun)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"MEM0_TELEMETRY": "False", "OPENAI_API_KEY": "none", "OMP_NUM_THREADS": "1", "MEM0_DIR": home}
        print(json.dumps(measured(home, int(sys.argv[1]))))
