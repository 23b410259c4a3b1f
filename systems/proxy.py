"""Serves the run's language model and embedder as an OpenAI-compatible endpoint to other people's systems.

    package ── POST /v1/chat/completions ──> Proxy ──> `dspy.settings.lm`    counted, limited, recorded as any call
            ── POST /v1/embeddings       ──>       ──> the run's embedder

It listens on loopback and answers those who have its key, whole, never as a stream. The model is that of the thread
which said `serve_here`, and calls are counted for the piece of work that runs there. An error that ends a run (a
budget, a dead endpoint) is kept for whoever waits for the package, which hears of a refused request.
"""

from __future__ import annotations

import contextvars
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from typing import Annotated, Any

import dspy
import numpy as np
import uvicorn
from fastapi import FastAPI, Header
from fastapi.responses import JSONResponse

from ..engines.call_context import measure_usage, record_usage
from ..engines.usage import Usage
from ..errors import MempilerError
from ..memory.index import Embedder
from ..reading.cut_texts import CutText
from ..text import one_line

PASSED = ("temperature", "top_p", "stop", "response_format", "tools", "tool_choice", "seed")
"""Settings of a request that go to the model."""
CHAT_MODEL, EMBEDDING_MODEL = "task-model", "task-embedder"
"""What the two are called there."""


class RefusedError(Exception):
    """A request that cannot be answered, with the reason."""


class Proxy:
    """A running endpoint; close it.

    Args:
        embedder: Embeds texts.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.key = secrets.token_hex(16)
        self.failure: MempilerError | None = None
        """Why the run must end, if a call has told."""
        self._context = contextvars.copy_context()
        listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        app = FastAPI(openapi_url=None)
        app.add_api_route("/v1/{path:path}", self._posted, methods=["POST"])
        config = uvicorn.Config(app, loop="asyncio", http="h11", lifespan="off", log_config=None)
        self._server = uvicorn.Server(config)
        threading.Thread(target=self._server.run, args=([listening],), daemon=True).start()

    def close(self) -> None:
        """Ends it; calls that are being answered are left to themselves."""
        self._server.should_exit = self._server.force_exit = True

    def serve_here(self) -> None:
        """From here on, calls are made and counted as those of the calling thread."""
        self._context = contextvars.copy_context()

    def answer(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answers one request.

        Raises:
            RefusedError: It is none that this endpoint answers.
            Exception: The model did not; its guard has counted that.
        """
        routes = {"chat/completions": self._chat, "embeddings": self._embeddings}
        if path not in routes:
            raise RefusedError(f"there is no {path}; there are {' and '.join(routes)}")
        try:
            # A context can be entered by one thread at a time; its copies share the piece of work.
            return self._context.copy().run(routes[path], body)
        except MempilerError as error:
            self.failure = self.failure or error
            raise

    def _posted(self, path: str, body: dict[str, Any], authorization: Annotated[str, Header()] = "") -> JSONResponse:
        try:
            if not hmac.compare_digest(authorization.encode(), f"Bearer {self.key}".encode()):
                raise RefusedError("the key is another")
            return JSONResponse(self.answer(path, body))
        except Exception as error:
            told = f"{type(error).__name__}: {one_line(error, 500)}"
            return JSONResponse({"error": {"message": told, "type": "invalid_request_error", "code": None}}, 400)

    def _chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        lm: Any = dspy.settings.lm
        if lm is None:
            raise RefusedError("no language model was given")
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or body.get("stream"):
            raise RefusedError("messages has to be a list of messages, and stream not to be asked for")
        with measure_usage() as work:
            outputs: Any = lm(messages=messages, **_settings(lm, body))
        for call in work.calls:
            record_usage(Usage(1, call.input_tokens, call.output_tokens, call.cost, call.unpriced))
        sent, generated = work.usage.input_tokens, work.usage.output_tokens
        return {
            "id": f"chatcmpl-{secrets.token_hex(8)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": CHAT_MODEL,
            "choices": [_choice(number, output) for number, output in enumerate(outputs)],
            "usage": {"prompt_tokens": sent, "completion_tokens": generated, "total_tokens": sent + generated},
        }

    def _embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        given = body.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise RefusedError("input has to be a text or a list of texts")
        rows = np.asarray(self.embedder.embed(texts), dtype="<f4")
        wanted = body.get("dimensions")
        if wanted not in (None, rows.shape[1]):
            raise RefusedError(f"vectors have {rows.shape[1]} numbers, not {wanted}")
        data = [{"object": "embedding", "index": n, "embedding": row.tolist()} for n, row in enumerate(rows)]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return {"object": "list", "data": data, "model": EMBEDDING_MODEL, "usage": usage}


def _settings(lm: dspy.LM, body: Mapping[str, Any]) -> dict[str, Any]:
    """What a request asks for, but for what the run has settled; never more tokens than the run's model may take."""
    asked = {name: body[name] for name in PASSED if body.get(name) is not None}
    if lm.kwargs.get("temperature") is not None:
        asked.pop("temperature", None)
    for tool in asked.get("tools", ()):
        tool["function"].pop("strict", None)  # DSPy's requests have no place for it
    most = [body.get("max_tokens"), body.get("max_completion_tokens"), lm.kwargs.get("max_tokens")]
    known = [each for each in most if isinstance(each, int)]
    return {**asked, "max_tokens": min(known)} if known else asked


def _choice(number: int, output: Any) -> dict[str, Any]:
    found = output if isinstance(output, dict) else {"text": output}
    text, calls = found.get("text"), found.get("tool_calls")
    message: dict[str, Any] = {"role": "assistant", "content": None if text is None else str(text)}
    if calls:
        message["tool_calls"] = [dict(call, function=dict(call["function"])) for call in calls]
    reason = "tool_calls" if calls else "length" if isinstance(text, CutText) else "stop"
    return {"index": number, "message": message, "finish_reason": reason}
