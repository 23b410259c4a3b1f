"""Contract checks of a method, on a small history with the offline engine as the model.

    writing     changes nothing it is given; the same twice; item by item as at once; settling twice is settling once
    memory      its JSON is its stored form; it rests on turns of the history
    searching   asks no model; a batch finds what single queries find; fewer hits are the first of more
    prompts     every prompt that writes is part of the memory's key, no prompt that reads is
    losses      turns that a model's answers are about, and that cannot be read, are said to be left

Example:
    >>> from mempiler.testing.method import check_method
    >>> check_method("turn-rag")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import dspy

from ..engines.embedders import embedder as make_embedder
from ..engines.meter import Meter, MeteredLM
from ..engines.models import language_model
from ..engines.offline.engine import OfflineEngine
from ..errors import UserError
from ..memory.provenance import stored_sources
from ..programs.catalog import build
from ..programs.fold import PlainSteps, fold, perform
from ..programs.identity import Identities
from ..programs.method import Method
from ..programs.program import MemoryProgram
from ..programs.state import signature_of
from ..programs.tasks.task import task as task_class
from ..records import Action, Behavior, History, Item, Logs, Profile, Query, Session, Turn

Broken = Iterator[str]
"""Violations, each in one sentence."""


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
        if isinstance(method, Method):
            made: Any = task_class(task or "question-answering")()
            return MemoryProgram(method, made)
        return build(method, task or "question-answering", make_embedder(), **config)

    with dspy.context(lm=language_model(), trace=None, disable_history=True):
        broken = [line for check in CHECKS for line in check(make, past)]
    if broken:
        name = method if isinstance(method, str) else type(method).__name__
        raise UserError("\n".join([f"method {name} breaks {len(broken)} of its promises:", *broken]))


def sample_history() -> History:
    """Sessions of two people, logs, behaviour and a profile of one, over two months."""
    profile = Profile(id="P", turns=(Turn(id="P:1", speaker="profile", text="Ada, 34, nurse, lives in Porto"),))
    logs = [
        Turn(id=f"L1:{n}", speaker="phone", text=text, time=datetime(2024, 3, 4, 8 + n))
        for n, text in enumerate(("bought running shoes", "booked a dentist for May", "searched for a knee brace"), 1)
    ]
    said = (
        ("I moved to Lisbon last week with my dog Rex.", "How do you like it so far?", "The hills hurt my knee."),
        ("The dentist was fine after all.", "And the knee?", "I run again, in the light shoes."),
        ("We went hiking, Rex loved it.", "What do you eat on the way?", "Rye bread, since I gave up wheat."),
    )
    talks = [
        Session(
            id=f"D{s}",
            time=datetime(2024, 3, 5 * s),
            turns=tuple(
                Turn(id=f"D{s}:{n}", speaker=("Ada", "Bob")[(n + 1) % 2], text=text) for n, text in enumerate(texts, 1)
            ),
        )
        for s, texts in enumerate(said, 1)
    ]
    actions = [
        Action(
            id=f"a{n}",
            time=datetime(2024, 4, n),
            scene="video",
            situation=f"a clip about {('dogs', 'hills', 'bread')[n % 3]}",
            action=("liked", "skipped")[n % 2],
        )
        for n in range(1, 15)
    ]
    items: tuple[Any, ...] = (
        profile,
        Logs(id="L1", time=datetime(2024, 3, 4), turns=tuple(logs)),
        *talks,
        Behavior.of("B", actions),
    )
    return History(id="ada", items=items)


Make = Callable[[], MemoryProgram]
_PROBES = ("Where does Ada live with her dog?", "running shoes and the knee", "")


def _writing(make: Make, past: History) -> Broken:
    """Purity, determinism, and the same memory item by item as at once."""
    program, other = make(), make()
    writer = program.method.writer
    memory = writer.Memory()
    for item in past.items:
        before, shown = memory.model_dump_json(), item.model_dump_json()
        after = fold([item], memory, PlainSteps(writer), settle=False)
        if memory.model_dump_json() != before:
            yield f"write changes the memory it is given (at item {item.id}); return a changed copy"
            return
        if item.model_dump_json() != shown:
            yield f"write changes the item {item.id}"
            return
        memory = after
    settled = writer.settle(memory)
    at_once = fold(past.items, writer.Memory(), PlainSteps(writer))
    if settled != at_once:
        yield "items one by one give another memory than all at once; prepare and write must depend on nothing else"
    if writer.settle(settled) != settled:
        yield "settling twice is not settling once"
    if fold(past.items, other.method.writer.Memory(), PlainSteps(other.method.writer)) != at_once:
        yield "the same history gives another memory the second time; count ids, draw nothing without a seed"


def _memory(make: Make, past: History) -> Broken:
    """The stored form and the provenance of a memory."""
    program = make()
    memory = program.remember(past).memory
    again = type(memory).model_validate_json(memory.model_dump_json())
    if again != memory:
        yield "the memory read back from its JSON is not the same; every field must have a JSON form"
    strange = sorted(stored_sources(memory) - set(past.turns))
    if strange:
        yield f"the memory names sources that are no turns of the history: {', '.join(strange[:5])}"
    found = program.method.reader.search(memory, list(_PROBES), 10)
    if program.method.reader.search(again, list(_PROBES), 10) != found:
        yield "the memory read back from its JSON is searched with another result"
    loose = sorted({id for hits in found for hit in hits for id in hit.sources} - set(past.turns))
    if loose:
        yield f"hits rest on sources that are no turns of the history: {', '.join(loose[:5])}"


def _searching(make: Make, past: History) -> Broken:
    """Search without a model, in batches, by rank; recall of an empty memory."""
    program = make()
    reader, memory = program.method.reader, program.remember(past).memory
    done = perform(lambda: reader.search(memory, list(_PROBES), 10))
    if done.calls:
        yield "search calls the model; only recall may"
    single = [reader.search(memory, [probe], 10)[0] for probe in _PROBES]
    if done.value != single:
        yield "a batch of queries finds something else than the queries one by one"
    for hits, probe in zip(single, _PROBES, strict=True):
        if [hit.id for hit in reader.search(memory, [probe], 3)[0]] != [hit.id for hit in hits[:3]]:
            yield f"search for k=3 is not the head of search for k=10 (query {probe!r})"
            break
    blank = program.method.writer.Memory()
    for probe in ("anything", ""):
        perform(lambda probe=probe: reader.recall(blank, Query(text=probe)))
    before = memory.model_dump_json()
    perform(lambda: reader.recall(memory, Query(text=_PROBES[0])))
    if memory.model_dump_json() != before:
        yield "recall changes the memory"


def _prompts(make: Make, past: History) -> Broken:
    """Which prompts name a memory."""
    program = make()
    writer, writers = program.method.writer, program.method.writer.predictors_below()
    key = Identities().writer_key(writer)
    for name, predictor in program.all_predictors().items():
        writes = any(predictor is one for one in writers.values())
        old = signature_of(predictor)
        predictor.signature = old.with_instructions(f"{old.instructions} Be brief.")
        changed = Identities().writer_key(writer) != key
        predictor.signature = old
        if changed != writes:
            says = "is not part of" if writes else "is part of"
            yield f"the prompt {name} {'writes' if writes else 'reads'} but {says} the memory's key"
    calls = perform(lambda: fold(past.items, writer.Memory(), PlainSteps(writer))).calls
    strange = {id(call.predictor) for call in calls} - {id(predictor) for predictor in writers.values()}
    if strange:
        yield "writing asks prompts that do not lie below the writer; their changes would leave stale memories"


def _losses(make: Make, past: History) -> Broken:
    """What becomes of turns when no answer can be read."""
    writer = make().method.writer
    if not writer.predictors_below():
        return
    with dspy.context(lm=MeteredLM("garbled/garbled", Meter(), engine=_Garbled(), cache=False)):
        memory = fold(past.items, writer.Memory(), PlainSteps(writer))
    kept = stored_sources(memory) | {turn.id for left in memory.unwritten for turn in left.item.turns}
    asked = {id for item in past.items for id in _asked_about(writer, item)}
    lost = sorted(asked - kept)
    if lost:
        yield f"turns are lost where no answer can be read: {', '.join(lost[:5])}; say so with memory.left(item)"


def _asked_about(writer: Any, item: Item) -> set[str]:
    """The turns of an item about which writing it asks the model."""
    done = perform(lambda: fold([item], writer.Memory(), PlainSteps(writer)))
    shown = "\n".join(str(value) for call in done.calls for value in call.inputs.values())
    return {turn.id for turn in item.turns if turn.text and turn.text in shown}


class _Garbled(OfflineEngine):
    """Answers what nobody can read."""

    def complete(self, request: Any) -> Any:
        response = super().complete(request)
        return dataclasses.replace(response, message=type(response.message).assistant("I cannot help with that."))


CHECKS: Sequence[Callable[[Make, History], Broken]] = (_writing, _memory, _searching, _prompts, _losses)
