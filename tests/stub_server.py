"""A server on this machine that speaks the OpenAI chat protocol, and fails where a test wants it.

    with StubServer(at({3: "500"})) as server:
        run_cli("evaluate", ..., "--lm", server.model, "--api-base", server.url)

It answers with the offline engine. An answer depends on the messages alone, so two runs that ask
the same get the same answers. Each request may meet a fault:

    400      the request is refused
    401      the key is refused
    404      there is no such model
    429      refused for now, with Retry-After: 0
    wait     refused for now, with Retry-After: 3600
    500      a fault of the server
    garbled  a completion without the headers of fields
    no-json  a body that is not JSON
    stall    silence until the server is closed
    trickle  an answer of which a byte comes now and then
    headers  headers of which a byte comes now and then
    endless  an answer that does not end
    dead     the connection is cut, and the server listens no more

    echo 400, echo 401, ...  this status, with a message that repeats the headers of the request;
                             the body of `echo 200` is no JSON
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
from typing import Any, Literal, NamedTuple

Fault = str
Script = Callable[[int, str], Fault | None]
"""Number of the request (from 1) and its messages as one text -> the fault it meets, or None."""
Answer = Callable[[dict[str, Any]], "str | dict[str, Any] | bytes"]
"""Body of a request -> the answer.

This is the text of the completion, its message, or the bytes of a whole body. Bytes that begin
with "HTTP" hold the headers as well.
"""

LIMITS = {
    "x-request-id": "req-stub",
    "x-ratelimit-remaining-requests": "41",
    "openai-organization": "ours",
}
"""Headers of every reply."""

_ERROR_MESSAGES = {
    "400": "no such response_format",
    "401": "no such key",
    "404": "the model does not exist",
    "429": "slow down",
    "500": "the server has a fault",
    "wait": "slow down for an hour",
}
_ENDLESS_FAULTS = ("trickle", "endless", "headers")


def every(fault: Fault) -> Script:
    """Return a script by which every request meets the same fault."""
    return lambda number, text: fault


def at(faults: Mapping[int, Fault]) -> Script:
    """Return a script with faults by the number of the request."""
    return lambda number, text: faults.get(number)


def fill(
    schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None, text: str = "1"
) -> Any:
    """Return a value that fits a JSON schema.

    Numbers are 1, lists hold as few values as they may (one, if nothing is said), and of several
    choices it is the first.

    Args:
        schema: The schema.
        definitions: The schemas that it refers to; by default its own `$defs`.
        text: The value of each string.
    """
    if definitions is None:
        definitions = schema.get("$defs", {})

    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return fill(definitions[name], definitions, text)
    if "anyOf" in schema:
        return fill(schema["anyOf"][0], definitions, text)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]

    if schema["type"] == "object":
        properties = schema.get("properties", {})
        return {name: fill(part, definitions, text) for name, part in properties.items()}
    if schema["type"] == "array":
        item = fill(schema["items"], definitions, text)
        return [item] * schema.get("minItems", 1)

    values = {"string": text, "integer": 1, "number": 1, "boolean": True, "null": None}
    return values[schema["type"]]


def offline_answer(body: dict[str, Any]) -> str:
    """Return the answer of the offline engine to a request."""
    from dspy.lm15 import request_from_openai_chat

    from tests.dspy_prompts import PromptReadingEngine

    fields = ("model", "messages", "temperature", "max_tokens")
    known_fields = {name: body[name] for name in fields if name in body}
    request = request_from_openai_chat(known_fields)
    # An engine counts repeated prompts and answers them in another way, so each request gets a
    # new one.
    return PromptReadingEngine().complete(request).message.text or ""


class Request(NamedTuple):
    """A request that came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Reply(NamedTuple):
    """What the server sends to one request."""

    status: int
    body: bytes


