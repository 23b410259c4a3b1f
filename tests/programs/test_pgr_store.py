"""The fact store of PGR as a method, and PGR over other methods: when it writes, what prompts see, saving."""

import json

import dspy
import pytest
from mempiler import UserError, build, load, save
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import needs_embedder
from mempiler.runs.manifest import read_manifest

from ..conftest import lines_of
from .conftest import section


def reply(kind, text, n):
    """Every turn is a fact; merging joins."""
    if kind == "facts":
        said = [("{speaker}: {fact} ({turn_id})".format(**line), line["turn_id"]) for line in lines_of(text)]
        about = [{"info": info, "type": "activity", "turn_ids": [id]} for info, id in said]
        return {"facts": [{"fact_id": f"NEW_{n}", **fact} for n, fact in enumerate(about, 1)]}
    if kind == "merged_fact":
        return {"merged_fact": {"info": "they saw places", "type": "Activity", "related_entities": ["places"]}}
    return {kind: "x"}


def store(**settings):
    return build("fact-store", embedder=embedder(), **settings)


@pytest.mark.parametrize(
    ("sessions", "every", "calls"), [(3, 3, 1), (4, 3, 2), (2, 3, 1), (6, 3, 2), (4, 1, 4), (0, 3, 0)]
)
def test_sessions_are_taken_in_by_the_few_and_the_rest_when_the_history_ends(
    written, make_history, sessions, every, calls
):
    found = written(store(every=every), make_history(sessions), reply)
    assert (found.calls["facts"], found.memory.pending) == (calls, ())
    assert {turn for fact in found.memory.facts for turn in fact.sources} == set(make_history(sessions).turns)


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
    assert (memory.facts[-1].info, memory.facts[-1].frequency) == ("Ann moved", 1)


def test_an_answer_that_updates_one_fact_with_all_it_found_is_a_failure_and_loses_nothing(written, make_history):
    def clumsy(kind, text, n):
        found = reply(kind, text, n)
        return {"facts": [{**fact, "fact_id": "f1", "state": "update"} for fact in found["facts"]]}

    node = written(store(every=1), make_history(2), clumsy)
    assert {turn for fact in node.memory.facts for turn in fact.sources} == set(make_history(2).turns)
    assert len(node.memory.facts) == 12
    assert [failure.message for failure in node.failures] == [
        "6 updates of one answer name f1; all were kept as new facts"
    ]


def test_fifty_new_facts_start_a_consolidation_that_loses_nothing(written, make_history):
    found = written(store(every=1, merge_after=6, merge_score=0.5), make_history(2), reply)
    memory = found.memory
    assert (found.calls["merged_fact"], memory.fresh) == (2, 0)
    assert [fact.frequency for fact in memory.facts] == [6, 6]
    assert {turn for fact in memory.facts for turn in fact.sources} == set(make_history(2).turns)


def made(name, **config):
    return build(name, embedder=embedder() if needs_embedder(name) else None, **config)


@pytest.mark.parametrize("name", ["pgr+pgr+turn-rag", "pgr+pgr"])
def test_a_policy_does_not_stand_on_itself(name):
    with pytest.raises(UserError, match=r"^predictors .*imagine and .*imagine have equal signatures,.*$"):
        made(name)


def test_a_policy_stands_on_another_one(scripted, make_history):
    def reply(kind, text, n):
        return {"tree": [{"action_id": "A1", "action": "meet in Quito"}]} if kind == "tree" else {kind: "x"}

    config = {"iterations": 0, "augment": "none", "summary": False, "inner_k": 2, "inner_inner_k": 4}
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
