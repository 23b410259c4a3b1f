"""A running chat endpoint with a memory of its own: any server with OpenAI's chat completions.

Every history is a `user` of its own, and every message a conversation of its own (`metadata.session`), so nothing but
the endpoint's memory joins them. Its `usage` is counted; evidence that a service of ours names is taken as recalled.

Limits: the endpoint sees questions as messages, and may remember them too. A run that is killed gives what it goes on
with to new users.
"""

from __future__ import annotations

import os
import uuid
from typing import Any

from ...engines.spending import Spending, note
from ...errors import EndpointError, UserError
from ...records import Item
from ..failing import ExternalError

KEY = "OPENAI_API_KEY"
"""The environment variable with the endpoint's key."""
REMEMBER = "Please remember this conversation. Answer with the word OK."


class Endpoint:
    """The memory of one user at an endpoint, as a store.

    Args:
        url: Its base URL, e.g. "http://127.0.0.1:8000/v1".
        model: The model's name there.
        timeout: Seconds that one request may take.
    """

    def __init__(self, url: str, model: str, timeout: float) -> None:
        import openai

        self.url, self.model, self.user = url, model, f"mempiler-{uuid.uuid4().hex}"
        self._client = openai.OpenAI(base_url=url, api_key=os.environ.get(KEY) or "none", timeout=timeout)
        self.close = self._client.close

    def add(self, session: Item) -> None:
        """Says a session to it, with the date before every line."""
        self._said("\n".join([REMEMBER, "", *session.lines()]), session.id)

    def ask(self, question: str) -> tuple[Any, Any]:
        """Its answer, and the evidence that it names, if it does."""
        found = self._said(question, f"question-{uuid.uuid4().hex}")
        more: Any = getattr(found, "mempiler", None)
        answer = found.choices[0].message.content if found.choices else None
        return answer, more.get("evidence") if isinstance(more, dict) else None

    def _said(self, text: str, session: str) -> Any:
        import openai

        message: Any = {"role": "user", "content": text}
        try:
            found = self._client.chat.completions.create(
                model=self.model, user=self.user, messages=[message], metadata={"session": session}
            )
        except openai.AuthenticationError as error:
            raise UserError(f"{self.url}: refuses the key; set {KEY}") from error
        except openai.APITimeoutError as error:
            raise ExternalError(f"{self.url}: no answer in time") from error
        except openai.APIConnectionError as error:
            raise EndpointError(f"{self.url}: cannot be reached") from error
        usage = found.usage
        note(Spending(1, usage.prompt_tokens if usage else 0, usage.completion_tokens if usage else 0, unpriced=1))
        return found
