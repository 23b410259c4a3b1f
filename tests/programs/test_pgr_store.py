"""PGR's fact store: when it writes, what an update may change, merging, and policies.

The fact store keeps dated facts about a user. Sessions wait until there are `every` of them, three
by default. Then an update, one call of the model with the output "facts", turns them into facts: it
adds new ones, or updates known ones that it is shown. After `merge_after` new facts, similar facts
are merged. The sources of a fact are the ids of the turns that it rests on.
"""

import json
import math
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
    ("sessions", "updates"),
    [
        pytest.param(2, 1, id="two at the end"),
        pytest.param(3, 1, id="three at once"),
        pytest.param(4, 2, id="three at once, and one at the end"),
        pytest.param(6, 2, id="twice three at once"),
    ],
)
def test_three_sessions_are_written_at_once_and_the_rest_at_the_end_of_the_history(
    write_memory: Any, make_history: Any, sessions: int, updates: int
) -> None:
    """One call of the model for several sessions costs less than one for each of them.

    Such a call, an update, makes facts of the sessions. The scripted model makes a fact of every
    turn, so that all turns are behind facts when no session waits any longer.
    """
    history = make_history(sessions)

    result = write_memory(fact_store(every=3), history, one_fact_per_turn)

    assert result.calls["facts"] == updates
    assert turns_behind_facts(result.memory) == set(history.turns)


def session_of(*speakers: str) -> History:
    """Return a history of one session, D1, in which the speakers speak in turn."""
    turns = tuple(
        Turn(id=f"D1:{number}", speaker=speaker, text=f"word {number}")
        for number, speaker in enumerate(speakers, 1)
    )
    session = Session(id="D1", time=datetime(2024, 3, 1), turns=turns)
    return History(id="long", items=(session,))


EXCHANGE = ("user", "assistant")
"""The speakers of an exchange: a turn of the user, and the reply of the assistant."""


@pytest.mark.parametrize(
    ("history", "turns_of_parts"),
    [
        pytest.param(session_of(*EXCHANGE * 2), [4], id="short enough"),
        pytest.param(session_of(*EXCHANGE * 3), [4, 2], id="one exchange too many"),
        # A first part of four turns would end with a turn of the user, without its reply.
        pytest.param(session_of("system", *EXCHANGE * 2), [3, 2], id="after a system prompt"),
        pytest.param(session_of("assistant", *EXCHANGE * 2), [4, 1], id="the assistant begins"),
    ],
)
def test_a_session_with_more_exchanges_than_are_allowed_is_written_in_parts(
    write_memory: Any, history: History, turns_of_parts: list[int]
) -> None:
    """An exchange is a turn and its reply. Here a part may have two exchanges, so four turns.

    Each part is written by a call of its own, and no cut parts a turn from its reply.
    """
    result = write_memory(fact_store(every=1, exchanges=2), history, one_fact_per_turn)

    dialogues = [lines_of(prompt) for prompt in result.prompts_of("facts")]
    assert [len(lines) for lines in dialogues] == turns_of_parts
    assert turns_behind_facts(result.memory) == set(history.turns)


def test_three_parts_of_a_long_session_are_written_by_one_update(write_memory: Any) -> None:
    """A part of a long session counts as a session, and three sessions are written by one call."""
    program = fact_store(exchanges=1, every=3)
    session_of_four_parts = session_of(*EXCHANGE * 4)

    result = write_memory(program, session_of_four_parts, one_fact_per_turn)

    # The first three parts are written at once, and the last one at the end of the history.
    first_dialogue, last_dialogue = [lines_of(text) for text in result.prompts_of("facts")]
    assert [line["turn_id"] for line in first_dialogue] == [
        "D1:1",
        "D1:2",
        "D1:3",
        "D1:4",
        "D1:5",
        "D1:6",
    ]
    assert [line["turn_id"] for line in last_dialogue] == ["D1:7", "D1:8"]


def test_turns_whose_answer_cannot_be_read_wait_and_the_others_become_facts(
    write_memory: Any,
) -> None:
    """The model gives no readable answer to any prompt with the turn D1:1.

    The session has two parts, of four turns and of two. The first part fails, so its halves are
    tried, of which only D1:1 and D1:2 fails again.
    """

    def reply_unreadably_to_the_first_turn(kind: str, text: str, n: int) -> Any:
        if kind == "facts" and "[D1:1]" in text:
            return "no"
        return one_fact_per_turn(kind, text, n)

    program = fact_store(every=1, exchanges=2)
    session = session_of(*EXCHANGE * 3)

    memory = write_memory(program, session, reply_unreadably_to_the_first_turn).memory

    [failed] = memory.failed_items
    assert [turn.id for turn in failed.item.turns] == ["D1:1", "D1:2"]
    assert turns_behind_facts(memory) == {"D1:3", "D1:4", "D1:5", "D1:6"}


