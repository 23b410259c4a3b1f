"""The offline engine: a language model's place taken by rules, so that everything runs with no weights, key or network.

What it is: a deterministic reader. It sees only the prompt it is sent - instructions, fields, types, demos - and fills
every output extractively, with spans, sentences, ids and dates of the inputs, chosen and shaped by the nearest demos in
that prompt. Bootstrapped or labeled demos therefore truly change its answers, and so does a plain cue in instructions
("absolute date", "at most six words", "short").

What it is not: a model. It infers nothing, paraphrases nothing and knows no question forms; without demos it answers
with the best-matching sentence. The gain it can honestly show from compiling is mainly this: demos teach it that "When"
questions want an absolute date. On other questions compiling is about flat. Its scores are wiring checks, never
comparable with a model's. A call takes a few milliseconds of Python, so many threads do not make it faster.

With a temperature, repeated prompts get different answers: the noise is seeded by the prompt and by how often the
engine has seen it (or by `Config.seed`), so the set of answers repeats from run to run; which of several threads gets
which does not. Token counts are estimates: one token per four characters. `max_tokens` is ignored.

Example:
    >>> engine = OfflineEngine()
    >>> lm = dspy.LM("offline/extractive-1", engine=engine, async_engine=AsyncOfflineEngine(engine), temperature=0.0)
    >>> dspy.Predict("context, question -> answer")(context="Ann: I moved to Rome.", question="Where is Ann?").answer
    'I moved to Rome.'
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, ClassVar

from dspy.lm15 import (
    Message,
    Request,
    Response,
    StreamDeltaEvent,
    StreamEndEvent,
    StreamStartEvent,
    TextDelta,
    Usage,
)

from .answers import answer, with_advice
from .fill import fill
from .prompt import Prompt, read_prompt
from .render import render
from .view import Chooser, View

StreamEvent = StreamStartEvent | StreamDeltaEvent | StreamEndEvent

_FENCED = re.compile(r"```\w*\n(.*?)\n?```", re.S)
_REMEMBERED = 20_000


class OfflineEngine:
    """A DSPy engine that answers from the prompt alone; see the module for what it can and cannot do."""

    supports_function_calling: ClassVar[bool] = False
    supports_reasoning: ClassVar[bool] = False
    supports_response_schema: ClassVar[bool] = True
    supported_params: ClassVar[tuple[str, ...]] = ("temperature", "max_tokens", "response_format", "seed")
    seedable: ClassVar[bool] = True
    """`Config.seed` decides what is sampled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[bytes, int] = {}

    def complete(self, request: Request) -> Response:
        """Answers one request. At temperature 0 the reply is a pure function of the prompt."""
        text = reply(read_prompt(request), self._chooser(request))
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(text),
            finish_reason="stop",
            usage=_usage(request, text),
        )

    def stream(self, request: Request) -> Iterator[StreamEvent]:
        """Answers one request line by line."""
        response = self.complete(request)
        yield StreamStartEvent(model=request.model)
        for line in (response.message.text or "").splitlines(keepends=True):
            yield StreamDeltaEvent(TextDelta(line))
        yield StreamEndEvent(finish_reason="stop", usage=response.usage)

    def close(self) -> None:
        """Nothing to let go of."""

    def dump_state(self) -> dict[str, Any]:
        """The engine has no settings."""
        return {}

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> OfflineEngine:
        """Makes an engine from `dump_state`."""
        return cls(**state)

    def __deepcopy__(self, memo: object) -> OfflineEngine:
        """Optimizers copy programs; the copies share one engine and its counts."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__()

    def _chooser(self, request: Request) -> Chooser:
        temperature = request.config.temperature or 0.0
        if temperature <= 0:
            return Chooser(0.0, 0)
        key = _digest(request)
        occurrence = getattr(request.config, "seed", None)
        if occurrence is None:
            with self._lock:
                # Forgetting the oldest prompt keeps a long training run from growing without bound.
                if len(self._seen) >= _REMEMBERED and key not in self._seen:
                    del self._seen[next(iter(self._seen))]
                occurrence = self._seen[key] = self._seen.get(key, 0) + 1
        return Chooser(temperature, int.from_bytes(key[:8], "big") * 1_000_003 + occurrence)


class AsyncOfflineEngine:
    """The asynchronous counterpart: it answers at once, in the calling thread, as a call takes only milliseconds.

    Args:
        engine: The engine to share counts with; a new one by default.
    """

    supports_function_calling: ClassVar[bool] = OfflineEngine.supports_function_calling
    supports_reasoning: ClassVar[bool] = OfflineEngine.supports_reasoning
    supports_response_schema: ClassVar[bool] = OfflineEngine.supports_response_schema
    supported_params: ClassVar[tuple[str, ...]] = OfflineEngine.supported_params

    def __init__(self, engine: OfflineEngine | None = None) -> None:
        self._engine = engine or OfflineEngine()

    async def complete(self, request: Request) -> Response:
        """Answers one request."""
        return self._engine.complete(request)

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Answers one request line by line."""
        for event in self._engine.stream(request):
            yield event

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def dump_state(self) -> dict[str, Any]:
        """The engine has no settings."""
        return {}

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> AsyncOfflineEngine:
        """Makes an engine from `dump_state`."""
        return cls(**state)

    def __deepcopy__(self, memo: object) -> AsyncOfflineEngine:
        return self


def reply(prompt: Prompt, chooser: Chooser) -> str:
    """The text of the reply to a prompt."""
    view = View(prompt, chooser)
    if prompt.style != "plain":
        return render(prompt.style, {output.name: fill(view, output) for output in prompt.outputs})
    text = prompt.inputs["prompt"]
    fenced = _FENCED.search(text)
    if fenced and "```" in text[fenced.end() :]:
        # A prompt that shows a text in a fence and asks for a new one in a fence, as reflective optimizers do.
        return f"```\n{with_advice(fenced[1].strip(), text[fenced.end() :])}\n```"
    return answer(view, "reply") or "There is no text to answer from."


def _digest(request: Request) -> bytes:
    digest = hashlib.sha256(repr(request.system).encode())
    for message in request.messages:
        digest.update(f"\0{message.role}\0{message.text}".encode())
    return digest.digest()


def _usage(request: Request, text: str) -> Usage:
    asked = len(str(request.system or "")) + sum(len(message.text or "") for message in request.messages)
    return Usage(input_tokens=(asked + 3) // 4, output_tokens=(len(text) + 3) // 4)
