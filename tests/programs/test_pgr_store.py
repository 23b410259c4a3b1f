"""PGR's fact store, alone and under other methods: when it writes, what prompts see; exact ids and provenance."""

import json
from datetime import datetime

import dspy
import numpy as np
import pytest
from mempiler import build, load, save
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import needs_embedder, preset
from mempiler.programs.pgr.memory import PersonalFact, PersonalMemory, merge_groups
from mempiler.records import History, Session, Turn
from mempiler.runs.manifest import read_manifest
from mempiler.signatures.pgr import FactChange

from ..conftest import lines_of
from .conftest import section


def reply(kind, text, n):
    """Every turn is a fact; merging joins."""
    if kind == "facts":
        said = [
            ("{speaker}: {fact} ({turn_id})".format(**line), line["turn_id"])
            for line in lines_of(text)
        ]
        about = [{"info": info, "type": "activity", "turn_ids": [id]} for info, id in said]
        return {"facts": [{"fact_id": f"NEW_{n}", **fact} for n, fact in enumerate(about, 1)]}
    if kind == "merged_fact":
        return {
            "merged_fact": {
                "info": "they saw places",
                "type": "Activity",
                "related_entities": ["places"],
            }
        }
    return {kind: "x"}


def store(**settings):
    return build("fact-store", embedder=embedder(), **settings)


@pytest.mark.parametrize(
    ("sessions", "every", "calls"),
    [(3, 3, 1), (4, 3, 2), (2, 3, 1), (6, 3, 2), (4, 1, 4), (0, 3, 0)],
)
def test_sessions_are_taken_in_by_the_few_and_the_rest_when_the_history_ends(
    written, make_history, sessions, every, calls
):
    found = written(store(every=every), make_history(sessions), reply)
    assert found.calls["facts"] == calls
    assert found.memory.pending == ()
    assert {turn for fact in found.memory.facts for turn in fact.sources} == set(
        make_history(sessions).turns
    )


def exchanges(count, opening=()):
    """Turns of a user and an assistant, after those of the speakers in `opening`."""
    speakers = [*opening, *["user", "assistant"] * count]
    turns = [
        Turn(id=f"D1:{n}", speaker=speaker, text=f"word {n}")
        for n, speaker in enumerate(speakers, 1)
    ]
    return History(
        id="long", items=(Session(id="D1", time=datetime(2024, 3, 1), turns=tuple(turns)),)
    )


@pytest.mark.parametrize(
    ("history", "sizes"),
    [
        (exchanges(10), [20]),
        (exchanges(11), [20, 2]),
        (exchanges(46, ["system"]), [19, 20, 20, 20, 14]),
        (exchanges(25, ["assistant"]), [20, 20, 11]),
    ],
    ids=["short enough", "one too many", "as in PersonaMem-v2", "the assistant begins"],
)
def test_a_long_session_is_written_in_parts_that_end_with_a_reply(scripted, history, sizes):
    lm = scripted(reply)
    with dspy.context(lm=lm):
        memory = store(every=1).remember(history).memory
    dialogues = [lines_of(text) for kind, text in lm.engine.prompts if kind == "facts"]
    assert [len(lines) for lines in dialogues] == sizes
    assert {turn for fact in memory.facts for turn in fact.sources} == set(history.turns)
    assert {fact.sessions for fact in memory.facts} == {("D1",)}
    if history.items[0].turns[0].speaker != "assistant":
        assert {lines[-1]["speaker"] for lines in dialogues} == {"assistant"}


def test_three_parts_of_a_long_session_are_written_by_one_update(written):
    found = written(store(exchanges=2), exchanges(8), reply)
    assert found.calls["facts"] == 2
    assert len(found.memory.facts) == 16


