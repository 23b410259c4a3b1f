"""The fact store of PGR as a method: when it writes, what its prompts see, what an optimizer sees of it."""

import json
import re

import dspy
import pytest
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build


def reply(kind, text, n):
    """Every turn is a fact; merging joins."""
    shown = text.rsplit("[[ ## dialogue ## ]]", 1)[-1] if kind == "facts" else text
    if kind == "facts":
        lines = re.findall(r"^\[(D\d+:\d+)\](?: \(.*?\))? (\w+): (.*)$", shown, re.MULTILINE)
        return {
            "facts": [
                {"fact_id": f"NEW_{n}", "info": f"{who}: {said} ({id})", "type": "activity", "turn_ids": [id]}
                for n, (id, who, said) in enumerate(lines, 1)
            ]
        }
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
    shown = json.loads(second.rsplit("[[ ## existing_facts ## ]]", 1)[1].split("[[ ## dialogue")[0])
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
