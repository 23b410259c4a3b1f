"""The world of dependent facts: the right answers, what counts as evidence, and what one wrong edit costs later."""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.memory_env.benchmark import MemoryEnv
from mempiler.data.synthesis.dependent_env import make, vocabulary
from mempiler.data.synthesis.dependent_teacher import teach_facts, teach_operations
from mempiler.data.synthesis.memory_env import NOTHING, VALUES, Conversation
from mempiler.engines.embedders import embedder
from mempiler.errors import UnknownNameError
from mempiler.optimizers.demonstrations import demonstrate
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.programs.memory_r2.method import MemoryR2
from mempiler.programs.tasks.lookup import lookup
from mempiler.records import History, Session, Turn
from mempiler.signatures.memory_r2 import NewFact, Operation, StoredMemory

DIGEST = "ff3774bdf5cc8f3a485ab584edb0422e9ae0b8b3cc7e7ad08fc16dd4740cf114"
State = dict[tuple[str, str], str]
Spoil = Callable[[Turn, list[Operation]], list[Operation]]


def interpreted(turns: Sequence[Turn], names: Sequence[str]) -> tuple[State, dict[tuple[str, str], list[str]]]:
    """Facts and the turns that decide them, by reading the words of all turns in order."""
    facts: State = {}
    decided: dict[tuple[str, str], list[str]] = {}
    plan: dict[str, tuple[str, str]] = {}
    for turn in turns:
        me, words = turn.speaker, turn.text.split()
        [other] = [name for name in names if name != me]
        keys = [word for word in words if word in VALUES]
        value = next((word for word in words if any(word in values for values in VALUES.values())), None)
        if "plan" in words:
            plan.pop(me, None)
            if keys and value:
                plan[me] = keys[0], value
            continue
        if not keys:
            continue
        pair = me, keys[0]
        if "planned" in words:
            aim = plan.get(me)
            value = aim[1] if aim and aim[0] == keys[0] else facts[pair]
        elif other in words:
            value = facts[other, keys[0]]
        same = value == facts.get(pair)
        facts[pair] = value or NOTHING
        decided[pair] = [*(decided[pair] if same else []), turn.id]
    return facts, decided


@pytest.mark.parametrize("number", range(12))
def test_answers_and_evidence_at_every_moment_are_what_the_words_say(number: int) -> None:
    talk = make(5, number, 32)
    for sessions in range(33):
        turns = [turn for item in talk.history.items[:sessions] for turn in item.turns]
        facts, decided = interpreted(turns, talk.history.speakers)
        asks = talk.questions(sessions)
        assert {(ask.speaker, ask.key): ask.answer for ask in asks} == facts
        assert {(ask.speaker, ask.key): list(ask.evidence) for ask in asks} == decided


def test_every_kind_of_utterance_and_of_question_is_there() -> None:
    talks = [make(0, number, 8) for number in range(60)]
    kinds = Counter(ask.kind for talk in talks for ask in talk.questions())
    assert set(kinds) == {"state", "change", "restate", "retract", "planned", "like"}
    assert kinds["planned"] + kinds["like"] > 0.3 * kinds.total()
    said = {turn.text for talk in talks for item in talk.history.items for turn in item.turns}
    assert any("plan any more" in text or "about my plan" in text for text in said)


def test_longer_histories_go_on_from_shorter_ones_and_all_words_are_known() -> None:
    words = set(vocabulary())
    for number in range(20):
        talk = make(2, number, 16)
        assert make(2, number, 8).history.items == talk.history.items[:8]
        assert {
            word.replace("'s", "") for item in talk.history.items for t in item.turns for word in t.text.split()
        } <= words
    assert words.isdisjoint({"{key}", "{value}", "{other}"})


def test_the_world_is_an_option_and_the_independent_one_is_unchanged() -> None:
    plain = benchmark("memory-env", users=20)
    assert plain.source.name == "memory-env(users=20, sessions=8, seed=0)"
    assert plain.source.sha256 == DIGEST
    assert benchmark("memory-env", users=20, world="independent").source == plain.source
    there = benchmark("memory-env", users=20, world="dependent")
    assert there.source.name.endswith("seed=0, world=dependent)")
    assert there.source.sha256 != plain.source.sha256
    row = there.questions_after(there.examples[0].history, 3)[0]
    assert len(row.history) == 3
    with pytest.raises(UnknownNameError, match=r"'other'.*independent"):
        benchmark("memory-env", world="other")