def test_an_unreadable_part_is_kept_as_raw_text(written):
    history = exchanges(11)

    def unreadable(kind, text, n):
        return "no" if kind == "facts" and "[D1:1]" in text else reply(kind, text, n)

    memory = written(store(every=1), history, unreadable).memory
    # Of a part that failed, either half is tried by itself.
    assert {turn.id for left in memory.failed_items for turn in left.item.turns} == {
        f"D1:{n}" for n in range(1, 11)
    }
    assert {turn for fact in memory.facts for turn in fact.sources} == {
        f"D1:{n}" for n in range(11, 23)
    }


def test_a_model_is_shown_nine_facts_as_an_example_of_an_update(scripted, make_history):
    """As many as the paper's prompt (appendix, Memory Creation Prompt): four updates and five new facts."""
    (demo,) = store().method.writer.update_facts.demos
    states = [fact.state for fact in demo.facts]
    assert states.count("update") == 4
    assert states.count("add") == 5
    turns = {line.partition("]")[0].strip("[") for line in demo.dialogue.splitlines()}
    assert {id for fact in demo.facts for id in fact.turn_ids} <= turns
    known = {fact.fact_id for fact in demo.existing_facts}
    assert {fact.fact_id for fact in demo.facts if fact.state == "update"} < known
    lm = scripted(reply)
    with dspy.context(lm=lm):
        store().remember(make_history(1))
    assert "Joined a rowing club" in "".join(
        message["content"] for message in lm.history[0]["messages"]
    )


@pytest.mark.parametrize(
    ("name", "benchmark", "iterations"),
    [
        ("pgr", "memoryquest", 10),
        ("pgr", "personamem-v2", 10),
        ("pgr+turn-rag", "implexconv", 10),
        ("pgr", "locomo", None),
    ],
)
def test_the_papers_benchmarks_take_its_ten_rounds_and_users_three(name, benchmark, iterations):
    assert preset(name, benchmark).get("iterations") == iterations
    assert build(name, embedder=embedder()).method.config["iterations"] == 3


def test_an_update_is_shown_the_facts_nearest_to_what_was_said_oldest_first(scripted, make_history):
    lm, program = scripted(reply), store(related=4)
    with dspy.context(lm=lm):
        program.remember(make_history(6))
        facts = {fact.id: fact.info for fact in program.remember(make_history(3)).memory.facts}
    second = [text for kind, text in lm.engine.prompts if kind == "facts"][1]
    shown = json.loads(section(second, "existing_facts"))
    ids = [fact["fact_id"] for fact in shown]
    assert ids == sorted(ids, key=lambda id: int(id[1:]))
    assert len(ids) == 4
    said = [turn.content for session in make_history(6).items[3:] for turn in session.turns]
    near = (embedder().embed(list(facts.values())) @ embedder().embed(said).T).max(axis=1)
    assert min(near[list(facts).index(id)] for id in ids) >= sorted(near)[-4] - 1e-6


def test_an_update_of_a_fact_that_was_not_shown_is_a_new_fact(written, make_history):
    def blind(kind, text, n):
        found = reply(kind, text, n)
        change = {"fact_id": "f1", "state": "update", "info": "Ann moved", "type": "Event"}
        return {"facts": [change]} if kind == "facts" and "[D2:1]" in text else found

    memory = written(store(every=1, related=1), make_history(2), blind).memory
    assert memory.facts[0].earlier == ()
    assert memory.facts[-1].info == "Ann moved"
    assert memory.facts[-1].frequency == 1


def test_an_answer_that_updates_one_fact_with_all_it_found_is_a_failure_and_loses_nothing(
    written, make_history
):
    def clumsy(kind, text, n):
        found = reply(kind, text, n)
        return {"facts": [{**fact, "fact_id": "f1", "state": "update"} for fact in found["facts"]]}

    node = written(store(every=1), make_history(2), clumsy)
    assert {turn for fact in node.memory.facts for turn in fact.sources} == set(
        make_history(2).turns
    )
    assert len(node.memory.facts) == 12
    assert [failure.message for failure in node.failures] == [
        "6 updates of one answer name f1; all were kept as new facts"
    ]