@dataclass(eq=False)
class StubServer:
    """The server. It listens within its `with` block, or until `die` is called."""

    script: Script | None = None
    """Which request meets which fault; None for no faults."""
    answer: Answer = offline_answer
    """Gives the completions."""
    delay: float = 0.0
    """Seconds that every answer takes."""
    schemas: Literal["honour", "ignore", "refuse"] = "ignore"
    """What a request with a JSON schema gets: a value of the schema, any answer, or status 400."""
    reused: float | None = None
    """The share of every prompt that is reported as cached; None reports nothing."""
    between: Callable[[int], None] = lambda number: None
    """Called before each event of a stream with its number, from 0."""
    before_close: Callable[[], object] = lambda: None
    """Called before the connection of a stream, or of a body with headers, is closed."""
    models: Sequence[str] | bytes | None = None
    """The models that `GET /models` lists, or the body of its reply; None has no such page."""
    embedding_fault: Callable[[], Fault | None] = lambda: None
    """Gives the fault that a request for embeddings meets: `stall`, `echo ...` or a status."""
    usage: Any = True
    """The reported usage: True for the truth, False for none, any other value as it is."""
    headers: Mapping[str, str] = field(default_factory=lambda: LIMITS)
    """Headers of every reply."""
    formats: list[Any] = field(default_factory=list[Any], init=False)
    """The `response_format` of every chat request that came in, or None."""
    requests: list[Request] = field(default_factory=list[Any], init=False)
    """Every request that came in."""
    texts: list[str] = field(default_factory=list[str], init=False)
    """The messages of every chat request that came in, as one text each."""
    answered: int = field(default=0, init=False)
    """The number of requests that got a completion."""

    def __post_init__(self) -> None:
        # A new name each time, so that DSPy's LM cache knows no answers of it.
        self.model = f"openai/stub-{uuid.uuid4().hex[:8]}"
        """What `--lm` takes."""
        self.is_dead = False
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._server = _Listener(self)

    @property
    def url(self) -> str:
        """What `--api-base` takes."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> StubServer:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.die()

    def die(self) -> None:
        """Stop listening; connections are refused from now on."""
        with self._changed:
            was_dead = self.is_dead
            self.is_dead = True
        self._closing.set()
        if not was_dead:
            self._server.shutdown()
            self._server.server_close()

    def wait(self, answered: int, seconds: float = 60) -> bool:
        """Wait until so many requests have been answered; return False if the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: self.answered >= answered, seconds)

    def reply(self, body: dict[str, Any]) -> Reply | None:
        """Return the reply to a request for a completion; None to cut the connection."""
        text = "\n".join(str(message.get("content")) for message in body["messages"])
        fault = self._fault_of(body, text)

        if fault is not None and fault != "garbled":
            return self._faulty_reply(fault)

        if self.delay:
            time.sleep(self.delay)
        if fault == "garbled":
            answer: str | dict[str, Any] | bytes = "I would rather not say."
        elif self.schemas == "honour" and "response_format" in body:
            answer = json.dumps(fill(body["response_format"]["json_schema"]["schema"]))
        else:
            answer = self.answer(body)

        with self._changed:
            self.answered += 1
            self._changed.notify_all()
        if isinstance(answer, bytes):
            return Reply(200, answer)
        return Reply(200, self._completion(body, text, answer))

    def _fault_of(self, body: dict[str, Any], text: str) -> Fault | None:
        """Record a request, and return the fault that it meets."""
        with self._changed:
            self.texts.append(text)
            self.formats.append(body.get("response_format"))
            if self.is_dead:
                return "dead"
            fault = None
            if self.script is not None:
                fault = self.script(len(self.texts), text)

        if fault is None and self.schemas == "refuse" and "response_format" in body:
            return "400"
        return fault

    def _faulty_reply(self, fault: Fault) -> Reply | None:
        """Return what a request that meets a fault gets; None to cut the connection."""
        if fault == "dead":
            self.die()
            return None
        if fault == "stall":
            self._closing.wait()
            return None
        if fault.startswith("echo "):
            return self._echo(int(fault.removeprefix("echo ")))
        if fault in _ENDLESS_FAULTS:
            # The handler sees the status 0, and sends the bytes by `drip`.
            return Reply(0, fault.encode())
        if fault == "no-json":
            return Reply(200, b"<html>bad gateway</html>")

        error: dict[str, Any] = {"message": _ERROR_MESSAGES[fault]}
        if fault == "404":
            error["code"] = "model_not_found"
        status = 429 if fault == "wait" else int(fault)
        return Reply(status, json.dumps({"error": error}).encode())

    def reply_to_embedding(self, body: dict[str, Any]) -> Reply | None:
        """Return the reply to a request for embeddings; None to cut the connection."""
        fault = self.embedding_fault()
        if fault is not None:
            return self._faulty_reply(fault)
        return Reply(200, self.embeddings(body))

    def drip(self, connection: Any, fault: Fault) -> None:
        """Send a reply that does not end, until the client or the server closes."""
        status_line = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        if fault == "headers":
            beginning = status_line + b"X-Long: "
        else:
            beginning = status_line + b"Connection: close\r\n\r\n"

        if fault == "endless":
            part = b"x" * 65536
            pause = 0.0
        else:
            part = b"x"
            pause = 0.05

        try:
            connection.write(beginning)
            while not self._closing.wait(pause):
                connection.write(part)
                connection.flush()
        except OSError:
            pass  # the client has closed the connection

    def _echo(self, status: int) -> Reply:
        """Return a refusal that repeats the headers of the latest request."""
        message = f"you sent {self.requests[-1].headers}"
        if status == 200:
            return Reply(status, message.encode())
        return Reply(status, json.dumps({"error": {"message": message}}).encode())

    def _completion(self, body: dict[str, Any], text: str, answer: str | dict[str, Any]) -> bytes:
        """Return an answer as the body of a reply; an answer may have its own `finish_reason`."""
        message: dict[str, Any] = {"role": "assistant"}
        if isinstance(answer, str):
            message["content"] = answer
        else:
            message.update(answer)
        default_reason = "tool_calls" if message.get("tool_calls") else "stop"
        finish_reason = message.pop("finish_reason", default_reason)

        prompt_tokens = len(text) // 4
        completion_tokens = len(message.get("content") or "") // 4
        usage: dict[str, Any] = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
        if self.reused is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": int(prompt_tokens * self.reused)}

        completion = {
            "id": "stub",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            **self._usage_field(usage),
        }
        return json.dumps(completion).encode()

    def embeddings(self, body: dict[str, Any]) -> bytes:
        """Return the vectors of the offline embedder as the body of a reply."""
        from mempiler.engines.embedders import embedder

        texts = body["input"]
        vectors = embedder().embed(texts).tolist()
        data: list[dict[str, Any]] = []
        for index, vector in enumerate(vectors):
            data.append({"object": "embedding", "index": index, "embedding": vector})

        tokens = sum(len(text) for text in texts) // 4
        reply = {
            "object": "list",
            "model": body["model"],
            "data": data,
            **self._usage_field({"prompt_tokens": tokens, "total_tokens": tokens}),
        }
        return json.dumps(reply).encode()

    def _usage_field(self, true_usage: dict[str, Any]) -> dict[str, Any]:
        """Return the field of a reply that reports its tokens; nothing if it reports none."""
        if self.usage is False:
            return {}
        if self.usage is True:
            return {"usage": true_usage}
        return {"usage": self.usage}


