"""What guessing repeated text ahead saves a language model in a GGUF file, on answers that copy from a dialogue.

    facts of a session, as JSON held to a schema ──┐
    what each speaker said, as plain text ─────────┴──> seconds without guesses / seconds with them

One prompt at a time, and as many at a time as there are slots; both servers in one process, one after the other. The
sessions are those of the bundled LoCoMo sample. Nothing else may use the cores meanwhile.

Usage:
    $ python perf/guesses.py WEIGHTS.gguf --sessions 4
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mempiler.data.locomo.benchmark import Locomo
from mempiler.engines.gguf.server import GgufServer

_FACT = {"text": {"type": "string"}, "turn_ids": {"type": "array", "items": {"type": "string"}}}
_ONE: dict[str, Any] = {"type": "object", "properties": _FACT, "required": [*_FACT], "additionalProperties": False}
_FACTS: dict[str, Any] = {"type": "object", "properties": {"facts": {"type": "array", "items": _ONE}}}
_FACTS |= {"required": ["facts"], "additionalProperties": False}
ASKED: dict[str, tuple[str, dict[str, Any] | None]] = {
    "facts as JSON": ("List the facts of this dialogue as JSON: facts, each with text and turn_ids.", _FACTS),
    "plain text": ("Write down what each of the two said, in the third person, a line each.", None),
}


@dataclass(frozen=True)
class Taken:
    """What some answers took."""

    seconds: float
    tokens: int
    texts: Sequence[str]


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds of answers with and without guesses.")
    parser.add_argument("weights", type=Path)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=400, help="most of an answer")
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 4])
    chosen = parser.parse_args()
    items = [item for example in Locomo.load().examples[:1] for item in example.history.items][: chosen.sessions]
    sessions = ["\n".join(f"[{turn.id}] {turn.speaker}: {turn.text}" for turn in item.turns) for item in items]
    print("| slots | answers | tokens | without, s | with, s | without / with | alike |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for slots in chosen.slots:
        for name in ASKED:
            print(row(name, *(answered(chosen, slots, name, sessions, each) for each in (False, True)), slots))


def row(name: str, without: Taken, having: Taken, slots: int) -> str:
    """One line of the table."""
    alike = sum(one == other for one, other in zip(without.texts, having.texts, strict=True))
    ratio = without.seconds / having.seconds
    spent = f"{without.seconds:.1f} | {having.seconds:.1f} | {ratio:.2f}"
    return f"| {slots} | {name} | {having.tokens} | {spent} | {alike} of {len(having.texts)} |"


def answered(chosen: argparse.Namespace, slots: int, name: str, sessions: Sequence[str], guesses: bool) -> Taken:
    """The answers about all sessions, from a server of their own; reading the prompts is not timed."""
    from openai import OpenAI

    server = GgufServer(chosen.weights, slots, guesses=guesses)
    client = OpenAI(base_url=server.url, api_key=server.key, timeout=600, max_retries=0)
    told, schema = ASKED[name]
    form: Any = {"type": "json_schema", "json_schema": {"name": "facts", "schema": schema, "strict": True}}
    shaped: dict[str, Any] = {"response_format": form} if schema else {}

    def ask(session: str) -> tuple[int, float, str]:
        asked: Any = [{"role": "user", "content": f"{session}\n\n{told}"}]
        found = client.chat.completions.create(
            model=server.model, messages=asked, max_tokens=chosen.tokens, temperature=0, **shaped
        )
        timings = (found.model_extra or {})["timings"]
        used = found.usage.completion_tokens if found.usage else 0
        return used, timings["prompt_ms"] / 1000, found.choices[0].message.content or ""

    began = time.perf_counter()
    with ThreadPoolExecutor(slots) as pool:
        answers = list(pool.map(ask, sessions))
    seconds = time.perf_counter() - began - (sum(read for _, read, _ in answers) if slots == 1 else 0.0)
    return Taken(seconds, sum(tokens for tokens, _, _ in answers), [text for _, _, text in answers])


if __name__ == "__main__":
    main()
