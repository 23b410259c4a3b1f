"""A whole practice run of PraMem with a scripted model: trial, reflection, review, pool, consensus, position."""

import dspy
import pytest
from mempiler.programs.catalog import build
from mempiler.programs.pramem.memory import COMMON_BIASES


def pramem(**settings):
    return build("pramem", task="behavior-prediction", **{"rounds": 10, "min_history": 5, **settings})


def practised(lm, history, **settings):
    with dspy.context(lm=lm):
        return pramem(**settings).remember(history).memory


def test_a_run_tries_reflects_reviews_and_adjusts_every_five_rounds(scripted, practice_script, behavior_history):
    lm = scripted(practice_script())
    memory = practised(lm, behavior_history())
    per_round = ("useful_patterns", "tasks", "plans", "groundedness", "virtual_scenes", "generality")
    assert lm.engine.calls == {**dict.fromkeys(per_round, 10), "decisions": 2}
    assert [done.number for done in memory.journal] == list(range(1, 11))
    assert all(done.outcome == {"pooled": 3} and done.verdicts == ("wrong",) for done in memory.journal)
    assert memory.adjusted == (0, 5, 10)
    assert [part.text for part in memory.patterns] == ["Ann, 34, nurse", "agreed p-1", "agreed p-2"]
    assert (memory.practised, memory.waiting, memory.rounds) == (30, 0, 10)


def test_rounds_between_two_adjustments_see_the_same_experience(
    scripted, practice_script, behavior_history, prompt_section
):
    lm = scripted(practice_script())
    practised(lm, behavior_history(), parallel=False)
    shown = [prompt_section(text, "patterns") for kind, text in lm.engine.prompts if kind == "useful_patterns"]
    assert ["agreed p-1" in patterns for patterns in shown] == [False] * 5 + [True] * 5
    assert "agreed p-2" not in "".join(shown)


def test_reflection_is_shown_the_thinking_of_its_trial_and_each_kind_of_experience(
    scripted, practice_script, behavior_history, prompt_section
):
    thought = {"useful_patterns": ["nurse"], "useful_alerts": ["mind"], "reasoning": "so", "predicted_action": "x"}
    lm = scripted(practice_script(useful_patterns=thought))
    practised(lm, behavior_history(), rounds=1)
    ((_, text),) = [prompt for prompt in lm.engine.prompts if prompt[0] == "tasks"]
    assert prompt_section(text, "thinking") == "nurse\nmind\nso"
    shown = [prompt_section(text, f"{kind}_experiences") for kind in ("pattern", "alert")]
    assert [["Ann, 34, nurse" in part, COMMON_BIASES[0] in part] for part in shown] == [[True, False], [False, True]]


def test_invented_ids_are_refused_and_the_pool_stays_word_for_word(scripted, practice_script, behavior_history):
    asked = {
        "decisions": "-",
        "changes": {"action": "add pattern", "text": "x", "proposal_ids": ["p-1", "p-2", "p-77"]},
    }
    listed = {**asked, "changes": [asked["changes"]]}
    memory = practised(scripted(practice_script(decisions=listed)), behavior_history(), rounds=5)
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
def test_an_unreadable_answer_costs_its_round_and_is_counted(scripted, practice_script, behavior_history, kind, counts):
    with dspy.context(lm=scripted(practice_script(**{kind: "no"}))):
        node = pramem().remember(behavior_history())
    assert node.memory.counts == counts
    assert len(node.failures) == (2 if kind == "decisions" else 10)
    assert [part.text for part in node.memory.patterns] == ["Ann, 34, nurse"]
    assert node.memory.waiting == 0


def test_proposals_beyond_n_about_unknown_entries_or_without_content_are_invalid(
    scripted, practice_script, behavior_history
):
    drafts = [
        {"action": "modify", "experience_id": "pattern-1", "content": "is 35 now", "record_ids": "[a1]"},
        {"action": "Remove Existing Experience", "experience_id": "alert-2", "content": None},
        {"action": "modify", "experience_id": "pattern-9", "content": "x"},
        {"action": "add pattern", "content": " "},
        {"action": "add pattern", "content": "one too many"},
    ]
    script = practice_script(tasks={"tasks": [], "proposals": drafts})
    memory = practised(scripted(script), behavior_history(), rounds=1, proposals=4)
    assert memory.counts == {"invalid": 3, "pooled": 2}
    target = memory.journal[0].record
    assert [(p.action, p.target, p.sources) for p in memory.pool] == [
        ("modify", "pattern-1", (target, "a1")),
        ("remove", "alert-2", (target,)),
    ]


def test_nothing_is_asked_of_a_pool_that_did_not_grow(scripted, practice_script, behavior_history):
    lm = scripted(practice_script(tasks=lambda text, n: {"tasks": [], "proposals": []}))
    memory = practised(lm, behavior_history())
    assert lm.engine.calls["decisions"] == lm.engine.calls["groundedness"] == 0
    assert memory.rounds == 10


def test_order_does_not_matter_and_settling_again_changes_nothing(scripted, practice_script, behavior_history):
    history, memories = behavior_history(), []
    for parallel in (True, False):
        lm = scripted(practice_script(), 0.002)
        memories.append(practised(lm, history, parallel=parallel, samples=2))
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
def test_there_are_as_many_rounds_as_records_allow(scripted, practice_script, behavior_history, records, rounds):
    memory = practised(scripted(practice_script()), behavior_history(records))
    assert (memory.rounds, memory.practised, memory.waiting) == (rounds, records, 0)


def test_profile_and_records_before_the_target_are_what_a_trial_sees(
    scripted, practice_script, behavior_history, prompt_section
):
    lm = scripted(practice_script())
    memory = practised(lm, behavior_history(), rounds=1)
    ((_, text),) = [prompt for prompt in lm.engine.prompts if prompt[0] == "useful_patterns"]
    n = int(memory.journal[0].record[1:])
    lines = prompt_section(text, "recent_records").splitlines()
    assert lines[0] == "[profile:1] profile: Ann, 34, nurse"
    assert [line.split("]")[0].strip("[") for line in lines[1:]] == [f"a{m}" for m in range(1, n)]
    assert f"user: video; situation-{n}-x\n" in prompt_section(text, "situation")
    assert f"action-{n}-x" not in text
