"""The offline engine: a language model's place taken by rules, so that everything runs with no weights, key or network.

What it is: a deterministic reader. It sees only the prompt it is sent, and fills every output with spans, sentences,
ids and dates of the inputs, chosen and shaped by the nearest demos in that prompt. So demos truly change its answers.

What it is not: a model. It infers and paraphrases nothing and knows no question forms. The gain it can honestly show
from compiling is mainly this: demos teach it that "When" questions want a date. Its scores are wiring checks, never
comparable with a model's.

With a temperature repeated prompts get different answers, seeded by the prompt and how often the engine has seen it, or
by `Config.seed`: the same ones in every run, but which of several threads gets which is open.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from dspy import lm15

from .answers import answer, fill, with_advice
from .prompt import read_prompt, render
from .text import forget_texts
from .view import View, forget_lines

StreamEvent = lm15.StreamStartEvent | lm15.StreamDeltaEvent | lm15.StreamEndEvent

_FENCED = re.compile(r"```\w*\n(.*?)\n?```(?=.*```)(.*)", re.S)


class OfflineEngine:
    """A DSPy engine that answers from the prompt alone; see the module for what it can and cannot do."""

    supports_function_calling: ClassVar[bool] = False
    supports_reasoning: ClassVar[bool] = False
    supports_response_schema: ClassVar[bool] = True
    supported_params: ClassVar[tuple[str, ...]] = ("temperature", "max_tokens", "response_format", "seed")
    seedable: ClassVar[bool] = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Counter[bytes] = Counter()

    def reply(self, request: lm15.Request) -> str:
        """The text that answers a request; at temperature 0 a pure function of the prompt."""
        temperature = request.config.temperature or 0.0
        seed = self._seed("\0".join(said(request)), request.config.seed) if temperature else 0
        return _reply(View(read_prompt(request), temperature, seed))

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answers one request; tokens are estimated, four characters each, and `max_tokens` is ignored."""
        text = self.reply(request)
        usage = lm15.Usage(input_tokens=(sum(map(len, said(request))) + 3) // 4, output_tokens=(len(text) + 3) // 4)
        return lm15.Response(None, request.model, lm15.Message.assistant(text), finish_reason="stop", usage=usage)

    def stream(self, request: lm15.Request) -> Iterator[StreamEvent]:
        """Answers one request line by line."""
        response = self.complete(request)
        yield lm15.StreamStartEvent(model=request.model)
        for line in (response.message.text or "").splitlines(keepends=True):
            yield lm15.StreamDeltaEvent(lm15.TextDelta(line))
        yield lm15.StreamEndEvent(finish_reason="stop", usage=response.usage)

    def clear(self) -> None:
        """Forgets the texts seen so far."""
        forget_lines()
        forget_texts()

    def dump_state(self) -> dict[str, Any]:
        """Nothing: there are no settings."""
        return {}

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> Self:
        """A new engine."""
        return cls()

    def _seed(self, prompt: str, chosen: int | None) -> int:
        key = hashlib.sha256(prompt.encode()).digest()
        with self._lock:
            # Forgetting keeps a long training run from growing without bound.
            if len(self._seen) >= 20_000:
                self._seen.clear()
            self._seen[key] += chosen is None
            return int.from_bytes(key[:8], "big") * 1_000_003 + (self._seen[key] if chosen is None else chosen)

    def __deepcopy__(self, memo: object) -> Self:
        """Optimizers copy programs; the copies share one engine and its counts."""
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()


def said(request: lm15.Request) -> list[str]:
    """The texts of a request: that of the system, and every message."""
    return [str(request.system or ""), *(message.text or "" for message in request.messages)]


def _reply(view: View) -> str:
    prompt = view.prompt
    if prompt.style != "plain":
        return render(prompt.style, {name: fill(view, name, schema) for name, schema in prompt.outputs.items()})
    # Reflective optimizers show a text in a fence and ask for a new one in a fence.
    if fenced := _FENCED.search(prompt.inputs["prompt"]):
        return f"```\n{with_advice(fenced[1].strip(), fenced[2])}\n```"
    return answer(view, "reply") or "There is no text to answer from."