def written(history: History, spoil: Spoil | None = None) -> FactMemory:
    """A history written by the good teacher with the related memories that Memory-R2 finds."""
    writer = MemoryR2(embedder(), **MemoryR2.preset("memory-env")).writer
    memory, rng = FactMemory(), random.Random(0)
    for turn in (turn for item in history.items for turn in item.turns):
        facts = teach_facts(turn.line(), rng)
        for fact, related in zip(facts, writer.relate(memory, facts), strict=True):
            shown = [
                StoredMemory(memory_id=entry.id, speaker=entry.speaker, content=entry.content)
                for entry in memory.facts
                if entry.id in related
            ]
            new = NewFact(**fact.model_dump(), related_memory_ids=related)
            operations = teach_operations(shown, [new], rng)
            operations = spoil(turn, operations) if spoil else operations
            edits = [Edit(o.op, o.memory_id, fact.speaker, o.content, (turn.id,)) for o in operations]
            memory = memory.apply(edits, related)
    return memory


def wrong(talk: Conversation, memory: FactMemory, after: int | None = None) -> list[tuple[str, ...]]:
    """The evidence of the questions that a memory answers wrongly."""
    hits = [entry.hit(0.0) for entry in memory.entries()]
    return [a.evidence for a in talk.questions(after) if lookup(hits, a.question) != a.answer.lower()]


@pytest.mark.parametrize(("sessions", "users"), [(4, 20), (8, 30), (32, 8)])
def test_a_perfect_writer_answers_every_question(sessions: int, users: int) -> None:
    env = MemoryEnv.load(users=max(10, users), sessions=sessions, world="dependent")
    for talk in list(env.conversations.values())[:users]:
        assert not wrong(talk, written(talk.history))


def told(*texts: str) -> Conversation:
    """What Ada (first) and Ben say in turns, a session each; "" is nothing."""
    items = [
        Session(id=f"D{n}", turns=(Turn(id=f"D{n}:1", speaker=("Ben", "Ada")[n % 2], text=text or "see you soon"),))
        for n, text in enumerate(texts, 1)
    ]
    return Conversation(History(id="told", items=tuple(items)), ())


def answers(talk: Conversation, memory: FactMemory) -> State:
    hits = [entry.hit(0.0) for entry in memory.entries()]
    return {pair: lookup(hits, f"What is {pair[0]}'s {pair[1]}?") for pair in interpreted_all(talk)}


def interpreted_all(talk: Conversation) -> State:
    turns = [turn for item in talk.history.items for turn in item.turns]
    return interpreted(turns, ("Ada", "Ben"))[0]


def skipped(operations: list[Operation]) -> list[Operation]:
    """Nothing is done where something should be."""
    return []


def doubled(operations: list[Operation]) -> list[Operation]:
    """An insertion where there should be an update."""
    return [Operation(op="INSERT", content=each.content, turn_id=each.turn_id) for each in operations]


PLANNED = (
    "my pet is dog",
    "",
    "my plan is cat as my pet",
    "",
    "my pet is now as planned",
    "my pet is the same as that of Ada",
)
COPIED = (
    "my pet is dog",
    "",
    "these days my pet is cat",
    "now I have the same pet as Ada",
    "these days my pet is goat",
)
REPLACED = ("my plan is cat as my pet", "", "I plan on pony as my pet", "", "my pet is now as planned")
DROPPED = ("my pet is dog", "", "my plan is cat as my pet", "", "forget about my plan", "", "my pet is now as planned")


