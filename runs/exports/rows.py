"""An exported environment as rows and a reward function for TRL's `GRPOTrainer`.

A row is one call of the writer, with the memory before its session. The completions of a row's group are run from that
very memory, as a local group of LoGo-GRPO: what the session asks before the call was answered by the row's model, what
it asks after it is answered by that model again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ...optimizers.logo_grpo.rollout import together
from ...records.whole_file import replacing
from .environment import Environment

ROWS = "rows.jsonl"


def write_rows(environment: Environment, file: Path) -> int:
    """Writes the rows of an environment, all or none, and returns how many there are."""
    count = 0
    with replacing(file) as out:
        for count, row in enumerate(environment.rows(), 1):  # noqa: B007
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    return count


def reward_function(path: Path, threads: int = 8) -> Callable[..., list[float]]:
    """The reward function of an export.

    Args:
        path: Its `export.json`; read at the first call.
        threads: Completions that are rewarded at the same time.
    """
    opened = cache(lambda: Environment.open(path))

    def memory(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
        """What the session of a row is worth with a completion in the place of its own."""
        environment = opened()
        rows = [
            {name: columns[name][n] for name in ("history", "session", "memory", "said")} for n in range(len(prompts))
        ]
        texts = [each if isinstance(each, str) else "".join(m["content"] for m in each) for each in completions]
        pairs = zip(rows, texts, strict=True)
        return together([lambda row=row, text=text: environment.worth_of(row, text) for row, text in pairs], threads)

    return memory
