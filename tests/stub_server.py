"""A server that speaks the OpenAI chat protocol on this machine, answers with the offline engine, and fails by script.

Answers are a pure function of the messages, so two runs that ask the same get the same. Faults are named per request:

    400      refused as it is
    429      refused for now, with Retry-After: 0        stall    silence until the server is closed
    401      refused for good                            garbled  a completion without field headers
    404      there is no such model
    500      a fault of the server                       no-json  a body that is not JSON
    wait     refused for now, with Retry-After: 3600     trickle  an answer of which a byte comes now and then
    endless  an answer that does not end                 headers  headers of which a byte comes now and then
    dead     the connection is cut, and from then on nobody listens

    echo 400, echo 401, ...  that status, with a message that repeats the headers of the request; `echo 200` is no JSON
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Fault = str
Script = Callable[[int, str], Fault | None]
"""Number of the request (from 1) and its messages as one text -> the fault it meets, or None."""
Answer = Callable[[dict[str, Any]], "str | dict[str, Any] | bytes"]
"""The body of a request -> the text of the completion, its message, or a body as it is, with or without its head."""

LIMITS = {"x-request-id": "req-stub", "x-ratelimit-remaining-requests": "41", "openai-organization": "ours"}
"""Headers of every answer."""
_STATUS = {
    "400": "no such response_format",
    "401": "no such key",
    "404": "the model does not exist",
    "429": "slow down",
    "500": "the server has a fault",
    "wait": "slow down for an hour",
}


def every(fault: Fault) -> Script:
    """A script that meets every request with the same fault."""
    return lambda n, text: fault


def at(faults: Mapping[int, Fault]) -> Script:
    """A script by number of the request."""
    return lambda n, text: faults.get(n)


def fill(schema: Mapping[str, Any], shapes: Mapping[str, Any] | None = None, text: str = "1") -> Any:
    """A value that fits a JSON schema: texts are `text`, numbers 1, lists hold one value, of choices the first."""
    shapes = schema.get("$defs", {}) if shapes is None else shapes
    if "$ref" in schema:
        return fill(shapes[schema["$ref"].rsplit("/", 1)[1]], shapes, text)
    if "anyOf" in schema:
        return fill(schema["anyOf"][0], shapes, text)
    if "enum" in schema or "const" in schema:
        return schema["enum"][0] if "enum" in schema else schema["const"]
    if schema["type"] == "object":
        return {name: fill(part, shapes, text) for name, part in schema.get("properties", {}).items()}
    if schema["type"] == "array":
        return [fill(schema["items"], shapes, text)] * schema.get("minItems", 1)
    return {"string": text, "integer": 1, "number": 1, "boolean": True, "null": None}[schema["type"]]


def offline_answer(body: dict[str, Any]) -> str:
    """What the offline engine says to a request."""
    from dspy.lm15 import request_from_openai_chat

    from tests.dspy_prompts import PromptReadingEngine

    known = {name: body[name] for name in ("model", "messages", "temperature", "max_tokens") if name in body}
    # A new engine each time: one of its own counts repeated prompts, and samples them differently.
    return PromptReadingEngine().complete(request_from_openai_chat(known)).message.text or ""


@dataclass(eq=False)
class StubServer:
    """The server; it listens from `__enter__` on."""

    script: Script | None = None
    """Which request meets which fault; none meets any if None."""
    answer: Answer = offline_answer
    """Gives the completions."""
    delay: float = 0.0
    """Seconds every answer takes."""
    schemas: Literal["honour", "ignore", "refuse"] = "ignore"
    """Whether answers are held to a JSON schema that is asked for, it is passed over, or refused with 400."""
    reused: float | None = None
    """The share of every prompt that it says was in its cache; None says nothing."""
    between: Callable[[int], None] = lambda n: None
    """Called before each event of a stream with its number, from 0."""
    before_close: Callable[[], object] = lambda: None
    """Called after the last event of a stream, or after a body with its head, before the connection is closed."""
    models: Sequence[str] | bytes | None = None
    """The models that it says it has, or the body of its list; None lists none."""
    embedding_fault: Callable[[], Fault | None] = lambda: None
    """Gives the fault that a request for embeddings meets, `stall` or a status; None answers it."""
    usage: Any = True
    """What replies report of their tokens: True the truth, False nothing, anything else is reported as it is."""
    headers: Mapping[str, str] = field(default_factory=lambda: LIMITS)
    formats: list[Any] = field(default_factory=list[Any], init=False)
    """The `response_format` of every request that came in, or None."""
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list[Any], init=False)
    """Path, headers and body of every request that came in."""
    texts: list[str] = field(default_factory=list[str], init=False)
    """The messages of every request that came in."""
    answered: int = field(default=0, init=False)
    """Requests that got a completion."""

    def __post_init__(self) -> None:
        self.model = f"openai/stub-{uuid.uuid4().hex[:8]}"
        """What `--lm` takes; DSPy's LM cache does not know its answers yet."""
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._dead = False
        self._server = _Listener(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        """What `--api-base` takes."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> StubServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.die()

    def die(self) -> None:
        """Stops listening; connections are refused from now on."""
        with self._changed:
            known, self._dead = self._dead, True
        self._closing.set()
        if not known:
            self._server.shutdown()
            self._server.server_close()

    def drip(self, connection: Any, fault: Fault) -> None:
        """Sends an answer that does not end, until the client or the server closes."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        part = b"x" if fault != "endless" else b"x" * 65536
        try:
            connection.write(head + (b"X-Long: " if fault == "headers" else b"Connection: close\r\n\r\n"))
            while not self._closing.wait(0.05 if fault != "endless" else 0):
                connection.write(part)
                connection.flush()
        except OSError:
            pass

    def wait(self, answered: int, seconds: float = 60) -> bool:
        """Waits until so many requests have been answered; False where the time ran out before."""
        with self._changed:
            return self._changed.wait_for(lambda: self.answered >= answered, seconds)

    def reply(self, body: dict[str, Any]) -> tuple[int, bytes] | None:
        """Status and body of the answer to a request, or None to cut the connection."""
        if "input" in body:
            return self.reply_to_embedding(body)
        text = "\n".join(str(message.get("content")) for message in body["messages"])
        with self._changed:
            self.texts.append(text)
            self.formats.append(body.get("response_format"))
            fault = "dead" if self._dead else self.script and self.script(len(self.texts), text)
        if fault is None and self.schemas == "refuse" and "response_format" in body:
            fault = "400"
        if fault in ("dead", "stall"):
            self.die() if fault == "dead" else self._closing.wait()
            return None
        if fault in _STATUS:
            code = {"code": "model_not_found"} if fault == "404" else {}
            status = 429 if fault == "wait" else int(fault)
            return status, json.dumps({"error": {"message": _STATUS[fault], **code}}).encode()
        if fault is not None and fault.startswith("echo "):
            return self.echo(int(fault.removeprefix("echo ")))
        if fault in ("trickle", "endless", "headers"):
            return 0, fault.encode()
        if fault == "no-json":
            return 200, b"<html>bad gateway</html>"
        if self.delay:
            time.sleep(self.delay)
        if fault == "garbled":
            said = "I would rather not say."
        elif self.schemas == "honour" and "response_format" in body:
            said = json.dumps(fill(body["response_format"]["json_schema"]["schema"]))
        else:
            said = self.answer(body)
        with self._changed:
            self.answered += 1
            self._changed.notify_all()
        return 200, said if isinstance(said, bytes) else self.completion(body, text, said)

    def reply_to_embedding(self, body: dict[str, Any]) -> tuple[int, bytes] | None:
        """Status and body of the answer to a request for embeddings, or None to cut the connection."""
        fault = self.embedding_fault()
        if fault == "stall":
            self._closing.wait()
            return None
        if fault is not None and fault.startswith("echo "):
            return self.echo(int(fault.removeprefix("echo ")))
        if fault is not None:
            return int(fault), json.dumps({"error": {"message": _STATUS[fault]}}).encode()
        return 200, self.embedded(body)

    def echo(self, status: int) -> tuple[int, bytes]:
        """A refusal that repeats the headers of the request that came last."""
        message = f"you sent {self.requests[-1][1]}"
        return status, message.encode() if status == 200 else json.dumps({"error": {"message": message}}).encode()

    def completion(self, body: dict[str, Any], text: str, said: str | dict[str, Any]) -> bytes:
        """What is said, or a message, as the body of an answer; a message may have a `finish_reason`."""
        message = {"role": "assistant", **({"content": said} if isinstance(said, str) else said)}
        asked, told = len(text) // 4, len(message.get("content") or "") // 4
        reason = message.pop("finish_reason", "tool_calls" if message.get("tool_calls") else "stop")
        choice = {"index": 0, "message": message, "finish_reason": reason}
        head = {"id": "stub", "object": "chat.completion", "created": 0, "model": body["model"]}
        counts = {"prompt_tokens": asked, "completion_tokens": told, "total_tokens": asked + told}
        details = {} if self.reused is None else {"prompt_tokens_details": {"cached_tokens": int(asked * self.reused)}}
        return json.dumps({**head, "choices": [choice], **self.reported({**counts, **details})}).encode()

    def embedded(self, body: dict[str, Any]) -> bytes:
        """The offline embedder's vectors as the body of an answer."""
        from mempiler.engines.embedders import embedder

        rows = embedder().embed(body["input"]).tolist()
        data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
        tokens = sum(map(len, body["input"])) // 4
        reported = self.reported({"prompt_tokens": tokens, "total_tokens": tokens})
        return json.dumps({"object": "list", "model": body["model"], "data": data, **reported}).encode()

    def reported(self, truth: dict[str, Any]) -> dict[str, Any]:
        """The field of a reply that reports its tokens, or none."""
        if self.usage is False:
            return {}
        return {"usage": truth if self.usage is True else self.usage}


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed has hung up; nobody wants to read of it."""


def _handler(stub: StubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            known = stub.models if self.path.endswith("/models") else None
            body = {"data": [{"id": name, "object": "model"} for name in known or ()]}
            sent = known if isinstance(known, bytes) else json.dumps(body).encode()
            self.send(404 if known is None else 200, sent)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stub.requests.append((self.path, dict(self.headers), body))
            status, sent = stub.reply(body) or (0, b"")
            if status == 0:
                self.close_connection = True
                if sent:
                    stub.drip(self.wfile, sent.decode())
            elif sent.startswith(b"HTTP"):
                self.close_connection = True
                self.wfile.write(sent)
                self.wfile.flush()
                stub.before_close()
            elif status == 200 and body.get("stream") and sent.startswith(b"{"):
                self.stream(json.loads(sent), bool((body.get("stream_options") or {}).get("include_usage")))
            else:
                more = {"Retry-After": "3600" if b"hour" in sent else "0"} if status == 429 else {}
                events = bool(body.get("stream")) and sent.startswith(b"data:")
                self.send(status, sent, "text/event-stream" if events else "application/json", more)

        def send(self, status: int, body: bytes, kind: str = "application/json", more: Mapping[str, str] = {}) -> None:
            self.head(status, {**more, "Content-Type": kind, "Content-Length": str(len(body))})
            self.wfile.write(body)

        def head(self, status: int, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**stub.headers, **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def stream(self, completion: dict[str, Any], usage: bool) -> None:
            """Sends a completion as events."""
            self.head(200, {"Content-Type": "text/event-stream", "Connection": "close"})
            self.close_connection = True
            for number, event in enumerate(_chunks(completion, usage)):
                stub.between(number)
                if stub._dead:
                    return
                self.wfile.write(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode())
                self.wfile.flush()
            stub.before_close()

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    return Handler


def _chunks(completion: dict[str, Any], usage: bool) -> Iterator[Any]:
    """A completion as the events of a stream: role, words, calls of tools with their arguments in halves, the end."""
    choice = completion["choices"][0]
    head = {**{name: completion[name] for name in ("id", "created", "model")}, "object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    message = choice["message"]
    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk({"content": word}) for word in re.findall(r"\s*\S+", message.get("content") or ""))
    for n, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        half = len(function["arguments"]) // 2
        named = {"name": function["name"], "arguments": function["arguments"][:half]}
        yield chunk({"tool_calls": [{**call, "index": n, "function": named}]})
        yield chunk({"tool_calls": [{"index": n, "function": {"arguments": function["arguments"][half:]}}]})
    yield chunk({}, choice["finish_reason"])
    if usage and "usage" in completion:
        yield {**head, "choices": [], "usage": completion["usage"]}
    yield "[DONE]"