@pytest.mark.parametrize(
    ("texts", "at", "error", "wrong_at_once", "wrong_in_the_end"),
    [
        # A plan that is not noted: nothing is wrong until it comes true, then so is whoever takes it over.
        (PLANNED, 3, skipped, [], [("Ada", "pet"), ("Ben", "pet")]),
        # A second entry for a plan: the older one is what comes true.
        (REPLACED, 3, doubled, [], [("Ada", "pet")]),
        # A plan that was dropped and still stands.
        (DROPPED, 5, skipped, [], [("Ada", "pet")]),
        # A fact that is not updated is wrong at once, and in the end only for who took it over.
        (COPIED, 3, skipped, [("Ada", "pet")], [("Ben", "pet")]),
    ],
)
def test_an_early_wrong_edit_costs_later_questions(
    texts: tuple[str, ...],
    at: int,
    error: Callable[[list[Operation]], list[Operation]],
    wrong_at_once: list[tuple[str, str]],
    wrong_in_the_end: list[tuple[str, str]],
) -> None:
    def spoil(turn: Turn, operations: list[Operation]) -> list[Operation]:
        return error(operations) if turn.id == f"D{at}:1" else operations

    for length, expected in ((at, wrong_at_once), (len(texts), wrong_in_the_end)):
        talk = told(*texts[:length])
        gold, found = interpreted_all(talk), answers(talk, written(talk.history, spoil))
        assert [pair for pair in gold if gold[pair] != found[pair]] == expected
        assert answers(talk, written(talk.history)) == gold


def test_the_session_of_a_plan_is_no_evidence_of_what_it_decides() -> None:
    """So a reward by session does not see whether it was noted."""
    talks = [make(0, number, 8) for number in range(40)]
    plans = {
        (t.history.id, turn.id)
        for t in talks
        for i in t.history.items
        for turn in i.turns
        if "plan" in turn.text.split()
    }
    decided = [(talk.history.id, id) for talk in talks for ask in talk.questions() for id in ask.evidence]
    assert len(plans) > 80
    assert plans.isdisjoint(decided)


ENTRIES = [("m1", "Ada pet dog"), ("m2", "Ben pet cat"), ("m3", "Ada plan goat"), ("m4", "Ada plan pony")]


@pytest.mark.parametrize(
    ("fact", "known", "op", "target", "content"),
    [
        ("Ada plan goat", [], "INSERT", None, "Ada plan goat"),
        ("Ada plan pony", ["m3"], "UPDATE", "m3", "Ada plan pony"),
        ("Ada plan goat", ["m3"], "NONE", None, ""),
        ("Ada plan none", ["m3"], "DELETE", "m3", ""),
        ("Ada plan none", [], "NONE", None, ""),
        ("Ada pet plan", ["m1", "m3"], "UPDATE", "m1", "Ada pet goat"),
        ("Ada pet plan", ["m1", "m4", "m3"], "UPDATE", "m1", "Ada pet goat"),
        ("Ada pet plan", ["m3"], "INSERT", None, "Ada pet goat"),
        ("Ada pet plan", ["m1"], "NONE", None, ""),
        ("Ada city plan", ["m3"], "NONE", None, ""),
        ("Ada pet like Ben", ["m1", "m2"], "UPDATE", "m1", "Ada pet cat"),
        ("Ada pet like Ben", ["m1"], "NONE", None, ""),
        ("Ada pet pony", ["m1", "m2"], "UPDATE", "m1", "Ada pet pony"),
        ("Ada pet none", ["m1"], "DELETE", "m1", ""),
    ],
)
def test_good_teacher_does_what_the_memory_calls_for(
    fact: str, known: list[str], op: str, target: str | None, content: str
) -> None:
    shown = [StoredMemory(memory_id=id, speaker="", content=text) for id, text in ENTRIES if id in known]
    new = NewFact(speaker="Ada", turn_id="D2:1", fact=fact, related_memory_ids=known)
    [found] = teach_operations(shown, [new], random.Random(0))
    assert (found.op, found.memory_id, found.content) == (op, target, content)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_poor_teacher_passes_over_plans_as_often_as_asked(share: float) -> None:
    new, rng = NewFact(speaker="Ada", turn_id="D2:1", fact="Ada plan goat"), random.Random(1)
    ops = [teach_operations([], [new], rng, {"plan": share})[0].op for _ in range(400)]
    assert ops.count("NONE") / 400 == pytest.approx(share, abs=0.06)


def test_demonstrations_are_of_the_world_that_is_asked_for() -> None:
    method = MemoryR2(embedder(), **MemoryR2.preset("memory-env"))
    shown = [
        "".join(answer for _, answer in demonstrate(method, CompactAdapter(), 6, errors={}, world=world))
        for world in ("independent", "dependent")
    ]
    assert [" plan " in text for text in shown] == [False, True]
