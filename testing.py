"""Checks for authors of methods and benchmarks.

`check_method` and `check_benchmark` check the guarantees that the rest of Mempiler relies on. They
raise one error with a line for each broken guarantee. Nothing is sent anywhere: the offline engine
is the model.

Example:
    >>> from mempiler.testing import check_benchmark, check_method
    >>> check_method("turn-rag")
    >>> check_benchmark("locomo")
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

import dspy
from dspy import lm15

from .data.benchmark import Benchmark
from .data.catalog import benchmark as load_benchmark
from .data.dataset import category_of
from .data.example_checks import unknown_evidence
from .data.scorer import Scorer
from .engines.embedders import embedder as make_embedder
from .engines.lm import language_model
from .engines.metered_lm import MeteredLM
from .engines.offline.engine import OfflineEngine
from .errors import DataError, UserError
from .memory.memory import Memory, stored_sources
from .programs.catalog import build
from .programs.identity import writer_key
from .programs.method import Method
from .programs.program import MemoryProgram
from .programs.reader import Reader
from .programs.retry import without_failed
from .programs.state import signature_of
from .programs.tasks.catalog import task_class
from .programs.writing import finalize_memory, record_step, write_history, write_items
from .records import (
    Action,
    Behavior,
    Context,
    History,
    Hit,
    Item,
    Logs,
    Profile,
    Query,
    Session,
    Turn,
)

_SEARCH_TEXTS = ("Where does Ada live with her dog?", "running shoes and the knee", "")
"""What is searched for: a question, words without a verb, and nothing."""

_NUM_HITS = 10
"""How many hits a search asks for."""

_NUM_FEWER_HITS = 3
"""How many hits a search asks for that must be the head of the longer one."""

_MAX_NAMED = 5
"""How many ids a line names at most."""

_MAX_SCORED_EXAMPLES = 50


def check_method(
    method: str | Method,
    history: History | None = None,
    task: str | None = None,
    **config: Any,
) -> None:
    """Check that a method keeps its contract.

    Args:
        method: A name, `module:Class`, or a method that exists already.
        history: What the method writes. By default it is `sample_history`, with sessions, logs,
            behaviour and a profile.
        task: The task that the program answers; question answering by default.
        **config: Settings, for a method that is named.

    Raises:
        UserError: The contract is broken. Each line of the message names one violation.
    """
    if history is None:
        history = sample_history()
    task_name = task or "question-answering"

    def make_program() -> MemoryProgram:
        # A method that exists already is shared by all programs.
        if isinstance(method, Method):
            return MemoryProgram(method, task_class(task_name)())
        return build(method, task_name, make_embedder(), **config)

    # Each check has a program of its own, so that none sees what another one left in it.
    with dspy.context(lm=language_model(), trace=None, disable_history=True):
        problems = [
            *_writing_problems(make_program(), make_program(), history),
            *_reading_problems(make_program(), history),
            *_prompt_problems(make_program(), history),
            *_loss_problems(make_program(), history),
        ]
    name = method if isinstance(method, str) else type(method).__name__
    _raise_problems(f"method {name}", problems)


def check_benchmark(
    benchmark: str | Benchmark, path: str | Path | None = None, **options: Any
) -> None:
    """Check that a benchmark keeps its contract.

    Args:
        benchmark: A name, `module:Class`, or a benchmark that is loaded already.
        path: Its file; the bundled sample if None.
        **options: Options of its `load`.

    Raises:
        UserError: The contract is broken. Each line of the message names one violation.
    """
    if isinstance(benchmark, Benchmark):
        loaded = benchmark
    else:
        loaded = load_benchmark(benchmark, path, **options)
    problems = [
        *_example_problems(loaded),
        *_split_problems(loaded),
        *_scorer_problems(loaded),
        *_option_problems(loaded),
    ]
    _raise_problems(f"benchmark {loaded.name}", problems)


def sample_history() -> History:
    """Return sessions of two people, and logs, behaviour and a profile of one, over two months."""
    profile = Profile(
        id="P",
        time=datetime(2024, 3, 5),
        turns=_turns("P", [("profile", "Ada, 34, nurse, lives in Porto")]),
    )
    logs = Logs(
        id="L1",
        time=datetime(2024, 3, 10),
        turns=_turns(
            "L1",
            [
                ("phone", "bought running shoes"),
                ("phone", "booked a dentist for May"),
                ("phone", "looked for a knee brace"),
            ],
        ),
    )
    move = Session(
        id="D1",
        time=datetime(2024, 3, 15),
        turns=_turns(
            "D1",
            [
                ("Ada", "I moved to Lisbon with my dog Rex."),
                ("Bob", "And, is it nice?"),
                ("Ada", "The hills hurt my knee."),
            ],
        ),
    )
    dentist = Session(
        id="D2",
        time=datetime(2024, 3, 20),
        turns=_turns(
            "D2",
            [
                ("Ada", "The dentist was fine after all."),
                ("Bob", "And the knee?"),
                ("Ada", "I run again, in the light shoes."),
            ],
        ),
    )
    hike = Session(
        id="D3",
        time=datetime(2024, 3, 25),
        turns=_turns(
            "D3",
            [
                ("Ada", "We went hiking, Rex loved it."),
                ("Bob", "What did you eat?"),
                ("Ada", "Rye bread, I gave up wheat."),
            ],
        ),
    )
    behavior = Behavior.from_actions("B", _sample_actions())
    return History(id="ada", items=(profile, logs, move, dentist, hike, behavior))


def _turns(item_id: str, lines: Sequence[tuple[str, str]]) -> tuple[Turn, ...]:
    """Return turns with ids such as "D1:2", made of speakers and what they say."""
    turns: list[Turn] = []
    for number, (speaker, text) in enumerate(lines, 1):
        turns.append(Turn(id=f"{item_id}:{number}", speaker=speaker, text=text))
    return tuple(turns)


def _sample_actions() -> list[Action]:
    """Return one action a day: videos about three topics, liked and skipped in turn."""
    topics = ("dogs", "hills", "bread")
    reactions = ("liked", "skipped")
    actions: list[Action] = []
    for day in range(1, 15):
        action = Action(
            id=f"a{day}",
            time=datetime(2024, 4, day),
            scene="video",
            situation=topics[day % len(topics)],
            action=reactions[day % len(reactions)],
        )
        actions.append(action)
    return actions


def _raise_problems(subject: str, problems: Sequence[str]) -> None:
    """Raise a UserError with a line for each problem, if there are any."""
    if problems:
        headline = f"{subject} breaks {len(problems)} of its promises:"
        raise UserError("\n".join([headline, *problems]))


# Methods


def _writing_problems(
    program: MemoryProgram, second_program: MemoryProgram, history: History
) -> Iterator[str]:
    """Check that writing changes nothing it is given, and always gives the same memory."""
    writer = program.method.writer
    memory = writer.Memory()
    for item in history.items:
        memory_before = memory.model_dump_json()
        item_before = item.model_dump_json()
        updated_memory = write_items(writer, memory, [item])
        if memory.model_dump_json() != memory_before:
            yield (
                f"update changes the memory it is given (at item {item.id}); return a changed copy"
            )
            return
        if item.model_dump_json() != item_before:
            yield f"writing changes the item {item.id}"
            return
        memory = updated_memory

    finalized_memory = finalize_memory(writer, memory)
    memory_at_once = write_history(writer, history.items)
    if finalized_memory != memory_at_once:
        yield (
            "items one by one give another memory than all at once; "
            "extract and update must depend on the item and the memory alone"
        )
    # A writer never sees failed items: they are kept beside its memory.
    written_memory = without_failed(finalized_memory)
    if writer.finalize(written_memory).memory != written_memory:
        yield "finalize changes a memory that is finalized already"
    if write_history(second_program.method.writer, history.items) != memory_at_once:
        yield (
            "the same history gives another memory the second time; "
            "count ids, draw nothing without a seed"
        )


def _reading_problems(program: MemoryProgram, history: History) -> Iterator[str]:
    """Check the stored form of a memory, its sources, and how it is searched and recalled."""
    reader = program.method.reader
    memory = program.remember(history).memory

    loaded_memory = type(memory).model_validate_json(memory.model_dump_json())
    if loaded_memory != memory:
        yield (
            "the memory read back from its JSON is not the same; every field must have a JSON form"
        )
    unknown_sources = sorted(stored_sources(memory) - set(history.turns))
    if unknown_sources:
        yield (
            "the memory names sources that are no turns of the history: "
            f"{_first_ids(unknown_sources)}"
        )

    id_counts = Counter(entry.id for entry in reader.entries(memory))
    repeated_ids = [entry_id for entry_id, count in id_counts.items() if count > 1]
    if repeated_ids:
        yield f"entries have the same id: {_first_ids(repeated_ids)}; number them within the memory"

    search = record_step(lambda: reader.search(memory, list(_SEARCH_TEXTS), _NUM_HITS))
    if search.calls:
        yield "search calls the model; only recall may"
    if reader.search(loaded_memory, list(_SEARCH_TEXTS), _NUM_HITS) != search.value:
        yield "the memory read back from its JSON is searched with another result"
    yield from _hit_problems(reader, memory, search.value, history)

    empty_memory = program.method.writer.Memory()
    yield from _recall_problems(reader, memory, empty_memory)


def _hit_problems(
    reader: Reader, memory: Memory, batch: Sequence[Sequence[Hit]], history: History
) -> Iterator[str]:
    """Check the hits of a batch of searches against the history and against single searches.

    Args:
        reader: The reader of the method.
        memory: What was searched.
        batch: The `_NUM_HITS` hits of each of `_SEARCH_TEXTS`, all searched at once.
        history: What the memory was written from.
    """
    hit_sources: set[str] = set()
    for hits in batch:
        for hit in hits:
            hit_sources.update(hit.sources)
    unknown_sources = sorted(hit_sources - set(history.turns))
    if unknown_sources:
        yield (
            f"hits rest on sources that are no turns of the history: {_first_ids(unknown_sources)}"
        )

    singles = [reader.search(memory, [text], _NUM_HITS)[0] for text in _SEARCH_TEXTS]
    if list(batch) != singles:
        yield "a batch of queries finds something else than the queries one by one"

    for text, hits in zip(_SEARCH_TEXTS, singles, strict=True):
        fewer_hits = reader.search(memory, [text], _NUM_FEWER_HITS)[0]
        if [hit.id for hit in fewer_hits] != [hit.id for hit in hits[:_NUM_FEWER_HITS]]:
            yield f"search for k={_NUM_FEWER_HITS} is not the head of search for k={_NUM_HITS}"
            break


def _recall_problems(reader: Reader, memory: Memory, empty_memory: Memory) -> Iterator[str]:
    """Check that recall copes with an empty memory and changes no memory."""
    # If it does not cope, its own error ends the check and says where.
    for text in ("anything", ""):
        reader.recall(empty_memory, Query(text=text))

    memory_before = memory.model_dump_json()
    reader.recall(memory, Query(text=_SEARCH_TEXTS[0]))
    if memory.model_dump_json() != memory_before:
        yield "recall changes the memory"


def _prompt_problems(program: MemoryProgram, history: History) -> Iterator[str]:
    """Check that the memory's key depends on the prompts that write it, and on no others.

    The prompt of each predictor is changed for a moment, to see whether the key changes. Prompts
    that write are those below the writer, so also check that writing asks no others.
    """
    writer = program.method.writer
    writing_predictor_ids = {id(predictor) for predictor in writer.predictors_below().values()}
    key = writer_key(writer)

    for name, predictor in program.all_predictors().items():
        signature = signature_of(predictor)
        predictor.signature = signature.with_instructions(f"{signature.instructions} Be brief.")
        try:
            is_in_key = writer_key(writer) != key
        finally:
            predictor.signature = signature

        writes = id(predictor) in writing_predictor_ids
        if writes and not is_in_key:
            yield f"the prompt {name} writes but is not part of the memory's key"
        if is_in_key and not writes:
            yield f"the prompt {name} reads but is part of the memory's key"

    calls = record_step(lambda: write_history(writer, history.items)).calls
    if any(id(call.predictor) not in writing_predictor_ids for call in calls):
        yield (
            "writing asks prompts that do not lie below the writer; "
            "their changes would leave stale memories"
        )


def _loss_problems(program: MemoryProgram, history: History) -> Iterator[str]:
    """Check that turns stay in the memory where no answer of the model can be read.

    A turn stays if an entry names it as a source, or if its item is reported as failed. A writer
    may leave out turns that it does not show to the model, so only shown turns count.
    """
    writer = program.method.writer
    if not writer.predictors_below():
        return

    unreadable_lm = MeteredLM("garbled/garbled", engine=_UnreadableEngine(), cache=False)
    with dspy.context(lm=unreadable_lm):
        memory = write_history(writer, history.items)
    stored_turn_ids = set(stored_sources(memory))
    for failed_item in memory.failed_items:
        stored_turn_ids.update(turn.id for turn in failed_item.item.turns)

    lost_turn_ids: list[str] = []
    for item in history.items:
        shown_turns = _turns_shown_to_model(program, item)
        lost_turn_ids.extend(turn.id for turn in shown_turns if turn.id not in stored_turn_ids)
    if lost_turn_ids:
        yield (
            f"turns are lost where no answer can be read: {_first_ids(lost_turn_ids)}; "
            "report them with Update(memory, failed_items=(item,))"
        )


def _turns_shown_to_model(program: MemoryProgram, item: Item) -> list[Turn]:
    """Return the turns of an item whose words are in a prompt while a memory of it is written.

    The item is written alone, by the model of DSPy's settings, whose answers can be read.
    """
    writer = program.method.writer
    calls = record_step(lambda: write_history(writer, [item])).calls
    inputs: list[str] = []
    for call in calls:
        inputs.extend(str(value) for value in call.inputs.values())
    shown_text = "\n".join(inputs)
    return [turn for turn in item.turns if turn.text and turn.text in shown_text]


class _UnreadableEngine(OfflineEngine):
    """A model whose answers have no fields."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        response = super().complete(request)
        message = lm15.Message.assistant("I cannot help with that.")
        return dataclasses.replace(response, message=message)


