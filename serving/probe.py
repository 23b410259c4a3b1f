"""Looks whether the store can be read and written, without waiting for one that hangs.

One look is under way at a time, in a thread of its own: whoever asks meanwhile shares it, and a database that does not
answer holds one thread, not one per question. Whether the disk has room shows in a write only, so a row that means
nothing is written, not more often than `WRITES_EVERY`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from ..memory.store import Store
from ..memory.stored import Owner
from .logs import cause_of, log

WAIT = 2.0
"""Seconds to wait for a look."""
WRITES_EVERY = 10.0
"""Seconds between two writes."""


@dataclass
class Seen:
    """What a look has come to so far."""

    began: float = field(default_factory=time.monotonic)
    store: bool = False
    """Whether it can be read."""
    disk: bool = False
    """Whether it can be written."""
    counts: dict[str, int] = field(default_factory=dict)


class Probe:
    """Looks at one store.

    Args:
        store: The store.
        wait: Seconds to wait for a look.
        writes_every: Seconds between two writes.
    """

    def __init__(self, store: Store, wait: float = WAIT, writes_every: float = WRITES_EVERY) -> None:
        self._store, self._wait, self._writes_every = store, wait, writes_every
        self._seen = Seen()
        self._look: Future[None] | None = None
        self._written = -writes_every

    async def look(self) -> Seen:
        """What the store is like; what is not known in time is taken for failed."""
        if self._look is None or self._look.done():
            self._seen, self._look = Seen(), Future()
            threading.Thread(
                target=self._run, args=(self._seen, self._look), name="mempiler-probe", daemon=True
            ).start()
        seen, left = self._seen, self._seen.began + self._wait - time.monotonic()
        await asyncio.wait({asyncio.wrap_future(self._look)}, timeout=max(0.0, left))
        if not seen.disk and not self._look.done():
            log.error("the store does not answer", extra={"cause": f"nothing for {self._wait:g} s"})
        return seen

    def _run(self, seen: Seen, look: Future[None]) -> None:
        seen.store = self._tried(lambda: self._read(seen), "the store cannot be read")
        if time.monotonic() - self._written < self._writes_every:
            seen.disk = seen.store
        elif self._tried(self._store.check, "the store cannot be written"):
            self._written, seen.disk = time.monotonic(), True
        look.set_result(None)

    def _read(self, seen: Seen) -> None:
        self._store.read(Owner("ready", "ready"))
        seen.counts = self._store.states()

    def _tried(self, call: Callable[[], object], failure: str) -> bool:
        try:
            call()
        except Exception as error:
            log.error(failure, extra={"kind": type(error).__name__, "cause": cause_of(error), "reason": str(error)})
            return False
        return True
