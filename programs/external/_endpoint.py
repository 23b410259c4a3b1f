"""A running chat endpoint that has a memory of its own."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from ...engines.call_context import record_usage
from ...engines.usage import Usage
from ...errors import EndpointError, UserError
from ...records import Item
from ..recording import ExternalError

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion

KEY_VARIABLE = "OPENAI_API_KEY"
"""The environment variable with the endpoint's key."""

REMEMBER = "Please remember this conversation. Answer with the word OK."


class EndpointAnswer(NamedTuple):
    """What an endpoint answered."""

    answer: str | None
    recalled: Any
    """The evidence that it names; None if it names none."""


class Endpoint:
    """A chat endpoint as a store: any server with OpenAI's chat completions.

    Every history is a `user` of its own, and every message a conversation of its own
    (`metadata.session`), so that nothing but the endpoint's memory connects them. The endpoint sees
    questions as messages, and may remember them too. A run that is killed goes on with new users.

    Args:
        url: Its base URL, e.g. "http://127.0.0.1:8000/v1".
        model: The model's name there.
        timeout: Seconds that one request may take.
    """

    def __init__(self, url: str, model: str, timeout: float) -> None:
        import openai

        self.url = url
        self.model = model
        self.user = f"mempiler-{uuid.uuid4().hex}"
        key = os.environ.get(KEY_VARIABLE) or "none"
        self._client = openai.OpenAI(base_url=url, api_key=key, timeout=timeout)

    def add(self, session: Item) -> None:
        """Send a session as one message; every line begins with its date."""
        lines = [REMEMBER, "", *session.lines()]
        self._send("\n".join(lines), session.id)

    def ask(self, question: str) -> EndpointAnswer:
        """Return the answer to a question, and the evidence for it if the endpoint names any."""
        completion = self._send(question, f"question-{uuid.uuid4().hex}")
        answer = None
        if completion.choices:
            answer = completion.choices[0].message.content

        # An endpoint that runs `mempiler serve` adds this field to its answers.
        extra_field: Any = getattr(completion, "mempiler", None)
        recalled = None
        if isinstance(extra_field, dict):
            recalled = extra_field.get("evidence")
        return EndpointAnswer(answer, recalled)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _send(self, text: str, session_id: str) -> ChatCompletion:
        """Send a message that begins a conversation, record its usage, and return the reply.

        Args:
            text: The message.
            session_id: The id of the new conversation.

        Raises:
            UserError: The endpoint refuses the key.
            EndpointError: The endpoint cannot be reached.
            ExternalError: The endpoint does not answer in time.
        """
        import openai

        try:
            completion = self._client.chat.completions.create(
                model=self.model,
                user=self.user,
                messages=[{"role": "user", "content": text}],
                metadata={"session": session_id},
            )
        except openai.AuthenticationError as error:
            raise UserError(f"{self.url}: refuses the key; set {KEY_VARIABLE}") from error
        except openai.APITimeoutError as error:
            raise ExternalError(f"{self.url}: no answer in time") from error
        except openai.APIConnectionError as error:
            raise EndpointError(f"{self.url}: cannot be reached") from error

        record_usage(_usage_of_call(completion.usage))
        return completion


def _usage_of_call(tokens: CompletionUsage | None) -> Usage:
    """Return the usage of one call, with its tokens but without a price.

    Endpoints do not state a price, so the call is counted as `unpriced`. Some state no tokens
    either; then `tokens` is None.
    """
    if tokens is None:
        return Usage(calls=1, unpriced=1)
    return Usage(
        calls=1,
        input_tokens=tokens.prompt_tokens,
        output_tokens=tokens.completion_tokens,
        unpriced=1,
    )
