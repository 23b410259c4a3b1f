"""How many tokens a call took: the number that its endpoint reports, where the texts of the call allow that number.

An endpoint that reports fewer tokens than it takes would switch `--max-tokens` and `--max-usd` off. So a number is
believed only if it is one, and if it is not too small for the text. Otherwise our own estimate counts.

    >>> from mempiler.engines.token_counts import believable_count
    >>> believable_count("many", minimum=0), believable_count(1, minimum=2250), believable_count(4000, minimum=2250)
    (None, None, 4000)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_REPORTED = 10**12
"""Tokens that no call takes: an endpoint that reports as many has not counted."""


def token_number(value: object) -> int | None:
    """Return a number of tokens that an endpoint reports; None for what is none: text, NaN, negative, a flag."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < MAX_REPORTED else None


def believable_count(reported: object, minimum: int) -> int | None:
    """Return the number of tokens that an endpoint reports; None if it is no number, or below the minimum.

    Args:
        reported: What the endpoint reports, of any kind.
        minimum: Fewest tokens that the text can take.
    """
    number = token_number(reported)
    return None if number is None or number < minimum else number


def text_of_messages(messages: Sequence[Any]) -> str:
    """Return the texts of messages as OpenAI's chat has them; images and sounds have no text."""
    texts: list[str] = []
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        parts = content if isinstance(content, list | tuple) else [{"text": content}]
        for part in parts:
            text = part.get("text") if isinstance(part, Mapping) else None
            if isinstance(text, str):
                texts.append(text)
    return "\n".join(texts)


def text_of_outputs(outputs: Sequence[Any]) -> str:
    """Return the texts of a call's outputs as DSPy has them, arguments of tool calls included.

    Reasoning is left out: some providers show a summary of it, others do not count it as output.
    """
    texts: list[str] = []
    for output in outputs:
        if not isinstance(output, Mapping):
            texts.append(str(output or ""))
            continue
        texts.append(str(output.get("text") or ""))
        for call in output.get("tool_calls") or ():
            texts.append(_without_escapes(str(call["function"]["arguments"])))
    return "\n".join(texts)


def _without_escapes(text: str) -> str:
    r"""Return a JSON text as a model writes it: DSPy makes six characters, `\u6211`, of a Chinese one."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
