"""memory-env with Memory-R2: what related memories hold, and that a perfect writer answers everything."""

from typing import Any

import dspy
import pytest
from mempiler.data.memory_env import MemoryEnv
from mempiler.data.synthesis.memory_env import Conversation
from mempiler.engines.embedders import embedder
from mempiler.optimizers.demonstrations import UNSEEN, demonstrate
from mempiler.programs.catalog import build
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.programs.memory_r2.method import MemoryR2, MemoryR2Settings
from mempiler.programs.tasks.task import lookup
from mempiler.records import Hit, Query
from mempiler.signatures.memory_r2 import Fact

SETTINGS: dict[str, Any] = dict(MemoryR2.preset("memory-env"))


def written(env: MemoryEnv, user: str) -> tuple[FactMemory, list[bool]]:
    """A user's memory by a perfect writer, and whether each entry to be changed was among the related ones."""
    method, memory, found = MemoryR2(embedder(), MemoryR2Settings(**SETTINGS)), FactMemory(), []
    for event in env.talks[user].events:
        about = f"{event.speaker} {event.key}"
        fact = Fact(speaker=event.speaker, turn_id=event.turn_id, fact=f"{about} {event.value or 'none'}")
        [related] = method.writer.relate(memory, [fact])
        old = next((entry.id for entry in memory.facts if entry.content.startswith(about)), None)
        if old:
            found.append(old in related)
        op = "DELETE" if event.value is None else "UPDATE" if old else "INSERT"
        memory = memory.apply([Edit(op, old, event.speaker, fact.fact, (event.turn_id,))], related)
    return memory, found


@pytest.fixture(scope="module")
def env() -> MemoryEnv:
    return MemoryEnv.load(users=10, sessions=8)


def test_the_entry_to_be_changed_is_always_related(env: MemoryEnv) -> None:
    found = [each for user in env.talks for each in written(env, user)[1]]
    assert len(found) > 30
    assert all(found)


def test_a_perfect_memory_answers_every_question(env: MemoryEnv) -> None:
    program = build("memory-r2", env.task, embedder(), adapter="compact", **SETTINGS)
    for example in env.examples:
        memory, _ = written(env, example.history.id)
        context = program.method.reader.recall(memory, Query(text=example.question, speakers=example.history.speakers))
        answer = program.task(context=context, query=Query(text=example.question))
        assert env.score(example, answer).value == 1


@pytest.mark.parametrize(
    ("entries", "answer"),
    [
        ([], "none"),
        ([("m1", "Ada pet dog")], "dog"),
        ([("m12", "Ada pet cat"), ("m9", "Ada pet dog")], "dog"),
        ([("m1", "Ada city Rome"), ("m2", "Ben pet cat")], "none"),
        ([("m1", "Ada pet dog cat")], "dog cat"),
        ([("m1", "Ada's pet is a dog.")], "dog"),
    ],
)
def test_the_oldest_matching_entry_answers(entries: list[tuple[str, str]], answer: str) -> None:
    assert lookup([Hit(id=id, text=text) for id, text in entries], "What is Ada's pet?") == answer


def test_demonstrations_are_the_same_each_time_and_leave_the_method_alone() -> None:
    method = MemoryR2(embedder(), MemoryR2Settings(**SETTINGS))
    extract = method.writer.extract
    first, second = (demonstrate(method, CompactAdapter(), 4, seed=3) for _ in range(2))
    assert first == second
    assert method.writer.extract is extract
    steps = {messages[0]["content"].split("\n")[0] for messages, _ in first}
    assert steps == {"dialogue -> facts", "session_date memories new_facts -> operations"}


def test_demonstrations_are_the_prompts_that_a_model_is_asked(scripted: Any) -> None:
    """A model that answers by the demonstrations knows every prompt it meets when the method writes the same user."""
    method = MemoryR2(embedder(), MemoryR2Settings(**SETTINGS))
    shown = demonstrate(method, CompactAdapter(), 1, seed=0)
    known = {messages[-1]["content"]: answer for messages, answer in shown}
    lm = scripted(lambda kind, asked, n: next(known[prompt] for prompt in known if prompt in asked))
    memory = method.writer.Memory()
    with dspy.context(lm=lm, adapter=CompactAdapter()):
        for item in Conversation.make(UNSEEN, 0, 8).history.items:
            memory = method.writer.write(memory, item)
    assert memory.counts["inserted"] > 1
