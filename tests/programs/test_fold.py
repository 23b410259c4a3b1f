"""The fold: all items are prepared first, written in order, then the past is settled; each step keeps what it asked."""

from collections.abc import Callable, Sequence
from typing import Any

import dspy
import pytest
from mempiler import Item
from mempiler.memory.memory import Memory
from mempiler.programs.fold import Performed, PlainSteps, fold, perform
from mempiler.programs.method import Writer
from mempiler.programs.predictor import predictor
from mempiler.programs.recording import record_failure
from mempiler.records import Failure
from mempiler.signatures.answering import AnswerFromContext


class Log(Memory):
    lines: tuple[str, ...] = ()

    def plus(self, line: str) -> "Log":
        return Log(lines=(*self.lines, line))


class Plain(Writer):
    """Writes what it is asked to do."""

    Memory = Log

    def write(self, memory: Log, item: Item, prepared: Any = None) -> Log:
        return memory.plus(f"write {item.id} with {prepared}")


class Careful(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def prepare(self, item: Item) -> str:
        self.seen.append(f"prepare {item.id}")
        return item.id.lower()

    def write(self, memory: Log, item: Item, prepared: Any = None) -> Log:
        self.seen.append(f"write {item.id}")
        return super().write(memory, item, prepared)

    def settle(self, memory: Log) -> Log:
        self.seen.append("settle")
        return memory.plus("settled")


@pytest.fixture
def items(make_history: Callable[..., Any]) -> Sequence[Item]:
    return make_history(3).items


def test_all_items_are_prepared_then_written_in_order_then_settled(items: Sequence[Item]) -> None:
    writer = Careful()
    memory = fold(items, Log(), PlainSteps(writer))
    assert sorted(writer.seen[:3]) == ["prepare D1", "prepare D2", "prepare D3"]
    assert writer.seen[3:] == ["write D1", "write D2", "write D3", "settle"]
    assert memory.lines == ("write D1 with d1", "write D2 with d2", "write D3 with d3", "settled")


def test_a_fold_may_leave_the_past_open(items: Sequence[Item]) -> None:
    memory = fold(items[:1], Log(lines=("before",)), PlainSteps(Careful()), settle=False)
    assert memory.lines == ("before", "write D1 with d1")


def test_a_writer_that_prepares_nothing_is_not_asked_to(items: Sequence[Item]) -> None:
    class Unprepared(PlainSteps):
        def prepare(self, items: Sequence[Item]) -> Sequence[Performed]:
            raise AssertionError("nothing to prepare")

    assert fold(items[:1], Log(), Unprepared(Plain())).lines == ("write D1 with None",)


def test_a_step_keeps_what_it_asked_and_what_failed(scripted: Any) -> None:
    ask = predictor(AnswerFromContext)

    def work() -> int:
        ask(context="", question="Who?")
        record_failure(Failure(kind="error", where="here", message="no"))
        return 7

    with dspy.context(lm=scripted(lambda *_: {"answer": "x"})):
        done, captured = perform(work), perform(work, raw=True)
    assert (done.value, len(done.calls), [failure.where for failure in done.failures]) == (7, 1, ["here"])
    assert [len(step.calls[0].completions) for step in (done, captured)] == [0, 1]
