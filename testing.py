"""Checks that a method or a benchmark keeps the contracts everything else rests on; ours pass them, yours should too.

Both raise one error with a line for every violation. Nothing is sent anywhere: the model is the offline engine.

Example:
    >>> from mempiler.testing import check_benchmark, check_method
    >>> check_method("turn-rag")
    >>> check_benchmark("locomo")
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import dspy

from .data.benchmark import Benchmark
from .data.catalog import benchmark as load_benchmark
from .engines.embedders import embedder as make_embedder
from .engines.meter import Meter, MeteredLM
from .engines.models import language_model
from .engines.offline.engine import OfflineEngine
from .errors import DataError, UserError
from .memory.memory import stored_sources
from .programs.catalog import build
from .programs.identity import writer_key
from .programs.method import Method
from .programs.program import MemoryProgram
from .programs.state import signature_of
from .programs.tasks.task import task as task_class
from .programs.writing import record_step, write_history, write_items
from .records import Action, Behavior, Context, History, Logs, Profile, Query, Session, Turn

Broken = Iterator[str]
Make = Callable[[], MemoryProgram]
_PROBES = ("Where does Ada live with her dog?", "running shoes and the knee", "")


def check_method(method: str | Method, history: History | None = None, task: str | None = None, **config: Any) -> None:
    """Checks a method's contract.

    Args:
        method: A name, `module:Class`, or a method that was made already.
        history: What it writes; a small one with sessions, logs, behaviour and a profile if None.
        task: The task that its program answers; the first of the method's own, or question answering, if None.
        **config: Settings, for a method that is named.

    Raises:
        UserError: The contract is broken; each violation is a line of the message.
    """
    past = history or sample_history()

    def make() -> MemoryProgram:
        if not isinstance(method, Method):
            return build(method, task or "question-answering", make_embedder(), **config)
        made: Any = task_class(task or "question-answering")()
        return MemoryProgram(method, made)

    with dspy.context(lm=language_model(), trace=None, disable_history=True):
        broken = [line for check in (_writing, _memory, _prompts, _losses) for line in check(make, past)]
    _refuse(f"method {method if isinstance(method, str) else type(method).__name__}", broken)


def sample_history() -> History:
    """Sessions of two people, logs, behaviour and a profile of one, over two months."""
    said = {
        "P": ["profile: Ada, 34, nurse, lives in Porto"],
        "L1": ["phone: bought running shoes", "phone: booked a dentist for May", "phone: looked for a knee brace"],
        "D1": ["Ada: I moved to Lisbon with my dog Rex.", "Bob: And, is it nice?", "Ada: The hills hurt my knee."],
        "D2": ["Ada: The dentist was fine after all.", "Bob: And the knee?", "Ada: I run again, in the light shoes."],
        "D3": ["Ada: We went hiking, Rex loved it.", "Bob: What did you eat?", "Ada: Rye bread, I gave up wheat."],
    }
    kinds: dict[str, Any] = {"P": Profile, "L": Logs, "D": Session}
    items: list[Any] = []
    for day, (id, lines) in enumerate(said.items(), 1):
        parts = [line.partition(": ") for line in lines]
        turns = [Turn(id=f"{id}:{n}", speaker=who, text=text) for n, (who, _, text) in enumerate(parts, 1)]
        items.append(kinds[id[0]](id=id, time=datetime(2024, 3, 5 * day), turns=tuple(turns)))
    things, done = ("dogs", "hills", "bread"), ("liked", "skipped")
    actions = [
        Action(id=f"a{n}", time=datetime(2024, 4, n), scene="video", situation=things[n % 3], action=done[n % 2])
        for n in range(1, 15)
    ]
    return History(id="ada", items=(*items, Behavior.from_actions("B", actions)))


def _writing(make: Make, past: History) -> Broken:
    """Purity, determinism, and the same memory item by item as at once."""
    program, other = make(), make()
    writer = program.method.writer
    memory = writer.Memory()
    for item in past.items:
        before, shown = memory.model_dump_json(), item.model_dump_json()
        after = write_items(writer, memory, [item])
        if memory.model_dump_json() != before:
            yield f"write changes the memory it is given (at item {item.id}); return a changed copy"
            return
        if item.model_dump_json() != shown:
            yield f"write changes the item {item.id}"
            return
        memory = after
    settled = writer.finalize(memory)
    at_once = write_history(writer, past.items)
    if settled != at_once:
        yield "items one by one give another memory than all at once; extract and update must depend on nothing else"
    if writer.finalize(settled) != settled:
        yield "settling twice is not settling once"
    if write_history(other.method.writer, past.items) != at_once:
        yield "the same history gives another memory the second time; count ids, draw nothing without a seed"


def _memory(make: Make, past: History) -> Broken:
    """The stored form and the provenance of a memory; search without a model, in batches, by rank."""
    program = make()
    reader, memory = program.method.reader, program.remember(past).memory
    again = type(memory).model_validate_json(memory.model_dump_json())
    if again != memory:
        yield "the memory read back from its JSON is not the same; every field must have a JSON form"
    strange = sorted(stored_sources(memory) - set(past.turns))
    if strange:
        yield f"the memory names sources that are no turns of the history: {', '.join(strange[:5])}"
    done = record_step(lambda: reader.search(memory, list(_PROBES), 10))
    if done.calls:
        yield "search calls the model; only recall may"
    if reader.search(again, list(_PROBES), 10) != done.value:
        yield "the memory read back from its JSON is searched with another result"
    loose = sorted({id for hits in done.value for hit in hits for id in hit.sources} - set(past.turns))
    if loose:
        yield f"hits rest on sources that are no turns of the history: {', '.join(loose[:5])}"
    single = [reader.search(memory, [probe], 10)[0] for probe in _PROBES]
    if done.value != single:
        yield "a batch of queries finds something else than the queries one by one"
    fewer = [reader.search(memory, [probe], 3)[0] for probe in _PROBES]
    if [[hit.id for hit in hits[:3]] for hits in single] != [[hit.id for hit in hits] for hits in fewer]:
        yield "search for k=3 is not the head of search for k=10"
    for probe in ("anything", ""):
        record_step(lambda probe=probe: reader.recall(program.method.writer.Memory(), Query(text=probe)))
    before = memory.model_dump_json()
    record_step(lambda: reader.recall(memory, Query(text=_PROBES[0])))
    if memory.model_dump_json() != before:
        yield "recall changes the memory"


def _prompts(make: Make, past: History) -> Broken:
    program = make()
    writer, writers = program.method.writer, program.method.writer.predictors_below()
    key = writer_key(writer)
    for name, predictor in program.all_predictors().items():
        writes = any(predictor is one for one in writers.values())
        old = signature_of(predictor)
        predictor.signature = old.with_instructions(f"{old.instructions} Be brief.")
        changed = writer_key(writer) != key
        predictor.signature = old
        if changed != writes:
            says = "writes but is not" if writes else "reads but is"
            yield f"the prompt {name} {says} part of the memory's key"
    calls = record_step(lambda: write_history(writer, past.items)).calls
    strange = {id(call.predictor) for call in calls} - {id(predictor) for predictor in writers.values()}
    if strange:
        yield "writing asks prompts that do not lie below the writer; their changes would leave stale memories"


def _losses(make: Make, past: History) -> Broken:
    """What becomes of turns when no answer can be read."""
    writer = make().method.writer
    if not writer.predictors_below():
        return
    with dspy.context(lm=MeteredLM("garbled/garbled", Meter(), engine=_Garbled(), cache=False)):
        memory = write_history(writer, past.items)
    kept = stored_sources(memory) | {turn.id for left in memory.failed_items for turn in left.item.turns}
    lost = list[str]()
    for item in past.items:
        calls = record_step(lambda item=item: write_history(writer, [item])).calls
        asked = "\n".join(str(value) for call in calls for value in call.inputs.values())
        lost += [turn.id for turn in item.turns if turn.text and turn.text in asked and turn.id not in kept]
    if lost:
        yield f"turns are lost where no answer can be read: {', '.join(lost[:5])}; say so with memory.mark_failed(item)"


class _Garbled(OfflineEngine):
    def complete(self, request: Any) -> Any:
        response = super().complete(request)
        return dataclasses.replace(response, message=type(response.message).assistant("I cannot help with that."))


def check_benchmark(benchmark: str | Benchmark, path: str | Path | None = None, **options: Any) -> None:
    """Checks a benchmark's contract.

    Args:
        benchmark: A name, `module:Class`, or a benchmark that was loaded already.
        path: Its file; the bundled sample if None.
        **options: Options of its `load`.

    Raises:
        UserError: The contract is broken; each violation is a line of the message.
    """
    loaded = benchmark if isinstance(benchmark, Benchmark) else load_benchmark(benchmark, path, **options)
    broken = [line for check in (_examples, _split, _scorer, _options) for line in check(loaded)]
    _refuse(f"benchmark {loaded.name}", broken)


def _refuse(what: str, broken: Sequence[str]) -> None:
    if broken:
        raise UserError("\n".join([f"{what} breaks {len(broken)} of its promises:", *broken]))


def _examples(benchmark: Benchmark) -> Broken:
    """What every example must hold; the first that does not is named."""
    repeated = [id for id, count in Counter(str(example.id) for example in benchmark.examples).items() if count > 1]
    if repeated:
        yield f"ids are not unique: {', '.join(repeated[:5])}"
    histories: dict[str, Any] = {}
    yield from _first(lambda example: _example(benchmark, example, histories), benchmark.examples)


def _first(check: Callable[[dspy.Example], Broken], examples: Sequence[dspy.Example]) -> Broken:
    found = (f"example {example.id}: {problem}" for example in examples for problem in check(example))
    yield from islice(found, 1)


def _example(benchmark: Benchmark, example: dspy.Example, histories: dict[str, Any]) -> Broken:
    inputs = dict(example.inputs())
    missing = {"history", "evidence_ids"} - inputs.keys()
    if missing:
        yield f"{', '.join(sorted(missing))} is no input; see with_inputs"
        return
    if "answer" in inputs:
        yield "the gold answer is an input, so every program sees it"
    recent = {turn.id for item in inputs.get("recent") or () for turn in item.turns}
    strange = [id for id in example.evidence_ids if id not in example.history.turns and id not in recent]
    if strange:
        yield f"evidence_ids names {strange[0]}, which is no turn of its history"
    if histories.setdefault(example.history.digest, example.history) is not example.history:
        yield "its history is equal to another one's but no shared object; make it once"
    if benchmark.interaction is None:
        task: Any = task_class(benchmark.task)()
        try:
            task.query(
                {name: value for name, value in inputs.items() if name not in ("history", "evidence_ids", "recent")}
            )
        except UserError as error:
            yield str(error)


def _split(benchmark: Benchmark) -> Broken:
    try:
        split = benchmark.split()
    except DataError:
        return  # too few to be cut, which load may allow
    parts = split.train, split.dev, split.test
    ids = [str(example.id) for part in parts for example in part]
    if len(ids) != len(set(ids)):
        yield "a question is in two parts of the split"
    train, dev, test = ({benchmark.group(example) for example in part} for part in parts)
    if len(train | dev | test) >= 3 and train & (dev | test):
        yield "a conversation is in train and in another part of the split"
    if benchmark.split().digest != split.digest:
        yield "the split differs from call to call"


def _scorer(benchmark: Benchmark) -> Broken:
    """The scorer's results for the gold answer, for nothing, and twice for the same."""
    scorer = benchmark.scorer
    if scorer.required_judges or benchmark.interaction is not None:
        with suppress(UserError):
            scorer.score(benchmark.examples[0], dspy.Prediction(answer="x", context=Context(), rival="y"))
            yield "a scorer that names judges scores without any; ask self.judge(role)"
        return
    yield from _first(lambda example: _scored(scorer, example), benchmark.examples[:50])


def _scored(scorer: Any, example: dspy.Example) -> Broken:
    gold, nothing = (dspy.Prediction(answer=answer, context=Context()) for answer in (example.answer, ""))
    found, empty = scorer.score(example, gold), scorer.score(example, nothing)
    values = [found.value, empty.value, *found.parts.values(), *empty.parts.values()]
    if not all(isinstance(value, int | float) and isfinite(value) for value in values):
        yield "a score or part is no finite number"
    if not -1 <= empty.value <= found.value <= 1:
        yield f"the gold answer scores {found.value}, no answer {empty.value}"
    if scorer.score(example, gold) != found:
        yield "the same answer scores otherwise the second time"
    if not found.feedback or not empty.feedback:
        yield "the feedback is empty"


def _options(benchmark: Benchmark) -> Broken:
    """An option that does not exist must not pass in silence."""
    try:
        type(benchmark).load(None, no_such_option=1)
        yield "load takes an option that does not exist; call refuse_options"
    except UserError:
        pass
    except Exception as error:
        yield f"load fails on an unknown option with {type(error).__name__}; call refuse_options"