def test_fifty_new_facts_start_a_consolidation_that_loses_nothing(written, make_history):
    found = written(store(every=1, merge_after=6, merge_score=0.5), make_history(2), reply)
    memory = found.memory
    assert found.calls["merged_fact"] == 2
    assert memory.fresh == 0
    assert [fact.frequency for fact in memory.facts] == [6, 6]
    assert {turn for fact in memory.facts for turn in fact.sources} == set(make_history(2).turns)


def made(name, **config):
    return build(name, embedder=embedder() if needs_embedder(name) else None, **config)


def test_a_policy_stands_on_another_one(scripted, make_history):
    def reply(kind, text, n):
        return (
            {"tree": [{"action_id": "A1", "action": "meet in Quito"}]}
            if kind == "tree"
            else {kind: "x"}
        )

    config = {
        "iterations": 0,
        "augment": "none",
        "summary": False,
        "inner_k": 2,
        "inner_inner_k": 4,
    }
    program = made("pgr+logs+turn-rag", **config)
    with dspy.context(lm=scripted(reply)):
        found = program(history=make_history(3), question="Where?").context
    assert any("Quito" in hit.text for hit in found.hits)
    assert config.items() <= program.method.config.items()
    assert set(program.all_predictors()) == {"method.reader.policy.imagine", "task.answer"}


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("pgr+turn-rag", {"inner_k": 7, "k": 3, "summary": False}),
        ("pgr+logs+turn-rag", {"iterations": 0, "inner_earlier": "none", "inner_inner_k": 7}),
    ],
)
def test_a_saved_program_is_loaded_with_the_settings_of_both_layers(name, config, tmp_path):
    program = made(name, **config)
    save(program, tmp_path / "program")
    loaded = load(tmp_path / "program")
    assert read_manifest(tmp_path / "program").method == loaded.name == name
    assert loaded.method.config == program.method.config
    assert config.items() <= loaded.method.config.items()
    assert set(loaded.all_predictors()) == set(program.all_predictors())
    before, after = (p.method.reader.policy.imagine.demos for p in (program, loaded))
    assert [dict(demo) for demo in after] == [dict(demo) for demo in before]


def session(n, day=None, turns=2):
    time = datetime(2024, 3, day, 18, 30) if day else None
    said = tuple(Turn(id=f"D{n}:{t}", speaker="Ann", text="words") for t in range(1, turns + 1))
    return Session(id=f"D{n}", time=time, turns=said)


def change(info, type="Identity", entities=(), sources=(), updates=""):
    about = {"related_entities": list(entities), "turn_ids": list(sources)}
    return FactChange(
        info=info, type=type, fact_id=updates, state="update" if updates else "add", **about
    )


def fact(id, *days, frequency=1, hour=9):
    dates = tuple(datetime(2024, 3, day, hour) for day in days)
    return PersonalFact(
        id=id, info=f"info {id}", type="Goal", frequency=frequency, dates=dates, sources=(f"T{id}",)
    )


BASE = PersonalMemory().upsert(
    [
        change("Ann lives in Lisbon", "Identity", ["Lisbon"], ["D1:1"]),
        change("Ann likes tea", "Preference", ["tea"], ["D2:2"]),
    ],
    [session(1, 1), session(2, 5)],
)


@pytest.mark.parametrize(
    ("said", "frequencies"),
    [
        (change("Ann has a dog"), [1, 1, 1]),
        (change("Ann lives in Porto", updates="f1"), [2, 1]),
        (change("ann lives  in lisbon."), [2, 1]),
        (change("Ann sings", "Interest", updates="f9"), [1, 1, 1]),
        (change("  ", "Goal"), [1, 1]),
    ],
)
def test_a_change_adds_a_fact_or_counts_for_a_known_one(said, frequencies):
    assert [fact.frequency for fact in BASE.upsert([said], [session(3, 9)]).facts] == frequencies
    assert [(fact.id, fact.sources) for fact in BASE.facts] == [
        ("f1", ("D1:1",)),
        ("f2", ("D2:2",)),
    ]


