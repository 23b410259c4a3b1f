"""A whole practice run of PraMem with a scripted model: trial, reflection, review, pool, consensus, position."""

import dspy
import pytest
from mempiler.programs.catalog import build
from mempiler.programs.pramem.memory import COMMON_BIASES


def pramem(**settings):
    return build("pramem", task="behavior-prediction", **{"rounds": 10, "min_history": 5, **settings})


def test_a_run_tries_reflects_reviews_and_adjusts_every_five_rounds(practised):
    found = practised(rounds=10)
    memory = found.memory
    per_round = ("useful_patterns", "tasks", "plans", "groundedness", "virtual_scenes", "generality")
    assert found.calls == {**dict.fromkeys(per_round, 10), "decisions": 2}
    assert [done.number for done in memory.journal] == list(range(1, 11))
    assert all(done.outcome == {"pooled": 3} and done.verdicts == ("wrong",) for done in memory.journal)
    assert memory.adjusted == (0, 5, 10)
    assert [part.text for part in memory.patterns] == ["Ann, 34, nurse", "agreed p-1", "agreed p-2"]
    assert (memory.practised, memory.waiting, memory.rounds) == (30, 0, 10)


def test_rounds_between_two_adjustments_see_the_same_experience(practised):
    shown = practised(rounds=10, parallel=False).shown("useful_patterns", "patterns")
    assert ["agreed p-1" in patterns for patterns in shown] == [False] * 5 + [True] * 5
    assert "agreed p-2" not in "".join(shown)


def test_reflection_is_shown_the_thinking_of_its_trial_and_each_kind_of_experience(practised):
    thought = {"useful_patterns": ["nurse"], "useful_alerts": ["mind"], "reasoning": "so", "predicted_action": "x"}
    found = practised({"useful_patterns": thought}, rounds=1)
    assert found.shown("tasks", "thinking") == ["nurse\nmind\nso"]
    shown = [found.shown("tasks", f"{kind}_experiences")[0] for kind in ("pattern", "alert")]
    assert [["Ann, 34, nurse" in part, COMMON_BIASES[0] in part] for part in shown] == [[True, False], [False, True]]


def test_invented_ids_are_refused_and_the_pool_stays_word_for_word(practised):
    change = {"action": "add pattern", "text": "x", "proposal_ids": ["p-1", "p-2", "p-77"]}
    memory = practised({"decisions": {"decisions": "-", "changes": [change]}}).memory
    assert memory.counts == {"pooled": 15, "refused: invented proposal": 1}
    records = [done.record for done in memory.journal]
    assert [p.content for p in memory.pool] == [f"{what} of {id}" for id in records for what in ("one", "two", "three")]


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        ("useful_patterns", {"failed": 10}),
        ("tasks", {"failed": 10}),
        ("plans", {"malformed": 30}),
        ("groundedness", {"malformed": 30}),
        ("virtual_scenes", {"malformed": 30}),
        ("generality", {"malformed": 30}),
        ("decisions", {"pooled": 30, "unreadable adjustments": 2}),
    ],
)
def test_an_unreadable_answer_costs_its_round_and_is_counted(practised, kind, counts):
    node = practised({kind: "no"}, rounds=10)
    assert node.memory.counts == counts
    assert len(node.failures) == (2 if kind == "decisions" else 10)
    assert [part.text for part in node.memory.patterns] == ["Ann, 34, nurse"]
    assert node.memory.waiting == 0


def test_proposals_beyond_n_about_unknown_entries_or_without_content_are_invalid(practised):
    drafts = [
        {"action": "modify", "experience_id": "pattern-1", "content": "is 35 now", "record_ids": "[a1]"},
        {"action": "Remove Existing Experience", "experience_id": "alert-2", "content": None},
        {"action": "modify", "experience_id": "pattern-9", "content": "x"},
        {"action": "add pattern", "content": " "},
        {"action": "add pattern", "content": "one too many"},
    ]
    memory = practised({"tasks": {"tasks": [], "proposals": drafts}}, rounds=1, proposals=4).memory
    assert memory.counts == {"invalid": 3, "pooled": 2}
    target = memory.journal[0].record
    assert [(p.action, p.target, p.sources) for p in memory.pool] == [
        ("modify", "pattern-1", (target, "a1")),
        ("remove", "alert-2", (target,)),
    ]


def test_nothing_is_asked_of_a_pool_that_did_not_grow(practised):
    found = practised({"tasks": {"tasks": [], "proposals": []}})
    assert found.calls["decisions"] == found.calls["groundedness"] == 0
    assert found.memory.rounds == 5


def test_order_does_not_matter_and_settling_again_changes_nothing(practised):
    memories = [practised(parallel=parallel, samples=2).memory for parallel in (True, False)]
    assert memories[0] == memories[1]
    method = pramem().method
    with dspy.context(lm=None):
        assert method.writer.settle(memories[0]) == memories[0]


def test_later_records_continue_the_practice_and_older_ones_are_not_practised_again(
    scripted, practice_script, behavior_history
):
    method, items = pramem(rounds=80).method, behavior_history(60).items
    with dspy.context(lm=scripted(practice_script())):
        memory = method.writer.Memory()
        for item in items[:4]:
            memory = method.writer.write(memory, item)
        first = method.writer.settle(memory)
        for item in items[4:]:
            first = method.writer.write(first, item)
        second = method.writer.settle(first)
    records = [done.record for done in second.journal]
    assert sorted(records[:25], key=lambda id: int(id[1:])) == [f"a{n}" for n in range(6, 31)]
    assert sorted(records[25:], key=lambda id: int(id[1:])) == [f"a{n}" for n in range(31, 61)]
    assert [done.number for done in second.journal] == list(range(1, 56))
    assert second.patterns[: len(first.patterns)] == first.patterns
    assert second.practised == second.total == 60


@pytest.mark.parametrize(("records", "rounds"), [(0, 0), (4, 0), (5, 0), (6, 1), (200, 10)])
def test_there_are_as_many_rounds_as_records_allow(practised, records, rounds):
    memory = practised(records=records, rounds=10).memory
    assert (memory.rounds, memory.practised, memory.waiting) == (rounds, records, 0)


def test_profile_and_records_before_the_target_are_what_a_trial_sees(practised):
    found = practised(rounds=1)
    n = int(found.memory.journal[0].record[1:])
    lines = found.shown("useful_patterns", "recent_records")[0].splitlines()
    assert lines[0] == "[profile:1] profile: Ann, 34, nurse"
    assert [line.split("]")[0].strip("[") for line in lines[1:]] == [f"a{m}" for m in range(1, n)]
    assert found.shown("useful_patterns", "situation")[0].endswith(f"user: video; situation-{n}-x")
    assert f"action-{n}-x" not in found.texts("useful_patterns")[0]
