"""Measure mem0: adding a session of three facts, and a search after it.

The interpreter that has mem0 runs this script; `bench.py` starts it. It uses mem0's own `Memory`
with its faiss store on disk. The language model and the embedder are stubs that answer at once.

Usage:
    $ python -m venv /tmp/mem0 && /tmp/mem0/bin/pip install mem0ai faiss-cpu
    $ /tmp/mem0/bin/python perf/measures/mem0ai.py 1000
    {"add": 2.21, "search": 0.648}

The argument is the number of entries that are there already. The figures are milliseconds of CPU,
medians.
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
from functools import partial
from statistics import median
from typing import Any

DIMENSION = 384
ROUNDS = 15
WARM_UP_ROUNDS = 2


class ScriptedModel:
    """A language model that extracts three new facts from every prompt."""

    def __init__(self) -> None:
        self.facts = 0

    def generate_response(self, *args: Any, **kwargs: Any) -> str:
        """Answer any prompt."""
        self.facts += 3
        texts = [f"Ada has the piano number {self.facts + n}" for n in range(3)]
        return json.dumps({"memory": [{"text": text} for text in texts]})


class RandomEmbedder:
    """An embedder whose vectors are random, but the same for the same text."""

    def embed(self, text: str, action: Any = None) -> list[float]:
        """Return a vector of length 1."""
        import numpy as np

        seed = zlib.crc32(text.encode())
        vector = np.random.default_rng(seed).standard_normal(DIMENSION)
        return (vector / np.linalg.norm(vector)).tolist()

    def embed_batch(self, texts: list[str], action: Any = None) -> list[list[float]]:
        """Return one vector for each text."""
        return [self.embed(text) for text in texts]


def open_memory(folder: str) -> Any:
    """Return a `Memory` of mem0 with its files in a folder, and our stubs."""
    from mem0 import Memory

    memory = Memory.from_config(
        {
            "vector_store": {
                "provider": "faiss",
                "config": {
                    "collection_name": "bench",
                    "path": f"{folder}/faiss",
                    "embedding_model_dims": DIMENSION,
                },
            },
            "history_db_path": f"{folder}/history.db",
        }
    )
    memory.llm = ScriptedModel()
    memory.embedding_model = RandomEmbedder()
    return memory


def fill(memory: Any, size: int) -> None:
    """Insert so many entries into the vector store, without asking the model."""
    texts = [f"Ada has the garden number {n}" for n in range(size)]
    vectors = memory.embedding_model.embed_batch(texts)
    payloads = [
        {"data": text, "hash": text, "user_id": "ada", "text_lemmatized": text} for text in texts
    ]
    ids = [str(uuid.uuid4()) for _ in texts]
    memory.vector_store.insert(vectors, payloads, ids)


def measure(folder: str, size: int) -> dict[str, float]:
    """Return the milliseconds of CPU of an add and of a search, beside `size` entries."""
    memory = open_memory(folder)
    fill(memory, size)

    adds: list[float] = []
    searches: list[float] = []
    for n in range(ROUNDS):
        messages = [{"role": "user", "content": f"I have the bicycle number {n}."}]
        adds.append(cpu_ms(partial(memory.add, messages, user_id="ada")))

        query = f"Which piano {n}?"
        searches.append(cpu_ms(partial(memory.search, query, filters={"user_id": "ada"})))
    return {"add": median(adds[WARM_UP_ROUNDS:]), "search": median(searches[WARM_UP_ROUNDS:])}


def cpu_ms(work: Callable[[], object]) -> float:
    """Do a piece of work once, and return its CPU time in milliseconds."""
    start = time.process_time()
    work()
    return 1000 * (time.process_time() - start)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        # mem0 and faiss read these when they are imported.
        os.environ["MEM0_TELEMETRY"] = "False"
        os.environ["OPENAI_API_KEY"] = "none"
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ["MEM0_DIR"] = home
        print(json.dumps(measure(home, int(sys.argv[1]))))
