"""`check_benchmark` and `check_method` accept what keeps all promises, and name a broken one.

Authors call them on benchmarks and methods of their own. A benchmark is a set of questions with a
split into train, dev and test, and a scorer. A method has a writer, which stores the items of a
history in a memory, and a reader, which searches it. Most classes below break one promise.
"""

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
    Update,
    UserError,
    Writer,
    predictor,
)
from mempiler.data.benchmark import Benchmark
from mempiler.data.common_scorers import TokenF1
from mempiler.data.dataset import Source
from mempiler.data.scorer import Score
from mempiler.testing import check_benchmark, check_method
from pydantic import Field

# --- benchmarks -----------------------------------------------------------------------------


class DogNames(Benchmark):
    """A benchmark that keeps all promises: each question has a conversation of its own."""

    name = "dog-names"
    metrics: ClassVar = {"f1": TokenF1}

    @classmethod
    def load(cls, path: str | Path | None = None, **options: Any) -> "DogNames":
        cls.refuse_options(options, ())
        return make_benchmark(cls)


def make_example(
    number: int,
    inputs: Sequence[str] = ("history", "question", "evidence_ids"),
    **changed_fields: Any,
) -> dspy.Example:
    """Return a question about its own conversation.

    Args:
        number: The number of question and conversation.
        inputs: The fields that are inputs.
        **changed_fields: Fields that differ from those of a good example.
    """
    message = {"role": "user", "name": "Ann", "content": f"My dog is called Rex{number}."}
    fields = {
        "id": f"q{number}",
        "history": History.from_messages([message], f"ann{number}"),
        "question": "What is the dog called?",
        "evidence_ids": ("D1:1",),
        "answer": f"Rex{number}",
        "category": "pets",
        **changed_fields,
    }
    return dspy.Example(fields).with_inputs(*inputs)


def make_benchmark(
    benchmark_class: type[Any] = DogNames, examples: Sequence[dspy.Example] | None = None
) -> Any:
    """Return a benchmark of nine questions, or of these examples."""
    if examples is None:
        examples = [make_example(number) for number in range(9)]
    return benchmark_class(examples, Source("made", "0" * 64, sample=False))


def benchmark_with_first_example(**changes: Any) -> Any:
    """Return a benchmark whose first example is changed; `changes` are those of `make_example`."""
    other_examples = [make_example(number) for number in range(1, 9)]
    return make_benchmark(examples=[make_example(0, **changes), *other_examples])


def test_benchmark_that_keeps_all_promises_passes() -> None:
    """`check_benchmark` raises an error if something is wrong."""
    check_benchmark(make_benchmark())


def test_benchmark_of_whole_conversations_may_have_a_scorer_without_a_judge() -> None:
    """A benchmark with an `interaction` simulates a user; the check looks at no more of it."""
    benchmark = make_benchmark()
    benchmark.interaction = object()

    check_benchmark(benchmark)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"inputs": ("question",)},
            "example q0: evidence_ids, history is no input; see with_inputs",
            id="history is no input",
        ),
        pytest.param(
            {"inputs": ("history", "question", "evidence_ids", "answer")},
            "example q0: the gold answer is an input",
            id="gold answer is an input",
        ),
        pytest.param(
            {"evidence_ids": ("D9:9",)},
            "example q0: evidence_ids names D9:9, which is no turn of its history",
            id="evidence is no turn",
        ),
        pytest.param(
            {"history": make_example(1).history},
            "example q1: its history is equal to another one's but no shared",
            id="equal histories are two objects",
        ),
        pytest.param(
            {"question": ""},
            "example q0: task question-answering needs question",
            id="no question",
        ),
    ],
)
def test_example_that_breaks_a_promise_is_named(changes: dict[str, Any], message: str) -> None:
    """The first example of the benchmark is q0; all others are as they should be."""
    benchmark = benchmark_with_first_example(**changes)

    with pytest.raises(UserError) as refusal:
        check_benchmark(benchmark)

    assert message in str(refusal.value)


