"""memory-env, the generated benchmark: its questions, its teacher, and methods that solve it.

In memory-env two speakers state, change, restate and retract facts such as "Ada's pet is a dog",
among chatter. A question asks for the newest value of a fact; "none" is right if it was retracted.

The method Memory-R2 notes each new fact, and then picks an operation for it: INSERT, UPDATE, DELETE
or NONE. A teacher picks operations by rules, without a model. What it picks are demonstrations, on
which a small model is trained. A poor teacher makes mistakes on purpose.
"""

import random
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import dspy
import pytest
from mempiler import Context, Hit, Query, build
from mempiler.data.memory_env import NOTHING, VALUES, Conversation, Event, MemoryEnv
from mempiler.data.synthesis.memory_teacher import teach_facts, teach_operations
from mempiler.engines.embedders import embedder
from mempiler.optimizers.demonstrations import SEED_OFFSET, demonstrate
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.programs.memory_r2.method import MemoryR2, MemoryR2Settings
from mempiler.programs.tasks.lookup import MemoryLookup
from mempiler.programs.writing import write_items
from mempiler.signatures.memory_r2 import Fact, NewFact, StoredMemory

from ..scripted_engine import Reply

SETTINGS: dict[str, Any] = dict(MemoryR2.preset("memory-env"))
"""The settings with which Memory-R2 is trained on this benchmark."""


@pytest.fixture(scope="module")
def env() -> MemoryEnv:
    """Twenty users with eight sessions each."""
    return MemoryEnv.load(users=20, sessions=8)


def first_word_in(words: Collection[str], text: str) -> str | None:
    """Return the first word of a text that is one of these words."""
    for word in text.split():
        if word in words:
            return word
    return None


def answers_by_question(conversation: Conversation, sessions: int) -> dict[str, str]:
    """Read from the first sessions of a conversation what was said last about each fact."""
    answers: dict[str, str] = {}
    for item in conversation.history.items[:sessions]:
        for turn in item.turns:
            key = first_word_in(VALUES, turn.text)
            if key is not None:
                value = first_word_in(VALUES[key], turn.text)
                answers[f"What is {turn.speaker}'s {key}?"] = value or NOTHING
    return answers


@pytest.mark.parametrize("sessions", [1, 3, 8])
def test_the_right_answer_is_what_was_said_last(env: MemoryEnv, sessions: int) -> None:
    """After some sessions there is a question for each fact that was mentioned until then.

    `answers_by_question` reads from the turns what was said last of each fact, such as "dog".
    """
    for conversation in env.talks.values():
        examples = env.questions_after(conversation.history, sessions)

        answers = {example.question: example.answer for example in examples}
        assert answers == answers_by_question(conversation, sessions)
        for example in examples:
            assert len(example.history) == sessions


def test_the_category_is_what_was_done_last_to_a_fact(env: MemoryEnv) -> None:
    """A fact was stated, changed, stated again, or retracted. Then "none" is the answer."""
    categories = {example.category for example in env.examples}
    assert categories == {"state", "change", "restate", "retract"}
    for example in env.examples:
        is_retracted = example.category == "retract"
        assert (example.answer == NOTHING) == is_retracted


def test_evidence_ends_with_the_turn_that_decides(env: MemoryEnv) -> None:
    """Evidence is the turns that speak of a fact; the last one says how things stand."""
    for example in env.examples:
        turns = [example.history.turns[turn_id][0] for turn_id in example.evidence]
        for turn in turns:
            assert turn.speaker in example.question
        if example.answer != NOTHING:
            assert example.answer in turns[-1].text.split()


def test_the_seed_decides_the_users() -> None:
    """The digest for the seed 0 was recorded once, and must be the same on every machine."""
    seed_0 = MemoryEnv.load(users=20, sessions=8, seed=0)
    seed_1 = MemoryEnv.load(users=20, sessions=8, seed=1)

    recorded_digest = "ff3774bdf5cc8f3a485ab584edb0422e9ae0b8b3cc7e7ad08fc16dd4740cf114"
    assert seed_0.source.sha256 == recorded_digest
    assert seed_1.source.sha256 != recorded_digest