def _first_ids(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_MAX_NAMED])


# Benchmarks


def _example_problems(benchmark: Benchmark) -> Iterator[str]:
    """Check each example; only the first bad one is named."""
    histories_by_digest: dict[str, History] = {}
    for example in benchmark.examples:
        for problem in _problems_of_example(benchmark, example, histories_by_digest):
            yield f"example {example.id}: {problem}"
            return


def _problems_of_example(
    benchmark: Benchmark, example: dspy.Example, histories_by_digest: dict[str, History]
) -> Iterator[str]:
    """Check one example.

    Args:
        benchmark: The benchmark of the example.
        example: The example.
        histories_by_digest: The histories of the examples before, to which this one's is added.
    """
    inputs = dict(example.inputs())
    missing_inputs = {"history", "evidence_ids"} - inputs.keys()
    if missing_inputs:
        yield f"{', '.join(sorted(missing_inputs))} is no input; see with_inputs"
        return
    if "answer" in inputs:
        yield "the gold answer is an input, so every program sees it"

    if benchmark.interaction is None and example.get("answer") is None:
        yield "it has no label `answer`, the gold answer"
    category = category_of(example)
    if benchmark.categories and category not in benchmark.categories:
        yield f"its category {category!r} is none of `categories`"

    for turn_id in unknown_evidence(example):
        yield f"evidence_ids names {turn_id}, which is no turn of its history"

    first_history = histories_by_digest.setdefault(example.history.digest, example.history)
    if first_history is not example.history:
        yield "its history is equal to another one's but no shared object; make it once"

    # In a conversation, the simulated user asks.
    if benchmark.interaction is None:
        yield from _query_problems(benchmark.task, inputs)