def test_an_update_unites_dates_sessions_and_turns_and_keeps_the_old_wording():
    said = change("Ann lives in Porto", "Identity", ["Porto"], ["[D3:2]"], "f1")
    updated = BASE.upsert([said], [session(3, 9)]).facts[0]
    assert updated.info == "Ann lives in Porto"
    assert updated.earlier == ("Ann lives in Lisbon",)
    assert updated.sessions == ("D1", "D3")
    assert updated.sources == ("D1:1", "D3:2")
    assert updated.entities == ("Lisbon", "Porto")
    assert [time.day for time in updated.dates] == [1, 9]


@pytest.mark.parametrize(
    ("facts", "vectors", "groups"),
    [
        ([fact("f1", 1), fact("f2", 8)], [[1, 0], [1, 0]], [("f1", "f2")]),
        ([fact("f1", 1), fact("f2", 9)], [[1, 0], [1, 0]], []),
        ([fact("f1", 1, hour=8), fact("f2", 8, hour=23)], [[1, 0], [1, 0]], [("f1", "f2")]),
        ([fact("f1", 1), fact("f2", 3)], [[1, 0], [0, 1]], []),
        ([fact("f1", 1), fact("f2", 20), fact("f3", 2, 20)], [[1, 0]] * 3, [("f2", "f3")]),
        ([fact("f1", 20), fact("f2", 13), fact("f3", 5)], [[1, 0]] * 3, [("f1", "f2")]),
        (
            [fact("f1", 1), fact("f2", 7), fact("f3", 13), fact("f4", 14)],
            [[1, 0]] * 4,
            [("f1", "f2"), ("f3", "f4")],
        ),
        ([fact("f1", 1), fact("f2"), fact("f3")], [[1, 0]] * 3, [("f2", "f3")]),
        (
            [fact("f1", 1), fact("f2", 2), fact("f3", 3)],
            [[1, 0], [0.8, 0.6], [0.28, 0.96]],
            [("f1", "f2", "f3")],
        ),
        (
            [fact("f1", 1), fact("f2", 2), fact("f3", 3)],
            [[1, 0], [0.79, 0.613], [0.28, 0.96]],
            [("f2", "f3")],
        ),
        ([], np.zeros((0, 2)), []),
    ],
    ids=[
        *(
            "seven days",
            "eight days",
            "calendar days",
            "unlike",
            "latest date counts",
            "order of facts does not count",
        ),
        *("span from the first", "undated apart", "transitive", "edge of the cosine", "none"),
    ],
)
def test_alike_facts_within_seven_days_are_merged(facts, vectors, groups):
    assert merge_groups(facts, np.array(vectors, dtype=np.float32), 0.8) == groups


def test_a_merge_sums_frequencies_and_unites_provenance_under_the_highest_id():
    facts = (
        fact("f2", 1, frequency=3),
        fact("f9", 2),
        fact("f10", 2, 4, frequency=2),
        fact("f3", 1),
    )
    memory = PersonalMemory(facts=facts, issued=10).merge(
        ["f10", "f2", "f9"], "all in one", "Identity", ["one", "one"]
    )
    assert [fact.id for fact in memory.facts] == ["f10", "f3"]
    merged = memory.facts[0]
    assert merged.frequency == 6
    assert merged.merged == ("f2", "f9", "f10")
    assert merged.sources == ("Tf2", "Tf9", "Tf10")
    assert [time.day for time in merged.dates] == [1, 2, 4]
    assert merged.entities == ("one",)
    assert merged.type == "Goal"  # none of the parts was an identity
    again = memory.merge(["f10", "f3"], "all", "Goal").facts[0]
    assert again.merged == ("f2", "f9", "f10", "f3")
    assert again.earlier[-2:] == ("all in one", "info f3")
