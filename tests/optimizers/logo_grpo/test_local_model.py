"""LoGo-GRPO on a real transformers model of a few thousand weights: what was sampled is what is trained."""

from pathlib import Path
from typing import Any

import dspy
import pytest

pytest.importorskip("torch", reason="the `local` extra is not installed: pip install '.[local]'")
pytest.importorskip("transformers", reason="the `local` extra is not installed: pip install '.[local]'")

from mempiler.data.memory_env import MemoryEnv
from mempiler.engines.embedders import embedder
from mempiler.engines.local.engine import local_lm
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.reinforce import LocalReinforceJob
from mempiler.optimizers.logo_grpo import LoGoGRPO
from mempiler.optimizers.logo_grpo.settings import Curriculum, TrainingSettings
from mempiler.programs.adapter import adapter
from mempiler.programs.catalog import build, preset

from tests.tiny_model import warmed_up

pytestmark = pytest.mark.slow
SETTINGS = {"num_rollouts": 3, "local_n": 3, "local_fraction": 1.0, "histories": 1, "threads": 1}


def test_what_was_sampled_is_what_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LocalModel.load(warmed_up(tmp_path / "model", 12, steps=30, batch_size=12), device="cpu")
    seen: list[Any] = []
    step = LocalReinforceJob.step
    listening = lambda self, data, form=None: (seen.append(data), step(self, data))[1]  # noqa: E731
    monkeypatch.setattr(LocalReinforceJob, "step", listening)
    env, rows, before = MemoryEnv.load(users=10, sessions=2), list[Any](), model.fingerprint
    teleprompter = LoGoGRPO(
        lambda example, prediction: env.score(example, prediction).value,
        TrainingSettings(**SETTINGS, curriculum=Curriculum((1, 2), steps=2), max_format_failures=1.0),
        {"learning_rate": 5e-4, "beta": 0.02},
        env.questions_after,
        note=rows.append,
    )
    program: Any = build("memory-r2", "memory-lookup", embedder(), **preset("memory-r2", "memory-env"))
    lm: Any = local_lm(model, max_tokens=40)
    with dspy.context(lm=lm, adapter=adapter("compact")):
        teleprompter.compile(program, trainset=env.split().train)
    assert [row["step"] for row in rows if "horizon" in row] == [1, 2, 3, 4]
    assert all(row["train_rows"] == row["members"] > 0 for row in rows if "train_rows" in row)
    trained = lm.engine.model
    assert trained.fingerprint != before
    items = [item for data in seen for group in data for item in group["group"]]
    assert items
    for item in items:
        ids = item["completion_ids"]
        assert len(ids) == len(item["logprobs"]) > 0
        assert item["prompt_ids"] == trained.encode(item["messages"])
        said = ids[:-1] if ids[-1] in trained.ends else ids
        assert trained.decode(said) == item["completion"]["content"]
