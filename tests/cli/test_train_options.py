"""What the options of `mempiler train` stand for, and mistakes in them; nothing is trained here."""

from collections.abc import Callable
from typing import Any

import pytest
from mempiler.errors import UserError


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--lm", "offline"), "cannot be trained in this process; use --lm local:NAME"),
        (("--lm", "local:x", "--with", "ppo"), "--with 'ppo': choose one of grpo, grpo-session, "),
        (
            ("--lm", "local:x", "--train-set", "session_reward=fair"),
            "session_reward = 'fair'; choose one of: session, ",
        ),
        (("--lm", "local:x", "--lm-set", "temperature=0"), "temperature = 0: rollouts at 0 are all the same"),
        (("--lm", "local:x", "--train-set", "samples=0"), "samples = 0: at least 1"),
        (("--lm", "local:x", "--quick"), "--quick shortens the training of local:tiny"),
        (("--lm", "local:x", "--train-set", "horizons=8,x"), "of the wrong kind"),
        (("--lm", "local:x", "--train-set", "horizons=[8,4]"), "growing numbers of sessions"),
        (("--lm", "local:x", "--train-set", "num_rollouts=1"), "num_rollouts = 1"),
        (("--lm", "local:x", "--train-set", "seeds=0"), "seeds = 0: give a whole number"),
        (("--lm", "local:x", "--train-set", "compression=-1"), "compression = -1 is negative"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], says: str, cli: Any) -> None:
    code, _, err = cli("train", "memory-r2", "--on", "memory-env", *words)
    lines = err.splitlines()
    assert code == 2
    assert says in lines[-1]
    assert lines[-1].startswith("mempiler: ")
    assert not any("Traceback" in line for line in lines)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, cli: Any) -> Callable[..., tuple[Any, Any]]:
    """The setup and the course that a command stands for."""
    found: list[Any] = []

    def heard(method: str, setup: Any, course: Any, *rest: Any) -> None:
        found[:] = setup, course
        raise UserError("heard")

    def ask(*words: str) -> tuple[Any, Any]:
        assert cli("train", "memory-r2", "--on", "memory-env", "--lm", "local:tiny", *words)[0] == 2
        return found[0], found[1]

    monkeypatch.setattr("mempiler.runs.train.run_train", heard)
    return ask


def test_a_comparison_has_three_seeds_and_many_users(asked: Any) -> None:
    setup, course = asked()
    assert course.names() == ["grpo", "grpo-session", "local", "logo-grpo"]
    assert (course.seeds, course.quick) == (3, False)
    assert (course.settings.curriculum.horizons, course.settings.histories) == ((8,), 2)
    assert len({example.history.id for example in setup.split(setup.load()).test}) == 120
    assert asked("--option", "users=50")[0].options["users"] == 50


def test_a_quick_comparison_is_smaller_unless_told(asked: Any) -> None:
    setup, course = asked("--quick")
    assert (course.seeds, course.quick, setup.options) == (1, True, {"users": 100})
    assert course.settings.curriculum.tokens < asked()[1].settings.curriculum.tokens
    assert asked("--quick", "--train-set", "seeds=2", "--train-set", "samples=5")[1].seeds == 2


def test_without_a_comparison_one_objective_is_trained_with_one_seed(asked: Any) -> None:
    for words, name in ((["--only"], "logo-grpo"), (["--with", "grpo"], "grpo")):
        setup, course = asked(*words)
        assert (course.names(), course.seeds, setup.options) == ([name], 1, {})


def test_the_reader_s_server_is_its_own(asked: Any) -> None:
    words = ["--train-set", "answer_lm=openai/x", "--train-set", "answer_api_base=http://localhost:9/v1"]
    setup, course = asked(*words)
    assert (course.answer_lm, course.answer_api_base, setup.api_base) == ("openai/x", "http://localhost:9/v1", None)


def test_what_weights_are_loaded_as(asked: Any) -> None:
    assert asked("--train-set", "dtype=bfloat16")[1].dtype == "bfloat16"
    assert asked()[1].dtype is None
