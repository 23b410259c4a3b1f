"""Benchmarks by name: options, judges and refusals that all have alike, and the bundled samples."""

from pathlib import Path

import dspy
import pytest
from mempiler.data.catalog import BENCHMARKS, benchmark
from mempiler.data.check import check
from mempiler.data.palbench.benchmark import NeedsJudge
from mempiler.errors import UnknownNameError, UserError
from mempiler.signatures.judges import JudgeAcknowledgement, JudgeGenerously, judge_hash, judges_hash

from .forms import FORMS, write


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_of_the_catalog_loads_and_refuses_unknown_options(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"option of {name} 'colour'"):
        benchmark(name, None, colour="blue")


def test_a_benchmark_of_ones_own_is_named_by_module_and_class(tmp_path: Path) -> None:
    path = write(tmp_path, FORMS["jsonl"])
    loaded = benchmark("mempiler.data.jsonl:JsonlBenchmark", path, metric="exact")
    assert (type(loaded).__name__, loaded.scorer.title) == ("JsonlBenchmark", "exact match")


SAMPLES = ("locomo", "longmemeval", "msc", "implexconv", "memoryquest", "movielens", "omnibehavior", "palbench.select")


@pytest.mark.parametrize("name", [*SAMPLES, "membench", "personamem", "personamem-v2"])
def test_a_bundled_sample_is_large_enough_fit_to_load_and_can_be_split(name: str) -> None:
    loaded = benchmark(name)
    assert loaded.source.sample
    assert len(loaded.examples) >= 24
    assert len({loaded.group(example) for example in loaded.examples}) >= 6
    assert all(set(example.focus) <= set(example.history.turns) for example in loaded.examples)
    absent = set(loaded.categories) - {example.category for example in loaded.examples}
    assert absent == ({"acknowledge_latest_user_preferences"} if name == "personamem" else set())
    report = check(name, loaded.source.path)
    assert (report.ok, report.kinds) == (True, {"left out": 2} if name == "personamem-v2" else {})
    split = loaded.split()
    parts = [{loaded.group(example) for example in part} for part in (split.train, split.dev, split.test)]
    assert all(parts)
    assert not parts[0] & (parts[1] | parts[2])


JUDGED: list[tuple[str, str | None, str | None]] = [
    ("locomo", "judge", judge_hash(JudgeGenerously)),
    ("longmemeval", None, judges_hash()),
    ("implexconv", "judge", judge_hash(JudgeAcknowledgement)),
    ("memoryquest", None, judge_hash(JudgeAcknowledgement)),
    ("memoryquest", "evidence", None),
    ("palbench.restate", "g_score", judge_hash(NeedsJudge.signature)),
]
"""Benchmark, metric, and the hash of the prompt that judges, if one does."""


@pytest.mark.parametrize(("name", "metric", "hash"), JUDGED)
def test_what_needs_a_judge_names_its_prompt_and_is_missed_in_one_line(name, metric, hash) -> None:
    found = benchmark(name, **({"metric": metric} if metric else {}))
    assert found.scorer.judge_hash == hash
    if hash:
        with pytest.raises(UserError, match="--judge-lm"):
            found.score(found.examples[0], dspy.Prediction(answer="x"))
