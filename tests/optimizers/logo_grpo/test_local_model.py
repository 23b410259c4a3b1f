"""LoGo-GRPO on a real transformers model of a few thousand steps' worth: protocol, weights, resuming."""

from pathlib import Path
from typing import Any

import dspy
import pytest

pytest.importorskip("torch", reason="the `local` extra is not installed: pip install '.[local]'")
pytest.importorskip("transformers", reason="the `local` extra is not installed: pip install '.[local]'")

from mempiler.data.memory_env import MemoryEnv
from mempiler.engines.embedders import embedder
from mempiler.engines.local.model import LocalModel
from mempiler.optimizers.logo_grpo import LoGoGRPO
from mempiler.optimizers.logo_grpo.settings import Curriculum, TrainingSettings
from mempiler.programs.catalog import build, preset

from tests.tiny_model import warmed_up

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return warmed_up(tmp_path_factory.mktemp("tiny") / "model", 12, steps=30, batch_size=12)


def build_program(**config: Any) -> Any:
    settings = {**preset("memory-r2", "memory-env"), **config}
    return build("memory-r2", "memory-lookup", embedder(), adapter="compact", **settings)


def train(start: Path, folder: Path, kill: int | None = None, **config: Any) -> tuple[LoGoGRPO, Any, list[Any]]:
    from mempiler.engines.local.engine import local_lm
    from mempiler.programs.adapter import adapter

    env = MemoryEnv.load(users=10, sessions=2)
    model, rows = LocalModel.load(start, device="cpu"), []

    def note(row: Any) -> None:
        rows.append(row)
        if row["step"] == kill and "horizon" in row:
            raise KeyboardInterrupt

    teleprompter = LoGoGRPO(
        lambda example, prediction: env.score(example, prediction).value,
        TrainingSettings(
            num_rollouts=3,
            local_n=3,
            local_fraction=1.0,
            histories=1,
            curriculum=Curriculum((1, 2), steps=2),
            validate_every=1,
            threads=1,
            max_format_failures=1.0,
        ),
        {"learning_rate": 5e-4, "beta": 0.02},
        env.questions_after,
        folder=folder,
        note=note,
    )
    lm: Any = local_lm(model, max_tokens=40)
    with dspy.context(lm=lm, adapter=adapter("compact")):
        teleprompter.compile(build_program(**config), trainset=env.split().train)
    return teleprompter, lm.engine.model, rows


@pytest.fixture(scope="module")
def whole(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An unbroken training: teleprompter, model, rows, and the groups that its trainer was sent."""
    from mempiler.engines.local.reinforce import LocalReinforceJob

    seen: list[Any] = []
    step = LocalReinforceJob.step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalReinforceJob, "step", lambda self, data, form=None: (seen.append(data), step(self, data))[1])
        return *train(start, tmp_path_factory.mktemp("whole")), seen


def test_weights_move_and_a_resumed_training_gives_the_very_same(start: Path, whole: Any, tmp_path: Path) -> None:
    before = LocalModel.load(start, device="cpu").fingerprint
    unbroken, model, rows, _ = whole
    assert [row["step"] for row in rows if "horizon" in row] == [1, 2, 3, 4]
    assert all(row["train_rows"] == row["members"] > 0 for row in rows if "train_rows" in row)
    assert sum("train_rows" in row for row in rows) > 0
    assert model.fingerprint != before
    with pytest.raises(KeyboardInterrupt):
        train(start, tmp_path / "broken", kill=4)  # in the second stage, whose reference is not the start
    resumed, again, after = train(start, tmp_path / "broken")
    assert [row["step"] for row in after if "horizon" in row] == [4]
    assert again.fingerprint == model.fingerprint
    assert LocalModel.load(tmp_path / "broken" / "model", device="cpu").fingerprint == model.fingerprint
    assert resumed.progress.tokens == unbroken.progress.tokens


def test_what_was_sampled_is_what_is_trained(whole: Any) -> None:
    _, model, _, seen = whole
    items = [item for data in seen for group in data for item in group["group"]]
    assert items
    for item in items:
        assert len(item["completion_ids"]) == len(item["logprobs"]) > 0
        assert item["prompt_ids"] == model.encode(item["messages"])
        ended = item["completion_ids"][-1] in model.ends
        assert (
            model.decode(item["completion_ids"][:-1] if ended else item["completion_ids"])
            == item["completion"]["content"]
        )