class SameQuestionInTwoParts(DogNames):
    """Its split puts the first question of the training part into the test part too."""

    def split(self, *args: Any, **options: Any) -> Any:
        split = super().split(*args, **options)
        return type(split)(split.train, split.dev, (split.train[0], *split.test))


class SameConversationInTwoParts(DogNames):
    """Its split has another question about a training conversation in the test part."""

    def split(self, *args: Any, **options: Any) -> Any:
        split = super().split(*args, **options)
        other_question = split.train[0].copy(id="another question")
        return type(split)(split.train, split.dev, (other_question, *split.test))


class ChangingSplit(DogNames):
    """Its split leaves a dev question out in every other call."""

    _calls = itertools.count()

    def split(self, *args: Any, **options: Any) -> Any:
        split = super().split(*args, **options)
        num_left_out = next(self._calls) % 2
        return type(split)(split.train, split.dev[num_left_out:], split.test)


@pytest.mark.parametrize(
    ("benchmark_class", "message"),
    [
        (SameQuestionInTwoParts, "a question is in two parts of the split"),
        (
            SameConversationInTwoParts,
            "a conversation is in train and in another part of the split",
        ),
        (ChangingSplit, "the split differs from call to call"),
    ],
)
def test_split_that_breaks_a_promise_is_named(
    benchmark_class: type[DogNames], message: str
) -> None:
    """No question and no conversation may be in two parts, and all calls give the same split."""
    benchmark = make_benchmark(benchmark_class)

    with pytest.raises(UserError) as refusal:
        check_benchmark(benchmark)

    assert message in str(refusal.value)


class NegativeScorer(TokenF1):
    """A scorer that gives good answers negative scores."""

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        score = super().score(example, prediction)
        return Score(-score.value, score.feedback)


class NanScorer(TokenF1):
    """A scorer with a part that is no number."""

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return Score(1.0, "Yes.", {"size": float("nan")})


class RandomScorer(TokenF1):
    """A scorer whose feedback changes from call to call."""

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        score = super().score(example, prediction)
        return Score(score.value, f"{random.random()}")


class SilentScorer(TokenF1):
    """A scorer that gives no feedback."""

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return Score(super().score(example, prediction).value, "")


class ScorerWithUnusedJudge(TokenF1):
    """A scorer that names a judge and scores without it."""

    judge_roles: ClassVar = {"judge": object}


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        (NegativeScorer, "example q0: the gold answer scores -1.0"),
        (NanScorer, "example q0: a score or part is no finite number"),
        (RandomScorer, "example q0: the same answer scores otherwise"),
        (SilentScorer, "example q0: the feedback is empty"),
        (
            ScorerWithUnusedJudge,
            "a scorer that names judges scores without any; ask self.judge(role)",
        ),
    ],
)
def test_scorer_that_breaks_a_promise_is_named(scorer: type[TokenF1], message: str) -> None:
    """The name of each scorer says what is wrong with it."""

    class BenchmarkWithScorer(DogNames):
        metrics: ClassVar = {"mine": scorer}

    benchmark = make_benchmark(BenchmarkWithScorer)

    with pytest.raises(UserError) as refusal:
        check_benchmark(benchmark)

    assert message in str(refusal.value)


class AcceptsAnyOption(DogNames):
    """Its `load` ignores options that do not exist."""

    @classmethod
    def load(cls, path: str | Path | None = None, **options: Any) -> DogNames:
        return make_benchmark(cls)


class AcceptsNoOptions(DogNames):
    """Its `load` takes no further arguments, so that an unknown option is a TypeError."""

    @classmethod
    def load(cls, path: str | Path | None = None) -> DogNames:  # type: ignore[override]
        return make_benchmark(cls)


@pytest.mark.parametrize(
    ("benchmark_class", "message"),
    [
        (
            AcceptsAnyOption,
            "load takes an option that does not exist; call refuse_options",
        ),
        (
            AcceptsNoOptions,
            "load fails on an unknown option with TypeError; call refuse_options",
        ),
    ],
)
def test_load_that_does_not_refuse_an_unknown_option_is_named(
    benchmark_class: type[DogNames], message: str
) -> None:
    """A misspelt option that is ignored would give a user other questions than they asked for."""
    benchmark = make_benchmark(benchmark_class)

    with pytest.raises(UserError) as refusal:
        check_benchmark(benchmark)

    assert message in str(refusal.value)


