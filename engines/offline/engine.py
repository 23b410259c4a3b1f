"""The offline engine: answers by rules, so that everything runs without weights, key or network.

It fills every output with sentences, spans, ids and dates of the inputs, with the first option or
with the least number. It infers nothing, so its scores are smoke tests. What compiling honestly
shows is that the nearest demo teaches it how long an answer is, and when it is a date.

    lm = dspy.LM("offline/extractive-1", engine=OfflineEngine(), temperature=0.0)
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from dspy import lm15

from ...records.shared_by_copies import SharedByCopies
from .answers import AnswerWriter
from .prompt import Prompt, read_prompt
from .ranking import Chooser
from .rendering import render_answer
from .units import clear_line_cache
from .words import clear_word_caches

MAX_COUNTED_PROMPTS = 20_000
"""How many prompts are counted before counting begins anew: a training run may be long."""

_CHARACTERS_PER_TOKEN = 4


class OfflineEngine(SharedByCopies):
    """A DSPy engine that answers by rules.

    With a temperature, an answer depends on the prompt and on `Config.seed`, or without a seed on
    how often the prompt was asked before.
    """

    supports_function_calling: ClassVar[bool] = False
    supports_reasoning: ClassVar[bool] = False
    supports_response_schema: ClassVar[bool] = True
    supported_params: ClassVar[tuple[str, ...]] = (
        "temperature",
        "max_tokens",
        "response_format",
        "seed",
    )
    seedable: ClassVar[bool] = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times_asked: Counter[bytes] = Counter()

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer a request; tokens are estimated, and `max_tokens` is ignored."""
        text = self.reply(request)
        prompt_length = sum(len(part) for part in request_texts(request))
        usage = lm15.Usage(
            input_tokens=_estimate_tokens(prompt_length),
            output_tokens=_estimate_tokens(len(text)),
        )
        message = lm15.Message.assistant(text)
        return lm15.Response(None, request.model, message, finish_reason="stop", usage=usage)

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Answer a request in one piece."""
        return iter(lm15.response_to_events(self.complete(request)))

    def reply(self, request: lm15.Request) -> str:
        """Return the text that answers a request."""
        temperature = request.config.temperature or 0.0
        seed = self._seed(request) if temperature else 0
        prompt = self.read_prompt(request)
        writer = AnswerWriter(prompt, Chooser(temperature, seed))

        if prompt.layout is None:
            return writer.answer("reply") or "There is no text to answer from."
        values: dict[str, Any] = {}
        for name, schema in prompt.outputs.items():
            values[name] = writer.fill(name, schema)
        return render_answer(values, prompt.layout)

    def read_prompt(self, request: lm15.Request) -> Prompt:
        """Return what a request asks."""
        return read_prompt(request)

    def clear(self) -> None:
        """Drop the texts that this process keeps: those of a forgotten user may be among them."""
        clear_line_cache()
        clear_word_caches()

    def dump_state(self) -> dict[str, Any]:
        """Return nothing: there are no settings."""
        return {}

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> Self:
        """Return a new engine."""
        return cls()

    def _seed(self, request: lm15.Request) -> int:
        """Return the number that decides the noise in an answer, and count the prompt."""
        text = "\0".join(request_texts(request))
        digest = hashlib.sha256(text.encode()).digest()
        variant = request.config.seed
        if variant is None:
            variant = self._count_prompt(digest)
        return int.from_bytes(digest[:8], "big") * 1_000_003 + variant

    def _count_prompt(self, digest: bytes) -> int:
        """Return how often a prompt was asked, this time included."""
        with self._lock:
            if len(self._times_asked) >= MAX_COUNTED_PROMPTS:
                self._times_asked.clear()
            self._times_asked[digest] += 1
            return self._times_asked[digest]

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()


def request_texts(request: lm15.Request) -> list[str]:
    """Return the text of the system message, which may be empty, and those of all messages."""
    return [str(request.system or ""), *(message.text or "" for message in request.messages)]


def _estimate_tokens(characters: int) -> int:
    """Return about how many tokens a text has, rounded up."""
    return (characters + _CHARACTERS_PER_TOKEN - 1) // _CHARACTERS_PER_TOKEN