# What an update is shown, and what its answer may change


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
    """The model may update only facts that it is shown. With `related=2` it is shown two.

    The scripted model makes a fact of each text: f1, f2, ... The last text is about two kayaks.
    """
    history = sessions_of_ann(
        "I bought a red kayak.",
        "Cleo plays the cello.",
        "I sold the blue kayak.",
        "Dan has moved to Oslo.",
        "The red kayak leaks, and so does the blue kayak.",
    )

    result = write_memory(fact_store(every=1, related=2), history, one_fact_per_turn)

    shown_to_last_update = json.loads(result.prompt_fields("facts", "existing_facts")[-1])
    assert [fact["fact_id"] for fact in shown_to_last_update] == ["f1", "f3"]


def test_an_update_is_shown_no_more_facts_than_are_set(
    write_memory: Any, make_history: Any
) -> None:
    """The setting `related` keeps prompts short, here two facts.

    Each session has six turns, of which the scripted model makes six facts.
    """
    program = fact_store(every=1, related=2)

    result = write_memory(program, make_history(sessions=2, turns=6), one_fact_per_turn)

    shown_to_second_update = json.loads(result.prompt_fields("facts", "existing_facts")[-1])
    assert len(shown_to_second_update) == 2


def test_an_update_of_a_fact_that_was_not_shown_is_a_new_fact(
    write_memory: Any,
) -> None:
    """A model that names a fact which it was not shown has invented or mixed up its id.

    With `related=1` the model is shown only the fact that is nearest to what was said: for the
    third text f2, about the kayak. It answers with a new text for f1, about the cello.
    """
    history = sessions_of_ann("Cleo plays the cello.", "I bought a kayak.", "My kayak leaks.")

    def update_f1_at_the_third_text(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind == "facts" and "[D3:1]" in text:
            update = {"fact_id": "f1", "state": "update", "info": "Kayak leaks", "type": "Event"}
            return {"facts": [update]}
        return one_fact_per_turn(kind, text, n)

    program = fact_store(every=1, related=1)
    memory = write_memory(program, history, update_f1_at_the_third_text).memory

    # f1 was not overwritten.
    assert [fact.info for fact in memory.facts] == [
        "Ann: Cleo plays the cello. (D1:1)",
        "Ann: I bought a kayak. (D2:1)",
        "Kayak leaks",
    ]


def test_an_answer_that_updates_one_fact_several_times_adds_new_facts(
    write_memory: Any, make_history: Any
) -> None:
    """Two texts cannot both replace one fact: one of them would be lost, so none replaces it.

    The model answers for each turn of a session that the turn updates the fact f1.
    """

    def update_f1_by_every_turn(kind: str, text: str, n: int) -> dict[str, Any]:
        facts = one_fact_per_turn(kind, text, n)["facts"]
        return {"facts": [{**fact, "fact_id": "f1", "state": "update"} for fact in facts]}

    history = make_history(sessions=2, turns=2)
    result = write_memory(fact_store(every=1), history, update_f1_by_every_turn)

    # There is a fact of each of the four turns.
    assert turns_behind_facts(result.memory) == {"D1:1", "D1:2", "D2:1", "D2:2"}
    assert len(result.memory.facts) == 4
    # Only the second session found a fact f1 that it could update.
    (failure,) = result.failures
    assert "2 updates of one answer name f1" in failure.message


def test_similar_facts_are_merged_after_six_new_ones_and_keep_all_their_turns(
    write_memory: Any, make_history: Any
) -> None:
    """A memory stays small if it does not say the same in many facts.

    Each session has six similar turns, "I saw Oslo with 1 friends" and so on. The scripted model
    makes a fact of every turn, and merges similar facts into one. The frequency of a fact counts
    how often it came up.
    """
    history = make_history(sessions=2, turns=6)
    program = fact_store(every=1, merge_after=6, merge_score=0.5)

    result = write_memory(program, history, one_fact_per_turn)

    # The six facts of each session have become one.
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
    """A preset is the settings of a method for a benchmark; by default there are three rounds.

    In a round PGR imagines steps towards an answer, and searches the memory for each.
    """
    assert preset(method, benchmark)["iterations"] == 10


# Methods of several layers. The name of a method lists its layers from the outside in: in
# "pgr+turn-rag" the policy PGR decides what to search for, and turn-rag searches the turns of the
# history. A layer between them, "logs", shows a user's logs beside what turn-rag finds. In `build`
# the settings of the first layer have plain names. Those of the second layer begin with `inner_`,
# and those of the third with `inner_inner_`.


def test_a_policy_may_search_through_another_policy(scripted: Any, make_history: Any) -> None:
    """PGR has the model imagine steps that an answer may need, and searches for each step.

    Here PGR searches through "logs", which searches the turns of the history by turn-rag. The
    question alone would find nothing, but the step "meet in Quito" finds a turn about Quito.
    """

    def imagine_one_step(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind == "tree":
            return {"tree": [{"action_id": "A1", "action": "meet in Quito"}]}
        return {kind: "x"}

    # The steps are imagined once, from the question alone.
    program = build("pgr+logs+turn-rag", iterations=0, augment="none", summary=False)
    with dspy.context(lm=scripted(imagine_one_step)):
        context = program(history=make_history(sessions=3), question="Where?").context

    assert any("Quito" in hit.text for hit in context.hits)


def test_a_saved_program_is_loaded_with_the_settings_of_all_its_layers(tmp_path: Path) -> None:
    """In "pgr+logs+turn-rag" each of the three methods has settings of its own.

    Those of "logs" begin with `inner_`, and those of turn-rag with `inner_inner_`.
    """
    settings = {"iterations": 0, "inner_earlier": "none", "inner_inner_k": 7}
    program = build("pgr+logs+turn-rag", **settings)

    save(program, tmp_path / "program")
    loaded_program = load(tmp_path / "program")

    assert loaded_program.name == "pgr+logs+turn-rag"
    assert settings.items() <= loaded_program.method.config.items()
    assert loaded_program.method.config == program.method.config


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

    Before the change the memory has the facts f1, "Ann lives in Lisbon", and f2, "Ann likes tea",
    each with a frequency of 1.
    """
    memory = memory_of_lisbon_and_tea()

    changed_memory = memory.upsert([change], [session_of_two_turns("D3", day=9)])

    assert [fact.info for fact in changed_memory.facts] == texts
    assert [fact.frequency for fact in changed_memory.facts] == frequencies


def test_an_update_unites_dates_sessions_and_turns_and_keeps_the_old_wording() -> None:
    """A fact that changes keeps its history: where it came from, and how it read before.

    In session D1 Ann lives in Lisbon, and in D3 she lives in Porto. Models put ids into brackets.
    """
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
    """Return a fact that came up on some days of March 2024; the fact f1 is from the turn Tf1."""
    return PersonalFact(
        id=fact_id,
        info=f"info {fact_id}",
        type="Goal",
        frequency=frequency,
        dates=tuple(datetime(2024, 3, day, hour) for day in march_days),
        sources=(f"T{fact_id}",),
    )


@pytest.mark.parametrize(
    ("dates", "groups"),
    [
        pytest.param({"f1": [1], "f2": [8]}, [("f1", "f2")], id="seven days apart"),
        pytest.param({"f1": [1], "f2": [9]}, [], id="eight days apart"),
        pytest.param(
            {"f1": [1], "f2": [20], "f3": [2, 20]}, [("f2", "f3")], id="the latest date counts"
        ),
        pytest.param(
            {"f1": [20], "f2": [13], "f3": [5]},
            [("f1", "f2")],
            id="the order of facts does not count",
        ),
        pytest.param(
            {"f1": [1], "f2": [7], "f3": [13], "f4": [14]},
            [("f1", "f2"), ("f3", "f4")],
            id="seven days are counted from the first fact",
        ),
        pytest.param(
            {"f1": [1], "f2": [], "f3": []}, [("f2", "f3")], id="facts without a date by themselves"
        ),
    ],
)
def test_facts_that_say_the_same_are_merged_within_seven_days(
    dates: dict[str, list[int]], groups: list[tuple[str, ...]]
) -> None:
    """Facts that are far apart may tell of a change, so they stay apart however alike they are.

    A case has the days of March on which each fact came up.
    """
    facts = [dated_fact(fact_id, march_days) for fact_id, march_days in dates.items()]
    equal_vectors = np.array([[1, 0]] * len(facts), dtype=np.float32)

    assert merge_groups(facts, equal_vectors, min_cosine=0.8) == groups


def test_the_seven_days_are_days_of_the_calendar() -> None:
    """Between 8 o'clock on 1 March and 23 o'clock on 8 March are more than seven times 24 hours."""
    facts = [dated_fact("f1", [1], hour=8), dated_fact("f2", [8], hour=23)]
    equal_vectors = np.array([[1, 0], [1, 0]], dtype=np.float32)

    assert merge_groups(facts, equal_vectors, min_cosine=0.8) == [("f1", "f2")]


def vector_at(degrees: float) -> list[float]:
    """Return a vector of length 1 at an angle from the first axis."""
    angle = math.radians(degrees)
    return [math.cos(angle), math.sin(angle)]


@pytest.mark.parametrize(
    ("angles", "groups"),
    [
        pytest.param([0, 90], [], id="unlike"),
        pytest.param([0, 30], [("f1", "f2")], id="alike"),
        # The first and the last are 60 degrees apart.
        pytest.param([0, 30, 60], [("f1", "f2", "f3")], id="all like the second"),
        pytest.param([0, 40, 70], [("f2", "f3")], id="the first is unlike the others"),
        pytest.param([], [], id="no facts"),
    ],
)
def test_facts_are_merged_whose_cosine_reaches_the_threshold(
    angles: list[float], groups: list[tuple[str, ...]]
) -> None:
    """Each fact has a vector, here at an angle in degrees.

    Two facts are alike if the cosine of their vectors is 0.8 or more, at 36 degrees or less.
    """
    facts = [dated_fact(f"f{number}", [number]) for number in range(1, len(angles) + 1)]
    vectors = np.array([vector_at(angle) for angle in angles], dtype=np.float32)

    assert merge_groups(facts, vectors, min_cosine=0.8) == groups


def test_a_merged_fact_has_the_highest_id_and_unites_what_it_was_made_from() -> None:
    """The facts f9 and f10 become one; the highest id is f10, by number.

    The fact f9 came up three times and has the source Tf9, and f10 came up twice.
    """
    facts = (
        dated_fact("f9", march_days=[1, 2], frequency=3),
        dated_fact("f10", march_days=[2, 4], frequency=2),
        dated_fact("f3", march_days=[1]),
    )
    memory = PersonalMemory(facts=facts, issued=10)

    memory = memory.merge(
        ["f10", "f9"], info="both in one", fact_type="Goal", entities=["Oslo", "Oslo"]
    )

    merged_fact, other_fact = memory.facts
    assert other_fact.id == "f3"
    assert merged_fact.id == "f10"
    assert merged_fact.info == "both in one"
    assert merged_fact.frequency == 3 + 2
    assert merged_fact.merged == ("f9", "f10")
    assert merged_fact.sources == ("Tf9", "Tf10")
    assert [time.day for time in merged_fact.dates] == [1, 2, 4]
    assert merged_fact.entities == ("Oslo",)


def test_a_merged_fact_has_a_type_of_the_facts_that_it_was_made_from() -> None:
    """Here both facts have the type "Goal", and the model that merges them says "Identity"."""
    facts = (dated_fact("f1", march_days=[1]), dated_fact("f2", march_days=[2]))
    assert [fact.type for fact in facts] == ["Goal", "Goal"]
    memory = PersonalMemory(facts=facts, issued=2)

    (merged_fact,) = memory.merge(["f1", "f2"], info="both", fact_type="Identity").facts

    assert merged_fact.type == "Goal"


def test_a_merged_fact_can_be_merged_again() -> None:
    """First f1 and f2 become one fact, which has the id f2. Then this is merged with f3.

    It still names all the facts that it was made from, and its earlier wordings.
    """
    facts = (
        dated_fact("f1", march_days=[1]),
        dated_fact("f2", march_days=[2]),
        dated_fact("f3", march_days=[3]),
    )
    memory = PersonalMemory(facts=facts, issued=3)

    memory = memory.merge(["f1", "f2"], info="two in one", fact_type="Goal")
    memory = memory.merge(["f2", "f3"], info="all in one", fact_type="Goal")

    (merged_fact,) = memory.facts
    assert merged_fact.info == "all in one"
    assert merged_fact.merged == ("f1", "f2", "f3")
    assert merged_fact.earlier[-2:] == ("two in one", "info f3")
