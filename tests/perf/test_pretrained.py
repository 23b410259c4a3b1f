"""perf/pretrained.py: the rungs it climbs, and its table."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "perf" / "pretrained.py"


@pytest.fixture(scope="module")
def pretrained():
    pytest.importorskip("torch", reason="local models need the local extra")
    spec = importlib.util.spec_from_file_location("pretrained", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["pretrained"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["pretrained"]


def test_all_rungs_are_climbed_once_and_compared_with_what_they_began_from(
    pretrained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mempiler.engines.embedders import embedder
    from mempiler.engines.local.tiny import create
    from mempiler.optimizers.demonstrations import demonstrate
    from mempiler.programs.compact_adapter import CompactAdapter
    from mempiler.programs.memory_r2.method import MemoryR2

    method = MemoryR2(embedder(), **{**MemoryR2.preset("memory-env"), "chunk_turns": 2})
    model = create(tmp_path / "model", demonstrate(method, CompactAdapter(), 4))
    monkeypatch.setattr(pretrained, "ANSWER", 3)
    small = ["--users=10", "--sessions=1", "--taught=2", "--demos=1", "--draws=1", "--sft-steps=1"]
    small += ["--rollouts=2", "--horizon=1", "--tokens=1", "--lora=2"]
    command = ["pretrained", f"--out={tmp_path / 'out'}", f"--model={model}", *small]
    monkeypatch.setattr(sys, "argv", command)
    pretrained.main()
    rows = {rung: json.loads((tmp_path / "out" / f"{rung}.json").read_text()) for rung in pretrained.RUNGS}
    assert {len(row[kind]["scores"]) for row in rows.values() for kind in ("greedy", "sampled")} == {
        len(rows["SFT"]["greedy"]["users"])
    }
    assert rows["LoGo-GRPO"]["told"].startswith("1 steps")
    capsys.readouterr()
    monkeypatch.setattr(pretrained.Ladder, "run", lambda *args: pytest.fail("climbed again"))
    pretrained.main()
    shown = capsys.readouterr().out
    assert [line.split(" | ")[0] for line in shown.splitlines()[2:8]] == [f"| {rung}" for rung in pretrained.RUNGS]


def test_demonstrations_are_what_a_perfect_writer_answers(pretrained: Any) -> None:
    from mempiler.data.catalog import benchmark
    from mempiler.engines.embedders import embedder
    from mempiler.programs.catalog import build
    from mempiler.programs.memory_r2.method import MemoryR2

    program = build("memory-r2", benchmark("memory-env").task, embedder(), **MemoryR2.preset("memory-env"))
    found = pretrained.shown(program, 3, 4, 0)
    assert {name: bool(examples) for name, examples in found.items()} == {"extract": True, "manage": True}
    operations = [operation.op for example in found["manage"] for operation in example.operations]
    assert set(operations) <= {"INSERT", "UPDATE", "DELETE", "NONE"}
    assert not any(predictor.demos for predictor in program.method.writer.predictors_below().values())


def test_a_rung_that_answers_more_than_its_start_is_shown_with_a_gain(pretrained: Any) -> None:
    def rung(name: str, scores: list[float]) -> dict[str, Any]:
        found = {"scores": scores, "users": ["u1", "u2"], "malformed": 0.0, "tokens": 1}
        return {"rung": name, "told": "", "tuning_s": 0, "scoring_s": 0, "greedy": found, "sampled": found}

    line = pretrained.table([rung("zero-shot", [0.0, 0.0]), rung("SFT", [1.0, 1.0])]).splitlines()[-1]
    assert line.split(" | ")[2] == "+1.000 [+1.000, +1.000]"
