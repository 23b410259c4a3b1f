"""What each objective of a course is trained with."""

import pytest
from mempiler.runs.course import OBJECTIVES, Course


def test_objectives_of_a_comparison_differ_in_groups_and_reward_and_generate_as_much() -> None:
    course = Course.for_model("local:tiny").comparing()
    found = {name: course.shaped(name, 7) for name in course.names()}
    told = {
        name: (each.objective, each.session_reward, each.num_rollouts, each.local_n) for name, each in found.items()
    }
    assert told == {
        "grpo": ("grpo", "trajectory", 16, 12),
        "grpo-session": ("grpo", "session", 16, 12),
        "local": ("local", "trajectory", 2, 14),
        "logo-grpo": ("logo", "trajectory", 4, 12),
    }
    assert {each.seed for each in found.values()} == {7}


@pytest.mark.parametrize(("name", "kept"), [(name, reward) for name, (_, reward) in OBJECTIVES.items()])
def test_the_users_session_reward_is_that_of_the_asked_objective_alone(name: str, kept: str | None) -> None:
    asked = Course(objective=name, session_reward="cumulative")
    assert asked.shaped(name, 0).session_reward == "cumulative"
    other = next(each for each in OBJECTIVES if each != name)
    assert Course(objective=other, session_reward="cumulative").shaped(name, 0).session_reward == kept or kept is None


def test_settings_go_where_they_belong():
    tiny = Course.for_model("local:tiny")
    course = tiny.changed({"lora": 4, "num_rollouts": 2, "tokens": 900, "horizons": [1, 2], "beta": 0.5})
    assert (course.lora, course.settings.num_rollouts) == (4, 2)
    assert (course.settings.curriculum.tokens, course.settings.curriculum.horizons) == (900, (1, 2))
    assert course.train_kwargs == {**tiny.train_kwargs, "beta": 0.5}
