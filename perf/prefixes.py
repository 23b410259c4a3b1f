"""Whether an answer depends on how much of its prompt a GGUF model's server had read before.

    one prompt ── of a fresh server ─────────────────────┐
       └──────── after a prompt that begins like it ─────┴──> are all log-probabilities of the answer the same numbers?

What is cached decides how the rest of a prompt is cut into blocks, and kernels for long and for short blocks may round
otherwise; then a run that was killed and resumed need not end as an unbroken one. The prompt is two sessions of the
bundled LoCoMo sample, and every case has a server of its own.

Usage:
    $ python perf/prefixes.py WEIGHTS.gguf
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mempiler.data.locomo.benchmark import Locomo
from mempiler.engines.gguf.server import GgufServer

TOLD = "Write down what each of the two said, in the third person, a line each."


class Answer(NamedTuple):
    """What was said, with the log-probability of every token, and how much of the prompt was read before."""

    text: str
    logprobs: tuple[float, ...]
    cached: int


def main() -> None:
    parser = argparse.ArgumentParser(description="Does an answer depend on what was cached?")
    parser.add_argument("weights", type=Path)
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sessions", type=int, default=2, help="of a conversation, in the prompt")
    parser.add_argument("--tokens", type=int, default=24, help="of the answer")
    parser.add_argument("--cuts", type=int, default=8, help="beginnings, the last of them the whole prompt")
    chosen = parser.parse_args()
    items = Locomo.load().examples[0].history.items[: chosen.sessions]
    words = " ".join(f"{turn.speaker}: {turn.text}" for item in items for turn in item.turns).split()
    print("| slots | cached tokens | log-probabilities | text |")
    print("| --- | --- | --- | --- |")
    for slots in chosen.slots:
        fresh = asked(chosen, slots, [words])[0]
        for cut in range(1, chosen.cuts + 1):
            begun = words[: len(words) * cut // chosen.cuts]
            print(row(slots, fresh, asked(chosen, slots, [begun, words])[1]))


def row(slots: int, fresh: Answer, other: Answer) -> str:
    """One line of the table."""
    same = ["the same" if one == two else "others" for one, two in zip(fresh[:2], other[:2], strict=True)]
    return f"| {slots} | {other.cached} | {same[1]} | {same[0]} |"


def asked(chosen: argparse.Namespace, slots: int, prompts: Sequence[Sequence[str]]) -> list[Answer]:
    """The answers of a new server to prompts that come one after the other."""
    from openai import OpenAI

    server = GgufServer(chosen.weights, slots)
    client = OpenAI(base_url=server.url, api_key=server.key, timeout=600, max_retries=0)

    def ask(words: Sequence[str]) -> Answer:
        messages: Any = [{"role": "user", "content": f"{' '.join(words)}\n\n{TOLD}"}]
        found = client.chat.completions.create(
            model=server.model, messages=messages, max_tokens=chosen.tokens, temperature=0, logprobs=True
        )
        said, scored = found.choices[0], found.choices[0].logprobs
        logprobs = tuple(token.logprob for token in (scored.content if scored else None) or ())
        return Answer(said.message.content or "", logprobs, (found.model_extra or {})["timings"]["cache_n"])

    return [ask(words) for words in prompts]


if __name__ == "__main__":
    main()
