"""The run's language model and embedder as an endpoint of OpenAI's kind, for programs that know nothing of ours.

    package ── POST /v1/chat/completions ──> Proxy ──> `dspy.settings.lm`    counted, limited, recorded as any call
            ── POST /v1/embeddings       ──>       ──> the run's embedder

It listens on loopback and answers those who have its key. The model is that of the thread which said `serve_here`, and
calls are counted for the piece of work that runs there.

An error that ends a run (a budget, a dead endpoint) is kept, so that whoever waits for the package can raise it: the
package itself hears of a refused request, which its client does not send again.

Limits: an answer comes whole, as one piece where a stream is asked for. Token ids are no text, and refused. Names of
models, and whether a tool is strict, are not looked at. A run's temperature stands above the package's.
"""

from __future__ import annotations

import base64
import contextvars
import hmac
import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, Self, cast

import dspy
import numpy as np

from ..engines.taken import note_call, taking
from ..errors import MempilerError
from ..reading.cut import CutText

LONGEST = 64 << 20
"""Most bytes of a request."""
PASSED = ("temperature", "top_p", "stop", "response_format", "tools", "tool_choice", "seed")
"""Settings of a request that go to the model."""
CHAT_MODEL, EMBEDDING_MODEL = "task-model", "task-embedder"
"""What the two are called there."""


class Embeds(Protocol):
    """What turns texts into vectors."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """One row per text."""
        ...


class RefusedError(Exception):
    """A request that cannot be answered, with the reason."""


class Proxy:
    """A running endpoint; close it.

    Args:
        embedder: Embeds texts.
    """

    def __init__(self, embedder: Embeds) -> None:
        self.embedder = embedder
        self.key = secrets.token_hex(16)
        self.failure: MempilerError | None = None
        """Why the run must end, if a call has told."""
        self._context = contextvars.copy_context()
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it; calls that are being answered are left to themselves."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def serve_here(self) -> None:
        """From here on, calls are made and counted as those of the calling thread."""
        self._context = contextvars.copy_context()

    def answer(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answers one request.

        Raises:
            RefusedError: It is none that this endpoint answers, or the model did not.
        """
        routes = {"/v1/chat/completions": self._chat, "/v1/embeddings": self._embeddings}
        if path not in routes:
            raise RefusedError(f"there is no {path}; there are {' and '.join(routes)}")
        try:
            # A context can be entered by one thread at a time; its copies share the piece of work.
            return self._context.copy().run(routes[path], body)
        except MempilerError as error:
            self.failure = self.failure or error
            raise RefusedError(str(error)) from error
        except RefusedError:
            raise
        except Exception as error:
            # DSPy's errors of a single prompt: the model's guard has counted it.
            raise RefusedError(f"{type(error).__name__}: {' '.join(str(error).split())[:500]}") from error

    def _chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        lm: Any = dspy.settings.lm
        if lm is None:
            raise RefusedError("no language model was given")
        with taking() as work:
            outputs: Any = lm(messages=_messages(body), **_settings(lm, body))
        for call in work.calls:
            note_call(call.input_tokens, call.output_tokens, None if call.unpriced else call.cost)
        sent, generated = work.taken.input_tokens, work.taken.output_tokens
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
        coded = body.get("encoding_format") == "base64"
        vectors = [base64.b64encode(row.tobytes()).decode() if coded else row.tolist() for row in rows]
        data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return {"object": "list", "data": data, "model": EMBEDDING_MODEL, "usage": usage}


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RefusedError("messages has to be a list of messages")
    return messages


def _settings(lm: dspy.LM, body: Mapping[str, Any]) -> dict[str, Any]:
    """What a request asks for, but for what the run has settled; never more tokens than the run's model may take."""
    settled = {name for name in ("temperature",) if lm.kwargs.get(name) is not None}
    asked = {name: body[name] for name in PASSED if body.get(name) is not None and name not in settled}
    if "tools" in asked:
        asked["tools"] = [_not_strict(tool) for tool in asked["tools"]]
    most = [body.get("max_tokens"), body.get("max_completion_tokens"), lm.kwargs.get("max_tokens")]
    known = [each for each in most if isinstance(each, int)]
    return {**asked, "max_tokens": min(known)} if known else asked


def _not_strict(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool without OpenAI's `strict`, for which DSPy's requests have no place."""
    function = {name: value for name, value in tool["function"].items() if name != "strict"}
    return {**tool, "function": function}


def _choice(number: int, output: Any) -> dict[str, Any]:
    found = output if isinstance(output, dict) else {"text": output}
    text, calls = found.get("text"), found.get("tool_calls")
    message: dict[str, Any] = {"role": "assistant", "content": None if text is None else str(text)}
    if calls:
        message["tool_calls"] = [dict(call, function=dict(call["function"])) for call in calls]
    reason = "tool_calls" if calls else "length" if isinstance(text, CutText) else "stop"
    return {"index": number, "message": message, "finish_reason": reason}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A worker that was ended leaves its connections half done; that is no news."""


class _Handler(BaseHTTPRequestHandler):
    timeout = 60

    @property
    def _proxy(self) -> Proxy:
        return cast(_Server, self.server).proxy

    def do_GET(self) -> None:
        models = [{"id": name, "object": "model", "owned_by": "local"} for name in (CHAT_MODEL, EMBEDDING_MODEL)]
        known = self.path.rstrip("/") == "/v1/models"
        self._send(200 if known else 404, {"object": "list", "data": models} if known else _error("no such page"))

    def do_POST(self) -> None:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        length = self.headers.get("Content-Length", "")
        if not hmac.compare_digest(given.encode(), self._proxy.key.encode()):
            return self._send(401, _error("the key is another"))
        if not length.isdecimal() or int(length) > LONGEST:
            return self._send(413, _error("the request has no length, or is too long"))
        try:
            body = json.loads(self.rfile.read(int(length)))
            if not isinstance(body, dict):
                raise RefusedError("the request has to be a JSON object")
            done = self._proxy.answer(self.path, body)
        except (RefusedError, ValueError) as error:
            return self._send(400, _error(str(error)))
        if body.get("stream") and "choices" in done:
            return self._stream(done)
        return self._send(200, done)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""

    def _send(self, status: int, body: Mapping[str, Any]) -> None:
        self._write(status, "application/json", json.dumps(body).encode())

    def _stream(self, done: dict[str, Any]) -> None:
        """The whole answer as the one piece of a stream, and what it took as the last."""
        whole = {**done, "object": "chat.completion.chunk"}
        delta = [{**each, "delta": _delta(each["message"])} for each in done["choices"]]
        pieces = [{**whole, "choices": delta, "usage": None}, {**whole, "choices": []}]
        lines = [*(json.dumps(piece) for piece in pieces), "[DONE]"]
        self._write(200, "text/event-stream", "".join(f"data: {line}\n\n" for line in lines).encode())

    def _write(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{**call, "index": number} for number, call in enumerate(message.get("tool_calls", []))]
    return {**message, "tool_calls": calls} if calls else message


def _error(text: str) -> dict[str, Any]:
    return {"error": {"message": text, "type": "invalid_request_error", "code": None}}
