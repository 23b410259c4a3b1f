"""PGR's fact store: when it writes, what an update may change, merging, and policies.

The fact store keeps dated facts about a user. Sessions wait until there are `every` of them, three
by default. Then an update, one call of the model with the output "facts", turns them into facts: it
adds new ones, or updates known ones that it is shown. After `merge_after` new facts, similar facts
are merged. The sources of a fact are the ids of the turns that it rests on.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from mempiler import build, load, save
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import preset
from mempiler.programs.pgr.memory import PersonalFact, PersonalMemory, merge_groups
from mempiler.records import History, Session, Turn
from mempiler.runs.manifest import read_manifest
from mempiler.signatures.pgr import FactChange

from ..scripted_engine import lines_of
from .conftest import prompt_field


def fact_replies(kind: str, text: str, n: int) -> dict[str, Any]:
    """Answer as a model that makes a new fact of every turn, and merges facts into one sentence."""
    if kind == "facts":
        facts: list[dict[str, Any]] = []
        for number, line in enumerate(lines_of(text), 1):
            info = f"{line['speaker']}: {line['fact']} ({line['turn_id']})"
            facts.append(
                {
                    "fact_id": f"NEW_{number}",
                    "info": info,
                    "type": "activity",
                    "turn_ids": [line["turn_id"]],
                }
            )
        return {"facts": facts}
    if kind == "merged_fact":
        return {
            "merged_fact": {
                "info": "they saw places",
                "type": "Activity",
                "related_entities": ["places"],
            }
        }
    return {kind: "x"}


def fact_store(**settings: Any) -> Any:
    return build("fact-store", embedder=embedder(), **settings)


def sources_of(memory: PersonalMemory) -> set[str]:
    """Return the ids of all turns that the facts of a memory rest on."""
    turn_ids: set[str] = set()
    for fact in memory.facts:
        turn_ids.update(fact.sources)
    return turn_ids


# When sessions are written


@pytest.mark.parametrize(
    ("sessions", "sessions_per_update", "updates"),
    [(3, 3, 1), (4, 3, 2), (2, 3, 1), (6, 3, 2), (4, 1, 4), (0, 3, 0)],
)
def test_several_sessions_are_written_at_once_and_the_rest_at_the_end_of_the_history(
    write_memory: Any, make_history: Any, sessions: int, sessions_per_update: int, updates: int
) -> None:
    """One update for several sessions costs less than one for each of them."""
    history = make_history(sessions)

    result = write_memory(fact_store(every=sessions_per_update), history, fact_replies)

    assert result.calls["facts"] == updates
    # No session waits any longer, and every turn is the source of a fact.
    assert result.memory.pending == ()
    assert sources_of(result.memory) == set(history.turns)


def long_session(exchanges: int, first_speakers: Sequence[str] = ()) -> History:
    """Return a history of one session: turns of some first speakers, then exchanges.

    An exchange is a turn of the user and one of the assistant.
    """
    speakers = [*first_speakers, *["user", "assistant"] * exchanges]
    turns = tuple(
        Turn(id=f"D1:{number}", speaker=speaker, text=f"word {number}")
        for number, speaker in enumerate(speakers, 1)
    )
    session = Session(id="D1", time=datetime(2024, 3, 1), turns=turns)
    return History(id="long", items=(session,))


def dialogues_of_updates(prompts: Sequence[tuple[str, str]]) -> list[list[dict[str, str]]]:
    """Return the lines of the dialogue in every prompt of an update."""
    return [lines_of(text) for kind, text in prompts if kind == "facts"]


@pytest.mark.parametrize(
    ("history", "turns_of_parts"),
    [
        pytest.param(long_session(exchanges=10), [20], id="short-enough"),
        pytest.param(long_session(exchanges=11), [20, 2], id="one-exchange-too-many"),
        # A cut after 20 turns would part a turn from its reply.
        pytest.param(
            long_session(exchanges=46, first_speakers=["system"]),
            [19, 20, 20, 20, 14],
            id="as-in-personamem-v2",
        ),
        pytest.param(
            long_session(exchanges=25, first_speakers=["assistant"]),
            [20, 20, 11],
            id="the-assistant-begins",
        ),
    ],
)
def test_a_session_of_more_than_ten_exchanges_is_written_in_parts(
    write_memory: Any, history: History, turns_of_parts: list[int]
) -> None:
    """A part has at most ten exchanges, so 20 turns, and is written by an update of its own."""
    result = write_memory(fact_store(every=1), history, fact_replies)

    dialogues = dialogues_of_updates(result.prompts)
    assert [len(lines) for lines in dialogues] == turns_of_parts
    assert sources_of(result.memory) == set(history.turns)
    assert {fact.sessions for fact in result.memory.facts} == {("D1",)}


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(long_session(exchanges=10), id="short-enough"),
        pytest.param(long_session(exchanges=11), id="one-exchange-too-many"),
        pytest.param(
            long_session(exchanges=46, first_speakers=["system"]), id="as-in-personamem-v2"
        ),
    ],
)
def test_every_part_of_a_long_session_ends_with_a_reply(
    write_memory: Any, history: History
) -> None:
    """A turn of the user and the reply of the assistant belong together, so no cut parts them."""
    result = write_memory(fact_store(every=1), history, fact_replies)

    last_speakers = {lines[-1]["speaker"] for lines in dialogues_of_updates(result.prompts)}
    assert last_speakers == {"assistant"}


def test_three_parts_of_a_long_session_are_written_by_one_update(write_memory: Any) -> None:
    """A part counts as a session, and three sessions are written by one update."""
    # The session has eight exchanges, two in each part, so there are four parts.
    result = write_memory(fact_store(exchanges=2), long_session(exchanges=8), fact_replies)

    # One update writes the first three parts, and another the last, at the end of the history.
    assert result.calls["facts"] == 2
    assert len(result.memory.facts) == 16


def test_an_unreadable_part_is_kept_as_raw_text(write_memory: Any) -> None:
    """The other parts of the session become facts; the failed turns can still be searched."""

    def unreadable_first_turn(kind: str, text: str, n: int) -> Any:
        if kind == "facts" and "[D1:1]" in text:
            return "no"
        return fact_replies(kind, text, n)

    memory = write_memory(
        fact_store(every=1), long_session(exchanges=11), unreadable_first_turn
    ).memory

    # The first part has 20 turns. Its halves are tried by themselves, so only one half fails.
    failed_turn_ids: set[str] = set()
    for failed in memory.failed_items:
        failed_turn_ids.update(turn.id for turn in failed.item.turns)
    assert failed_turn_ids == {f"D1:{number}" for number in range(1, 11)}
    assert sources_of(memory) == {f"D1:{number}" for number in range(11, 23)}


# What an update is shown, and what its answer may change


def test_an_update_is_shown_nine_facts_as_a_worked_example() -> None:
    """There are as many as in the paper's prompt (appendix, Memory Creation Prompt)."""
    (demo,) = fact_store().method.writer.update_facts.demos
    updates = [fact for fact in demo.facts if fact.state == "update"]
    new_facts = [fact for fact in demo.facts if fact.state == "add"]
    assert len(updates) == 4
    assert len(new_facts) == 5

    # It names only turns that its dialogue has, and updates only facts that it shows.
    demo_turn_ids = {line.partition("]")[0].strip("[") for line in demo.dialogue.splitlines()}
    for fact in demo.facts:
        assert set(fact.turn_ids) <= demo_turn_ids
    updated_ids = {fact.fact_id for fact in updates}
    existing_ids = {fact.fact_id for fact in demo.existing_facts}
    assert updated_ids < existing_ids


