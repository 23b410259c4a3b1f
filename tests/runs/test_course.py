"""What a training is made with, and what the tiny model is shown before."""

import re
from functools import partial
from pathlib import Path

import pytest
from mempiler.engines.embedders import embedder
from mempiler.engines.local.settings import Reinforcement
from mempiler.programs.memory_r2.method import MemoryR2, MemoryR2Settings
from mempiler.runs import tiny
from mempiler.runs.course import OBJECTIVES, Course


@pytest.mark.parametrize(("name", "reward"), [(name, reward) for name, (_, reward) in OBJECTIVES.items()])
def test_an_objective_has_its_groups_and_its_reward(name: str, reward: str | None) -> None:
    found = Course(objective=name).training(7)
    assert (found.objective, found.session_reward, found.seed) == (OBJECTIVES[name][0], reward or "session", 7)
    given = Course(objective=name).changed({"session_reward": "cumulative"}).training(0).session_reward
    assert given == (reward or "cumulative")


def test_settings_go_where_they_belong():
    before = Course.for_model("local:tiny")
    course = before.changed({"lora": 4, "num_rollouts": 2, "tokens": 900, "horizons": [1, 2], "beta": 0.5})
    assert (course.lora, course.settings.num_rollouts) == (4, 2)
    assert (course.settings.curriculum.tokens, course.settings.curriculum.horizons) == (900, (1, 2))
    assert course.train_kwargs == {**before.train_kwargs, "beta": 0.5}


@pytest.mark.parametrize(
    ("lm", "batch", "decay", "tokens"), [("local:Qwen/Qwen2.5-7B", 1024, 0.01, 2048), ("local:tiny", 48, 0.0, 96)]
)
def test_a_training_has_the_released_batches_and_the_tiny_model_its_own(lm, batch, decay, tokens):
    course = Course.for_model(lm)
    given = Reinforcement.parse(course.train_kwargs)
    assert (given.batch_size, given.weight_decay, course.answer_tokens) == (batch, decay, tokens)


def test_every_session_is_shown() -> None:
    method = MemoryR2(embedder(), MemoryR2Settings(**MemoryR2.preset("memory-env")))
    for shown in tiny.demonstrations(method, 0, users=4, extractions=1.0):
        ids = {int(id) for messages, _ in shown for id in re.findall(r"D(\d+):", messages[-1]["content"])}
        assert ids == set(range(1, 9))


@pytest.mark.slow
def test_the_tiny_model_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the `local` extra is not installed: pip install '.[local]'")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tiny, "demonstrations", partial(tiny.demonstrations, users=4))
    for name, value in {"STEPS": 2, "POOR_STEPS": 1, "BATCH": 2}.items():
        monkeypatch.setattr(tiny, name, value)
    folder = tiny.tiny_folder()
    made = (folder / "config.json").stat().st_mtime_ns
    assert (tiny.tiny_folder(), (folder / "config.json").stat().st_mtime_ns) == (folder, made)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
