"""The only chain of H2Memory: the background is updated with each session's situations in turn.

    logs 1 ── background 1 ──────────> background 2 ──────────> background 3
    dialogue 1     refined by background 1 ─┘   dialogue 2  refined by background 2 ─┘

What a dialogue's needs are refined with is there when it comes, but nothing needs the result before the memory settles.
So they wait, and are refined at the same time as the background takes in the logs that come next: the chain is not
longer for it, and every need is refined once, whichever prefix of the history a question is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...memory.index import Embedder
from ..gather import gather
from .dialogue import refined
from .logs import Ask, PreparedLogs, updated
from .memory import HeterogeneousMemory


@dataclass(frozen=True)
class Chain:
    """Writes situations, backgrounds and refined needs.

    Args:
        update: Calls the prompt that updates the background; None where there is to be none.
        refine: Calls the prompt that refines a need; None where needs stay as they are.
        embedder: Vectors of needs and situations.
        situations: Situations that a need is refined with.
        situated: Whether the prompt is shown these, or only the backgrounds they lead to.
    """

    update: Ask | None
    refine: Ask | None
    embedder: Embedder
    situations: int = 3
    situated: bool = True

    def with_logs(self, memory: HeterogeneousMemory, batch: str, found: PreparedLogs) -> HeterogeneousMemory:
        """The memory with one more item of logs, its background up to date, and no need waiting."""
        after = memory.with_situations(batch, found.situations)
        after = after.counted(links_refused=found.refused, situations_unplaced=found.unplaced)
        new = after.situations[len(memory.situations) :]
        calls: list[Callable[[], Any]] = [partial(self._needs, memory)]
        if self.update is not None and new:
            calls.append(partial(updated, memory, new, self.update))
        (needs, asked), *updates = gather(calls)
        after = after.with_needs(needs)
        for texts, refused in updates:
            after = after.with_background(texts, new, refused)
        return after.deeper(write=int(asked or bool(updates)))

    def settled(self, memory: HeterogeneousMemory) -> HeterogeneousMemory:
        """The memory in which no need waits."""
        if not memory.waiting:
            return memory
        needs, asked = self._needs(memory)
        return memory.with_needs(needs).deeper(refine=int(asked))

    def _needs(self, memory: HeterogeneousMemory) -> tuple[dict[str, str], bool]:
        """The pending needs in full, by topic id, and whether a model was called."""
        waiting = [topic for topic in memory.topics if topic.id in memory.waiting]
        if self.refine is None or not waiting:
            return {}, False
        return refined(memory, waiting, self.refine, self.embedder, self.situations, self.situated)
