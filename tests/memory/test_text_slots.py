"""Long work on texts waits for a slot, and short work for none (`memory.text_slots`).

Python runs one thread at a time, so a thread that cuts a long text into words holds up all others.
A service therefore lets such work wait for its turn. A slot is the permission to do it now.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import pytest
from mempiler.memory.entry import Entry
from mempiler.memory.search.index import Index
from mempiler.memory.search.tokens import tokens
from mempiler.memory.text_slots import SLOT_FACTORY
from mempiler.records.context_variables import set_context

LONG_CHINESE_TEXT = "我" * 5_000


class SlowCutter:
    """Takes the place of jieba: returns each text uncut, slowly, and counts threads.

    A long text is cut in runs of 500 characters.
    """

    def __init__(self) -> None:
        self.running: list[str] = []
        """The texts that threads cut at this moment."""
        self.most_at_once = 0
        """The most threads that were in the cutter at the same time."""

    def cut_for_search(self, text: str) -> list[str]:
        self.running.append(text)
        self.most_at_once = max(self.most_at_once, len(self.running))
        time.sleep(0.002)
        self.running.pop()
        return [text]


@pytest.fixture
def cutter(monkeypatch: pytest.MonkeyPatch) -> SlowCutter:
    """The cutter of Chinese texts that `tokens` uses."""
    slow_cutter = SlowCutter()
    monkeypatch.setattr("mempiler.memory.search.tokens.chinese_cutter", lambda: slow_cutter)
    return slow_cutter


class OneSlot:
    """A single slot, as a service has it. A thread that never gets it fails instead of hanging."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def slot(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=5):
            raise TimeoutError("the slot was not freed within 5 seconds")
        try:
            yield
        finally:
            self._lock.release()


def test_long_texts_of_several_threads_are_worked_on_one_after_the_other(
    cutter: SlowCutter,
) -> None:
    one_slot = OneSlot()

    def count_terms(text: str) -> int:
        with set_context(SLOT_FACTORY, one_slot.slot):
            return len(tokens(text))

    with ThreadPoolExecutor(4) as pool:
        term_counts = list(pool.map(count_terms, [LONG_CHINESE_TEXT] * 4))

    # 5,000 characters are ten runs of 500, and each run is a term.
    assert term_counts == [10, 10, 10, 10]
    assert cutter.most_at_once == 1


def refuse_slot() -> AbstractContextManager[None]:
    pytest.fail("a short text waits for a slot")


def test_short_text_waits_for_no_slot() -> None:
    with set_context(SLOT_FACTORY, refuse_slot):
        assert tokens("篮球") == ["篮球"]


class CountedSlots:
    """Slots that nobody waits for. No slot may begin within another one."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0

    @contextmanager
    def slot(self) -> Iterator[None]:
        assert self.begun == self.ended
        self.begun += 1
        yield
        self.ended += 1


def test_index_takes_a_slot_for_a_long_text() -> None:
    slots = CountedSlots()

    with set_context(SLOT_FACTORY, slots.slot):
        Index().add([Entry(id="long", text="jazz " * 1000)])

    assert slots.begun == 1
    assert slots.ended == 1


def test_index_takes_a_slot_for_every_few_short_texts() -> None:
    """A slot is for about 2,000 characters, and each of the twenty texts has 550."""
    slots = CountedSlots()
    entries = [Entry(id=str(number), text="fine words " * 50) for number in range(20)]

    with set_context(SLOT_FACTORY, slots.slot):
        Index().add(entries)

    # One for every four texts.
    assert slots.begun == 5
    assert slots.ended == 5
