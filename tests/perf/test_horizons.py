"""perf/horizons.py: what it runs, in which order, and what its table is made of."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "perf" / "horizons.py"


@pytest.fixture(scope="module")
def horizons():
    spec = importlib.util.spec_from_file_location("horizons", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["horizons"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["horizons"]


def test_all_objectives_are_run_at_all_horizons_one_seed_after_the_other(horizons: Any) -> None:
    found = horizons.cells([], range(2))
    assert len(found) == 5 * (1 + 2 * 5)
    assert [seed for *_, seed in found] == sorted(seed for *_, seed in found)
    assert found[:2] == [("start", (8,), 0), ("trajectory", (8,), 0)]
    assert ("logo", (8, 16, 32), 1) in found


@pytest.mark.parametrize(
    ("only", "count"),
    [(["logo:8"], 2), (["logo"], 10), ([":32"], 6), (["logo:8", "local:8"], 3), (["logo:8,16,32"], 2)],
)
def test_cells_are_chosen_by_objective_and_horizon(horizons: Any, only: list[str], count: int) -> None:
    found = horizons.cells(only, [0])
    assert len(found) == count
    assert found[0][0] == "start"


def test_a_step_costs_every_objective_as_many_sessions(horizons: Any) -> None:
    sizes = {}
    for name, given in horizons.OBJECTIVES.items():
        sizes[name] = given["num_rollouts"] + (given.get("local_n", 0))
    assert set(sizes.values()) == {8}


def test_the_table_compares_with_the_trajectory_reward_of_the_same_seed(
    horizons: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users, kinds = [f"u{n // 2}" for n in range(20)], ["state"] * 10 + ["planned"] * 10

    def cell(name: str, seed: int, right: int) -> None:
        part = {"score": right / 20, "scores": [1.0] * right + [0.0] * (20 - right), "users": users, "kinds": kinds}
        row = {"name": name, "horizons": "8", "seed": seed, "tokens": 1000, "greedy": part, "sampled": part}
        (tmp_path / f"{name}-8-{seed}.json").write_text(json.dumps(row))

    for name, rights in (("start", [8]), ("trajectory", [10, 12]), ("logo", [14, 18])):
        for seed, right in enumerate(rights):
            cell(name, seed, right)
    written = tmp_path / "table.md"
    table = horizons.main(["--out", str(tmp_path), "--report", str(written)])
    assert written.read_text().strip() == table == capsys.readouterr().out.strip()
    rows = {line.split(" | ")[1]: line for line in table.splitlines()[2:]}
    assert list(rows) == ["start", "trajectory", "logo"]
    assert ".800" in rows["logo"]
    assert "(0.700, 0.900)" in rows["logo"]
    assert "+0.250 [" in rows["logo"]
    assert rows["trajectory"].split(" | ")[5] == ""
    assert rows["logo"].split(" | ")[6:9] == ["0.600", "", "1.000"]


def test_a_cell_is_trained_scored_and_not_run_again(
    horizons: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="local models need the local extra")
    from mempiler.engines.embedders import embedder
    from mempiler.engines.local.tiny import create
    from mempiler.optimizers.demonstrations import demonstrate
    from mempiler.programs.compact_adapter import CompactAdapter
    from mempiler.programs.memory_r2.method import MemoryR2

    method = MemoryR2(embedder(), **MemoryR2.preset("memory-env"))
    start = create(tmp_path / "start", demonstrate(method, CompactAdapter(), 4, world="dependent"))
    monkeypatch.setattr(horizons, "ANSWER_TOKENS", 3)
    monkeypatch.setattr(horizons, "HORIZONS", ((2,),))
    small = {"objective": "logo", "session_reward": "trajectory", "num_rollouts": 2, "local_n": 2}
    monkeypatch.setattr(horizons, "OBJECTIVES", {"logo": small})
    asked = ["--out", str(tmp_path / "out"), "--model", str(start), "--users", "10", "--tokens", "1"]
    horizons.main(asked)
    row = json.loads((tmp_path / "out" / "logo-2-0.json").read_text())
    assert row["tokens"] > 0
    assert len(row["steps"]) == 1
    assert len(row["greedy"]["scores"]) == len(row["sampled"]["users"]) > 0
    before = (tmp_path / "out" / "logo-2-0.json").stat().st_mtime_ns
    monkeypatch.setattr(horizons.Bench, "_train", lambda *args: pytest.fail("trained again"))
    horizons.main(asked)
    assert (tmp_path / "out" / "logo-2-0.json").stat().st_mtime_ns == before
    assert "| 2 | logo | 1 |" in capsys.readouterr().out
