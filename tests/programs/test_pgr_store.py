"""PGR's fact store: when it writes, what an update may change, merging, and policies.

The fact store keeps dated facts about a user. Sessions wait until there are `every` of them, three
by default. Then an update, one call of the model with the output "facts", turns them into facts: it
adds new ones, or updates known ones that it is shown. After `merge_after` new facts, similar facts
are merged. The sources of a fact are the ids of the turns that it rests on.
"""

import json
from collections import Counter
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


def one_fact_per_turn(kind: str, text: str, n: int) -> dict[str, Any]:
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
    """Return the method that keeps facts about a user, as PGR does."""
    return build("fact-store", embedder=embedder(), **settings)


def turns_behind_facts(memory: PersonalMemory) -> set[str]:
    """Return the ids of all turns that the facts of a memory rest on."""
    turn_ids: set[str] = set()
    for fact in memory.facts:
        turn_ids.update(fact.sources)
    return turn_ids


# When sessions are written


@pytest.mark.parametrize(
    ("sessions", "sessions_per_update", "updates"),
    [
        pytest.param(3, 3, 1, id="three at once"),
        pytest.param(4, 3, 2, id="three at once, and one at the end"),
        pytest.param(2, 3, 1, id="two at the end"),
        pytest.param(6, 3, 2, id="twice three at once"),
        pytest.param(4, 1, 4, id="each by itself"),
        pytest.param(0, 3, 0, id="none"),
    ],
)
def test_several_sessions_are_written_at_once_and_the_rest_at_the_end_of_the_history(
    write_memory: Any, make_history: Any, sessions: int, sessions_per_update: int, updates: int
) -> None:
    """An update is a call of the model that makes facts of sessions, by default of three.

    One update for several sessions costs less than one for each of them.
    """
    history = make_history(sessions)

    result = write_memory(fact_store(every=sessions_per_update), history, one_fact_per_turn)

    assert result.calls["facts"] == updates
    # No session waits any longer. The scripted model makes a fact of every turn.
    assert result.memory.pending == ()
    assert turns_behind_facts(result.memory) == set(history.turns)


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
    result = write_memory(fact_store(every=1), history, one_fact_per_turn)

    dialogues = dialogues_of_updates(result.prompts)
    assert [len(lines) for lines in dialogues] == turns_of_parts
    assert turns_behind_facts(result.memory) == set(history.turns)
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
    result = write_memory(fact_store(every=1), history, one_fact_per_turn)

    last_speakers = {lines[-1]["speaker"] for lines in dialogues_of_updates(result.prompts)}
    assert last_speakers == {"assistant"}


def test_three_parts_of_a_long_session_are_written_by_one_update(write_memory: Any) -> None:
    """A part of a long session counts as a session, and three are written by one update.

    This session has eight exchanges, two in each part, so there are four parts.
    """
    program = fact_store(exchanges=2, every=3)

    result = write_memory(program, long_session(exchanges=8), one_fact_per_turn)

    # One update writes the first three parts, and another the last, at the end of the history.
    assert result.calls["facts"] == 2
    # A fact of each turn
    assert len(result.memory.facts) == 16


def test_an_unreadable_part_is_kept_as_raw_text(write_memory: Any) -> None:
    """The other parts of the session become facts; the failed turns can still be searched.

    The session has eleven exchanges, so two parts: the turns 1 to 20, and the turns 21 and 22.
    """

    def unreadable_first_turn(kind: str, text: str, n: int) -> Any:
        if kind == "facts" and "[D1:1]" in text:
            return "no"
        return one_fact_per_turn(kind, text, n)

    memory = write_memory(
        fact_store(every=1), long_session(exchanges=11), unreadable_first_turn
    ).memory

    # The halves of the first part are tried by themselves, so only the turns 1 to 10 fail.
    failed_turn_ids: set[str] = set()
    for failed in memory.failed_items:
        failed_turn_ids.update(turn.id for turn in failed.item.turns)
    assert failed_turn_ids == {f"D1:{number}" for number in range(1, 11)}
    assert turns_behind_facts(memory) == {f"D1:{number}" for number in range(11, 23)}


# What an update is shown, and what its answer may change


def test_an_update_is_shown_nine_facts_as_a_worked_example() -> None:
    """An update is a call of the model that adds facts about a user, or updates known ones.

    The example has as many as the paper's prompt has (appendix, Memory Creation Prompt).
    """
    (example,) = fact_store().method.writer.update_facts.demos

    assert Counter(fact.state for fact in example.facts) == {"update": 4, "add": 5}