class _Listener(ThreadingHTTPServer):
    """Accepts connections for a `StubServer`."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, stub: StubServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stub = stub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: clients that are killed hang up."""


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: _Listener
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    @property
    def stub(self) -> StubServer:
        return self.server.stub

    def do_GET(self) -> None:
        models = self.stub.models if self.path.endswith("/models") else None
        if isinstance(models, bytes):
            self.send_body(200, models)
            return

        entries = [{"id": name, "object": "model"} for name in models or ()]
        status = 404 if models is None else 200
        self.send_body(status, json.dumps({"data": entries}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.stub.requests.append(Request(self.path, dict(self.headers), body))
        reply = self.stub.reply_to_embedding(body) if "input" in body else self.stub.reply(body)

        if reply is None:
            self.close_connection = True
        elif reply.status == 0:
            self.close_connection = True
            self.stub.drip(self.wfile, reply.body.decode())
        elif reply.body.startswith(b"HTTP"):
            self.close_connection = True
            self.wfile.write(reply.body)
            self.wfile.flush()
            self.stub.before_close()
        elif reply.status == 200 and body.get("stream") and reply.body.startswith(b"{"):
            stream_options = body.get("stream_options") or {}
            include_usage = bool(stream_options.get("include_usage"))
            self.send_stream(json.loads(reply.body), include_usage)
        else:
            # A test may give the events of a stream as bytes.
            is_stream = bool(body.get("stream")) and reply.body.startswith(b"data:")
            content_type = "text/event-stream" if is_stream else "application/json"
            self.send_body(reply.status, reply.body, content_type)

    def send_body(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        headers = {"Content-Type": content_type, "Content-Length": str(len(body))}
        if status == 429:
            headers["Retry-After"] = "3600" if b"hour" in body else "0"
        self.send_head(status, headers)
        self.wfile.write(body)

    def send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**self.stub.headers, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_stream(self, completion: dict[str, Any], include_usage: bool) -> None:
        """Send a completion as events."""
        self.send_head(200, {"Content-Type": "text/event-stream", "Connection": "close"})
        self.close_connection = True
        for number, event in enumerate(_events_of(completion, include_usage)):
            self.stub.between(number)
            if self.stub.is_dead:
                return
            self.wfile.write(f"data: {event}\n\n".encode())
            self.wfile.flush()
        self.stub.before_close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Print nothing."""


def _events_of(completion: dict[str, Any], include_usage: bool) -> Iterator[str]:
    """Return a completion as the events of a stream.

    They are the role, each word, each call of a tool with its arguments in two halves, the reason
    of the end, the usage if it is wanted, and "[DONE]".
    """
    choice = completion["choices"][0]
    message = choice["message"]
    head = {
        "id": completion["id"],
        "created": completion["created"],
        "model": completion["model"],
        "object": "chat.completion.chunk",
    }

    def event(delta: dict[str, Any], finish_reason: str | None = None) -> str:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
        return json.dumps({**head, "choices": choices})

    yield event({"role": "assistant", "content": ""})

    for word in re.findall(r"\s*\S+", message.get("content") or ""):
        yield event({"content": word})

    for index, call in enumerate(message.get("tool_calls") or ()):
        arguments = call["function"]["arguments"]
        middle = len(arguments) // 2
        first_half = {"name": call["function"]["name"], "arguments": arguments[:middle]}
        second_half = {"arguments": arguments[middle:]}
        yield event({"tool_calls": [{**call, "index": index, "function": first_half}]})
        yield event({"tool_calls": [{"index": index, "function": second_half}]})

    yield event({}, choice["finish_reason"])
    if include_usage and "usage" in completion:
        yield json.dumps({**head, "choices": [], "usage": completion["usage"]})
    yield "[DONE]"
