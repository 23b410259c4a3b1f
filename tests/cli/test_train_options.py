"""What the options of `mempiler train` stand for, and mistakes in them; nothing is trained here."""

from collections.abc import Callable
from typing import Any

import pytest
from mempiler.errors import UserError


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--lm offline", "cannot be trained in this process; use --lm local:NAME"),
        ("--lm local:x --with ppo", "--with 'ppo': choose one of grpo, grpo-session, "),
        ("--lm local:x --train-set session_reward=fair", "session_reward = 'fair'; choose one of: session, "),
        ("--lm local:x --lm-set temperature=0", "temperature = 0: rollouts at 0 are all the same"),
        ("--lm local:x --train-set samples=0", "samples = 0: at least 1"),
        ("--lm local:x --train-set horizons=8,x", "of the wrong kind"),
        ("--lm local:x --train-set horizons=[8,4]", "growing numbers of sessions"),
        ("--lm local:x --train-set num_rollouts=1", "num_rollouts = 1"),
        ("--lm local:x --train-set lora=0", "lora = 0: give a whole number"),
        ("--lm local:x --train-set compression=-1", "compression = -1 is negative"),
    ],
)
def test_mistakes_are_one_line(words: str, says: str, cli: Any) -> None:
    code, _, err = cli("train", "memory-r2", "--on", "memory-env", *words.split())
    assert (code, "Traceback" in err) == (2, False)
    assert err.splitlines()[-1].startswith("mempiler: ")
    assert says in err.splitlines()[-1]


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


def test_the_reader_s_server_is_its_own(asked: Any) -> None:
    words = ["--train-set", "answer_lm=openai/x", "--train-set", "answer_api_base=http://localhost:9/v1"]
    setup, course = asked(*words)
    assert (course.answer_lm, course.answer_api_base, setup.api_base) == ("openai/x", "http://localhost:9/v1", None)


def test_what_weights_are_loaded_as(asked: Any) -> None:
    assert asked("--train-set", "dtype=bfloat16")[1].dtype == "bfloat16"
    assert asked()[1].dtype is None
