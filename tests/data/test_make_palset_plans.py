"""The calendar of a PAL-Set, and the plans of its dialogues."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.synthesis.palset.dialogue import script, turn_problems
from mempiler.data.synthesis.palset.life import draw, moments, months_of
from mempiler.data.synthesis.palset.people import Topic
from mempiler.signatures.synthesis_palset import DraftTopic
from mempiler.signatures.synthesis_palset_records import DraftTurn

from .conftest import AFTER
from .test_make_palset_checks import EIGHT, TOPIC, choices, has


def test_the_calendar_ends_before_january_2025():
    assert months_of("0000", 1, 0) == ["2024-12"]
    assert months_of("0000", 14, 0)[:3] == ["2023-11", "2023-12", "2024-01"]
    assert {len(months_of("0000", None, seed)) for seed in range(60)} == set(range(7, 13))


@given(seed=st.integers(0, 500), per_month=st.integers(4, 6), months=st.integers(2, 12))
def test_dialogues_are_drawn_by_the_rules(seed, per_month, months):
    known = months_of("0000", months, 0)
    ends = [f"{month}-{n:02d}" for month in known for n in range(10, 10 + per_month)]
    drawn = draw("0000", ends, known[-1], seed)
    assert "0000" not in "".join("1" if end in drawn else "0" for end in ends)
    assert set(drawn.values()) == {"history", "query"}
    assert all((part == "query") == end.startswith("2024-12") for end, part in drawn.items())
    assert drawn == draw("0000", ends, known[-1], seed)


def test_six_of_ten_situations_get_a_dialogue_and_every_one_after_three_without():
    ends = [f"2024-11-{n:02d}" for n in range(1, 30)] + [f"2024-12-{n}" for n in range(25, 29)]
    drawn = sum(len(draw("u", ends, "2024-12", seed)) for seed in range(300))
    # A drop run has 3 at most, so the expected length of a cycle is 1 + .4 + .16 + .064 situations.
    assert drawn / 300 / len(ends) == pytest.approx(1 / (1 + 0.4 + 0.16 + 0.064), abs=0.02)


def test_situations_begin_in_the_morning_and_end_in_the_afternoon():
    times = [moments("0000", "2024-02-01", "2024-02-07", seed) for seed in range(300)]
    assert {begin[11:] for begin, _ in times} == {f"{hour:02d}:00:00" for hour in range(7, 13)}
    assert {end for _, end in times} == {f"2024-02-07 {hour:02d}:00:00" for hour in range(12, 22)}


FRAME = Topic(DraftTopic(**TOPIC), EIGHT, "a", choices(0, 1), choices(6, 7))


@given(seed=st.integers(0, 2000), part=st.sampled_from(["history", "query"]), count=st.integers(1, 3))
def test_every_plan_follows_the_transitions_and_refers_to_its_framework(seed, part, count):
    planned = script([FRAME] * count, part, str(seed))
    framework = json.loads(planned.framework)
    labels = {label for topic in framework.values() for side in ("requirements", "solutions") for label in topic[side]}
    assert list(framework) == [f"T{n}" for n in range(1, count + 1)]
    assert {label for one in planned.plan for _, label in one.values()} == labels
    told = [one for topic in framework.values() for one in topic["solutions"].values()]
    assert part == "history" or {one["feedback"] for one in told} == {"pos"}
    replies = ["feedback response"]
    for one in planned.plan:
        assert one["user"][0] in AFTER["assistant"][replies[-1]]
        assert one["assistant"][0] in AFTER["user"][one["user"][0]]
        replies.append(one["assistant"][0])
    assert replies[-1] == "feedback response"


def test_plans_are_drawn_with_the_released_chances():
    counts = {"history": Counter(), "query": Counter()}
    needs, talks, proposals = Counter(), 0, 0
    for seed in range(1500):
        for part, counter in counts.items():
            planned = script([FRAME], part, f"{part} {seed}")
            topic = json.loads(planned.framework)["T1"]
            counter[len(topic["solutions"])] += 1
            needs[len(topic["requirements"]) - 1] += 1
            talks += sum(one["user"][0] == "solution discussion" for one in planned.plan)
            proposals += len(topic["solutions"])
    share = {part: [counter[n] / 1500 for n in (1, 2, 3)] for part, counter in counts.items()}
    assert share["history"] == pytest.approx([0.2, 0.4, 0.4], abs=0.04)
    assert share["query"] == pytest.approx([0.5, 0.5, 0.0], abs=0.04)
    assert needs[1] / 3000 == pytest.approx(0.5, abs=0.03)
    assert talks / proposals == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda turns: None, None),
        (lambda turns: turns.pop(), "turns; the plan has"),
        (lambda turns: turns[0]["user"].update(content=" "), "turn 1, user: no words"),
        (lambda turns: turns[0]["user"].update(action="solution feedback"), "turn 1, user: action is solution feed"),
        (lambda turns: turns[1]["assistant"].update(reference="T9_S1"), "turn 2, assistant: reference is 'T9_S1'"),
    ],
)
def test_dialogues_follow_their_plan(change, problem):
    plan = script([FRAME], "history", "7").plan
    turns = [
        {
            role: {"action": said.title(), "reference": f" {label}", "content": "words"}
            for role, (said, label) in one.items()
        }
        for one in plan
    ]
    change(turns)
    has(turn_problems([DraftTurn(**turn) for turn in turns], plan), problem)
