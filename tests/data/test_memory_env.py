"""memory-env: what its users say and are asked, what an answer is worth; with Memory-R2, a perfect writer."""

import random
from typing import Any

import dspy
import pytest
from mempiler import Context, Hit, Query, build
from mempiler.data.memory_env import NOTHING, VALUES, Conversation, MemoryEnv
from mempiler.data.synthesis.memory_teacher import teach_facts, teach_operations
from mempiler.engines.embedders import embedder
from mempiler.optimizers.demonstrations import UNSEEN, demonstrate
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.programs.memory_r2.method import MemoryR2, MemoryR2Settings
from mempiler.programs.tasks.task import MemoryLookup
from mempiler.signatures.memory_r2 import Fact, NewFact, StoredMemory


@pytest.fixture(scope="module")
def env() -> MemoryEnv:
    return MemoryEnv.load(users=20, sessions=8)


def replayed(talk: Conversation, sessions: int) -> dict[str, str]:
    """Questions and answers after some sessions, read from what was said."""
    facts: dict[str, str] = {}
    for item in talk.history.items[:sessions]:
        for turn in item.turns:
            words = turn.text.split()
            key = next((word for word in words if word in VALUES), None)
            if key:
                value = next((word for word in words if word in VALUES[key]), NOTHING)
                facts[f"What is {turn.speaker}'s {key}?"] = value
    return facts


@pytest.mark.parametrize("sessions", [1, 3, 8])
def test_answers_are_what_was_said_last(env: MemoryEnv, sessions: int) -> None:
    for talk in env.talks.values():
        asked = env.questions_after(talk.history, sessions)
        assert {ask.question: ask.answer for ask in asked} == replayed(talk, sessions)
        assert all(len(ask.history) == sessions for ask in asked)


def test_a_kind_tells_what_was_done_last_and_evidence_ends_with_the_turn_that_decides(env: MemoryEnv) -> None:
    assert {example.category for example in env.examples} == {"state", "change", "restate", "retract"}
    for example in env.examples:
        turns = [example.history.turns[id][0] for id in example.evidence]
        assert all(turn.speaker in example.question for turn in turns)
        assert (example.answer == NOTHING) == (example.category == "retract")
        assert example.answer in (*turns[-1].text.split(), NOTHING)


def test_the_same_seed_gives_the_same_users_and_another_seed_others(env: MemoryEnv) -> None:
    assert MemoryEnv.load(users="20", sessions="8").source == env.source
    assert env.source.sha256 == "ff3774bdf5cc8f3a485ab584edb0422e9ae0b8b3cc7e7ad08fc16dd4740cf114"
    assert MemoryEnv.load(users=20, sessions=8, seed=1).source.sha256 != env.source.sha256


FACT = NewFact(speaker="Ada", turn_id="D2:1", fact="Ada pet cat", related_memory_ids=["m1", "m2"])
OTHER = StoredMemory(memory_id="m2", speaker="Ada", content="Ada city Rome")


@pytest.mark.parametrize(
    ("known", "fact", "op", "target"),
    [
        (None, "Ada pet cat", "INSERT", None),
        ("Ada pet dog", "Ada pet cat", "UPDATE", "m1"),
        ("Ada pet cat", "Ada pet cat", "NONE", None),
        ("Ada pet dog", "Ada pet none", "DELETE", "m1"),
        (None, "Ada pet none", "NONE", None),
    ],
)
def test_good_teacher_does_what_the_fact_calls_for(known: str | None, fact: str, op: str, target: str | None) -> None:
    entry = [StoredMemory(memory_id="m1", speaker="", content=known)] if known else []
    said = FACT.model_copy(update={"fact": fact})
    [operation] = teach_operations([OTHER, *entry], [said], random.Random(0))
    assert (operation.op, operation.memory_id) == (op, target)


def test_poor_teacher_errs_as_often_as_asked() -> None:
    entry, rng = StoredMemory(memory_id="m1", speaker="Ada", content="Ada pet dog"), random.Random(1)
    ops = [teach_operations([entry, OTHER], [FACT], rng, {"change": 0.5})[0].op for _ in range(400)]
    assert set(ops) == {"UPDATE", "INSERT"}
    assert ops.count("INSERT") / 400 == pytest.approx(0.5, abs=0.06)


def test_teacher_hears_every_fact_and_no_chatter() -> None:
    for number in range(20):
        talk = Conversation.make(3, number, 8)
        dialogue = "\n".join(turn.line() for item in talk.history.items for turn in item.turns)
        heard = [(fact.turn_id, fact.fact.split()[-1]) for fact in teach_facts(dialogue, random.Random(0))]
        assert heard == [(event.turn_id, event.value or NOTHING) for event in talk.events]


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


def test_a_perfect_writer_meets_the_entry_to_change_and_its_memory_answers_every_question(env: MemoryEnv) -> None:
    program = build("memory-r2", env.task, embedder(), adapter="compact", **SETTINGS)
    for talk in list(env.talks.values())[:6]:
        memory, related = written(env, talk.history.id)
        assert related
        assert all(related)
        for example in talk.questions():
            query = Query(text=example.question, speakers=example.history.speakers)
            answer = program.task(context=program.method.reader.recall(memory, query), query=query)
            assert env.score(example, answer).value == 1


@pytest.mark.parametrize(
    ("entries", "answer"),
    [
        ([("m12", "Ada pet cat"), ("m9", "Ada pet dog")], "dog"),
        ([("m1", "Ada city Rome"), ("m2", "Ben pet cat")], "none"),
        ([("m1", "Ada's pet is a dog.")], "dog"),
    ],
)
def test_the_oldest_matching_entry_answers(entries: list[tuple[str, str]], answer: str) -> None:
    context = Context(hits=tuple(Hit(id=id, text=text) for id, text in entries))
    assert MemoryLookup()(context=context, query=Query(text="What is Ada's pet?")).answer == answer


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
