"""What `check_benchmark` and `check_method` find: who keeps all promises, and one broken promise at a time."""

import itertools
import random
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import dspy
import pytest
from mempiler import (
    Context,
    Entry,
    EntryReader,
    History,
    Hit,
    Item,
    Memory,
    Method,
    Query,
    UserError,
    Update,
    Writer,
    predictor,
)
from mempiler.data.benchmark import Benchmark
from mempiler.data.common_scorers import TokenF1
from mempiler.data.dataset import Source
from mempiler.data.scorer import Score, Scorer
from mempiler.testing import check_benchmark, check_method
from pydantic import Field


class Alike(Benchmark):
    """Questions that each have a conversation of their own."""

    name = "alike"
    metrics: ClassVar = {"f1": TokenF1}

    @classmethod
    def load(cls, path: str | Path | None = None, **options: Any) -> "Alike":
        cls.refuse_options(options, ())
        return alike(cls)


def example(n: int, inputs: Sequence[str] = ("history", "question", "evidence_ids"), **changes: Any) -> dspy.Example:
    """Question n about conversation n."""
    said = {"role": "user", "name": "Ann", "content": f"My dog is called Rex{n}."}
    fields = {"question": "What is the dog called?", "evidence_ids": ("D1:1",), "answer": f"Rex{n}", "category": "pets"}
    fields |= {"id": f"q{n}", "history": History.from_messages([said], f"ann{n}"), **changes}
    return dspy.Example(fields).with_inputs(*inputs)


def alike(kind: type[Any] = Alike, examples: Sequence[dspy.Example] | None = None) -> Any:
    return kind(examples or [example(n) for n in range(9)], Source("made", "0" * 64, sample=False))


def scoring(change: Callable[[Score], Score]) -> Callable[[], Any]:
    """A benchmark whose scorer changes what a good one says."""

    class Mine(TokenF1):
        def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
            return change(super().score(example, prediction))

    return scored(Mine)


class SaysJudged(TokenF1):
    """Names a judge and scores without it."""

    judge_roles: ClassVar = {"judge": object}


def scored(scorer: type[Scorer]) -> Callable[[], Any]:
    return lambda: alike(type("Scored", (Alike,), {"metrics": {"mine": scorer}}))


def loading(load: Callable[..., Any]) -> Callable[[], Any]:
    """A benchmark that is loaded otherwise."""
    return lambda: alike(type("Loaded", (Alike,), {"load": classmethod(load)}))


def cut(change: Callable[[Any], Any]) -> Callable[[], Any]:
    """A benchmark that changes its split."""

    class Cut(Alike):
        def split(self, *args: Any, **options: Any) -> Any:
            return change(super().split(*args, **options))

    return lambda: alike(Cut)


def asked_again(change: Callable[[dspy.Example], dspy.Example]) -> Callable[[], Any]:
    """A benchmark that tests on what becomes of a question of the training part, too."""
    return cut(lambda split: type(split)(split.train, split.dev, (change(split.train[0]), *split.test)))


COUNTS = itertools.count()
shuffled = cut(lambda split: type(split)(split.train, split.dev[next(COUNTS) % 2 :], split.test))
deaf = loading(lambda cls, path=None, **options: alike(cls))
falls = loading(lambda cls, path=None: alike(cls))


def with_first(**changes: Any) -> Callable[[], Any]:
    return lambda: alike(examples=[example(0, **changes), *(example(n) for n in range(1, 9))])


BENCHMARKS = [
    (with_first(inputs=("question",)), "example q0: evidence_ids, history is no input; see with_inputs"),
    (with_first(inputs=("history", "question", "evidence_ids", "answer")), "example q0: the gold answer is an input"),
    (with_first(evidence_ids=("D9:9",)), "example q0: evidence_ids names D9:9, which is no turn of its history"),
    (with_first(history=example(1).history), "example q1: its history is equal to another one's but no shared"),
    (with_first(question=""), "example q0: task question-answering needs question"),
    (asked_again(lambda seen: seen), "a question is in two parts of the split"),
    (asked_again(lambda seen: seen.copy(id="again")), "a conversation is in train and in another part of the split"),
    (shuffled, "the split differs from call to call"),
    (scoring(lambda said: Score(-said.value, said.feedback)), "example q0: the gold answer scores -1.0"),
    (
        scoring(lambda said: Score(1.0, "Yes.", {"size": float("nan")})),
        "example q0: a score or part is no finite number",
    ),
    (scoring(lambda said: Score(said.value, f"{random.random()}")), "example q0: the same answer scores otherwise"),
    (scoring(lambda said: Score(said.value, "")), "example q0: the feedback is empty"),
    (scored(SaysJudged), "a scorer that names judges scores without any; ask self.judge(role)"),
    (deaf, "load takes an option that does not exist; call refuse_options"),
    (falls, "load fails on an unknown option with TypeError; call refuse_options"),
]

NOTE = dspy.Signature("dialogue: str -> note: str", "Write down what is worth keeping.")
CHOOSE = dspy.Signature("question: str -> wanted: str", "Say what to look for.")
SET = object.__setattr__


class Notes(Memory):
    notes: tuple[Entry, ...] = ()

    def entries(self) -> tuple[Entry, ...]:
        return self.notes


class NoteWriter(Writer):
    """One entry per item: its lines, and a note of the model."""

    Memory: Any = Notes

    def __init__(self) -> None:
        super().__init__()
        self.take = predictor(NOTE)

    def extract(self, item: Item) -> Any:
        return self.try_call(self.take, dialogue="\n".join(item.lines()))

    def update(self, memory: Any, item: Item, extraction: Any) -> Update[Any]:
        entry = self.entry(memory, item, extraction.note if extraction else "")
        return Update(type(memory)(notes=(*memory.notes, entry)))

    def entry(self, memory: Any, item: Item, note: str) -> Entry:
        text = "\n".join([*item.lines(), note])
        return Entry(id=f"n{len(memory.notes) + 1}", text=text, sources=tuple(turn.id for turn in item.turns))