def test_the_worked_example_is_in_the_prompt_of_an_update(scripted: Any, make_history: Any) -> None:
    lm = scripted(fact_replies)
    with dspy.context(lm=lm):
        fact_store().remember(make_history(sessions=1))

    messages = [message["content"] for message in lm.history[0]["messages"]]
    # This is a fact of the worked example.
    assert "Joined a rowing club" in "".join(messages)


def test_an_update_is_shown_the_facts_nearest_to_what_was_said_oldest_first(
    scripted: Any, make_history: Any
) -> None:
    """The model may update only facts that it is shown, so it is shown those most in question."""
    lm = scripted(fact_replies)
    program = fact_store(related=4)
    history = make_history(sessions=6)
    with dspy.context(lm=lm):
        # The first update writes the sessions 1 to 3, and the second the others.
        facts_of_first_update = program.remember(make_history(sessions=3)).memory.facts
        program.remember(history)

    prompts = [text for kind, text in lm.engine.prompts if kind == "facts"]
    shown_facts = json.loads(prompt_field(prompts[-1], "existing_facts"))
    shown_ids = [fact["fact_id"] for fact in shown_facts]
    assert len(shown_ids) == 4
    assert shown_ids == sorted(shown_ids, key=lambda fact_id: int(fact_id.removeprefix("f")))

    # A fact is as near as its best cosine with a turn of the sessions 4 to 6. No fact that is left
    # out is nearer than one that is shown; rounding may differ a little.
    new_turns: list[str] = []
    for session in history.items[3:]:
        new_turns.extend(turn.content for turn in session.turns)
    turn_vectors = embedder().embed(new_turns)
    fact_vectors = embedder().embed([fact.info for fact in facts_of_first_update])
    nearness = (fact_vectors @ turn_vectors.T).max(axis=1)
    nearness_of_shown: list[float] = []
    nearness_of_others: list[float] = []
    for fact, cosine in zip(facts_of_first_update, nearness, strict=True):
        if fact.id in shown_ids:
            nearness_of_shown.append(cosine)
        else:
            nearness_of_others.append(cosine)
    assert len(nearness_of_shown) == 4
    assert min(nearness_of_shown) >= max(nearness_of_others) - 1e-6


