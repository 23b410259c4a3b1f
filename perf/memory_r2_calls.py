"""How many LM calls Memory-R2 makes to write a conversation: as released, as it was cut before, and with one agent.

    as released      4 parts a session, each with the earlier ones as context, related memories of the fact's speaker
    parts of 4 turns chunk_turns=4, earlier=False, same_speaker=False
    single agent     one prompt in the place of extractor and manager

Calls are counted where they reach the engine, which is the offline one: a part without facts asks no manager, so a real
model's counts differ by what it finds worth keeping. Tokens are those of the prompts.

Usage:
    $ python perf/memory_r2_calls.py locomo10.json
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

WAYS: Mapping[str, Mapping[str, Any]] = {
    "as released": {},
    "parts of 4 turns": {"chunk_turns": 4, "earlier": False, "same_speaker": False},
    "single agent": {"single_agent": True},
}


def main() -> None:
    from mempiler.data.locomo.benchmark import Locomo

    parser = argparse.ArgumentParser(description="LM calls of Memory-R2's writing.")
    parser.add_argument("file", nargs="?", help="a LoCoMo file [default: the bundled sample]")
    benchmark = Locomo.load(parser.parse_args().file)
    histories = {example.history.id: example.history for example in benchmark.examples}
    print("| conversation | sessions | turns | way | calls | prompt tokens |")
    print("| --- | --- | --- | --- | --- | --- |")
    for id, history in histories.items():
        for way, settings in WAYS.items():
            calls, tokens = written(history, settings)
            print(f"| {id} | {len(history)} | {len(history.turns)} | {way} | {calls:,} | {tokens:,} |", flush=True)


def written(history: Any, settings: Mapping[str, Any]) -> tuple[int, int]:
    """Calls and prompt tokens of writing a history once."""
    import dspy
    from mempiler import build
    from mempiler.engines.models import language_model

    lm = language_model("offline", cache=False)
    with dspy.context(lm=lm, trace=None, disable_history=True):
        build("memory-r2", **settings).remember(history)
    usage = lm.meter.read()
    return sum(usage.calls.values()), usage.input_tokens


if __name__ == "__main__":
    main()
