"""The experience document, and practice samples: what they show of the history, and how they are drawn."""

from hypothesis import given
from hypothesis import strategies as st
from mempiler.programs.pramem.memory import ExperienceMemory
from mempiler.programs.pramem.samples import PracticeSettings
from mempiler.programs.pramem.samples import draw as drawn
from mempiler.records import Action


def actions(count, start=1):
    return [
        Action(id=f"a{n}", scene="video", situation=f"situation-{n}-x", action=f"action-{n}-x")
        for n in range(start, start + count)
    ]


def memory(count):
    return ExperienceMemory().with_records(actions(count))


def draw(memory, rounds, samples=1, **settings):
    return drawn(memory, PracticeSettings(rounds=rounds, samples=samples, **settings))


def number(id):
    return int(id[1:])


@given(
    count=st.integers(0, 60),
    more=st.integers(0, 30),
    rounds=st.integers(1, 80),
    per_round=st.integers(1, 3),
    tokens=st.integers(0, 400),
    least=st.integers(1, 12),
    weighting=st.sampled_from(["uniform", "recency"]),
    seed=st.integers(0, 5),
)
def test_a_sample_shows_the_records_right_before_its_target_and_none_later(
    count, more, rounds, per_round, tokens, least, weighting, seed
):
    start = memory(count)
    settings = {"practice_tokens": tokens, "weighting": weighting, "min_history": least, "seed": seed}
    first = draw(start, rounds, per_round, **settings)
    grown = start.covered(tokens).with_records(actions(more, count + 1))
    second = draw(grown, rounds, per_round, **settings)
    for samples, since, total in ((first, 0, count), (second, count, count + more)):
        targets = [number(sample.target.id) for sample in samples]
        room = max(0, total - max(since, least))
        assert len(samples) == (
            min(rounds * per_round, room) if weighting == "uniform" else room and rounds * per_round
        )
        assert weighting == "recency" or len(set(targets)) == len(targets)
        assert all(since < target <= total and target > least for target in targets)
    for sample in (*first, *second):
        target, shown = number(sample.target.id), [number(record.id) for record in sample.past]
        assert shown == list(range(target - len(shown), target))
        assert f"action-{target}-x" not in sample.records + sample.situation + sample.scene(500)


def test_fewer_rounds_draw_the_first_of_the_same_samples():
    many = draw(memory(50), 30, seed=3)
    assert draw(memory(50), 10, seed=3) == many[:10]
    assert draw(memory(50), 10, seed=4) != many[:10]


def test_a_target_carries_its_questions_and_one_without_any_is_not_drawn():
    asked = [
        action.model_copy(update={"questions": ("Like it?", "Share it?")[: n % 3]})
        for n, action in enumerate(actions(9))
    ]
    samples = draw(ExperienceMemory().with_records(asked), 9, min_history=1)
    assert sorted(number(sample.target.id) for sample in samples) == [2, 3, 5, 6, 8, 9]
    sample = next(sample for sample in samples if sample.target.id == "a3")
    assert sample.situation.splitlines()[1:] == ["1. Like it?", "2. Share it?"]
    assert sample.exercise.splitlines() == [sample.target.turn().line(), "1. Like it?", "2. Share it?"]
    assert sample.scene(100) == "video; situation-3-x 1. Like it? 2. Share it?"
    assert sample.scene(5) == "video... 1. Like it? 2. Share it?"
    assert draw(memory(9), 9, min_history=1)[0].situation.count("\n") == 0
