"""An endpoint of OpenAI's kind with the scripted model and the offline embedder, which counts, and stops where told.

with Endpoint() as endpoint:             --lm openai/x --api-base endpoint.url --embedder openai/x ...
    endpoint.hold_after(5)               five answers, then none: what is asked waits for `go_on`
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import dspy
from dspy import lm15
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.engines.offline.engine import OfflineEngine, said
from mempiler.systems.proxy import Proxy, RefusedError

from .scripted import ScriptedEngine

OF_OURS = "[[ ## "
"""What stands in the prompts of our reader, and in no system's."""


class Endpoint(Proxy):
    """The endpoint; it answers from the start to `close`."""

    def __init__(self) -> None:
        super().__init__(embedder())
        self.asked: list[str] = []
        """What was answered, in order: the messages of a chat, "" for vectors."""
        self._most: int | None = None
        self._generation = 0
        self._changed = threading.Condition()
        with dspy.context(lm=MeteredLM("scripted/all-1", Meter(), engine=_Everything(), cache=False)):
            self.serve_here()

    @property
    def prompts(self) -> list[str]:
        """The messages of every chat that was answered."""
        return [text for text in self.asked if text]

    @property
    def in_the_middle(self) -> int:
        """How many answers there were up to three quarters of the longest writing: no question of our reader in it."""
        ours = [n for n, text in enumerate(self.asked) if OF_OURS in text]
        start, end = max(pairwise([-1, *ours, len(self.asked)]), key=lambda pair: pair[1] - pair[0])
        return start + 1 + (end - start - 1) * 3 // 4

    def hold_after(self, answers: int) -> None:
        """Counts anew, and answers no more than so many until `go_on`."""
        with self._changed:
            self.asked, self._most = [], answers

    def go_on(self) -> None:
        """Counts anew, and answers; what waited is of a client that is gone."""
        with self._changed:
            self.asked, self._most = [], None
            self._generation += 1
            self._changed.notify_all()

    def wait(self, answers: int, seconds: float = 600) -> bool:
        """Waits for so many answers; False where they did not come in time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.asked) >= answers, seconds)

    def answer(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._changed:
            generation = self._generation
            self._changed.wait_for(lambda: self._most is None or len(self.asked) < self._most)
            if generation != self._generation:
                raise RefusedError("whoever asked this was killed")
            self.asked.append(json.dumps([body["messages"], body.get("tools")]) if "messages" in body else "")
            self._changed.notify_all()
        return super().answer(path, body)


class _Everything(ScriptedEngine):
    """Answers the systems by their script, and our reader as the offline engine does."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        ours = OF_OURS in "\n".join(said(request))
        return OfflineEngine().complete(request) if ours else super().complete(request)
