"""Long work on texts waits for a slot, and short work for none (`memory.text_slots`)."""

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
    """Cuts no Chinese text, takes its time, and counts the threads that do so at once."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most_at_once = 0

    def cut_for_search(self, text: str) -> list[str]:
        self.running.append(text)
        self.most_at_once = max(self.most_at_once, len(self.running))
        time.sleep(0.002)
        self.running.pop()
        return [text]


@pytest.fixture
def cutter(monkeypatch: pytest.MonkeyPatch) -> SlowCutter:
    slow_cutter = SlowCutter()
    monkeypatch.setattr("mempiler.memory.search.tokens.chinese_cutter", lambda: slow_cutter)
    return slow_cutter


class OneSlot:
    """A single slot. Whoever waits for it in vain fails instead of hanging."""

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
    slots = OneSlot()

    def number_of_terms(text: str) -> int:
        with set_context(SLOT_FACTORY, slots.slot):
            return len(tokens(text))

    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(number_of_terms, [LONG_CHINESE_TEXT] * 4))

    assert numbers == [10] * 4
    assert cutter.most_at_once == 1


def test_short_text_waits_for_no_slot(cutter: SlowCutter) -> None:
    def refuse_slot() -> AbstractContextManager[None]:
        pytest.fail("a short text waits for a slot")

    with set_context(SLOT_FACTORY, refuse_slot):
        assert len(tokens("篮球")) == 1


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


LONG_ENTRY = Entry(id="long", text="jazz " * 1000)
SHORT_ENTRIES = [Entry(id=str(number), text="fine words " * 50) for number in range(20)]


def test_index_takes_no_slot_for_a_short_text() -> None:
    slots = CountedSlots()

    with set_context(SLOT_FACTORY, slots.slot):
        Index().add(SHORT_ENTRIES[:1])

    assert slots.begun == 0


def test_index_takes_a_slot_for_a_long_text_and_one_for_every_few_short_ones() -> None:
    slots = CountedSlots()

    with set_context(SLOT_FACTORY, slots.slot):
        Index().add([LONG_ENTRY, *SHORT_ENTRIES])

    # One for the long text, and one for every four of the others.
    assert slots.begun == 6
    assert slots.ended == 6