class ChoosingReader(EntryReader):
    """Looks for what the model says."""

    def __init__(self) -> None:
        super().__init__(5)
        self.choose = predictor(CHOOSE)

    def recall(self, memory: Any, query: Query) -> Context:
        chosen = self.try_call(self.choose, question=query.text)
        return super().recall(memory, Query(text=chosen.wanted if chosen else query.text))


def test_a_program_that_keeps_all_promises_passes() -> None:
    check_benchmark(alike())
    check_method(Method(NoteWriter(), ChoosingReader()))


def writing(spoil: Callable[[Any, Item, Any], None]) -> type[NoteWriter]:
    """A writer that does something to the memory before, the item, or the memory after."""

    class Writes(NoteWriter):
        def update(self, memory: Any, item: Item, extraction: Any) -> Update[Any]:
            update = super().update(memory, item, extraction)
            spoil(memory, item, update.memory)
            return update

    return Writes


def entering(change: Callable[[Entry], dict[str, Any]]) -> type[NoteWriter]:
    """A writer that changes its entries."""

    class Enters(NoteWriter):
        def entry(self, memory: Any, item: Item, note: str) -> Entry:
            entry = super().entry(memory, item, note)
            return entry.model_copy(update=change(entry))

    return Enters


class SettlesAgain(NoteWriter):
    def finalize(self, memory: Any) -> Update[Any]:
        end = Entry(id=f"end{len(memory.notes)}", text="the end")
        return Update(Notes(notes=(*memory.notes, end)))


class Unstored(NoteWriter):
    """Keeps what has no JSON form."""

    class Memory(Notes):
        notes: tuple[Entry, ...] = Field(default=(), exclude=True)


class HidesPrompt(NoteWriter):
    """Calls a predictor that is not below it."""

    def __init__(self) -> None:
        super().__init__()
        hidden = predictor(CHOOSE)
        self.call_predictor: Any = lambda question: hidden(question=question)

    def extract(self, item: Item) -> Any:
        self.try_call(self.call_predictor, question=item.id)
        return super().extract(item)


class Loses(NoteWriter):
    """Writes nothing where the model's answer cannot be read, and does not say so."""

    def update(self, memory: Any, item: Item, extraction: Any) -> Update[Any]:
        return super().update(memory, item, extraction) if extraction else Update(memory)


def finding(change: Callable[[Any, list[list[Hit]]], list[list[Hit]]]) -> type[EntryReader]:
    """A reader that changes what it finds."""

    class Finds(ChoosingReader):
        def search(self, *args: Any, **options: Any) -> list[list[Hit]]:
            return change(self, super().search(*args, **options))

    return Finds


def asking(reader: Any, found: list[list[Hit]]) -> list[list[Hit]]:
    reader.choose(question="What?")
    return found


def named_itself(_: Any, found: list[list[Hit]]) -> list[list[Hit]]:
    return [[hit.model_copy(update={"sources": (hit.id,)}) for hit in hits] for hits in found]


class RecallsOnce(EntryReader):
    """Takes what it recalled out of the memory."""

    def recall(self, memory: Any, query: Query) -> Context:
        context = super().recall(memory, query)
        SET(memory, "notes", memory.notes[:-1])
        return context


counted = entering(lambda entry: {"text": f"{entry.text} {next(COUNTS)}"})
WRITERS = [
    (writing(lambda before, _, after: SET(before, "notes", after.notes)), "update changes the memory it is given"),
    (writing(lambda _, item, after: SET(item, "id", f"{item.id}!")), "writing changes the item P"),
    (entering(lambda _: {"id": "n"}), "entries have the same id: n; number them within the memory"),
    (entering(lambda _: {"id": uuid.uuid4().hex}), "the same history gives another memory the second time; count ids"),
    (counted, "items one by one give another memory than all at once; extract and update must depend"),
    (SettlesAgain, "finalize changes a memory that is finalized already"),
    (entering(lambda _: {"sources": ("session 1",)}), "the memory names sources that are no turns of the history"),
    (Unstored, "the memory read back from its JSON is not the same; every field must have a JSON form"),
    (HidesPrompt, "writing asks prompts that do not lie below the writer; their changes would leave stale memories"),
    (Loses, "turns are lost where no answer can be read: P:1, L1:1"),
]
READERS = [
    (finding(asking), "search calls the model; only recall may"),
    (finding(lambda _, found: found[:1] * len(found)), "a batch of queries finds something else than"),
    (finding(lambda _, found: [hits[::-1] for hits in found]), "search for k=3 is not the head of search for k=10"),
    (finding(named_itself), "hits rest on sources that are no turns of the history: n1"),
    (RecallsOnce, "recall changes the memory"),
]


BROKEN: list[tuple[Any, Callable[[], Any], str]] = [
    *((check_benchmark, make, line) for make, line in BENCHMARKS),
    *((check_method, lambda one=one: Method(one(), EntryReader()), line) for one, line in WRITERS),
    *((check_method, lambda one=one: Method(NoteWriter(), one()), line) for one, line in READERS),
]


@pytest.mark.parametrize(("check", "make", "line"), BROKEN, ids=[line[:50] for *_, line in BROKEN])
def test_a_broken_promise_is_named(check: Any, make: Callable[[], Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        check(make())
    assert line in str(caught.value)


def test_a_scorer_of_conversations_may_ask_no_judge() -> None:
    talking = alike()
    talking.interaction = object()
    check_benchmark(talking)
