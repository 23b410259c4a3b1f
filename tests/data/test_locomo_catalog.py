"""Benchmarks by name, and the bundled sample of LoCoMo's form."""

import json
from importlib import resources
from pathlib import Path

import pytest
from mempiler.data.catalog import BENCHMARKS, SUITES, benchmark
from mempiler.data.check import check
from mempiler.data.locomo.benchmark import Locomo
from mempiler.errors import DataError, ProgramError, UnknownNameError, UserError

SAMPLE = resources.files("mempiler.data.samples") / "locomo.json"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_of_the_catalog_loads_and_refuses_unknown_options(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"option of {name} 'colour'"):
        benchmark(name, None, colour="blue")


def test_a_benchmark_that_does_not_exist_is_named_with_the_closest_one() -> None:
    with pytest.raises(UnknownNameError, match="unknown benchmark 'locom'; did you mean 'locomo'"):
        benchmark("locom")


def test_a_benchmark_of_ones_own_is_named_by_module_and_class(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(
        json.dumps({"messages": [{"role": "user", "content": "Tea!"}], "question": "What?", "answer": "tea"})
    )
    loaded = benchmark("mempiler.data.jsonl.benchmark:JsonlBenchmark", path, metric="exact")
    assert (type(loaded).__name__, loaded.scorer.title) == ("JsonlBenchmark", "exact match")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("no.such.module:Quiz", UserError, "benchmark 'no.such.module:Quiz': cannot be imported: No module named"),
        ("mempiler.data.jsonl.benchmark:Quiz", UserError, "cannot be imported: module .* has no attribute 'Quiz'"),
        (":Quiz", UserError, "benchmark ':Quiz': cannot be imported"),
        (
            "mempiler.data.jsonl.benchmark:read_jsonl",
            ProgramError,
            "is not a subclass of mempiler.data.benchmark.Benchmark",
        ),
        ("mempiler.data.benchmark:Score", ProgramError, "is not a subclass of mempiler.data.benchmark.Benchmark"),
    ],
)
def test_a_class_that_is_no_benchmark_is_named(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        benchmark(name)


def test_options_reach_the_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    row = {"messages": [{"role": "user", "content": "I like tea."}], "question": "What?", "answer": "tea"}
    path.write_text(json.dumps(row))
    assert benchmark("jsonl", path, metric="exact").scorer.title == "exact match"


def test_your_own_questions_need_a_path() -> None:
    with pytest.raises(DataError, match=r"give the path of a \.jsonl file"):
        benchmark("jsonl")


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the sample is not bundled yet")
def test_locomo_without_a_path_is_the_bundled_sample() -> None:
    loaded = benchmark("locomo")
    assert isinstance(loaded, Locomo)
    assert loaded.source.sample
    assert Path(loaded.source.path).name == "locomo.json"


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the sample is not bundled yet")
def test_the_same_file_given_as_a_path_is_no_sample() -> None:
    with resources.as_file(SAMPLE) as path:
        given, bundled = benchmark("locomo", path).source, benchmark("locomo").source
    assert not given.sample
    assert given.sha256 == bundled.sha256


@pytest.mark.parametrize("name", [*BENCHMARKS, *SUITES])
def test_a_check_is_named_as_its_benchmark(name: str, tmp_path: Path) -> None:
    assert name in (*BENCHMARKS, *SUITES)
    assert check(name, tmp_path / "nowhere").benchmark == name
