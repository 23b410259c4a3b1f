"""What a training step saves by computing equal completions once.

    prompts of memory-env, N completions of each ──> one step with equal rows together / one step row by row

The completions are sampled at temperature 1 from the model that is named, so that as many are equal as in its training:
in a group few answers are different, and short ones least. Rewards are the words shared with a teacher's answer.
Nothing else may use the cores meanwhile.

Usage:
    $ python perf/equal_rows.py runs/local/RUN/logo-grpo-0/model
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from mempiler.data.memory_env.benchmark import MemoryEnv
from mempiler.engines.embedders import embedder
from mempiler.engines.local import reinforce
from mempiler.engines.local.engine import local_lm
from mempiler.engines.local.model import LocalModel
from mempiler.optimizers.demonstrations import Example, demonstrate
from mempiler.programs.catalog import build
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.memory_r2.method import MemoryR2


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds of a step with equal rows together and row by row.")
    parser.add_argument("model", help="a folder, or what --lm local: takes")
    parser.add_argument("--users", type=int, default=4)
    parser.add_argument("--completions", type=int, default=16, help="of each prompt")
    parser.add_argument("--tokens", type=int, default=96, help="most of a completion")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    model = LocalModel.load(chosen.model)
    groups = sampled(model, asked(chosen.users), chosen.completions, chosen.tokens)
    rows = [(item["prompt_ids"], item["completion_ids"]) for group in groups for item in group["group"]]
    print(f"{len(groups)} groups, {len(rows)} completions, {len(set(rows))} of them distinct")
    print("| round | together, s | row by row, s | row by row / together |")
    print("| --- | --- | --- | --- |")
    for number in range(chosen.rounds):
        together = seconds(model, groups)
        with patch.object(reinforce, "_alike", lambda rows: [[row] for row in rows]):
            alone = seconds(model, groups)
        print(f"| {number + 1} | {together:.2f} | {alone:.2f} | {alone / together:.2f} |")


def asked(users: int) -> list[Example]:
    """Prompts of the two writing predictors, with a teacher's answers."""
    benchmark = MemoryEnv.load(users=10, sessions=8, seed=0)
    program = build("memory-r2", benchmark.task, embedder("offline"), **MemoryR2.preset("memory-env"))
    return demonstrate(program.method, CompactAdapter(instructions=False), users, 8, seed=1)


def sampled(model: LocalModel, examples: Sequence[Example], completions: int, tokens: int) -> list[dict[str, Any]]:
    """A group for each prompt."""
    found = []
    for number, (messages, answer) in enumerate(examples):
        samples = model.sample([model.encode(messages)] * completions, 1.0, tokens, number)
        items = [
            {
                "messages": messages,
                "completion": {"role": "assistant", "content": sample.text},
                "reward": shared(sample.text, answer),
                "prompt_ids": sample.prompt_ids,
                "completion_ids": sample.completion_ids,
                "logprobs": sample.logprobs,
            }
            for sample in samples
        ]
        found.append({"batch_id": number, "group": items})
    return found


def shared(text: str, answer: str) -> float:
    """Share of the words of both that both have."""
    one, other = set(text.split()), set(answer.split())
    return len(one & other) / max(1, len(one | other))


def seconds(model: LocalModel, groups: Sequence[dict[str, Any]]) -> float:
    """CPU time of one step from the weights as they are; they are put back."""
    before = model.state()
    job = local_lm(model, temperature=1.0).reinforce({"learning_rate": 2e-4, "beta": 0.02})
    job.initialize()
    begun = time.process_time()
    job.step(groups)
    taken = time.process_time() - begun
    model.load_state(before)
    return taken


if __name__ == "__main__":
    main()
