"""How many greedy completions of a local model change with the batch that they are computed in.

    prompts of memory-env, each alone / in batches ──> completions that are alike; tokens whose two best logits tie

In bfloat16 logits are far apart or equal, and a batch rounds otherwise than a row alone: two scores of the same weights
then differ when greedy, more than their paired interval tells.

Usage:
    $ python perf/ties.py smollm2 --prompts 48
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

from mempiler.data.memory_env.benchmark import MemoryEnv
from mempiler.engines.embedders import embedder
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.parts import chunks
from mempiler.engines.local.scoring import computing
from mempiler.optimizers.demonstrations import demonstrate
from mempiler.programs.catalog import build
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.memory_r2.method import MemoryR2

Ids = Sequence[int]


def main() -> None:
    parser = argparse.ArgumentParser(description="Greedy completions that change with their batch.")
    parser.add_argument("model", help="what --lm local: takes")
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 48])
    parser.add_argument("--tokens", type=int, default=40, help="most of a completion")
    chosen = parser.parse_args()
    batches = " | ".join(f"alike in batches of {size}" for size in chosen.batches)
    print(f"| dtype | prompts | {batches} | tokens | of them ties |")
    print("| --- " * (4 + len(chosen.batches)) + "|")
    for dtype in ("bfloat16", "float32"):
        model = LocalModel.load(chosen.model, device="cpu", threads=1, dtype=dtype)
        asked = prompts(model, chosen.prompts)
        alone = [greedy(model, [prompt], chosen.tokens)[0] for prompt in asked]
        alike = []
        for size in chosen.batches:
            found = [ids for part in chunks(asked, size) for ids in greedy(model, part, chosen.tokens)]
            alike.append(str(sum(one == other for one, other in zip(alone, found, strict=True))))
        tied = [tie for prompt, ids in zip(asked, alone, strict=True) for tie in ties(model, prompt, ids)]
        share = sum(tied) / max(1, len(tied))
        print(f"| {dtype} | {len(asked)} | {' | '.join(alike)} | {len(tied)} | {share:.1%} |", flush=True)


def prompts(model: LocalModel, count: int) -> list[list[int]]:
    """Prompts of both writing predictors, in a drawn order."""
    benchmark = MemoryEnv.load(users=50, sessions=4, seed=0)
    program = build("memory-r2", benchmark.task, embedder("offline"), **MemoryR2.preset("memory-env"))
    found = demonstrate(program.method, CompactAdapter(instructions=False), max(1, count // 4), 4, seed=1)
    random.Random(0).shuffle(found)
    return [model.encode(messages) for messages, _ in found[:count]]


def greedy(model: LocalModel, asked: Sequence[Ids], tokens: int) -> list[tuple[int, ...]]:
    """The completions of some prompts as one batch."""
    return [tuple(sample.completion_ids) for sample in model.sample(asked, 0.0, tokens)]


def ties(model: LocalModel, prompt: Ids, completion: Ids) -> list[bool]:
    """Whether the two best logits are equal, at each token of a completion."""
    import torch

    with torch.no_grad(), computing(model.device, model.half):
        logits = model.model(input_ids=torch.tensor([[*prompt, *completion]])).logits
    best = logits[0, len(prompt) - 1 : -1].float().topk(2).values
    return (best[:, 0] == best[:, 1]).tolist()


if __name__ == "__main__":
    main()