def _query_problems(task_name: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Check that the inputs of an example have all fields that a task needs to make its query."""
    fields = dict(inputs)
    # The inputs of every task. All others are fields of this one.
    for name in ("history", "evidence_ids", "recent"):
        fields.pop(name, None)
    try:
        task_class(task_name)().query(fields)
    except UserError as error:
        yield str(error)


def _split_problems(benchmark: Benchmark) -> Iterator[str]:
    """Check the split: it is the same at every call, and its parts are apart.

    No two parts share a question. Train shares no conversation with dev or test.
    """
    try:
        split = benchmark.split()
    except DataError:
        # There are too few examples for a split, which a benchmark may allow.
        return

    ids = [str(example.id) for example in (*split.train, *split.dev, *split.test)]
    if len(ids) != len(set(ids)):
        yield "a question is in two parts of the split"

    train_groups = {benchmark.group(example) for example in split.train}
    other_groups = {benchmark.group(example) for example in (*split.dev, *split.test)}
    # Fewer conversations than parts have to be cut.
    can_be_disjoint = len(train_groups | other_groups) >= 3
    if can_be_disjoint and train_groups & other_groups:
        yield "a conversation is in train and in another part of the split"

    if benchmark.split().digest != split.digest:
        yield "the split differs from call to call"


def _scorer_problems(benchmark: Benchmark) -> Iterator[str]:
    """Check how the scorer scores a gold answer and an empty one; report the first bad example.

    No model is asked here. So a scorer that needs a judge can only be checked for the error that it
    raises without one, and a scorer of conversations cannot be checked.
    """
    scorer = benchmark.scorer
    if scorer.required_judges:
        yield from _missing_judge_problems(scorer, benchmark.examples[0])
        return
    if benchmark.interaction is not None:
        return

    for example in benchmark.examples[:_MAX_SCORED_EXAMPLES]:
        for problem in _score_problems(scorer, example):
            yield f"example {example.id}: {problem}"
            return


def _missing_judge_problems(scorer: Scorer, example: dspy.Example) -> Iterator[str]:
    """Check that a scorer that names judges does not score without them."""
    # Where a conversation is scored, `rival` is what another program said in it.
    prediction = dspy.Prediction(answer="x", context=Context(), rival="y")
    try:
        scorer.score(example, prediction)
    except UserError:
        # `Scorer.judge` raises it.
        return
    yield "a scorer that names judges scores without any; ask self.judge(role)"


def _score_problems(scorer: Scorer, example: dspy.Example) -> Iterator[str]:
    gold_prediction = dspy.Prediction(answer=example.answer, context=Context())
    empty_prediction = dspy.Prediction(answer="", context=Context())
    gold_score = scorer.score(example, gold_prediction)
    empty_score = scorer.score(example, empty_prediction)

    values = [
        gold_score.value,
        empty_score.value,
        *gold_score.parts.values(),
        *empty_score.parts.values(),
    ]
    if not all(isinstance(value, int | float) and isfinite(value) for value in values):
        yield "a score or part is no finite number"
    if not -1 <= empty_score.value <= gold_score.value <= 1:
        yield f"the gold answer scores {gold_score.value}, no answer {empty_score.value}"
    if scorer.score(example, gold_prediction) != gold_score:
        yield "the same answer scores otherwise the second time"
    if not gold_score.feedback or not empty_score.feedback:
        yield "the feedback is empty"


def _option_problems(benchmark: Benchmark) -> Iterator[str]:
    """Check that `load` refuses an option that does not exist."""
    try:
        type(benchmark).load(None, no_such_option=1)
    except UserError:
        return
    except Exception as error:
        yield f"load fails on an unknown option with {type(error).__name__}; call refuse_options"
        return
    yield "load takes an option that does not exist; call refuse_options"