# --- methods --------------------------------------------------------------------------------

NOTE = dspy.Signature("dialogue: str -> note: str", "Write down what is worth keeping.")
CHOOSE = dspy.Signature("question: str -> wanted: str", "Say what to look for.")


class Notes(Memory):
    """A memory of notes."""

    notes: tuple[Entry, ...] = ()

    def entries(self) -> tuple[Entry, ...]:
        return self.notes


class NoteWriter(Writer):
    """A writer that keeps all promises: an entry per item, with its lines and the model's note."""

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
        return Entry(
            id=f"n{len(memory.notes) + 1}",
            text="\n".join([*item.lines(), note]),
            sources=tuple(turn.id for turn in item.turns),
        )


class ChoosingReader(EntryReader):
    """A reader that keeps all promises: it searches for what the model chooses."""

    def __init__(self) -> None:
        super().__init__(5)
        self.choose = predictor(CHOOSE)

    def recall(self, memory: Any, query: Query) -> Context:
        choice = self.try_call(self.choose, question=query.text)
        text = choice.wanted if choice else query.text
        return super().recall(memory, Query(text=text))


def test_method_that_keeps_all_promises_passes() -> None:
    """`check_method` writes a sample history and asks about it, with the offline engine."""
    check_method(Method(NoteWriter(), ChoosingReader()))


def set_frozen(record: Any, name: str, value: Any) -> None:
    """Set a field of a record that refuses assignments."""
    object.__setattr__(record, name, value)


class ChangesTheMemory(NoteWriter):
    """A writer that changes the memory that it is given."""

    def update(self, memory: Any, item: Item, extraction: Any) -> Update[Any]:
        update = super().update(memory, item, extraction)
        set_frozen(memory, "notes", update.memory.notes)
        return update


class ChangesTheItem(NoteWriter):
    """A writer that changes the item that it is given."""

    def update(self, memory: Any, item: Item, extraction: Any) -> Update[Any]:
        update = super().update(memory, item, extraction)
        set_frozen(item, "id", f"{item.id}!")
        return update


class EqualIds(NoteWriter):
    """A writer whose entries all have the same id."""

    def entry(self, memory: Any, item: Item, note: str) -> Entry:
        return super().entry(memory, item, note).model_copy(update={"id": "n"})


class RandomIds(NoteWriter):
    """A writer whose entries have other ids each time."""

    def entry(self, memory: Any, item: Item, note: str) -> Entry:
        return super().entry(memory, item, note).model_copy(update={"id": uuid.uuid4().hex})


class CountsItsCalls(NoteWriter):
    """A writer whose entries depend on how often it was called."""

    _calls = itertools.count()

    def entry(self, memory: Any, item: Item, note: str) -> Entry:
        entry = super().entry(memory, item, note)
        return entry.model_copy(update={"text": f"{entry.text} {next(self._calls)}"})


class FinalizesTwice(NoteWriter):
    """A writer whose `finalize` adds a note each time."""

    def finalize(self, memory: Any) -> Update[Any]:
        end = Entry(id=f"end{len(memory.notes)}", text="the end")
        return Update(Notes(notes=(*memory.notes, end)))


class UnknownSources(NoteWriter):
    """A writer whose entries name sources that are no turns."""

    def entry(self, memory: Any, item: Item, note: str) -> Entry:
        return super().entry(memory, item, note).model_copy(update={"sources": ("session 1",)})


class MemoryWithoutJson(NoteWriter):
    """A writer of a memory whose notes are not in its JSON."""

    class Memory(Notes):
        notes: tuple[Entry, ...] = Field(default=(), exclude=True)


class HiddenPredictor(NoteWriter):
    """A writer that calls a predictor which is not one of its attributes."""

    def __init__(self) -> None:
        super().__init__()
        hidden_predictor = predictor(CHOOSE)
        self.call_predictor: Any = lambda question: hidden_predictor(question=question)

    def extract(self, item: Item) -> Any:
        self.try_call(self.call_predictor, question=item.id)
        return super().extract(item)