def test_an_update_of_a_fact_that_was_not_shown_is_a_new_fact(
    write_memory: Any, make_history: Any
) -> None:
    def update_of_f1(kind: str, text: str, n: int) -> dict[str, Any]:
        """Update f1 in the second session, where another fact is the only one that is shown."""
        if kind == "facts" and "[D2:1]" in text:
            update = {"fact_id": "f1", "state": "update", "info": "Ann moved", "type": "Event"}
            return {"facts": [update]}
        return fact_replies(kind, text, n)

    memory = write_memory(
        fact_store(every=1, related=1), make_history(sessions=2), update_of_f1
    ).memory

    # f1, the first fact, has no earlier wording, so it was not updated.
    assert memory.facts[0].earlier == ()
    assert memory.facts[-1].info == "Ann moved"
    assert memory.facts[-1].frequency == 1


def test_an_answer_that_updates_one_fact_several_times_adds_new_facts(
    write_memory: Any, make_history: Any
) -> None:
    """Six texts cannot all replace one fact: five would be lost, so none replaces it."""

    def six_updates_of_f1(kind: str, text: str, n: int) -> dict[str, Any]:
        """Say of each of the six turns of a session that it updates f1."""
        facts = fact_replies(kind, text, n)["facts"]
        return {"facts": [{**fact, "fact_id": "f1", "state": "update"} for fact in facts]}

    history = make_history(sessions=2, turns=6)
    result = write_memory(fact_store(every=1), history, six_updates_of_f1)

    assert len(result.memory.facts) == 2 * 6
    assert sources_of(result.memory) == set(history.turns)
    # Only the second session found a fact f1 that it could update.
    (failure,) = result.failures
    assert "6 updates of one answer name f1" in failure.message


def test_similar_facts_are_merged_after_six_new_ones_and_keep_all_their_turns(
    write_memory: Any, make_history: Any
) -> None:
    """A memory stays small if it does not say the same in many facts.

    The texts "I saw Oslo with 3 friends" and "with 4 friends" are similar: their cosine is above
    0.5, the `merge_score`. The frequency of a fact counts how often it came up.
    """
    # Each session has six similar turns, of which six facts are made.
    history = make_history(sessions=2, turns=6)

    result = write_memory(
        fact_store(every=1, merge_after=6, merge_score=0.5), history, fact_replies
    )

    # The facts of each session have become one. No fact is left that came after the last merging.
    assert result.calls["merged_fact"] == 2
    assert result.memory.fresh == 0
    assert [fact.frequency for fact in result.memory.facts] == [6, 6]
    assert sources_of(result.memory) == set(history.turns)