def test_the_worked_example_of_an_update_names_only_turns_and_facts_that_it_shows() -> None:
    """A model imitates the example, and must not invent turns or facts."""
    (demo,) = fact_store().method.writer.update_facts.demos

    demo_turn_ids = {line.partition("]")[0].strip("[") for line in demo.dialogue.splitlines()}
    for fact in demo.facts:
        assert set(fact.turn_ids) <= demo_turn_ids
    updated_ids = {fact.fact_id for fact in demo.facts if fact.state == "update"}
    existing_ids = {fact.fact_id for fact in demo.existing_facts}
    assert updated_ids < existing_ids


def test_the_worked_example_is_in_the_prompt_of_an_update(scripted: Any, make_history: Any) -> None:
    """It is shown as a message of the user and an answer to it, before the question."""
    lm = scripted(one_fact_per_turn)
    with dspy.context(lm=lm):
        fact_store().remember(make_history(sessions=1))

    messages = [message["content"] for message in lm.history[0]["messages"]]
    fact_of_the_example = "Joined a rowing club"
    assert fact_of_the_example in "".join(messages)


def sessions_of_ann(*texts: str) -> History:
    """Return a history in which Ann says one text a session: D1:1, D2:1, ..."""
    sessions: list[Session] = []
    for number, text in enumerate(texts, 1):
        turn = Turn(id=f"D{number}:1", speaker="Ann", text=text)
        sessions.append(Session(id=f"D{number}", time=datetime(2024, 3, number), turns=(turn,)))
    return History(id="ann", items=tuple(sessions))


def test_an_update_is_shown_the_facts_nearest_to_what_was_said_oldest_first(
    write_memory: Any,
) -> None:
    """The model may update only facts that it is shown, so it is shown those most in question.

    The scripted model makes a fact of each text: f1, f2, ...
    """
    history = sessions_of_ann(
        "I bought a red kayak.",
        "Cleo plays the cello.",
        "I sold the blue kayak.",
        "Dan has moved to Oslo.",
        "The red kayak leaks, and so does the blue kayak.",
    )

    result = write_memory(fact_store(every=1, related=2), history, one_fact_per_turn)

    shown_facts = json.loads(result.prompt_fields("facts", "existing_facts")[-1])
    assert [fact["fact_id"] for fact in shown_facts] == ["f1", "f3"]