class LosesItems(NoteWriter):
    """A writer that stores nothing if the model's answer cannot be read, and does not say so."""

    def update(self, memory: Any, item: Item, extraction: Any) -> Update[Any]:
        if extraction is None:
            return Update(memory)
        return super().update(memory, item, extraction)


@pytest.mark.parametrize(
    ("writer_class", "message"),
    [
        (ChangesTheMemory, "update changes the memory it is given"),
        (ChangesTheItem, "writing changes the item P"),
        (EqualIds, "entries have the same id: n; number them within the memory"),
        (RandomIds, "the same history gives another memory the second time; count ids"),
        (
            CountsItsCalls,
            "items one by one give another memory than all at once; extract and update must depend",
        ),
        (FinalizesTwice, "finalize changes a memory that is finalized already"),
        (UnknownSources, "the memory names sources that are no turns of the history"),
        (
            MemoryWithoutJson,
            "the memory read back from its JSON is not the same; every field must have a JSON form",
        ),
        (
            HiddenPredictor,
            "writing asks prompts that do not lie below the writer; their changes would leave",
        ),
        (LosesItems, "turns are lost where no answer can be read: P:1, L1:1"),
    ],
)
def test_writer_that_breaks_a_promise_is_named(writer_class: type[Writer], message: str) -> None:
    """`check_method` has the writer store its own sample history.

    Its items are a profile "P", logs "L1", sessions "D1" to "D3" and behaviour "B"; "L1:1" is the
    first turn of "L1". One check gives the writer a model whose answers cannot be read: no turn may
    be lost.
    """
    method = Method(writer_class(), EntryReader())

    with pytest.raises(UserError) as refusal:
        check_method(method)

    assert message in str(refusal.value)


class AsksTheModelInSearch(ChoosingReader):
    """A reader that asks the model while it searches."""

    def search(self, *args: Any, **options: Any) -> list[list[Hit]]:
        self.choose(question="What?")
        return super().search(*args, **options)


class AnswersTheFirstQueryOnly(ChoosingReader):
    """A reader that returns the hits of the first query for all queries."""

    def search(self, *args: Any, **options: Any) -> list[list[Hit]]:
        hits_by_query = super().search(*args, **options)
        return hits_by_query[:1] * len(hits_by_query)


class ReversesHits(ChoosingReader):
    """A reader that returns the best hits last."""

    def search(self, *args: Any, **options: Any) -> list[list[Hit]]:
        return [hits[::-1] for hits in super().search(*args, **options)]


class NamesEntriesAsSources(ChoosingReader):
    """A reader whose hits name themselves as their sources."""

    def search(self, *args: Any, **options: Any) -> list[list[Hit]]:
        changed_hits: list[list[Hit]] = []
        for hits in super().search(*args, **options):
            changed_hits.append([hit.model_copy(update={"sources": (hit.id,)}) for hit in hits])
        return changed_hits


class RemovesNotes(EntryReader):
    """A reader that removes a note from the memory when it recalls."""

    def recall(self, memory: Any, query: Query) -> Context:
        context = super().recall(memory, query)
        set_frozen(memory, "notes", memory.notes[:-1])
        return context


@pytest.mark.parametrize(
    ("make_reader", "message"),
    [
        (AsksTheModelInSearch, "search calls the model; only recall may"),
        (AnswersTheFirstQueryOnly, "a batch of queries finds something else than"),
        (ReversesHits, "search for k=3 is not the head of search for k=10"),
        (NamesEntriesAsSources, "hits rest on sources that are no turns of the history: n1"),
        (RemovesNotes, "recall changes the memory"),
    ],
)
def test_reader_that_breaks_a_promise_is_named(
    make_reader: Callable[[], EntryReader], message: str
) -> None:
    """`check_method` has the reader search the memory of its own sample history.

    A source is the turn that a hit rests on. "n1" is the id of the first entry of `NoteWriter`.
    """
    method = Method(NoteWriter(), make_reader())

    with pytest.raises(UserError) as refusal:
        check_method(method)

    assert message in str(refusal.value)