# PGR over other methods: its policy, prospection, imagines steps towards an answer and searches for
# each step. A round refines the steps by what was found.


@pytest.mark.parametrize(
    ("method", "benchmark"),
    [
        ("pgr", "memoryquest"),
        ("pgr", "personamem-v2"),
        ("pgr+turn-rag", "implexconv"),
    ],
)
def test_the_benchmarks_of_the_paper_have_presets_of_ten_rounds(
    method: str, benchmark: str
) -> None:
    assert preset(method, benchmark)["iterations"] == 10


def test_the_preset_for_a_benchmark_that_is_not_in_the_paper_sets_no_number_of_rounds() -> None:
    assert "iterations" not in preset("pgr", "locomo")


@pytest.mark.parametrize("method", ["pgr", "pgr+turn-rag"])
def test_without_a_preset_there_are_three_rounds(method: str) -> None:
    assert build(method, embedder=embedder()).method.config["iterations"] == 3


# Methods of several layers. The name of a method lists its layers from the outside in: in
# "pgr+turn-rag" the policy PGR decides what to search for, and turn-rag searches the turns of the
# history. A layer between them, "logs", shows a user's logs beside what turn-rag finds. In `build`
# the settings of the first layer have plain names. Those of the second layer begin with `inner_`,
# and those of the third with `inner_inner_`.

TWO_LAYERS = "pgr+turn-rag"
THREE_LAYERS = "pgr+logs+turn-rag"


