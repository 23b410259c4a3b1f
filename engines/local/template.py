"""From messages to the tokens of a prompt.

Chat templates without a system role (Gemma's among them) are found by a trial, not by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_MARK = "mark7"


def prompt_ids(tokenizer: Any, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
    """Token ids of a prompt of roles and contents, ready for the model to answer; see `LocalModel.encode`."""
    if not getattr(tokenizer, "chat_template", None):
        text = "".join(f"{role}: {content}\n" for role, content in messages) + "assistant:"
        return tuple(tokenizer(text)["input_ids"])
    told = [{"role": role, "content": content} for role, content in messages]
    if any(role == "system" for role, _ in messages) and not _shows_system(tokenizer):
        told = without_system(told)
    how = {"add_generation_prompt": True, "return_dict": False, "enable_thinking": False}
    return tuple(int(token) for token in tokenizer.apply_chat_template(told, tokenize=True, **how))


def _shows_system(tokenizer: Any) -> bool:
    """Whether a chat template shows what a system message says, rather than refusing or dropping it."""
    from jinja2 import TemplateError

    asked = [{"role": "system", "content": _MARK}, {"role": "user", "content": "x"}]
    try:
        return _MARK in tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    except TemplateError:
        return False


def without_system(messages: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    r"""The messages with the system's text in front of the first user's.

    Example:
        >>> from mempiler.engines.local.template import without_system
        >>> without_system([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
        [{'role': 'user', 'content': 'Be brief.\n\nHi'}]
    """
    said = [message["content"] for message in messages if message["role"] == "system"]
    rest = [dict(message) for message in messages if message["role"] != "system"]
    first = next((message for message in rest if message["role"] == "user"), None)
    if first is None:
        first = {"role": "user", "content": ""}
        rest.insert(0, first)
    first["content"] = "\n\n".join(text for text in (*said, first["content"]) if text)
    return rest
