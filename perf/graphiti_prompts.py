"""Count how many sessions of a conversation Graphiti can add within a model's context.

Graphiti shows its model the latest ten sessions whenever it adds one, so its prompts grow. With
`--earlier-sessions` it shows fewer. Here a stand-in answers in the place of the model: it finds the
speakers and no facts. With more entities and facts the prompts are longer, so these are about the
most sessions that fit into a context. A prompt that is longer than the context is refused, and its
session is not added.

Usage:
    $ mempiler fetch system:graphiti
    $ mempiler fetch qwen2.5-coder-1.5b                # it only counts the tokens
    $ python perf/graphiti_prompts.py --locomo locomo2.json                         # a minute
    $ python perf/graphiti_prompts.py --locomo locomo2.json --earlier-sessions 2

Sample output:
    conversation   session   longest prompt
    conv-26        D7                  7328
    conv-26        D8                  8837   refused
    conv-26: 8 of 19 sessions added, 35 prompts of 209,974 tokens, 11 of them refused

Columns:
    longest prompt    tokens of the longest prompt for the session, with the model's chat template
    refused           whether it was longer than the context
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import httpx
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.gguf import CONTEXT, GgufServer, gguf_digest
from mempiler.engines.weights import gguf_file
from mempiler.errors import MempilerError
from mempiler.records import History
from mempiler.systems.catalog import factory
from mempiler.systems.process import SystemFailedError

Message = Mapping[str, str]
CountTokens = Callable[[Sequence[Message]], int]

SECONDS = 600.0
"""How long one request for the tokens of a prompt may take."""

_CURRENT_MESSAGE = re.compile("<CURRENT MESSAGE>(.*)</CURRENT MESSAGE>", re.DOTALL)
"""The session to add, in Graphiti's prompt for entities."""
_SPEAKER = re.compile("^([^:\n]+): ", re.MULTILINE)


class StandIn(dspy.BaseLM):
    """Answers Graphiti's prompts in the shortest way, and keeps how many tokens they have.

    Args:
        count_tokens: Returns how many tokens a prompt has.
        context: The most tokens of a prompt. A longer one is refused.
        speakers: The people who speak in the conversation.
    """

    def __init__(self, count_tokens: CountTokens, context: int, speakers: Sequence[str]) -> None:
        super().__init__("stand-in")
        self.lengths: list[int] = []
        """The tokens of the prompts."""
        self._count_tokens = count_tokens
        self._context = context
        self._speakers = speakers

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, messages: Sequence[Message], response_format: Mapping[str, Any], **settings: Any
    ) -> list[str]:
        """Return the shortest answer that has the form which the prompt asks for.

        Raises:
            ValueError: The prompt does not fit into the context, or has no known form.
        """
        length = self._count_tokens(messages)
        self.lengths.append(length)
        if length > self._context:
            raise ValueError(f"the prompt has {length} tokens, more than {self._context}")

        form = response_format["json_schema"]["name"]
        if form == "ExtractedEntities":
            answer = {"extracted_entities": self._entities(messages[-1]["content"])}
        elif form == "ExtractedEdges":
            answer = {"edges": []}
        elif form == "SummarizedEntities":
            answer = {"summaries": []}
        else:
            raise ValueError(f"Graphiti asks for {form}, which this script does not know")
        return [json.dumps(answer)]

    def _entities(self, prompt: str) -> list[dict[str, object]]:
        """Return those who speak in the session that a prompt shows."""
        match = _CURRENT_MESSAGE.search(prompt)
        names = set(_SPEAKER.findall(match[1])) if match else set[str]()
        return [
            {"name": name, "entity_type_id": 0, "episode_indices": [0]}
            for name in self._speakers
            if name in names
        ]


class TokenCounter:
    """Counts the tokens of prompts, as a Qwen model in a GGUF file reads them."""

    def __init__(self, model: str) -> None:
        path = gguf_file(model)
        # The server ends with this object, so it is an attribute.
        self._server = GgufServer(path, gguf_digest(path))
        self._url = f"{self._server.url.removesuffix('/v1')}/tokenize"
        headers = {"Authorization": f"Bearer {self._server.key}"}
        self._client = httpx.Client(headers=headers, timeout=SECONDS)

    def __call__(self, messages: Sequence[Message]) -> int:
        """Return how many tokens a prompt has."""
        prompt = ""
        for message in messages:
            prompt += f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
        prompt += "<|im_start|>assistant\n"
        response = self._client.post(self._url, json={"content": prompt, "parse_special": True})
        return len(response.raise_for_status().json()["tokens"])


def add_sessions(
    history: History, make_system: Callable[..., Any], count_tokens: CountTokens, context: int
) -> None:
    """Add a conversation to Graphiti, session by session, and print the lengths of its prompts.

    Args:
        history: The conversation.
        make_system: Starts Graphiti in a folder, as `mempiler.systems.catalog.factory` returns it.
        count_tokens: Returns how many tokens a prompt has.
        context: The most tokens of a prompt.

    Raises:
        SystemFailedError: A session was not added, although its prompts fit into the context.
    """
    stand_in = StandIn(count_tokens, context, history.speakers)
    added = 0
    prompts: list[int] = []

    with tempfile.TemporaryDirectory() as folder, dspy.context(lm=stand_in):
        system = make_system(Path(folder), embedder=embedder("offline"))
        for session in history:
            stand_in.lengths.clear()
            try:
                system.add(session)
                added += 1
            except SystemFailedError:
                # An error that is not about the context is no result.
                if not stand_in.lengths or max(stand_in.lengths) <= context:
                    raise
            longest = max(stand_in.lengths)
            prompts.extend(stand_in.lengths)
            mark = "   refused" if longest > context else ""
            print(f"{history.id:<15}{session.id:<10}{longest:>14}{mark}", flush=True)
        system.close()

    refused = sum(length > context for length in prompts)
    print(
        f"{history.id}: {added} of {len(history)} sessions added, "
        f"{len(prompts)} prompts of {sum(prompts):,} tokens, {refused} of them refused",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the lengths of Graphiti's prompts for each conversation of a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--locomo", required=True, help="a file of LoCoMo's conversations")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b", help="whose tokens are counted")
    parser.add_argument("--context", type=int, default=CONTEXT, help="most tokens of a prompt")
    parser.add_argument(
        "--earlier-sessions", type=int, default=10, help="how many sessions are shown again"
    )
    options = parser.parse_args(arguments)

    try:
        locomo = benchmark("locomo", options.locomo)
        numbers = {"earlier_sessions": options.earlier_sessions}
        make_system = partial(factory("graphiti"), numbers=numbers)
        count_tokens = TokenCounter(options.model)
        print(f"{'conversation':<15}{'session':<10}{'longest prompt':>14}")
        histories: dict[str, History] = {}
        for example in (*locomo.train, *locomo.dev, *locomo.test):
            histories.setdefault(example.history.digest, example.history)
        for history in histories.values():
            add_sessions(history, make_system, count_tokens, options.context)
    except MempilerError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
