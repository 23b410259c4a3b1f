"""An OpenAI-compatible endpoint that gives other people's systems the run's models.

    package ── POST /v1/chat/completions ──> Proxy ──> `dspy.settings.lm`    counted as any call
            ── POST /v1/embeddings       ──>       ──> the run's embedder

It listens on loopback, answers those who have its key, and never streams. The model is that of
the thread which called `serve_here`, and calls are counted for the work of that thread. The package
only hears that a request was refused. An error that ends a run, such as a budget or a dead
endpoint, is kept for whoever waits for the package.
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
from ..memory.search.embedder import Embedder
from ..reading.cut_texts import CutText
from ..text import one_line

PASSED_SETTINGS = (
    "temperature",
    "top_p",
    "stop",
    "response_format",
    "tools",
    "tool_choice",
    "seed",
)
"""Settings of a request that go to the model."""
CHAT_MODEL = "task-model"
"""What the language model is called in requests."""
EMBEDDING_MODEL = "task-embedder"
"""What the embedder is called in requests."""

MAX_IDLE_SECONDS = 7 * 24 * 3600
"""How long a connection without a request stays open: a week.

Clients close idle connections themselves. If the endpoint closed one just when a client sends its
next request, that request would fail.
"""


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
        """Why the run must end, if a call met such an error."""
        self._context = contextvars.copy_context()

        server_socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        port = server_socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        app = FastAPI(openapi_url=None)
        app.add_api_route("/v1/{path:path}", self._handle_post, methods=["POST"])
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=MAX_IDLE_SECONDS,
        )
        self._server = uvicorn.Server(config)
        threading.Thread(target=self._server.run, args=([server_socket],), daemon=True).start()

    def close(self) -> None:
        """Stop the endpoint without waiting for calls in progress."""
        self._server.should_exit = True
        self._server.force_exit = True

    def serve_here(self) -> None:
        """Make further calls with the model of the calling thread, and count them for its work."""
        self._context = contextvars.copy_context()

    def take_failure(self) -> MempilerError | None:
        """Return the error that must end the run, if there is one, and forget it."""
        failure = self.failure
        self.failure = None
        return failure

    def answer(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request.

        Raises:
            RefusedError: It is no request that this endpoint answers.
            Exception: The language model or the embedder failed, with any error of its own.
        """
        routes = {"chat/completions": self._chat, "embeddings": self._embed}
        if path not in routes:
            raise RefusedError(f"there is no {path}; there are {' and '.join(routes)}")
        # Several requests may come at once, and only one thread at a time can enter a context. The
        # copies still count their calls for the same work.
        context = self._context.copy()
        try:
            return context.run(routes[path], body)
        except MempilerError as error:
            # A spent budget or a dead endpoint ends the run. The package would hide such an error,
            # so whoever called the package takes it from here. Other errors are the package's.
            self.failure = self.failure or error
            raise

    def _handle_post(
        self, path: str, body: dict[str, Any], authorization: Annotated[str, Header()] = ""
    ) -> JSONResponse:
        """Answer a request over HTTP; whatever goes wrong is answered with status 400.

        OpenAI's clients repeat no request after this status. The run's model has made its own
        attempts already.
        """
        try:
            if not hmac.compare_digest(authorization.encode(), f"Bearer {self.key}".encode()):
                raise RefusedError("the API key is not the one of this endpoint")
            return JSONResponse(self.answer(path, body))
        except Exception as error:
            message = f"{type(error).__name__}: {one_line(error, 500)}"
            details = {"message": message, "type": "invalid_request_error", "code": None}
            return JSONResponse({"error": details}, 400)

    def _chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a chat request by the language model of the run."""
        lm: Any = dspy.settings.lm
        if lm is None:
            raise RefusedError("no language model was given")
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or body.get("stream"):
            raise RefusedError(
                "messages has to be a list of messages, and stream not to be asked for"
            )

        # The response tells the tokens of this request, so its calls are counted apart.
        with measure_usage() as request_usage:
            outputs: list[Any] = lm(messages=messages, **_model_settings(lm, body))
        # Calls in such a block are counted there alone. So they are passed on to the work that the
        # package does, without their seconds: the work measures its own time.
        for call in request_usage.calls:
            usage = Usage(
                calls=1,
                input_tokens=call.input_tokens,
                output_tokens=call.output_tokens,
                cost=call.cost,
                unpriced=call.unpriced,
            )
            record_usage(usage)

        input_tokens = request_usage.usage.input_tokens
        output_tokens = request_usage.usage.output_tokens
        return {
            "id": f"chatcmpl-{secrets.token_hex(8)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": CHAT_MODEL,
            "choices": [_choice(number, output) for number, output in enumerate(outputs)],
            "usage": {
                "prompt_tokens": input_tokens,
                "completion_tokens": output_tokens,
                "total_tokens": input_tokens + output_tokens,
            },
        }

    def _embed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request for embeddings by the embedder of the run."""
        texts = body.get("input")
        if isinstance(texts, str):
            texts = [texts]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise RefusedError("input has to be a text or a list of texts")

        vectors = np.asarray(self.embedder.embed(texts), dtype="<f4")
        dimensions = body.get("dimensions")
        if dimensions not in (None, vectors.shape[1]):
            raise RefusedError(f"vectors have {vectors.shape[1]} numbers, not {dimensions}")

        data: list[dict[str, Any]] = []
        for index, vector in enumerate(vectors):
            data.append({"object": "embedding", "index": index, "embedding": vector.tolist()})
        return {
            "object": "list",
            "data": data,
            "model": EMBEDDING_MODEL,
            "usage": {"prompt_tokens": 0, "total_tokens": 0},
        }


def _model_settings(lm: dspy.LM, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with which the run's model is asked for a request.

    A temperature that is set for the run's model replaces that of the request. Of the limits of
    tokens, the smallest counts.
    """
    settings = {name: body[name] for name in PASSED_SETTINGS if body.get(name) is not None}
    if lm.kwargs.get("temperature") is not None:
        settings.pop("temperature", None)
    if "tools" in settings:
        settings["tools"] = [_without_strict(tool) for tool in settings["tools"]]

    token_limits: list[int] = []
    for limit in (
        body.get("max_tokens"),
        body.get("max_completion_tokens"),
        lm.kwargs.get("max_tokens"),
    ):
        if isinstance(limit, int):
            token_limits.append(limit)
    if token_limits:
        settings["max_tokens"] = min(token_limits)
    return settings


def _without_strict(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool of a request without `strict`, a setting that DSPy's requests do not have."""
    function = {name: value for name, value in tool["function"].items() if name != "strict"}
    return {**tool, "function": function}


def _choice(number: int, output: Any) -> dict[str, Any]:
    """Return one output of DSPy's model, a text or an object, as a choice of an OpenAI response."""
    fields = output if isinstance(output, dict) else {"text": output}
    text = fields.get("text")
    content = None if text is None else str(text)
    finish_reason = "stop"
    if isinstance(text, CutText):
        finish_reason = "length"
        # `CutText` is a blank if the completion was cut before its first word.
        content = content if text.strip() else ""

    message: dict[str, Any] = {"role": "assistant", "content": content}
    tool_calls = fields.get("tool_calls")
    if tool_calls:
        finish_reason = "tool_calls"
        # They may be objects that can be read like dicts; a response needs dicts.
        message["tool_calls"] = [dict(call, function=dict(call["function"])) for call in tool_calls]
    return {"index": number, "message": message, "finish_reason": finish_reason}
