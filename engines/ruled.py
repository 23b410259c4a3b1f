"""What DSPy asks of an engine, around one function from a request to a text: the base of engines that are no model.

Token counts are estimates, four characters each; `max_tokens` is ignored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

from dspy import lm15

StreamEvent = lm15.StreamStartEvent | lm15.StreamDeltaEvent | lm15.StreamEndEvent


class _Engine:
    """Capabilities that the engine reports to DSPy, and what it is made from again."""

    supports_function_calling: ClassVar[bool] = False
    supports_reasoning: ClassVar[bool] = False
    supports_response_schema: ClassVar[bool] = True
    supported_params: ClassVar[tuple[str, ...]] = ("temperature", "max_tokens", "response_format", "seed")
    seedable: ClassVar[bool] = True

    def dump_state(self) -> dict[str, Any]:
        """The settings by name."""
        return {}

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> Self:
        """Makes an engine from `dump_state`."""
        return cls(**state)

    def __deepcopy__(self, memo: object) -> Self:
        """Optimizers copy programs; the copies share one engine and its counts."""
        return self

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[dict[str, Any]]]:
        return type(self).load_state, (self.dump_state(),)


class RuledEngine(_Engine):
    """A DSPy engine whose answers are made by `reply`."""

    def reply(self, request: lm15.Request) -> str:
        """The text that answers a request."""
        raise NotImplementedError

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answers one request."""
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

    def close(self) -> None:
        """Does nothing."""

    def clear(self) -> None:
        """Forgets the texts seen so far; there are none unless a subclass keeps some."""


class AsyncRuledEngine(_Engine):
    """The asynchronous counterpart, which shares an engine: it answers at once, in the calling thread.

    Args:
        engine: Whose answers it gives; one of its own if None.
        **state: The settings of that.
    """

    kind: ClassVar[type[RuledEngine]]

    def __init__(self, engine: RuledEngine | None = None, **state: Any) -> None:
        self._engine = engine or self.kind(**state)

    def dump_state(self) -> dict[str, Any]:
        return self._engine.dump_state()

    async def complete(self, request: lm15.Request) -> lm15.Response:
        """Answers one request."""
        return self._engine.complete(request)

    async def stream(self, request: lm15.Request) -> AsyncIterator[StreamEvent]:
        """Answers one request line by line."""
        for event in self._engine.stream(request):
            yield event

    async def aclose(self) -> None:
        """Does nothing."""


def said(request: lm15.Request) -> list[str]:
    """The texts of a request: that of the system, and every message."""
    return [str(request.system or ""), *(message.text or "" for message in request.messages)]
