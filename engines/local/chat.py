"""Turn the messages of a chat into the token ids of a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROBE = "mark7"
"""A text to look for in a rendered chat."""


class ChatMessage(NamedTuple):
    """A message of a chat."""

    role: str
    content: str


def encode_chat(
    tokenizer: PreTrainedTokenizerBase, messages: tuple[ChatMessage, ...]
) -> tuple[int, ...]:
    """Return the token ids of a prompt that ends where the model's answer begins.

    The tokenizer's chat template decides the form, without thinking where the template has that
    choice. If the template has no system role, the system message is put before the first message
    of the user. A tokenizer without a template gets each message as a line `role: content`, and a
    last line `assistant:`.
    """
    if not getattr(tokenizer, "chat_template", None):
        lines = [f"{message.role}: {message.content}\n" for message in messages]
        text = "".join(lines) + "assistant:"
        return tuple(tokenizer(text)["input_ids"])

    if messages[0].role == "system" and not _shows_system_messages(tokenizer):
        messages = _without_system_message(messages)
    ids: Any = tokenizer.apply_chat_template(
        [message._asdict() for message in messages],
        tokenize=True,
        add_generation_prompt=True,
        return_dict=False,
        enable_thinking=False,
    )
    return tuple(int(token_id) for token_id in ids)


def _shows_system_messages(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a chat template shows a system message, instead of refusing or dropping it."""
    from jinja2 import TemplateError

    probe = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "x"}]
    try:
        text = tokenizer.apply_chat_template(probe, add_generation_prompt=True, tokenize=False)
    except TemplateError:
        return False
    return _PROBE in text


def _without_system_message(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """Return the messages after the system message, which moves into the first of them."""
    system, *others = messages
    if not others:
        return (ChatMessage("user", system.content.strip()),)
    first, *rest = others
    content = f"{system.content}\n\n{first.content}".strip()
    return (ChatMessage("user", content), *rest)
