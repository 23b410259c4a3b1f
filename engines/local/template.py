"""From messages to the tokens of a prompt.

Chat templates without a system role (Gemma's among them) are found by a trial, not by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_MARK = "mark7"


def prompt_ids(tokenizer: Any, messages: Sequence[tuple[str, str]], system: bool) -> tuple[int, ...]:
    """Token ids of a prompt, ready for the model to answer.

    Args:
        tokenizer: With a chat template or without.
        messages: Roles and contents.
        system: Whether the template, if there is one, has a system role.
    """
    if not getattr(tokenizer, "chat_template", None):
        text = "".join(f"{role}: {content}\n" for role, content in messages) + "assistant:"
        return tuple(tokenizer(text)["input_ids"])
    plain = [{"role": role, "content": content} for role, content in messages]
    ids = tokenizer.apply_chat_template(
        plain if system else without_system(plain),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        enable_thinking=False,
    )
    return tuple(int(token) for token in ids)


def knows_system(tokenizer: Any) -> bool:
    """Whether a tokenizer's chat template shows what a system message says, rather than refusing or dropping it.

    Without a template it is shown.
    """
    from jinja2 import TemplateError

    if not getattr(tokenizer, "chat_template", None):
        return True
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