def test_an_update_of_a_fact_that_was_not_shown_is_a_new_fact(
    write_memory: Any,
) -> None:
    """With `related=1` the last update is shown f2, the nearest fact, and yet names f1."""
    history = sessions_of_ann("Cleo plays the cello.", "I bought a kayak.", "My kayak leaks.")

    def update_of_f1(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind == "facts" and "[D3:1]" in text:
            update = {"fact_id": "f1", "state": "update", "info": "Kayak leaks", "type": "Event"}
            return {"facts": [update]}
        return one_fact_per_turn(kind, text, n)

    memory = write_memory(fact_store(every=1, related=1), history, update_of_f1).memory

    assert [fact.info for fact in memory.facts] == [
        "Ann: Cleo plays the cello. (D1:1)",
        "Ann: I bought a kayak. (D2:1)",
        "Kayak leaks",
    ]
    assert [fact.frequency for fact in memory.facts] == [1, 1, 1]


def test_an_answer_that_updates_one_fact_several_times_adds_new_facts(
    write_memory: Any, make_history: Any
) -> None:
    """Six texts cannot all replace one fact: five would be lost, so none replaces it."""

    def six_updates_of_f1(kind: str, text: str, n: int) -> dict[str, Any]:
        """Say of each of the six turns of a session that it updates f1."""
        facts = one_fact_per_turn(kind, text, n)["facts"]
        return {"facts": [{**fact, "fact_id": "f1", "state": "update"} for fact in facts]}

    history = make_history(sessions=2, turns=6)
    result = write_memory(fact_store(every=1), history, six_updates_of_f1)

    assert len(result.memory.facts) == 2 * 6
    assert turns_behind_facts(result.memory) == set(history.turns)
    # Only the second session found a fact f1 that it could update.
    (failure,) = result.failures
    assert "6 updates of one answer name f1" in failure.message


def test_similar_facts_are_merged_after_six_new_ones_and_keep_all_their_turns(
    write_memory: Any, make_history: Any
) -> None:
    """A memory stays small if it does not say the same in many facts.

    Each session has six similar turns, "I saw Oslo with 1 friends" and so on: their cosines are
    above 0.5, the `merge_score`. The scripted model makes a fact of every turn, and merges similar
    facts into one. The frequency of a fact counts how often it came up.
    """
    history = make_history(sessions=2, turns=6)

    result = write_memory(
        fact_store(every=1, merge_after=6, merge_score=0.5), history, one_fact_per_turn
    )

    # The facts of each session have become one. No fact is left that came after the last merging.
    assert result.calls["merged_fact"] == 2
    assert result.memory.fresh == 0
    assert [fact.frequency for fact in result.memory.facts] == [6, 6]
    assert turns_behind_facts(result.memory) == set(history.turns)


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
    """A preset is the settings of a method for a benchmark.

    In a round PGR imagines steps towards an answer, and searches the memory for each.
    """
    assert preset(method, benchmark)["iterations"] == 10


def test_the_preset_for_a_benchmark_that_is_not_in_the_paper_sets_no_number_of_rounds() -> None:
    """PGR was not measured on LoCoMo, so the default number of rounds holds."""
    assert "iterations" not in preset("pgr", "locomo")


@pytest.mark.parametrize("method", ["pgr", "pgr+turn-rag"])
def test_without_a_preset_there_are_three_rounds(method: str) -> None:
    """In a round PGR imagines steps towards an answer, and searches the memory for each."""
    program = build(method, embedder=embedder())

    assert program.method.config["iterations"] == 3


# Methods of several layers. The name of a method lists its layers from the outside in: in
# "pgr+turn-rag" the policy PGR decides what to search for, and turn-rag searches the turns of the
# history. A layer between them, "logs", shows a user's logs beside what turn-rag finds. In `build`
# the settings of the first layer have plain names. Those of the second layer begin with `inner_`,
# and those of the third with `inner_inner_`.


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
    program = build("pgr+logs+turn-rag", **settings)
    with dspy.context(lm=scripted(reply)):
        context = program(history=make_history(sessions=3), question="Where?").context

    assert any("Quito" in hit.text for hit in context.hits)
    assert settings.items() <= program.method.config.items()
    assert set(program.all_predictors()) == {"method.reader.policy.imagine", "task.answer"}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        pytest.param(
            "pgr+turn-rag",
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
            "pgr+logs+turn-rag",
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


def memory_of_lisbon_and_tea() -> PersonalMemory:
    """Return a memory of two facts, f1 and f2, which were said in the sessions D1 and D2."""
    lives_in_lisbon = FactChange(
        info="Ann lives in Lisbon",
        type="Identity",
        related_entities=["Lisbon"],
        turn_ids=["D1:1"],
    )
    likes_tea = FactChange(
        info="Ann likes tea", type="Preference", related_entities=["tea"], turn_ids=["D2:2"]
    )
    sessions = [session_of_two_turns("D1", day=1), session_of_two_turns("D2", day=5)]
    return PersonalMemory().upsert([lives_in_lisbon, likes_tea], sessions)


@pytest.mark.parametrize(
    ("change", "texts", "frequencies"),
    [
        pytest.param(
            FactChange(info="Ann has a dog", type="Identity"),
            ["Ann lives in Lisbon", "Ann likes tea", "Ann has a dog"],
            [1, 1, 1],
            id="a-new-fact",
        ),
        pytest.param(
            FactChange(info="Ann lives in Porto", type="Identity", fact_id="f1", state="update"),
            ["Ann lives in Porto", "Ann likes tea"],
            [2, 1],
            id="an-update-by-id",
        ),
        pytest.param(
            FactChange(info="ann lives  in lisbon.", type="Identity"),
            # In the newer wording, with spaces tidied
            ["ann lives in lisbon.", "Ann likes tea"],
            [2, 1],
            id="a-known-wording",
        ),
        pytest.param(
            FactChange(info="Ann sings", type="Interest", fact_id="f9", state="update"),
            ["Ann lives in Lisbon", "Ann likes tea", "Ann sings"],
            [1, 1, 1],
            id="an-update-of-an-unknown-id",
        ),
        pytest.param(
            FactChange(info="  ", type="Goal"),
            ["Ann lives in Lisbon", "Ann likes tea"],
            [1, 1],
            id="no-text",
        ),
    ],
)
def test_a_change_adds_a_fact_or_counts_for_a_known_one(
    change: FactChange, texts: list[str], frequencies: list[int]
) -> None:
    """The frequency of a fact is how often it has come up.

    Before the change the memory says that Ann lives in Lisbon, f1, and likes tea, f2.
    """
    memory = memory_of_lisbon_and_tea()

    changed_memory = memory.upsert([change], [session_of_two_turns("D3", day=9)])

    assert [fact.info for fact in changed_memory.facts] == texts
    assert [fact.frequency for fact in changed_memory.facts] == frequencies
    # The memory itself stays as it was.
    assert memory == memory_of_lisbon_and_tea()


def test_an_update_unites_dates_sessions_and_turns_and_keeps_the_old_wording() -> None:
    """A fact that changes keeps its history: it says where it came from, and how it read before."""
    lives_in_lisbon = FactChange(
        info="Ann lives in Lisbon",
        type="Identity",
        related_entities=["Lisbon"],
        turn_ids=["D1:1"],
    )
    lives_in_porto = FactChange(
        info="Ann lives in Porto",
        type="Identity",
        fact_id="f1",
        state="update",
        related_entities=["Porto"],
        turn_ids=["[D3:2]"],
    )

    memory = PersonalMemory().upsert([lives_in_lisbon], [session_of_two_turns("D1", day=1)])
    memory = memory.upsert([lives_in_porto], [session_of_two_turns("D3", day=9)])

    (fact,) = memory.facts
    assert fact.info == "Ann lives in Porto"
    assert fact.earlier == ("Ann lives in Lisbon",)
    assert fact.sessions == ("D1", "D3")
    assert fact.sources == ("D1:1", "D3:2")
    assert fact.entities == ("Lisbon", "Porto")
    assert [time.day for time in fact.dates] == [1, 9]


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
    """Facts that are far apart may tell of a change, so they stay apart however alike they are.

    A case has facts with the days of March on which they came up.
    """
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
    """Each fact has a vector. The threshold is 0.8 here."""
    facts = [dated_fact(f"f{number}", [number]) for number in range(1, len(vectors) + 1)]

    merged_groups = merge_groups(facts, np.array(vectors, dtype=np.float32), min_cosine=0.8)

    assert merged_groups == groups


def test_a_merged_fact_has_the_highest_id_and_unites_what_it_was_made_from() -> None:
    """The facts f2, f9 and f10 become one; the highest id is f10, by number."""
    facts = (
        dated_fact("f2", march_days=[1], frequency=3),
        dated_fact("f9", march_days=[2], frequency=1),
        dated_fact("f10", march_days=[2, 4], frequency=2),
        dated_fact("f3", march_days=[1], frequency=1),
    )
    memory = PersonalMemory(facts=facts, issued=10)

    memory = memory.merge(
        ["f10", "f2", "f9"], info="all in one", fact_type="Goal", entities=["one", "one"]
    )

    merged_fact, other_fact = memory.facts
    assert other_fact.id == "f3"
    assert merged_fact.id == "f10"
    assert merged_fact.info == "all in one"
    assert merged_fact.frequency == 3 + 1 + 2
    assert merged_fact.merged == ("f2", "f9", "f10")
    assert merged_fact.sources == ("Tf2", "Tf9", "Tf10")
    assert [time.day for time in merged_fact.dates] == [1, 2, 4]
    assert merged_fact.entities == ("one",)


def test_a_merged_fact_has_a_type_of_the_facts_that_it_was_made_from() -> None:
    """The model that merges them may give another type, which is not taken."""
    facts = (dated_fact("f1", march_days=[1]), dated_fact("f2", march_days=[2]))
    assert [fact.type for fact in facts] == ["Goal", "Goal"]
    memory = PersonalMemory(facts=facts, issued=2)

    (merged_fact,) = memory.merge(["f1", "f2"], info="both", fact_type="Identity").facts

    assert merged_fact.type == "Goal"


def test_a_merged_fact_can_be_merged_again() -> None:
    """It still names all the facts that it was made from, and its earlier wordings."""
    facts = (
        dated_fact("f1", march_days=[1]),
        dated_fact("f2", march_days=[2]),
        dated_fact("f3", march_days=[3]),
    )
    memory = PersonalMemory(facts=facts, issued=3)

    memory = memory.merge(["f1", "f2"], info="two in one", fact_type="Goal")
    (merged_fact,) = memory.merge(["f2", "f3"], info="all", fact_type="Goal").facts

    assert merged_fact.merged == ("f1", "f2", "f3")
    assert merged_fact.earlier[-2:] == ("two in one", "info f3")