def new_fact(text: str) -> NewFact:
    """Return a fact that was just said, such as "Ada pet cat"; the entries m1 and m2 are near."""
    return NewFact(speaker="Ada", turn_id="D2:1", fact=text, related_memory_ids=["m1", "m2"])


def stored_fact(memory_id: str, text: str) -> StoredMemory:
    """Return an entry of the memory."""
    return StoredMemory(memory_id=memory_id, speaker="Ada", content=text)


@pytest.mark.parametrize(
    ("stored_pet", "fact", "operation_name", "target"),
    [
        (None, "Ada pet cat", "INSERT", None),
        ("Ada pet dog", "Ada pet cat", "UPDATE", "m1"),
        ("Ada pet cat", "Ada pet cat", "NONE", None),
        # "none" means that a fact is retracted.
        ("Ada pet dog", "Ada pet none", "DELETE", "m1"),
        (None, "Ada pet none", "NONE", None),
    ],
)
def test_a_good_teacher_does_what_the_fact_calls_for(
    stored_pet: str | None, fact: str, operation_name: str, target: str | None
) -> None:
    """A teacher says by rules what to do with a new fact; a small model is trained on that.

    The memory holds "Ada city Rome" as m2 and, if there is a stored pet, the pet as m1.
    """
    memories = [stored_fact("m2", "Ada city Rome")]
    if stored_pet is not None:
        memories.append(stored_fact("m1", stored_pet))

    [operation] = teach_operations(memories, [new_fact(fact)], random.Random(0))

    assert operation.op == operation_name
    assert operation.memory_id == target


def test_a_poor_teacher_errs_as_often_as_it_should() -> None:
    """A poor teacher makes mistakes on purpose, here in half of the cases in which a fact changes.

    Ada's pet was a dog and is a cat, so UPDATE is right. The mistake is to insert another entry.
    """
    rng = random.Random(1)
    memories = [stored_fact("m1", "Ada pet dog"), stored_fact("m2", "Ada city Rome")]

    operations: list[str] = []
    for _ in range(400):
        [operation] = teach_operations(
            memories, [new_fact("Ada pet cat")], rng, error_rates={"change": 0.5}
        )
        operations.append(operation.op)

    assert set(operations) == {"UPDATE", "INSERT"}
    assert operations.count("INSERT") / 400 == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("number", range(20))
def test_the_teacher_notes_every_fact_and_no_chatter(number: int) -> None:
    """A conversation states facts among chatter. `events` lists the facts, each with its turn."""
    conversation = Conversation.make(seed=3, number=number, sessions=8)
    lines: list[str] = []
    for item in conversation.history.items:
        lines.extend(turn.line() for turn in item.turns)

    facts = teach_facts("\n".join(lines), random.Random(0))

    noted_values = [(fact.turn_id, fact.fact.split()[-1]) for fact in facts]
    said_values = [(event.turn_id, event.value or NOTHING) for event in conversation.events]
    assert noted_values == said_values


class WrittenMemory(NamedTuple):
    """A memory, and what its writer met."""

    memory: FactMemory
    was_related: list[bool]
    """For each change of an entry: whether it was among the entries related to the new fact."""


def write_perfectly(env: MemoryEnv, user: str) -> WrittenMemory:
    """Write the memory of a user without a mistake."""
    writer = MemoryR2(MemoryR2Settings(**SETTINGS)).writer
    memory = FactMemory()
    was_related: list[bool] = []
    for event in env.talks[user].events:
        fact = Fact(
            speaker=event.speaker,
            turn_id=event.turn_id,
            fact=f"{event.speaker} {event.key} {event.value or 'none'}",
        )
        [related] = writer.relate(memory, [fact])
        old_id = entry_about(event, memory)
        if old_id is not None:
            was_related.append(old_id in related)
        edit = Edit(
            op=operation_for(event, old_id),
            memory_id=old_id,
            speaker=event.speaker,
            content=fact.fact,
            sources=(event.turn_id,),
        )
        memory = memory.apply([edit], related)
    return WrittenMemory(memory, was_related)


