"""How many tokens a call took: what its endpoint reports, if its texts allow that number.

An endpoint that reports fewer tokens than it takes would switch `--max-tokens` and `--max-usd` off.
So a number is believed only if it is a number at all, and not too small for the text. Otherwise our
own estimate counts.

    >>> from mempiler.engines.token_counts import believable_count
    >>> believable_count(4000, minimum=2250)
    4000
    >>> believable_count(1, minimum=2250), believable_count("many", minimum=0)
    (None, None)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_REPORTED_TOKENS = 10**12
"""Tokens that no call takes: an endpoint that reports as many has not counted."""


def token_number(value: object) -> int | None:
    """Return a number of tokens that an endpoint reports.

    None stands for what is no such number: text, NaN, a negative number, True and False.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < MAX_REPORTED_TOKENS else None


def believable_count(reported: object, minimum: int) -> int | None:
    """Return the number of tokens that an endpoint reports; None if it cannot be true.

    Args:
        reported: What the endpoint reports, of any type.
        minimum: The fewest tokens that the text can take.
    """
    number = token_number(reported)
    if number is None or number < minimum:
        return None
    return number


def text_of_messages(messages: Sequence[Any]) -> str:
    """Return the texts of messages in OpenAI's form; images and sounds have none."""
    texts: list[str] = []
    for message in messages:
        if not isinstance(message, Mapping):
            continue
        content = message.get("content")
        if isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list | tuple):
            texts.extend(_texts_of_parts(content))
    return "\n".join(texts)


def _texts_of_parts(parts: Sequence[Any]) -> list[str]:
    """Return the texts among the parts of a message."""
    texts: list[str] = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else None
        if isinstance(text, str):
            texts.append(text)
    return texts


def text_of_outputs(outputs: Sequence[Any]) -> str:
    """Return the texts of a call's outputs, one a line, with the arguments of tool calls.

    Reasoning is left out: some providers show a summary of it, others do not count it as output.

    Args:
        outputs: The candidates as DSPy has them: each a text, or a mapping with a "text" and maybe
            "tool_calls".
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
    r"""Return a JSON text with its characters as a model writes them.

    DSPy escapes those beyond ASCII: one Chinese character becomes six, such as `\u6211`.
    """
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