def test_a_policy_may_search_through_another_policy(scripted: Any, make_history: Any) -> None:
    """PGR imagines steps that an answer may need, and searches for each step.

    Here it searches through "logs", which searches through turn-rag.
    """

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        """Imagine one step, which finds a session about Quito; the question would find nothing."""
        if kind == "tree":
            return {"tree": [{"action_id": "A1", "action": "meet in Quito"}]}
        return {kind: "x"}

    settings = {
        # PGR: the steps are imagined once, from the question alone, and no summary is made.
        "iterations": 0,
        "augment": "none",
        "summary": False,
        # "logs": the most log entries of earlier sessions
        "inner_k": 2,
        # turn-rag: the most turns
        "inner_inner_k": 4,
    }
    program = build(THREE_LAYERS, **settings)
    with dspy.context(lm=scripted(reply)):
        context = program(history=make_history(sessions=3), question="Where?").context

    assert any("Quito" in hit.text for hit in context.hits)
    assert settings.items() <= program.method.config.items()
    assert set(program.all_predictors()) == {"method.reader.policy.imagine", "task.answer"}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        pytest.param(
            TWO_LAYERS,
            {
                # PGR: the most hits of a search, and no summary of how the steps led to them
                "k": 3,
                "summary": False,
                # turn-rag: the most turns
                "inner_k": 7,
            },
            id="two-layers",
        ),
        pytest.param(
            THREE_LAYERS,
            {
                # PGR: no rounds of further steps
                "iterations": 0,
                # "logs": nothing is shown of the logs of earlier sessions
                "inner_earlier": "none",
                # turn-rag: the most turns
                "inner_inner_k": 7,
            },
            id="three-layers",
        ),
    ],
)
def test_a_saved_program_is_loaded_with_the_settings_of_all_its_layers(
    method: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """PGR's prompt that imagines steps is loaded with its demos, too."""
    program = build(method, **settings)

    save(program, tmp_path / "program")
    loaded_program = load(tmp_path / "program")

    assert loaded_program.name == method
    assert read_manifest(tmp_path / "program").method == method

    assert settings.items() <= loaded_program.method.config.items()
    assert loaded_program.method.config == program.method.config

    assert set(loaded_program.all_predictors()) == set(program.all_predictors())
    demos = [dict(demo) for demo in program.method.reader.policy.imagine.demos]
    loaded_demos = [dict(demo) for demo in loaded_program.method.reader.policy.imagine.demos]
    assert loaded_demos == demos


# Changes of facts


def session_of_two_turns(session_id: str, day: int) -> Session:
    """Return a session of March 2024 in which Ann speaks twice."""
    turns = (
        Turn(id=f"{session_id}:1", speaker="Ann", text="words"),
        Turn(id=f"{session_id}:2", speaker="Ann", text="words"),
    )
    return Session(id=session_id, time=datetime(2024, 3, day, 18, 30), turns=turns)


LISBON_AND_TEA = PersonalMemory().upsert(
    [
        FactChange(
            info="Ann lives in Lisbon",
            type="Identity",
            related_entities=["Lisbon"],
            turn_ids=["D1:1"],
        ),
        FactChange(
            info="Ann likes tea",
            type="Preference",
            related_entities=["tea"],
            turn_ids=["D2:2"],
        ),
    ],
    [session_of_two_turns("D1", day=1), session_of_two_turns("D2", day=5)],
)
"""A memory of two facts, f1 and f2."""


@pytest.mark.parametrize(
    ("change", "frequencies"),
    [
        pytest.param(
            FactChange(info="Ann has a dog", type="Identity"),
            [1, 1, 1],
            id="a-new-fact",
        ),
        pytest.param(
            FactChange(info="Ann lives in Porto", type="Identity", fact_id="f1", state="update"),
            [2, 1],
            id="an-update-by-id",
        ),
        pytest.param(
            FactChange(info="ann lives  in lisbon.", type="Identity"),
            [2, 1],
            id="a-known-wording",
        ),
        pytest.param(
            FactChange(info="Ann sings", type="Interest", fact_id="f9", state="update"),
            [1, 1, 1],
            id="an-update-of-an-unknown-id",
        ),
        pytest.param(FactChange(info="  ", type="Goal"), [1, 1], id="no-text"),
    ],
)
def test_a_change_adds_a_fact_or_counts_for_a_known_one(
    change: FactChange, frequencies: list[int]
) -> None:
    """The frequency of a fact is how often it has come up."""
    memory = LISBON_AND_TEA.upsert([change], [session_of_two_turns("D3", day=9)])

    assert [fact.frequency for fact in memory.facts] == frequencies
    # The memory that is updated does not change.
    assert [fact.id for fact in LISBON_AND_TEA.facts] == ["f1", "f2"]
    assert [fact.sources for fact in LISBON_AND_TEA.facts] == [("D1:1",), ("D2:2",)]


def test_an_update_unites_dates_sessions_and_turns_and_keeps_the_old_wording() -> None:
    """A fact that changes keeps its history: it says where it came from, and how it read before."""
    change = FactChange(
        info="Ann lives in Porto",
        type="Identity",
        fact_id="f1",
        state="update",
        related_entities=["Porto"],
        turn_ids=["[D3:2]"],
    )

    updated_fact = LISBON_AND_TEA.upsert([change], [session_of_two_turns("D3", day=9)]).facts[0]

    assert updated_fact.info == "Ann lives in Porto"
    assert updated_fact.earlier == ("Ann lives in Lisbon",)
    assert updated_fact.sessions == ("D1", "D3")
    assert updated_fact.sources == ("D1:1", "D3:2")
    assert updated_fact.entities == ("Lisbon", "Porto")
    assert [time.day for time in updated_fact.dates] == [1, 9]


# Merging


def dated_fact(
    fact_id: str, march_days: Sequence[int], frequency: int = 1, hour: int = 9
) -> PersonalFact:
    """Return a fact that came up on some days of March 2024. The fact f1 is from the turn Tf1."""
    return PersonalFact(
        id=fact_id,
        info=f"info {fact_id}",
        type="Goal",
        frequency=frequency,
        dates=tuple(datetime(2024, 3, day, hour) for day in march_days),
        sources=(f"T{fact_id}",),
    )


@pytest.mark.parametrize(
    ("facts", "groups"),
    [
        pytest.param(
            [dated_fact("f1", [1]), dated_fact("f2", [8])],
            [("f1", "f2")],
            id="seven-days-apart",
        ),
        pytest.param(
            [dated_fact("f1", [1]), dated_fact("f2", [9])],
            [],
            id="eight-days-apart",
        ),
        pytest.param(
            [dated_fact("f1", [1], hour=8), dated_fact("f2", [8], hour=23)],
            [("f1", "f2")],
            id="calendar-days-count",
        ),
        pytest.param(
            [dated_fact("f1", [1]), dated_fact("f2", [20]), dated_fact("f3", [2, 20])],
            [("f2", "f3")],
            id="the-latest-date-counts",
        ),
        pytest.param(
            [dated_fact("f1", [20]), dated_fact("f2", [13]), dated_fact("f3", [5])],
            [("f1", "f2")],
            id="the-order-of-facts-does-not-count",
        ),
        pytest.param(
            [
                dated_fact("f1", [1]),
                dated_fact("f2", [7]),
                dated_fact("f3", [13]),
                dated_fact("f4", [14]),
            ],
            [("f1", "f2"), ("f3", "f4")],
            id="seven-days-from-the-first",
        ),
        pytest.param(
            [dated_fact("f1", [1]), dated_fact("f2", []), dated_fact("f3", [])],
            [("f2", "f3")],
            id="undated-facts-apart",
        ),
    ],
)
def test_facts_that_say_the_same_are_merged_within_seven_days(
    facts: list[PersonalFact], groups: list[tuple[str, ...]]
) -> None:
    """Facts that are far apart may tell of a change, so they stay apart however alike they are."""
    equal_vectors = np.array([[1, 0]] * len(facts), dtype=np.float32)

    assert merge_groups(facts, equal_vectors, min_cosine=0.8) == groups


@pytest.mark.parametrize(
    ("vectors", "groups"),
    [
        # The vectors have the length 1, so the cosine of two is the sum of their products.
        pytest.param([[1, 0], [0, 1]], [], id="unlike"),
        # The second has the cosine 0.8 with both others.
        pytest.param(
            [[1, 0], [0.8, 0.6], [0.28, 0.96]],
            [("f1", "f2", "f3")],
            id="the-first-and-last-are-like-the-second",
        ),
        # The second has the cosine 0.79 with the first.
        pytest.param(
            [[1, 0], [0.79, 0.613], [0.28, 0.96]],
            [("f2", "f3")],
            id="the-first-is-not-near-enough",
        ),
        pytest.param(np.zeros((0, 2)), [], id="no-facts"),
    ],
)
def test_facts_are_merged_whose_cosine_reaches_the_threshold(
    vectors: Any, groups: list[tuple[str, ...]]
) -> None:
    facts = [dated_fact(f"f{number}", [number]) for number in range(1, len(vectors) + 1)]

    merged_groups = merge_groups(facts, np.array(vectors, dtype=np.float32), min_cosine=0.8)

    assert merged_groups == groups


FOUR_FACTS = PersonalMemory(
    facts=(
        dated_fact("f2", [1], frequency=3),
        dated_fact("f9", [2], frequency=1),
        dated_fact("f10", [2, 4], frequency=2),
        dated_fact("f3", [1], frequency=1),
    ),
    issued=10,
)


def test_a_merged_fact_has_the_highest_id_and_unites_what_it_was_made_from() -> None:
    """The facts f2, f9 and f10 become one; the highest id is f10, by number."""
    memory = FOUR_FACTS.merge(
        ["f10", "f2", "f9"], info="all in one", fact_type="Identity", entities=["one", "one"]
    )

    assert [fact.id for fact in memory.facts] == ["f10", "f3"]
    merged_fact = memory.facts[0]
    assert merged_fact.frequency == 3 + 1 + 2
    assert merged_fact.merged == ("f2", "f9", "f10")
    assert merged_fact.sources == ("Tf2", "Tf9", "Tf10")
    assert [time.day for time in merged_fact.dates] == [1, 2, 4]
    assert merged_fact.entities == ("one",)
    # None of the old facts was an identity, so the type that the model gave is not taken.
    assert merged_fact.type == "Goal"


def test_a_merged_fact_can_be_merged_again() -> None:
    memory = FOUR_FACTS.merge(["f10", "f2", "f9"], info="all in one", fact_type="Identity")

    merged_fact = memory.merge(["f10", "f3"], info="all", fact_type="Goal").facts[0]

    assert merged_fact.merged == ("f2", "f9", "f10", "f3")
    assert merged_fact.earlier[-2:] == ("all in one", "info f3")