def entry_about(event: Event, memory: FactMemory) -> str | None:
    """Return the id of the entry about the same fact as an event."""
    for entry in memory.facts:
        if entry.content.startswith(f"{event.speaker} {event.key}"):
            return entry.id
    return None


def operation_for(event: Event, old_id: str | None) -> str:
    """Return the right operation for an event."""
    if event.value is None:
        return "DELETE"
    return "INSERT" if old_id is None else "UPDATE"


@pytest.mark.parametrize("number", range(6))
def test_the_entry_to_change_is_among_those_that_a_writer_is_shown(
    env: MemoryEnv, number: int
) -> None:
    """A model that writes a memory sees only the entries that are related to a new fact.

    Here the true events of a conversation change the memory, in place of a model.
    """
    user = list(env.talks)[number]
    written = write_perfectly(env, user)
    assert written.was_related
    assert all(written.was_related)


@pytest.mark.parametrize("number", range(6))
def test_a_memory_without_mistakes_answers_every_question(env: MemoryEnv, number: int) -> None:
    """The true events of a conversation change the memory, in place of a model."""
    program = build("memory-r2", env.task, embedder(), adapter="compact", **SETTINGS)
    user = list(env.talks)[number]
    memory = write_perfectly(env, user).memory

    for example in env.talks[user].questions():
        query = Query(text=example.question, speakers=example.history.speakers)
        context = program.method.reader.recall(memory, query)
        prediction = program.task(context=context, query=query)
        assert env.score(example, prediction).value == 1


@pytest.mark.parametrize(
    ("hits", "answer"),
    [
        pytest.param(
            [Hit(id="m12", text="Ada pet cat"), Hit(id="m9", text="Ada pet dog")],
            "dog",
            id="the oldest of two",
        ),
        pytest.param(
            [Hit(id="m1", text="Ada city Rome"), Hit(id="m2", text="Ben pet cat")],
            "none",
            id="none that matches",
        ),
        pytest.param([Hit(id="m1", text="Ada's pet is a dog.")], "dog", id="in a sentence"),
    ],
)
def test_the_oldest_matching_entry_answers(hits: list[Hit], answer: str) -> None:
    """`MemoryLookup` answers without a model: it takes the entry with the words of the question.

    Of the entries m9 and m12, m9 is older.
    """
    context = Context(hits=tuple(hits))
    query = Query(text="What is Ada's pet?")

    prediction = MemoryLookup()(context=context, query=query)

    assert prediction.answer == answer


def answer_by(demonstrations: Sequence[Any]) -> Reply:
    """Return a model that knows only demonstrations. Another prompt fails the test."""
    answers_by_prompt = {messages[-1]["content"]: answer for messages, answer in demonstrations}

    def reply(kind: str, prompt: str, number: int) -> str:
        for known_prompt, answer in answers_by_prompt.items():
            if known_prompt in prompt:
                return answer
        raise AssertionError(f"no demonstration has the prompt {prompt}")

    return reply


def test_demonstrations_are_the_prompts_that_a_model_is_asked(scripted: Any) -> None:
    """A demonstration is a prompt with its right answer, made from one conversation here.

    A model that knows the demonstrations alone can write the memory of that conversation.
    """
    method = MemoryR2(MemoryR2Settings(**SETTINGS))
    demonstrations = demonstrate(method, CompactAdapter(), conversations=1, sessions=8, seed=0)
    # The conversation of which the demonstrations were made.
    conversation = Conversation.make(seed=SEED_OFFSET + 0, number=0, sessions=8)

    memory = method.writer.Memory()
    lm = scripted(answer_by(demonstrations))
    with dspy.context(lm=lm, adapter=CompactAdapter()):
        for item in conversation.history.items:
            memory = write_items(method.writer, memory, [item])

    assert memory.counts["inserted"] > 1
