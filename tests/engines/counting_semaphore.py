"""A semaphore that counts."""

from collections.abc import Generator
from contextlib import contextmanager

from mempiler.engines.fair_semaphore import FairSemaphore


class CountingSemaphore(FairSemaphore):
    """A semaphore that counts how often a slot of it was taken."""

    def __init__(self, slots: int = 1) -> None:
        super().__init__(slots)
        self.times_taken = 0

    @contextmanager
    def slot(self) -> Generator[None]:
        with super().slot():
            self.times_taken += 1
            yield
